"""What the defender sees of an original, for γ in one cell: P T_{β+γ} as an affine family of matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.float32 import inference_slack
from warpcert.originals.chords import Ranges, affine, corner_taps, corners, remainder, slopes
from warpcert.originals.lagrangian.cell import Cell
from warpcert.originals.lagrangian.lens import Lens, lens
from warpcert.originals.protocol import Originals
from warpcert.transforms import Shift, SpatialTransform
from warpcert.transforms.kernels import gather, kernel

__all__ = ["View", "boxed", "view", "viewed"]

CHUNK = 64  # β at once where memory is for taps only


@dataclass(frozen=True, kw_only=True)
class View(ABC):
    """P T_θ x = C_t x + Pϱ, |Pϱ| ≤ rest, for θ = β + γ, γ in the cell: b values of β, v pixels inside the vignette.

    C_t = C₀ + Σ t_a C_a, C₀ the mean of the corners' matrices and C_a half the difference of its faces' means.
    eye: P. rest [b, C, v]. The matrix C_c of a corner itself differs from C_t there (two parameters) by a mixed
    difference whose absolute row sums are at most `mixed`.
    """

    eye: Lens
    rest: Tensor
    mixed: float

    @property
    def pixels(self) -> int:
        return self.eye.height * self.eye.width

    @property
    def seen(self) -> int:
        """v."""
        return self.rest.shape[2]

    def apply(self, z: Tensor) -> Tensor:
        """C₀ z, C_1 z … [b, 1+d, F, v] for images z [F,N]."""
        return self.eye.blurred(self._moved(z))

    def adjoint(self, z: Tensor) -> Tensor:
        """C₀ᵀz, C_1ᵀz … [b, 1+d, F, N] for z [b, F, v]."""
        return self._pulled(self.eye.blurred(z))

    def ahead(self, z: Tensor) -> Tensor:
        """C₀ z [b, v, q] for z [b, N, q]."""
        return self.eye.blurred(self._mean(z)).mT

    def behind(self, z: Tensor) -> Tensor:
        """C₀ᵀz [b, N, q] for z [b, v, q]."""
        return self._mean_back(self.eye.blurred(z.mT))

    def dense(self) -> Tensor:
        """C₀, C_1 … [b, 1+d, v, N]."""
        each = torch.eye(self.pixels, dtype=self.rest.dtype, device=self.rest.device)
        return self.apply(each).mT

    def spread(self, z: Tensor) -> Tensor:
        """|C_t| z ≤ this [b, F, v] for all t and z ≥ 0 [F,N]: the largest over the corners, as C_t is a mean of the
        family's members there, plus what these differ by from the corners' own matrices.
        """
        return self.eye.blurred(self._largest(z) + self.mixed * z.amax(1)[:, None])

    @abstractmethod
    def _moved(self, z: Tensor) -> Tensor:
        """As `apply`, without P."""

    @abstractmethod
    def _pulled(self, z: Tensor) -> Tensor:
        """As `adjoint`, without P."""

    @abstractmethod
    def _mean(self, z: Tensor) -> Tensor:
        """T₀ z, without P, [b, q, v] for z [b, N, q]."""

    @abstractmethod
    def _mean_back(self, z: Tensor) -> Tensor:
        """T₀ᵀz, without P, [b, N, q] for z [b, q, v]."""

    @abstractmethod
    def _largest(self, z: Tensor) -> Tensor:
        """The largest |T_c| z [b, F, v] over the corners c."""


@final
@dataclass(frozen=True, kw_only=True)
class Gathered(View):
    """By the pixels that every pixel reads. index, weight [b, 2^d, v, K]: taps of T at the corners."""

    index: Tensor
    weight: Tensor
    dim: int

    def _moved(self, z: Tensor) -> Tensor:
        seen = (z[:, self.index] * self.weight).sum(-1)  # [F, b, 2^d, v]
        return affine(seen.permute(1, 2, 0, 3), self.dim)

    def _pulled(self, z: Tensor) -> Tensor:
        count, ends = self.index.shape[:2]
        each = z[:, None, :, :, None] * self.weight[:, :, None]  # [b, 2^d, F, v, K]
        place = self.index[:, :, None].expand_as(each).flatten(3)
        out = z.new_zeros(count, ends, z.shape[1], self.pixels).scatter_add_(3, place, each.flatten(3))
        return affine(out, self.dim)

    def _mean(self, z: Tensor) -> Tensor:
        out = z.new_zeros(*self.index.shape[::2], z.shape[2])
        each = torch.arange(len(z), device=z.device)[:, None]
        for at, weight in self._taps():
            out.addcmul_(z[each, at], weight[..., None] / self.index.shape[1])
        return out.mT

    def _mean_back(self, z: Tensor) -> Tensor:
        seen = z.mT / self.index.shape[1]
        out = z.new_zeros(len(z) * self.pixels, seen.shape[2])
        first = torch.arange(len(z), device=z.device)[:, None] * self.pixels
        for at, weight in self._taps():
            out.index_add_(0, (first + at).flatten(), (seen * weight[..., None]).flatten(0, 1))
        return out.reshape(len(z), self.pixels, -1)

    def _largest(self, z: Tensor) -> Tensor:
        return (z[:, self.index] * self.weight.abs()).sum(-1).amax(2).movedim(0, 1)

    def _taps(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Index and weight [b, v] of every tap at every corner."""
        index, weight = (t.transpose(1, 2).flatten(2).unbind(2) for t in (self.index, self.weight))
        return zip(index, weight, strict=True)


@final
@dataclass(frozen=True, kw_only=True)
class Shifted(View):
    """A shift moves rows and columns apart: T = R ⊗ K, small matrices. rows [b,2,h,H] and columns [b,2,w,W] at both
    ends of their axes, for the h rows and w columns that the vignette touches.

    With means R₀, K₀ of both ends and half their differences R₁, K₁: T₀ = R₀⊗K₀, and along the first axis (to the
    right) T_1 = R₀⊗K₁, along the second T_2 = R₁⊗K₀, as the corners are all four pairs of ends.
    """

    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, eye: Lens, low: Tensor, high: Tensor, rest: Tensor, mixed: float) -> Shifted:
        y, x = _lines(eye)
        rows, columns = (torch.stack([eye.line(end, axis) for end in (low, high)], 1) for axis in (0, 1))
        return cls(eye=eye, rest=rest, mixed=mixed, rows=rows[:, :, y], columns=columns[:, :, x])

    def _moved(self, z: Tensor) -> Tensor:
        (r, dr), (k, dk) = (affine(t, 1).unbind(1) for t in (self.rows, self.columns))
        picture = z.reshape(-1, self.eye.height, self.eye.width)
        mean = r[:, None] @ picture  # [b,F,h,W]
        k = k[:, None].mT
        return self._inside(torch.stack((mean @ k, mean @ dk[:, None].mT, dr[:, None] @ picture @ k), 1))

    def _pulled(self, z: Tensor) -> Tensor:
        (r, dr), (k, dk) = (affine(t, 1).unbind(1) for t in (self.rows, self.columns))
        frame, k = self._frame(z), k[:, None]
        mean = r[:, None].mT @ frame
        return torch.stack((mean @ k, mean @ dk[:, None], dr[:, None].mT @ frame @ k), 1).flatten(3)

    def _mean(self, z: Tensor) -> Tensor:
        r, k = self.rows.mean(1, keepdim=True), self.columns.mean(1, keepdim=True)
        return self._inside(r @ z.mT.reshape(len(z), -1, self.eye.height, self.eye.width) @ k.mT)

    def _mean_back(self, z: Tensor) -> Tensor:
        r, k = self.rows.mean(1, keepdim=True), self.columns.mean(1, keepdim=True)
        return (r.mT @ self._frame(z) @ k).flatten(2).mT

    def _largest(self, z: Tensor) -> Tensor:
        picture = z.reshape(-1, self.eye.height, self.eye.width)
        seen = self.rows.abs()[:, :, None] @ picture  # [b,2,F,h,W]
        both = seen[:, :, None] @ self.columns.abs()[:, None, :, None].mT  # [b,2,2,F,h,w]
        return self._inside(both.flatten(1, 2).amax(1))

    @property
    def _within(self) -> Tensor:
        """[h·w] bool: where the vignette lets through."""
        y, x = _lines(self.eye)
        return self.eye.mask.reshape(self.eye.height, self.eye.width)[y][:, x].flatten()

    def _inside(self, z: Tensor) -> Tensor:
        within = self._within
        return z.flatten(-2) if bool(within.all()) else z.flatten(-2)[..., within]

    def _frame(self, z: Tensor) -> Tensor:
        within, size = self._within, (self.rows.shape[2], self.columns.shape[2])
        if bool(within.all()):
            return z.reshape(*z.shape[:-1], *size)
        out = z.new_zeros(*z.shape[:-1], len(within))
        out[..., within] = z
        return out.reshape(*z.shape[:-1], *size)


def _lines(eye: Lens) -> tuple[Tensor, Tensor]:
    """The rows and columns that the vignette touches."""
    mask = eye.mask.reshape(eye.height, eye.width)
    return mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]


def view(c: Cell, shape: torch.Size, defence: Defence, beta: Tensor) -> View:
    """The `View` of β [b,d] on a cell, for images of this shape [C,H,W]."""
    height, width = shape[1:]
    eye = lens(defence, height, width, beta.device)
    low, high = c.low + beta, c.high + beta
    mixed = slopes(eye.kernel)[2]
    # A quarter of the mixed difference of k(s_y)k(s_x): ½Σ|Δk| ≤ ½wS₁ along each axis, and `mixed` is ½S₁².
    corner = float((c.high - c.low).prod()) / 4 * 2 * mixed * (1 + 1e-9) if c.dim > 1 else 0.0
    ranges = Ranges.of(c.lower.reshape(1, *shape), c.upper.reshape(1, *shape), eye.kernel)
    which = torch.zeros(len(beta), dtype=torch.long, device=beta.device)
    rest = eye.blurred(remainder(eye.transform, eye.kernel, low, high, ranges, which)[..., eye.mask])
    if isinstance(eye.transform, Shift):
        return Shifted.of(eye, low, high, rest, corner)
    index, weight = (
        t[:, :, eye.mask] for t in corner_taps(eye.transform, corners(low, high), height, width, eye.kernel)
    )
    return Gathered(eye=eye, rest=rest, mixed=corner, index=index, weight=weight, dim=c.dim)


def viewed(originals: Originals, defence: Defence, beta: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """x' and β in float64 on the device of x', P T_β x' inside the vignette [n,C,v], and what the float32
    evaluations of P T_β at inference add to every error (`inference_slack`, for x' and for x).
    """
    x_attacked, threat = originals.x_attacked, originals.threat
    if threat.transform != defence.transform:
        raise ValueError(
            f"attacker ({threat.transform.name}) and defender ({defence.transform.name}) must share a transformation"
        )
    if not any(defence.sigma_param):
        raise ValueError("an inverse needs a defender with parameter noise; got sigma_param of zeros")
    if x_attacked.dim() != 3 or beta.dim() != 2 or beta.shape[1] != threat.transform.dim or not len(beta):
        raise ValueError(
            f"an inverse takes x' [C,H,W] and beta [n,{threat.transform.dim}], n ≥ 1; "
            f"got {list(x_attacked.shape)} and {list(beta.shape)}"
        )
    x = x_attacked.double()
    beta = beta.to(x)
    if not bool(beta.isfinite().all()):
        raise ValueError("beta must be finite; got others")
    channels, height, width = x.shape
    mask = defence.preprocess.mask(height, width).flatten().to(x.device)
    if not bool(mask.any()):
        raise ValueError(f"the vignette leaves no pixel of an image of {height}×{width}; choose a smaller margin")
    assert isinstance(defence.transform, SpatialTransform)
    k = kernel(defence.interpolation)
    parts = [
        defence.preprocess(gather(x, *defence.transform.coordinates(some, height, width), k)).flatten(2)[..., mask]
        for some in torch.split(beta, CHUNK)
    ]
    extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
    return x, beta, torch.cat(parts), 2 * inference_slack(defence, height, width, channels, extent)


def boxed(c: Cell, shape: torch.Size, defence: Defence, beta: Tensor, seen: Tensor) -> Tensor:
    """[b]: sup ‖P T_β x' − P T_{β+γ} x‖₂ over γ in the cell and x in the boxes alone: |u − C_t x| ≤ |u − C₀m| +
    Σ_a |C_a m| + max_c |C_c| s per pixel, m ± s the boxes. Sharp where they are narrow, near γ = 0.
    """
    out = []
    for some, u in zip(torch.split(beta, CHUNK), torch.split(seen, CHUNK), strict=True):
        v = view(c, shape, defence, some)
        middle = v.apply((c.lower + c.upper) / 2)  # [b, 1+d, C, v]
        size = (u - middle[:, 0]).abs() + middle[:, 1:].abs().sum(1) + v.spread((c.upper - c.lower) / 2) + v.rest
        out.append(size.flatten(1).norm(dim=1))
    return torch.cat(out) * (1 + 1e-10) + 1e-10
