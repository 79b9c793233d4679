"""Multipliers of the Lagrangian inverse: a metric on originals in which a cell's consistent set is small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from warpcert.originals.chords import corners
from warpcert.originals.lagrangian.cell import Cell
from warpcert.originals.lagrangian.strips import UNIT, Factor, Strips
from warpcert.originals.lagrangian.view import View

__all__ = ["Metric", "shared_corners", "tuned"]

RITZ = 16  # directions followed while tuning
FIRST_POWER = 3  # how sharply the first step looks at the largest eigenvalues; one more in each
FLOOR = 0.1  # of d₁s², 1 on average: H^{-1} stays small where the defender sees little, at no cost to Σd₁s²
RATE = 0.25  # of the multiplicative steps


@dataclass(frozen=True)
class Metric:
    """Diagonals d1, d2 > 0 [N]: H_t = D₁ + A_tᵀD₂A_t."""

    d1: Tensor
    d2: Tensor

    def center(self, c: Cell) -> Strips:
        """H₀ [N,N]."""
        return c.square(c.weights[:1], self.d2).plus(self.d1)

    def variance(self, c: Cell, strip: int = 0) -> Strips:
        """Σ_a A_aᵀD₂A_a [N,N]."""
        return c.square(c.weights[1:], self.d2, strip)

    def lowered(self, group: list[Cell], corner: list[tuple[int, int]], strip: int = 0) -> Strips:
        """`each_lowered` at one corner."""
        return self.each_lowered(group, [corner], strip)[0]

    def each_lowered(self, group: list[Cell], places: list[list[tuple[int, int]]], strip: int = 0) -> list[Strips]:
        """H̃ = H − Σ variances [N,N] at corners, each given as (cell, its corner) for every cell of the group that has
        it, in strips of at least so many pixels.

        In each of these cells A_t = Σ_c w_c A_c with the weights w_c(t) ≥ 0 of independent signs with means t_a, and
        Σ_c w_c A_cᵀD₂A_c is A_tᵀD₂A_t plus Σ_a (1 − t_a²) A_aᵀD₂A_a. Hence
        H_t ⪰ Σ_c w_c (H_c − variance) ⪰ Σ_c w_c H̃_c. Entries are sums of few terms that err by less than 64u of the
        sums of their absolute values; the row sums of that are taken off the diagonal.
        """
        strip = max(strip, *(c.span for c in group))
        within = {k: (self.variance(group[k], strip), group[k].sums(group[k].weights[1:], self.d2))
                  for k in {k for corner in places for k, _ in corner}}  # fmt: skip
        out = []
        for corner in places:
            first, number = corner[0]
            weights = group[first].at_corners[number : number + 1]
            own = group[first].square(weights, self.d2, strip)
            doubt = self.d1 + group[first].sums(weights, self.d2)
            for k, _ in corner:
                own, doubt = own - within[k][0], doubt + within[k][1]
            out.append(own.plus(self.d1 - 64 * UNIT * doubt))
        return out


def shared_corners(group: list[Cell]) -> list[list[tuple[int, int]]]:
    """Every corner of the group's cells, as the (cell, corner) pairs that have the same matrices: with one parameter
    those that are the same point, with more each by itself, as A_t is not the corner's own matrix there (`family`).
    """
    places: dict[tuple[float, ...], list[tuple[int, int]]] = {}
    for k, c in enumerate(group):
        for number, point in enumerate(corners(c.low[None], c.high[None])[0].tolist()):
            places.setdefault(tuple(point) if c.dim == 1 else (k, number), []).append((k, number))
    return list(places.values())


def tuned(group: list[Cell], view: View, steps: int) -> Metric:
    """Multipliers that make λ·(Σd₁s² + Σd₂δ²) small for all β of `view`, a view on the middle cell of the group;
    quality only, any would be sound.

    The gradient of log λ in log d₁ is −d₁X_jj and in log d₂ −d₂(A₀XA₀ᵀ − Σ A_aXA_aᵀ)_ii, X the (softened, normalised)
    projector on the largest eigenvectors; at the optimum X_jj ∝ s_j². The steps are multiplicative, the eigenvectors
    are followed by subspace iteration, and the best multipliers seen are kept.
    """
    c = group[len(group) // 2]
    shares = min(len(group), 2) if c.dim == 1 else 1
    s2 = torch.stack([g.half.square().mean(0) for g in group]).mean(0).clamp_min(1e-8)
    n2 = torch.stack([g.doubt.square().mean(0) for g in group]).mean(0).clamp_min(1e-8)
    now = Metric(1 / s2, 1 / n2)
    now = replace(now, d1=torch.maximum(now.d1, shares * now.variance(c).abs().sums()))  # then H̃ ⪰ 0: dominance
    generator = torch.Generator().manual_seed(0)
    count, seen = len(view.rest), view.seen
    directions = min(RITZ, seen)  # no more than pixels that are seen: they are made orthogonal
    some = torch.randn(count, seen, directions, generator=generator, dtype=torch.float64).to(s2)
    best, total = now, torch.inf
    for step in range(steps + 1):
        factor = (now.center(c) - now.variance(c) * shares).factor()
        if factor is None:
            now = replace(now, d1=now.d1 * 2)
            continue
        value, pulled, some = _ritz(view.ahead, partial(_back, view, factor), some, 4 if step == 0 else 1)
        worst, tau = float(value.max()), float((now.d1 * s2).sum() + (now.d2 * n2).sum())
        if worst * tau < total:
            best, total = now, worst * tau
        soft = (value / worst).clamp_min(0).pow((FIRST_POWER + step - 1) / 2)
        now = _stepped(now, c, (pulled * soft[:, None]).movedim(1, 0).flatten(1), s2, n2, shares)
    places = shared_corners(group)
    while any(h.factor() is None for h in best.each_lowered(group, places)):
        best = replace(best, d1=best.d1 * 2)  # in the end by diagonal dominance
    return best


def _stepped(m: Metric, c: Cell, y: Tensor, s2: Tensor, n2: Tensor, shares: int) -> Metric:
    """One multiplicative step, X = yyᵀ with y [N,·]; the sum Σd₁s² + Σd₂δ² becomes 2N."""
    moved = torch.einsum("ank,nkq->anq", c.weights, y[c.index]).square().sum(2)
    x1, x2 = y.square().sum(1), moved[0] - shares * moved[1:].sum(0)
    scale = ((m.d1 * s2).sum() + (m.d2 * n2).sum()) / ((m.d1 * x1).sum() + (m.d2 * x2).sum())
    d1 = m.d1 * (scale * x1 / s2).clamp(1e-2, 1e2).pow(RATE)
    d2 = m.d2 * (scale * x2 / n2).clamp(1e-2, 1e2).pow(RATE)
    unit = 2 * c.pixels / ((d1 * s2).sum() + (d2 * n2).sum())
    return Metric((d1 * unit).maximum(FLOOR / s2), (d2 * unit).maximum(1e-3 / n2.max()))


def _back(view: View, factor: Factor, z: Tensor) -> Tensor:
    """H^{-1}C₀ᵀz [b, N, q] for z [b, v, q]."""
    pulled = view.behind(z)  # one solution for all: the factor has no batch
    return factor.solve(pulled.movedim(0, 1).flatten(1)).reshape(len(pulled[0]), len(z), -1).movedim(1, 0)


def _ritz(
    ahead: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor], some: Tensor, rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate largest eigenvalues [r,q] of C H^{-1} Cᵀ, H^{-1}Cᵀ times their vectors [r,N,q], and the vectors;
    `ahead` is z ↦ Cz and `back` z ↦ H^{-1}Cᵀz.
    """
    for _ in range(rounds):
        basis = torch.linalg.qr(some).Q  # orthogonal even where little or nothing is seen
        pulled = back(basis)
        some = ahead(pulled)
    value, rotation = torch.linalg.eigh(basis.mT @ some)
    return value, pulled @ rotation, some @ rotation
