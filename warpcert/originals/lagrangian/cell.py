"""One cell of γ, as linear algebra: what x' says about x when γ lies in the cell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.originals.chords import Ranges, affine, corner_taps, corners, family, remainder
from warpcert.originals.interval import values
from warpcert.originals.lagrangian.strips import Strips
from warpcert.originals.protocol import Originals
from warpcert.transforms import SpatialTransform
from warpcert.transforms.kernels import kernel

__all__ = ["Cell", "cells"]


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

    def sums(self, weights: Tensor, d2: Tensor) -> Tensor:
        """The sums of the rows [N] of Σ_a |W_a|ᵀ diag(d2) |W_a| of the matrices with these weights [·,N,K]."""
        size = weights.abs()
        each = (size * (d2 * size.sum(2))[..., None]).sum(0)
        return each.new_zeros(self.pixels).index_add_(0, self.index.flatten(), each.flatten())

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
