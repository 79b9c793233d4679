"""Multipliers of the Lagrangian inverse: a metric on originals in which a cell's consistent set is small, and λ, how
much of it the defender can see.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.bounds.inverse_cell import Cell, View

__all__ = ["Metric", "positive", "proved_lambda", "tuned"]

UNIT = 2.0**-53
BLOCK = 128  # of the batched factorisation on a GPU
RITZ = 16  # directions followed while tuning
FIRST_POWER = 3  # how sharply the first step looks at the largest eigenvalues; one more in each
RATE = 0.25  # of the multiplicative steps
STEP = 1.04  # λ is raised by this factor until it is proved


@dataclass(frozen=True)
class Metric:
    """Diagonals d1, d2 > 0 [N]: H_t = D₁ + A_tᵀD₂A_t. `start` is a guess of λ; quality only."""

    d1: Tensor
    d2: Tensor
    start: float

    def center(self, c: Cell) -> Tensor:
        """H₀ [N,N]."""
        return torch.diag(self.d1) + c.square(c.weights[:1], self.d2)

    def lowered(self, c: Cell, corner: int) -> Tensor:
        """H̃_c = H_c − Σ_a A_aᵀD₂A_a [N,N] at a corner.

        A_t = Σ_c w_c A_c with the weights w_c(t) ≥ 0 of independent signs with means t_a, and Σ_c w_c A_cᵀD₂A_c is
        A_tᵀD₂A_t plus the variance Σ_a (1 − t_a²) A_aᵀD₂A_a. Hence H_t ⪰ Σ_c w_c H̃_c.
        """
        own = c.square(c.at_corners[corner : corner + 1], self.d2)
        return torch.diag(self.d1) + own - c.square(c.weights[1:], self.d2)


def positive(q: Tensor) -> Tensor:
    """[b] bool: True only if the symmetric matrices q [b,N,N] can be factored, that is q + E ⪰ 0 for a symmetric E with
    ‖E‖₂ ≤ 8(N+2)u·tr q (Cholesky's backward error is at most (N+1)u |L||Lᵀ|, whose norm is at most ‖L‖_F² ≈ tr q; the
    factor 8 is for blocked sums).
    """
    if not q.is_cuda or q.shape[0] == 1:
        plain: Tensor = torch.linalg.cholesky_ex(q).info == 0
        return plain
    q, size = q.clone(), q.shape[1]
    good = torch.ones(q.shape[0], dtype=torch.bool, device=q.device)
    for at in range(0, size, BLOCK):
        to = min(at + BLOCK, size)
        pivot, info = torch.linalg.cholesky_ex(q[:, at:to, at:to])
        good &= info == 0
        if to < size:
            panel = torch.linalg.solve_triangular(pivot, q[:, to:, at:to].mT, upper=False)
            q[:, to:, to:].baddbmm_(panel.mT, panel, alpha=-1)
    return good


def proved_lambda(c: Cell, metric: Metric, view: View, tries: int = 60) -> Tensor:
    """λ [b] with ‖C_t e‖² ≤ λ eᵀH_t e for every e and every t; inf where none was proved.

    It is proved at the corners: λH̃_c ⪰ C_cᵀC_c. Then H̃_c ⪰ 0, and with H_t ⪰ Σ w_c H̃_c (`lowered`) and the convexity
    of the square, ‖C_t e‖² ≤ Σ w_c ‖C_c e‖² ≤ λ Σ w_c eᵀH̃_c e ≤ λ eᵀH_t e.

    *Rounding.* Q = λH̃ − CᵀC is computed with an error below 64u(λ‖D‖ + 16) per entry and row of few entries, plus
    8Nu for the sums of CᵀC, whose absolute row sums are below 16; the factorisation errs by 8(N+2)u·tr Q. All of that
    is taken off the diagonal first.
    """
    lowered = [metric.lowered(c, corner) for corner in range(2**c.dim)]
    size = c.pixels
    largest = float(metric.d1.max() + 16 * metric.d2.max())
    result = torch.full((len(view.index),), metric.start, dtype=torch.float64, device=metric.d1.device)
    for corner, h in enumerate(lowered):
        gram = view.gram(corner)
        left = torch.arange(len(result), device=result.device)
        for _ in range(tries):
            value = result[left]
            q = value[:, None, None] * h - gram[left]
            trace = q.diagonal(dim1=1, dim2=2).abs().sum(1)
            shift = UNIT * (8 * (size + 2) * trace + 64 * size * value * largest + 1024 * size)
            q.diagonal(dim1=1, dim2=2).sub_(shift[:, None])
            left = left[~positive(q)]
            if not left.numel():
                break
            result[left] *= STEP
        result[left] = torch.inf
    return result


def tuned(c: Cell, view: View, steps: int) -> Metric:
    """Multipliers that make λ·(Σd₁s² + Σd₂δ²) small for all β of `view` together; quality only, any would be sound.

    The gradient of log λ in log d₁ is −d₁X_jj and in log d₂ −d₂(A₀XA₀ᵀ − Σ A_aXA_aᵀ)_ii, X the (softened, normalised)
    projector on the largest eigenvectors; at the optimum X_jj ∝ s_j². The steps are multiplicative, the eigenvectors
    are followed by subspace iteration, and the best multipliers seen are kept.
    """
    s2 = c.half.square().mean(0).clamp_min(1e-8)
    n2 = c.doubt.square().mean(0).clamp_min(1e-8)
    d1, d2 = 1 / s2, 1 / n2
    d1 = torch.maximum(d1, c.square(c.weights[1:], d2).abs().sum(1))  # then H̃ ⪰ 0 by diagonal dominance
    seen = view.dense()[:, 0]  # [r, v, N]
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(len(seen), seen.shape[1], RITZ, generator=generator, dtype=torch.float64).to(d1)
    best, total = Metric(d1, d2, 1.0), torch.inf
    floor1, floor2 = 1e-3 / s2.max(), 1e-3 / n2.max()
    for step in range(steps + 1):
        h = Metric(d1, d2, 1.0).center(c) - c.square(c.weights[1:], d2)
        factor, info = torch.linalg.cholesky_ex(h)
        if int(info):
            d1 = d1 * 2
            continue
        value, pulled, some = _ritz(seen, factor, some, 4 if step == 0 else 1)
        tau = (d1 * s2).sum() + (d2 * n2).sum()
        worst = float(value.max())
        if worst * float(tau) < total:
            best, total = Metric(d1, d2, worst), worst * float(tau)
        y = pulled * (value / worst).clamp_min(0).pow((FIRST_POWER + step - 1) / 2)[:, None]  # [r,N,q]
        y = y.movedim(1, 0).flatten(1)  # [N, r·q]
        x1 = y.square().sum(1)
        moved = torch.einsum("ank,nkq->anq", c.weights, y[c.index])
        x2 = 2 * moved[0].square().sum(1) - moved.square().sum((0, 2))
        scale = tau / ((d1 * x1).sum() + (d2 * x2).sum())
        d1 = d1 * (scale * x1 / s2).clamp(1e-2, 1e2).pow(RATE)
        d2 = d2 * (scale * x2 / n2).clamp(1e-2, 1e2).pow(RATE)
        unit = 2 * c.pixels / ((d1 * s2).sum() + (d2 * n2).sum())
        d1, d2 = (d1 * unit).maximum(floor1), (d2 * unit).maximum(floor2)
    return Metric(best.d1, best.d2, best.start * 1.01)


def _ritz(seen: Tensor, factor: Tensor, some: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate largest eigenvalues [r,q] of C H^{-1} Cᵀ, H^{-1}Cᵀ times their vectors [r,N,q], and the vectors."""
    count, _, directions = some.shape
    for _ in range(rounds):
        basis = torch.linalg.qr(some).Q
        rhs = (seen.mT @ basis).movedim(0, 1).flatten(1)  # [N, r·q]
        pulled = torch.cholesky_solve(rhs, factor).reshape(-1, count, directions).movedim(1, 0)
        some = seen @ pulled
    value, rotation = torch.linalg.eigh(basis.mT @ some)
    return value, pulled @ rotation, some @ rotation
