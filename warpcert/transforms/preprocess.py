"""P: vignette, Gaussian blur, vignette. Linear and without parameters; it makes small misplacements small errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import torch
from torch import Tensor

from warpcert.transforms import grid

__all__ = ["Preprocess"]


@final
@dataclass(frozen=True, init=False)
class Preprocess:
    """P x = V B V x, with V a 0/1 mask and B a normalised Gaussian blur that sees 0 outside the frame.

    vignette     none, circle (pixels within min(H,W)/2 − margin of the centre) or rectangle (cuts a frame of `margin`)
    margin       in pixels: 1 with a vignette, unless told otherwise
    blur         σ in pixels, kept as `blur_sigma`; 0 means no blur
    blur_size    entries exp(−(i²+j²)/(2σ²)) on size × size pixels, sum 1; by default as many as lie within 2σ

    B is separable, so B x = B_H x B_Wᵀ with two banded matrices: two matrix products for a whole batch. They must
    run in full float32: call it with TF32 matrix products off (torch's default), it refuses otherwise.
    """

    vignette: str
    margin: float
    blur_sigma: float
    blur_size: int

    def __init__(
        self,
        vignette: str = "none",
        margin: float | None = None,
        blur_sigma: float | None = None,
        blur_size: int | None = None,
        *,
        blur: float | None = None,
    ) -> None:
        if vignette not in ("none", "circle", "rectangle"):
            raise ValueError(f"vignette {vignette!r} is not known; choose none, circle or rectangle")
        if blur is not None and blur_sigma is not None:
            raise ValueError(f"blur and blur_sigma are two names of one number; got {blur} and {blur_sigma}")
        margin = (0.0 if vignette == "none" else 1.0) if margin is None else margin
        sigma = next((v for v in (blur, blur_sigma) if v is not None), 0.0)
        if not (math.isfinite(margin) and margin >= 0):
            raise ValueError(f"vignette margin must be a finite number of pixels ≥ 0; got {margin}")
        if not (math.isfinite(sigma) and sigma >= 0):
            raise ValueError(f"the blur's σ must be finite and ≥ 0 (0: no blur); got {sigma}")
        size = 2 * math.ceil(2 * sigma) + 1 if blur_size is None else blur_size
        if size < 1 or size % 2 == 0:
            raise ValueError(f"blur_size must be odd and ≥ 1; got {size}")
        for name, value in (("vignette", vignette), ("margin", margin), ("blur_sigma", sigma), ("blur_size", size)):
            object.__setattr__(self, name, value)

    @property
    def is_identity(self) -> bool:
        return self.vignette == "none" and not self._blurs

    @property
    def _blurs(self) -> bool:
        return self.blur_sigma > 0 and self.blur_size > 1

    def mask(self, height: int, width: int) -> Tensor:
        """V as a bool mask [H,W]."""
        y, x = grid.axes(height, width, torch.zeros(0, dtype=torch.float64))
        if self.vignette == "circle":
            return y.square() + x.square() <= max(0.0, min(height, width) / 2 - self.margin) ** 2
        if self.vignette == "rectangle":
            return (y.abs() <= (height - 1) / 2 - self.margin) & (x.abs() <= (width - 1) / 2 - self.margin)
        return torch.ones(height, width, dtype=torch.bool)

    def band(self, side: int) -> Tensor:
        """The blur along one axis as a banded matrix [side, side], float64."""
        offset = torch.arange(side, dtype=torch.float64)[:, None] - torch.arange(side, dtype=torch.float64)[None, :]
        reach = self.blur_size // 2
        tap = torch.arange(-reach, reach + 1, dtype=torch.float64)
        total = torch.exp(-tap.square() / (2 * self.blur_sigma**2)).sum()
        weight = torch.exp(-offset.square() / (2 * self.blur_sigma**2)) / total
        return torch.where(offset.abs() <= reach, weight, 0)

    def matrix(self, height: int, width: int) -> Tensor:
        """P as a dense matrix [H·W, H·W], float64."""
        mask = self.mask(height, width).flatten().double()
        blur = torch.kron(self.band(height), self.band(width)) if self._blurs else torch.eye(height * width).double()
        return mask[:, None] * blur * mask[None, :]

    def __call__(self, x: Tensor) -> Tensor:
        """P x for x [..., H, W]."""
        if self.is_identity:
            return x
        mask, rows, columns = _constants(self, *x.shape[-2:], x.dtype, x.device)
        x = x * mask
        if self._blurs:
            if x.is_cuda and x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
                raise ValueError("P needs full float32 products: set torch.backends.cuda.matmul.allow_tf32 = False")
            x = rows @ x @ columns * mask
        return x


@lru_cache(maxsize=32)
def _constants(
    p: Preprocess, height: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask and blur matrices on the device, made once: a call must not wait for the device."""
    with torch.inference_mode(False):
        bands = (p.band(height), p.band(width).T) if p._blurs else (torch.eye(height), torch.eye(width))
        mask, rows, columns = (t.contiguous().to(device, dtype) for t in (p.mask(height, width), *bands))
        return mask, rows, columns
