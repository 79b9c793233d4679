"""P: vignette, Gaussian blur, vignette, perhaps of the picture at half its size. Linear and without parameters; it
makes small misplacements small errors. Of sounds: a limiter, behind which nobody hears what was clipped.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, TypedDict, Unpack, final

import torch
from torch import Tensor

from warpcert.transforms import grid

__all__ = ["Preprocess", "halving"]


class _Rare(TypedDict, total=False):
    halved: bool
    limit: float | None


@final
@dataclass(frozen=True, init=False)
class Preprocess:
    """P x = V B V x, with V a 0/1 mask and B a normalised Gaussian blur that sees 0 outside the frame.

    vignette     none, circle (pixels within min(H,W)/2 − margin of the centre) or rectangle (cuts a frame of `margin`)
    margin       in pixels: 1 with a vignette, unless told otherwise
    blur         σ in pixels, kept as `blur_sigma`; 0 means no blur
    blur_size    entries exp(−(i²+j²)/(2σ²)) on size × size pixels, sum 1; by default as many as lie within 2σ

    halved       P x = V B V R x, R the reduction to half the size: means with weights (1 3 3 1)/8 along each axis, as
                 image libraries do it with antialiasing (outside the frame is 0). T then acts on twice as many pixels
                 along each axis as the network sees, where it does far less harm. `reads` says which pixels count
    limit        of sounds, in place of all the others: P x = L x, values below −limit and above limit become these; a
                 float32, so that all precisions agree. L increases no difference of two values

    B is separable, so B x = B_H x B_Wᵀ with two banded matrices: two matrix products for a whole batch. They must
    run in full float32: call it with TF32 matrix products off (torch's default), it refuses otherwise.
    """

    vignette: str
    margin: float
    blur_sigma: float
    blur_size: int
    halved: bool = False
    limit: float | None = None

    def __init__(
        self,
        vignette: str = "none",
        margin: float | None = None,
        blur_sigma: float | None = None,
        blur_size: int | None = None,
        *,
        blur: float | None = None,
        **rare: Unpack[_Rare],
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
        if size < 1 or size % 2 != 1:
            raise ValueError(f"blur_size must be odd and ≥ 1; got {size}")
        sizes = {"blur_sigma": sigma, "blur_size": int(size)}
        for name, value in {"vignette": vignette, "margin": margin, **sizes}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "halved", bool(rare.get("halved", False)))
        limit = rare.get("limit")
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise ValueError(f"a limiter's limit must be finite and positive; got {limit}")
        if limit is not None and not self.is_identity:
            raise ValueError("a limiter is for sounds, which have no vignette, no blur and no half size: leave these")
        object.__setattr__(self, "limit", None if limit is None else float(torch.tensor(limit, dtype=torch.float32)))

    def to_dict(self) -> dict[str, Any]:
        """For `Preprocess(**d)`; `halved` and `limit` only where they are, as in most they are not."""
        return {name: value for name, value in asdict(self).items() if name not in ("halved", "limit") or value}

    @property
    def is_identity(self) -> bool:
        return self.vignette == "none" and not self._blurs and not self.halved and self.limit is None

    @property
    def linear(self) -> Preprocess:
        """P without its limiter: ‖P a − P b‖ is at most the norm of what this makes of a − b."""
        return self if self.limit is None else Preprocess()

    @property
    def _blurs(self) -> bool:
        return self.blur_sigma > 0 and self.blur_size > 1

    def mask(self, height: int, width: int) -> Tensor:
        """V as a bool mask [H,W], of the pixels that P reads and returns; a ValueError where these are not the same."""
        if self.halved:
            raise ValueError("this analysis does not know pictures that are reduced to half their size (halved)")
        return self._mask(height, width)

    def reads(self, height: int, width: int) -> Tensor:
        """The pixels of a picture [H,W] that P reads, a bool mask."""
        if not self.halved:
            return self._mask(height, width)
        rows, columns = halving(height), halving(width)
        return (rows.T @ self.returns(height, width).double() @ columns) > 0

    def returns(self, height: int, width: int) -> Tensor:
        """The pixels that P returns of a picture [H,W], a bool mask of P's own size."""
        return self._mask(*((height // 2, width // 2) if self.halved else (height, width)))

    def _mask(self, height: int, width: int) -> Tensor:
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
        """P as a dense matrix [·, H·W], float64."""
        first = torch.kron(halving(height), halving(width)) if self.halved else None
        height, width = (height // 2, width // 2) if self.halved else (height, width)
        mask = self._mask(height, width).flatten().double()
        blur = torch.kron(self.band(height), self.band(width)) if self._blurs else torch.eye(height * width).double()
        p = mask[:, None] * blur * mask[None, :]
        return p if first is None else p @ first

    def __call__(self, x: Tensor) -> Tensor:
        """P x for x [..., H, W]: of the same size, or half of it."""
        if self.limit is not None:
            return x.clamp(-self.limit, self.limit)
        if self.is_identity:
            return x
        if x.is_cuda and x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 and self.halved:
            raise ValueError("P needs full float32 products: set torch.backends.cuda.matmul.allow_tf32 = False")
        if self.halved:
            down, across = _halving(*x.shape[-2:], x.dtype, x.device)
            x = down @ x @ across
        mask, rows, columns = _constants(self, *x.shape[-2:], x.dtype, x.device)
        x = x * mask
        if self._blurs:
            if x.is_cuda and x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
                raise ValueError("P needs full float32 products: set torch.backends.cuda.matmul.allow_tf32 = False")
            x = rows @ x @ columns * mask
        return x

    def difference(self, a: Tensor, b: Tensor) -> Tensor:
        """P a − P b: P (a − b), except behind a limiter."""
        return self(a - b) if self.limit is None else self(a) - self(b)


@lru_cache(maxsize=32)
def _constants(
    p: Preprocess, height: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask and blur matrices on the device, made once: a call must not wait for the device."""
    with torch.inference_mode(False):
        bands = (p.band(height), p.band(width).T) if p._blurs else (torch.eye(height), torch.eye(width))
        mask, rows, columns = (t.contiguous().to(device, dtype) for t in (p._mask(height, width), *bands))
        return mask, rows, columns


def halving(side: int) -> Tensor:
    """R along one axis [side/2, side], float64: weights (1 3 3 1)/8 of four neighbours, of as many as there are."""
    if side % 2:
        raise ValueError(f"pictures that are halved have an even number of rows and columns; got {side}")
    offset = torch.arange(side)[None, :] - 2 * torch.arange(side // 2)[:, None]
    weight = torch.tensor([0.125, 0.375, 0.375, 0.125], dtype=torch.float64)
    return torch.where((offset >= -1) & (offset <= 2), weight[(offset + 1).clamp(0, 3)], 0)


@lru_cache(maxsize=32)
def _halving(height: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):
        return halving(height).to(device, dtype), halving(width).T.contiguous().to(device, dtype)
