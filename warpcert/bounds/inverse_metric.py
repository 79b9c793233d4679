"""Multipliers of the Lagrangian inverse: a metric on originals in which a cell's consistent set is small, and λ, how
much of it the defender can see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warpcert.bounds.chords import corners
from warpcert.bounds.inverse_cell import Cell, View

__all__ = ["Metric", "blocked", "positive", "proved_lambda", "shared_corners", "tuned"]

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

    def variance(self, c: Cell) -> Tensor:
        """Σ_a A_aᵀD₂A_a [N,N]."""
        return c.square(c.weights[1:], self.d2)

    def lowered(self, group: list[Cell], corner: list[tuple[int, int]]) -> Tensor:
        """H̃ = H − Σ variances [N,N] at a corner, given as (cell, its corner) for every cell of the group that has it.

        In each of these cells A_t = Σ_c w_c A_c with the weights w_c(t) ≥ 0 of independent signs with means t_a, and
        Σ_c w_c A_cᵀD₂A_c is A_tᵀD₂A_t plus Σ_a (1 − t_a²) A_aᵀD₂A_a. Hence
        H_t ⪰ Σ_c w_c (H_c − variance) ⪰ Σ_c w_c H̃_c.
        """
        first, number = corner[0]
        own = group[first].square(group[first].at_corners[number : number + 1], self.d2)
        return torch.diag(self.d1) + own - sum(self.variance(group[k]) for k, _ in corner)


def shared_corners(group: list[Cell]) -> list[list[tuple[int, int]]]:
    """Every corner of the group's cells, as the (cell, corner) pairs that are this point."""
    places: dict[tuple[float, ...], list[tuple[int, int]]] = {}
    for k, c in enumerate(group):
        for number, point in enumerate(corners(c.low[None], c.high[None])[0].tolist()):
            places.setdefault(tuple(point), []).append((k, number))
    return list(places.values())


def positive(q: Tensor) -> Tensor:
    """[b] bool: True only if the symmetric matrices q [b,N,N] can be factored, that is q + E ⪰ 0 for a symmetric E with
    ‖E‖₂ ≤ 8(N+2)u·tr q (Cholesky's backward error is at most (N+1)u |L||Lᵀ|, whose norm is at most ‖L‖_F² ≈ tr q; the
    factor 8 is for blocked sums).
    """
    if q.is_cuda and len(q) > 1:
        return blocked(q.clone())
    plain: Tensor = torch.linalg.cholesky_ex(q).info == 0
    return plain


def blocked(q: Tensor, block: int = BLOCK) -> Tensor:
    """`positive` by a factorisation in blocks, nearly all of it batched matrix products; overwrites q."""
    size = q.shape[1]
    good = torch.ones(len(q), dtype=torch.bool, device=q.device)
    for at in range(0, size, block):
        to = min(at + block, size)
        pivot, info = torch.linalg.cholesky_ex(q[:, at:to, at:to])
        good &= info == 0
        if to < size:
            panel = torch.linalg.solve_triangular(pivot, q[:, to:, at:to].mT, upper=False)
            q[:, to:, to:] -= panel.mT @ panel
    return good


def proved_lambda(group: list[Cell], metric: Metric, views: list[View], tries: int = 40) -> Tensor:
    """λ [b] with ‖C_t e‖² ≤ λ eᵀH_t e for every e, every cell of the group and every t; inf where none was proved.

    It is proved at the corners: λH̃_c ⪰ C_cᵀC_c. Then H̃_c ⪰ 0, and with H_t ⪰ Σ w_c H̃_c (`lowered`) and the convexity
    of the square, ‖C_t e‖² ≤ Σ w_c ‖C_c e‖² ≤ λ Σ w_c eᵀH̃_c e ≤ λ eᵀH_t e. Neighbours share corners, and the proof.

    *Rounding.* Q = λH̃ − CᵀC is computed with an error below 64u(λ‖D‖ + 16) per entry and row of few entries, plus
    8Nu for the sums of CᵀC, whose absolute row sums are below 16; the factorisation errs by 8(N+2)u·tr Q. All of that
    is taken off the diagonal first.
    """
    size = group[0].pixels
    largest = float(metric.d1.max() + 16 * metric.d2.max())
    result = torch.full((len(views[0].index),), metric.start, dtype=torch.float64, device=metric.d1.device)
    for corner in shared_corners(group):
        h = metric.lowered(group, corner)
        minus = views[corner[0][0]].gram(corner[0][1]).neg_()
        left = torch.arange(len(result), device=result.device)
        for attempt in range(tries):
            value = result[left]
            q = torch.addcmul(minus if len(left) == len(minus) else minus[left], value[:, None, None], h)
            trace = q.diagonal(dim1=1, dim2=2).abs().sum(1)
            shift = UNIT * (8 * (size + 2) * trace + 64 * size * value * largest + 1024 * size)
            q.diagonal(dim1=1, dim2=2).sub_(shift[:, None])
            left = left[~positive(q)]
            if not left.numel():
                break
            result[left] *= STEP ** (1 + attempt // 4)
        result[left] = torch.inf
    return result


def tuned(group: list[Cell], view: View, steps: int) -> Metric:
    """Multipliers that make λ·(Σd₁s² + Σd₂δ²) small for all β of `view`, a view on the middle cell of the group;
    quality only, any would be sound.

    The gradient of log λ in log d₁ is −d₁X_jj and in log d₂ −d₂(A₀XA₀ᵀ − Σ A_aXA_aᵀ)_ii, X the (softened, normalised)
    projector on the largest eigenvectors; at the optimum X_jj ∝ s_j². The steps are multiplicative, the eigenvectors
    are followed by subspace iteration, and the best multipliers seen are kept.
    """
    c, shares = group[len(group) // 2], min(len(group), 2)
    s2 = torch.stack([g.half.square().mean(0) for g in group]).mean(0).clamp_min(1e-8)
    n2 = torch.stack([g.doubt.square().mean(0) for g in group]).mean(0).clamp_min(1e-8)
    now = Metric(1 / s2, 1 / n2, 1.0)
    now = replace(now, d1=torch.maximum(now.d1, shares * now.variance(c).abs().sum(1)))  # then H̃ ⪰ 0: dominance
    seen = view.dense()[:, 0]  # [r, v, N]
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(len(seen), seen.shape[1], RITZ, generator=generator, dtype=torch.float64).to(s2)
    best, total = now, torch.inf
    for step in range(steps + 1):
        factor, info = torch.linalg.cholesky_ex(now.center(c) - shares * now.variance(c))
        if int(info):
            now = replace(now, d1=now.d1 * 2)
            continue
        value, pulled, some = _ritz(seen, factor, some, 4 if step == 0 else 1)
        worst, tau = float(value.max()), float((now.d1 * s2).sum() + (now.d2 * n2).sum())
        if worst * tau < total:
            best, total = replace(now, start=worst), worst * tau
        soft = (value / worst).clamp_min(0).pow((FIRST_POWER + step - 1) / 2)
        now = _stepped(now, c, (pulled * soft[:, None]).movedim(1, 0).flatten(1), s2, n2, shares)
    while not all(bool(positive(best.lowered(group, at)[None])) for at in shared_corners(group)):
        best = replace(best, d1=best.d1 * 2)  # in the end by diagonal dominance
    return replace(best, start=best.start * 1.01)


def _stepped(m: Metric, c: Cell, y: Tensor, s2: Tensor, n2: Tensor, shares: int) -> Metric:
    """One multiplicative step, X = yyᵀ with y [N,·]; the sum Σd₁s² + Σd₂δ² becomes 2N."""
    moved = torch.einsum("ank,nkq->anq", c.weights, y[c.index]).square().sum(2)
    x1, x2 = y.square().sum(1), moved[0] - shares * moved[1:].sum(0)
    scale = ((m.d1 * s2).sum() + (m.d2 * n2).sum()) / ((m.d1 * x1).sum() + (m.d2 * x2).sum())
    d1 = m.d1 * (scale * x1 / s2).clamp(1e-2, 1e2).pow(RATE)
    d2 = m.d2 * (scale * x2 / n2).clamp(1e-2, 1e2).pow(RATE)
    unit = 2 * c.pixels / ((d1 * s2).sum() + (d2 * n2).sum())
    return Metric((d1 * unit).maximum(1e-3 / s2.max()), (d2 * unit).maximum(1e-3 / n2.max()), m.start)


def _ritz(seen: Tensor, factor: Tensor, some: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate largest eigenvalues [r,q] of C H^{-1} Cᵀ, H^{-1}Cᵀ times their vectors [r,N,q], and the vectors."""
    count, _, directions = some.shape
    for _ in range(rounds):
        size, turn = torch.linalg.eigh(some.mT @ some)
        basis = some @ (turn * size.clamp_min(1e-12 * size[:, -1:]).rsqrt()[:, None])
        rhs = (seen.mT @ basis).movedim(0, 1).flatten(1)  # [N, r·q]
        pulled = torch.cholesky_solve(rhs, factor).reshape(-1, count, directions).movedim(1, 0)
        some = seen @ pulled
    value, rotation = torch.linalg.eigh(basis.mT @ some)
    return value, pulled @ rotation, some @ rotation
