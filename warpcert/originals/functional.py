"""The linear-functional inverse: the row-wise bound, simple and looser, a cross-check of the Lagrangian one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.originals.lagrangian.cell import Cell, cells
from warpcert.originals.lagrangian.view import View, view, viewed
from warpcert.originals.protocol import InverseBound, Originals
from warpcert.originals.search import search_originals
from warpcert.threat import Threat

__all__ = ["Functional"]

SLACK = 1e-10  # of float64 sums of at most 10⁴ terms of size 1


@final
@dataclass(frozen=True)
class Functional(InverseBound):
    """Rotation and translation, bilinear attacker, any defender's interpolation that does not jump.

    motion: px that a cell of γ moves the farthest pixel; refinements: of the boxes; memory: bytes for the products.
    """

    motion: float = 0.005
    refinements: int = 5
    memory: int = 2**31
    name: ClassVar[str] = "functional"

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        return search_originals(x_attacked, threat, self.motion, self.refinements)

    def errors(
        self,
        originals: Originals,
        defence: Defence,
        beta: Tensor,
        *,
        enough: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        x, beta, seen, slack = viewed(originals, defence, beta)
        batch = cells(originals)
        result = beta.new_zeros(len(beta), len(originals.low))
        size = max(1, self.memory // (8 * 6 * seen.shape[2] * x.shape[1] * x.shape[2]))
        for k in range(len(originals.low)):
            c = batch.pick(k)
            known = estimator(c)
            parts = zip(torch.split(beta, size), torch.split(seen, size), strict=True)
            bounds = [functional_bound(c, known, view(c, x.shape, defence, some), u) for some, u in parts]
            result[:, k] = torch.cat(bounds) + slack
            if progress is not None:
                progress(k + 1, len(originals.low))
        return result


def estimator(c: Cell) -> Tensor:
    """K [N,N] such that K x' is near x; its quality matters, its correctness does not.

    With s the spread of x and n that of the data it is the best linear estimate, (S⁻² + A₀ᵀN⁻²A₀)⁻¹A₀ᵀN⁻².
    """
    s2 = ((c.upper - c.lower) / 2).square().mean(0).clamp_min(1e-8)
    motion = (c.weights[1:] * c.middle.mean(0)[c.index]).sum(2).square().sum(0)
    n2 = (c.doubt.square().mean(0) + motion).clamp_min(1e-8)
    matrix = c.dense()[0]
    weighted = matrix / n2[:, None]
    information = torch.diag(1 / s2) + c.square(c.weights[:1], 1 / n2).dense()
    return torch.cholesky_solve(weighted.mT.contiguous(), torch.linalg.cholesky(information))


def functional_bound(c: Cell, estimate: Tensor, v: View, u: Tensor) -> Tensor:
    """[b]: sup ‖P T_β x' − P T_{β+γ} x‖₂ over γ in the cell and x consistent with x', u = P T_β x' [b,C,v].

    With d = data, A_t x = d + n, |n| ≤ doubt, and any K, R = C₀(I − KA₀):

        C_t x = C₀K A₀x + R x + Σ t_a C_a x,   A₀x = d + n − Σ t_a A_a x,

    so per pixel |u − C_t x| ≤ |u − C₀K d − R m| + |R| s + |C₀K|(doubt + Σ|A_a x|) + Σ|C_a x| for x = m ± s, where
    |A_a x| ≤ |A_a m| + |A_a| s, and likewise C_a. `rest` is what the chord of the defender's T leaves.
    """
    middle, half = c.middle, c.half
    moved = (c.weights[1:, None] * middle[:, c.index]).sum(-1).abs() + (
        c.weights[1:, None].abs() * half[:, c.index]
    ).sum(-1)
    noise = c.doubt + moved.sum(0)  # [C,N]
    dense = v.dense()  # [b, 1+d, v, N]
    through = dense[:, 0] @ estimate  # C₀K
    rest = dense[:, 0] - through @ c.dense()[0]
    along = (dense[:, 1:] @ middle.mT).abs().sum(1) + (dense[:, 1:].abs() @ half.mT).sum(1)  # [b, v, C]
    center = u.mT - through @ c.data.mT - rest @ middle.mT
    size = center.abs() + rest.abs() @ half.mT + through.abs() @ noise.mT + along + v.rest.mT
    slack = SLACK * (1 + through.abs().sum(2, keepdim=True))
    norms: Tensor = torch.linalg.vector_norm((size + slack).flatten(1), dim=1)
    return norms * (1 + SLACK)
