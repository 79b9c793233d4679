"""One cell of γ, as linear algebra: what x' says about x when γ lies in the cell, and what the defender sees of x."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.float32 import inference_slack
from warpcert.originals.chords import Ranges, affine, corner_taps, corners, family, remainder, slopes
from warpcert.originals.interval import values
from warpcert.originals.lagrangian.lens import Lens, lens
from warpcert.originals.lagrangian.strips import Strips
from warpcert.originals.protocol import Originals
from warpcert.transforms import SpatialTransform
from warpcert.transforms.kernels import gather, kernel

__all__ = ["Cell", "View", "boxed", "cells", "view", "viewed"]

CHUNK = 64  # β at once where memory is for taps only


@dataclass(frozen=True)
class Cell:
    """If γ lies in the cell and x' = q(T_γ x), then lower ≤ x ≤ upper and |data − A_t x| ≤ doubt for one t ∈ [−1,1]^d.

    A_t = A₀ + Σ_a t_a A_a. index [N,K] holds the pixels that each attacked pixel reads at any corner; weights
    [1+d, N, K] those of A₀, A_1 …, and at_corners [2^d, N, K] those of A_t at the corners. data, doubt, lower and
    upper [C,N].
    """

    low: Tensor
    high: Tensor
    index: Tensor
    weights: Tensor
    at_corners: Tensor
    data: Tensor
    doubt: Tensor
    lower: Tensor
    upper: Tensor

    def pick(self, number: int) -> Cell:
        """One of the cells that `cells` made."""
        return Cell(*(getattr(self, f)[number] for f in self.__dataclass_fields__))

    @property
    def dim(self) -> int:
        return self.low.shape[-1]

    @property
    def pixels(self) -> int:
        return self.index.shape[-2]

    @property
    def middle(self) -> Tensor:
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Tensor:
        return (self.upper - self.lower) / 2

    def dense(self) -> Tensor:
        """A₀, A_1 … as dense matrices [1+d, N, N]."""
        out = self.weights.new_zeros(1 + self.dim, self.pixels, self.pixels)
        return out.scatter_add_(2, self.index.expand_as(self.weights), self.weights)

    def apply(self, z: Tensor) -> Tensor:
        """A₀z, A_1 z … [1+d, ..., N] for z [..., N]."""
        out = z.new_zeros(1 + self.dim, *z.shape)
        for at, weight in zip(self.index.unbind(1), self.weights.unbind(2), strict=True):
            near = z[..., at]
            for total, w in zip(out, weight, strict=True):
                total.addcmul_(near, w)
        return out

    def adjoint(self, z: Tensor) -> Tensor:
        """A₀ᵀz, A_1ᵀz … [1+d, ..., N] for z [..., N]."""
        out = z.new_zeros(1 + self.dim, *z.shape)
        for at, weight in zip(self.index.unbind(1), self.weights.unbind(2), strict=True):
            for total, w in zip(out, weight, strict=True):
                total.index_add_(-1, at, z * w)
        return out

    @property
    def span(self) -> int:
        """How far apart the numbers of pixels are, at most, that one row of the family's matrices reads."""
        used = (self.weights != 0).any(0)
        last = torch.where(used, self.index, 0).amax(1)
        first = torch.where(used, self.index, self.pixels).amin(1)
        return max(0, int((last - first).max()))

    def square(self, weights: Tensor, d2: Tensor, strip: int = 0) -> Strips:
        """Σ_a W_aᵀ diag(d2) W_a of the matrices with these weights [·,N,K], in strips of at least so many pixels."""
        pairs = torch.einsum("anj,ank,n->njk", weights, weights, d2)
        row, column = (t.expand_as(pairs).flatten() for t in (self.index[:, :, None], self.index[:, None, :]))
        return Strips.of(row, column, pairs.flatten(), self.pixels, max(strip, self.span))


def cells(originals: Originals) -> Cell:
    """The `Cell`s of all survivors at once, every field with a leading k: data of x' [C,H,W], with the remainder of the
    chord in the doubt.
    """
    threat = originals.threat
    transform = threat.transform
    assert isinstance(transform, SpatialTransform)
    k = kernel(threat.interpolation)
    x = originals.x_attacked.double()
    low, high, lower, upper = (t.to(x) for t in (originals.low, originals.high, originals.lower, originals.upper))
    index, weight = corner_taps(transform, corners(low, high), x.shape[1], x.shape[2], k)  # [k, 2^d, N, 4]
    index, weight = family(index, weight)
    extent = max(map(abs, (*threat.box.lower, *threat.box.upper)))
    value = values(x, threat, transform, extent)
    count = len(low)
    rest = remainder(transform, k, low, high, Ranges.of(lower, upper, k), torch.arange(count, device=x.device))
    data, half = (value.low + value.high) / 2, (value.high - value.low) / 2
    return Cell(
        low, high, index, affine(weight, low.shape[1]), weight, data.expand(count, -1, -1),
        half * (1 + 1e-12) + rest, lower.flatten(2), upper.flatten(2),
    )  # fmt: skip


@dataclass(frozen=True)
class View:
    """P T_θ x = C_t x + Pϱ, |Pϱ| ≤ rest, for θ = β + γ, γ in the cell: b values of β, v pixels inside the vignette.

    C_t = C₀ + Σ t_a C_a, C₀ the mean of the corners' matrices and C_a half the difference of its faces' means. index,
    weight [b, 2^d, v, K]: taps of T at the corners. eye: P. rest [b, C, v]. The matrix C_c of a corner itself
    differs from C_t there (two parameters) by a mixed difference whose absolute row sums are at most `mixed`.
    """

    index: Tensor
    weight: Tensor
    eye: Lens
    rest: Tensor
    pixels: int
    dim: int
    mixed: float

    def apply(self, z: Tensor) -> Tensor:
        """C₀ z, C_1 z … [b, 1+d, F, v] for images z [F,N]."""
        seen = (z[:, self.index] * self.weight).sum(-1)  # [F, b, 2^d, v]
        return self.eye.blurred(affine(seen.permute(1, 2, 0, 3), self.dim))

    def adjoint(self, z: Tensor) -> Tensor:
        """C₀ᵀz, C_1ᵀz … [b, 1+d, F, N] for z [b, F, v]."""
        count, corners_ = self.index.shape[:2]
        pulled = self.eye.blurred(z)[:, None, :, :, None] * self.weight[:, :, None]  # [b, 2^d, F, v, K]
        place = self.index[:, :, None].expand_as(pulled).flatten(3)
        out = z.new_zeros(count, corners_, z.shape[1], self.pixels).scatter_add_(3, place, pulled.flatten(3))
        return affine(out, self.dim)

    def ahead(self, z: Tensor) -> Tensor:
        """C₀ z [b, v, q] for z [b, N, q]."""
        out = z.new_zeros(*self.index.shape[::2], z.shape[2])
        each = torch.arange(len(z), device=z.device)[:, None]
        for at, weight in self._taps():
            out.addcmul_(z[each, at], weight[..., None] / self.index.shape[1])
        return self.eye.blurred(out.mT).mT

    def behind(self, z: Tensor) -> Tensor:
        """C₀ᵀz [b, N, q] for z [b, v, q]."""
        seen = self.eye.blurred(z.mT).mT / self.index.shape[1]
        out = z.new_zeros(len(z) * self.pixels, z.shape[2])
        first = torch.arange(len(z), device=z.device)[:, None] * self.pixels
        for at, weight in self._taps():
            out.index_add_(0, (first + at).flatten(), (seen * weight[..., None]).flatten(0, 1))
        return out.reshape(len(z), self.pixels, -1)

    def _taps(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Index and weight [b, v] of every tap at every corner."""
        index, weight = (t.transpose(1, 2).flatten(2).unbind(2) for t in (self.index, self.weight))
        return zip(index, weight, strict=True)

    def center(self) -> Tensor:
        """C₀ [b, v, N]."""
        index, weight = (t.transpose(1, 2).flatten(2) for t in (self.index, self.weight / self.index.shape[1]))
        return self.eye.blur @ weight.new_zeros(*index.shape[:2], self.pixels).scatter_add_(2, index, weight)

    def dense(self) -> Tensor:
        """C₀, C_1 … [b, 1+d, v, N]."""
        flat = self.weight.new_zeros(*self.index.shape[:3], self.pixels).scatter_add_(3, self.index, self.weight)
        return self.eye.blur @ affine(flat, self.dim)

    def spread(self, z: Tensor) -> Tensor:
        """|C_t| z ≤ this [b, F, v] for all t and z ≥ 0 [F,N]: the largest over the corners, as C_t is a mean of the
        family's members there, plus what these differ by from the corners' own matrices.
        """
        seen = (z[:, self.index] * self.weight.abs()).sum(-1)
        return self.eye.blurred(seen.amax(2).movedim(0, 1) + self.mixed * z.amax(1)[:, None])


def view(c: Cell, shape: torch.Size, defence: Defence, beta: Tensor) -> View:
    """The `View` of β [b,d] on a cell, for images of this shape [C,H,W]."""
    height, width = shape[1:]
    eye = lens(defence, height, width, beta.device)
    low, high = c.low + beta, c.high + beta
    index, weight = corner_taps(eye.transform, corners(low, high), height, width, eye.kernel)
    mixed = slopes(eye.kernel)[2]
    # A quarter of the mixed difference of k(s_y)k(s_x): ½Σ|Δk| ≤ ½wS₁ along each axis, and `mixed` is ½S₁².
    corner = float((c.high - c.low).prod()) / 4 * 2 * mixed * (1 + 1e-9) if c.dim > 1 else 0.0
    ranges = Ranges.of(c.lower.reshape(1, *shape), c.upper.reshape(1, *shape), eye.kernel)
    which = torch.zeros(len(beta), dtype=torch.long, device=beta.device)
    rest = eye.blurred(remainder(eye.transform, eye.kernel, low, high, ranges, which)[..., eye.mask])
    taps = index[:, :, eye.mask], weight[:, :, eye.mask]
    return View(*taps, eye, rest, height * width, c.dim, corner)


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
