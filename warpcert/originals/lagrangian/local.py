"""λ of large pictures at one θ, without matrices of all pixels: near pixels are coupled, and others are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.originals.chords import corner_taps
from warpcert.originals.lagrangian.cell import Cell
from warpcert.originals.lagrangian.lens import Lens
from warpcert.originals.lagrangian.metric import Metric
from warpcert.originals.lagrangian.strips import UNIT, Factor, Strips

__all__ = ["Local", "dominates", "seen_squared"]

DIRECTIONS = 6  # that a guess of λ follows
ROUNDS = 8  # of the guess
TRIES = (1.0, 1.02, 1.1, 1.5, 4.0)  # a λ that is not proved is made larger
MISPLACED = 1e-13  # of ‖e‖²: ‖P(T − T̂)e‖² (1 + 10⁹), weights of T̂ off by 1e-13 (`seen_squared`)


@dataclass(frozen=True, eq=False)
class Local:
    """H̃ at each corner of a group, as strips as narrow as they can be, with the factors that guesses need."""

    group: list[Cell]
    metric: Metric
    eye: Lens
    places: list[list[tuple[int, int]]]
    lowered: list[Strips]
    factors: list[Factor]

    @classmethod
    def of(cls, group: list[Cell], metric: Metric, eye: Lens, places: list[list[tuple[int, int]]]) -> Local | None:
        """None if an H̃ is not positive definite."""
        lowered = [metric.lowered(group, at) for at in places]
        factors = [f for f in (h.factor() for h in lowered) if f is not None]
        return cls(group, metric, eye, places, lowered, factors) if len(factors) == len(lowered) else None

    def pick(self, c: int) -> Local:
        """With this corner alone."""
        own = self.places[c : c + 1], self.lowered[c : c + 1], self.factors[c : c + 1]
        return Local(self.group, self.metric, self.eye, *own)

    def fitting(self, theta: Tensor, loss: float) -> tuple[float, float]:
        """By how much λ may be above a guess, and what √σ_R may be to add as much; by one of θ [c,b,d]."""
        guess, _ = self._guess(0, self._seen(theta[0, theta.shape[1] // 2]), self._start())
        return loss / 2, math.sqrt(guess) * loss / 4

    def roots(self, nodes: Tensor, margin: float) -> Tensor:
        """[c,n]: r ≥ ‖P T_θ e‖ / √(eᵀH̃e) for all e, at the nodes θ [n,d]; inf where none was proved."""
        out = nodes.new_full((len(self.lowered), len(nodes)), torch.inf)
        start = [self._start()] * len(self.lowered)
        for n, at in enumerate(nodes):
            seen = self._seen(at)
            for c, place in enumerate(self.places):
                guess, start[c] = self._guess(c, seen, start[c])
                h = self.metric.lowered(self.group, place, seen.strip)
                out[c, n] = math.sqrt(_proved(h, seen, guess * (1 + margin)))
        return out * (1 + 1e-12)

    def weighed(self, diagonal: Tensor) -> Tensor:
        """σ [c] with Σ diagonal_j e_j² ≤ σ eᵀH̃e for all e."""
        out = []
        for h, factor in zip(self.lowered, self.factors, strict=True):
            guess, _ = largest(lambda z: diagonal[:, None] * z, factor.solve, self._start())
            out.append(_proved(h, (h * 0).plus(diagonal), guess * 1.02))
        return diagonal.new_tensor(out)

    def _seen(self, theta: Tensor) -> Strips:
        return seen_squared(self.eye, theta, max(h.strip for h in self.lowered))

    def _guess(self, c: int, seen: Strips, start: Tensor) -> tuple[float, Tensor]:
        return largest(seen.times, self.factors[c].solve, start)

    def _start(self) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        size = self.lowered[0].size
        some = torch.randn(size, min(DIRECTIONS, size), generator=generator, dtype=torch.float64)
        return some.to(self.metric.d1)


def _proved(h: Strips, m: Strips, guess: float) -> float:
    """λ with λh − m ⪰ 0, if possible near the guess; inf: none was proved."""
    return next((v for v in (max(guess, 1e-300) * more for more in TRIES) if dominates(h, m, v)), math.inf)


def dominates(h: Strips, m: Strips, scale: float) -> bool:
    """True only if scale·h − m is positive semidefinite, h and m as the numbers at hand, in strips of one size. An
    entry errs by less than 4u of the sum of the absolute values; the row sums of that are taken off the diagonal.
    """
    doubt = (h * scale).abs().sums() + m.abs().sums()
    return (h * scale - m).plus(-8 * UNIT * doubt).definite()


def largest(ahead: Callable[[Tensor], Tensor], solve: Callable[[Tensor], Tensor], some: Tensor) -> tuple[float, Tensor]:
    """About the largest generalised eigenvalue of (M, H), z ↦ Mz and z ↦ H^{-1}z given, M symmetric, and directions
    near its eigenvectors; by subspace iteration from `some` [N,q]. A guess: what relies on it is proved.
    """
    value = 0.0
    for _ in range(ROUNDS):
        some = torch.linalg.qr(some).Q
        moved = ahead(some)
        new = solve(moved)  # H^{-1}M on the span: its Ritz values in the inner product of H
        own, other = new.mT @ moved, new.mT @ ahead(new)  # newᵀH new, newᵀM new
        scale, turn = torch.linalg.eigh((own + own.mT) / 2)
        kept = scale > 1e-12 * scale[-1].clamp_min(1e-300)
        basis = turn[:, kept] * scale[kept].rsqrt()
        if not bool(kept.any()):
            return 0.0, some
        small = basis.mT @ other @ basis
        each, rotation = torch.linalg.eigh((small + small.mT) / 2)
        before, value, some = value, float(each[-1]), new @ basis @ rotation
        if value <= before * (1 + 1e-4):
            break
    return value, some


def seen_squared(eye: Lens, theta: Tensor, strip: int = 0) -> Strips:
    """M with ‖P T_θ e‖² ≤ eᵀMe for all e, θ [d], nearly sharp; in strips of at least so many pixels.

    T̂ᵀPPT̂ is read off by products with combs: unit vectors at every (2r+1)th pixel of both axes, whose images do not
    overlap, as pixels further apart than r (`_coupled`) are not coupled.

    *Rounding.* A computed entry is a sum of at most 2(H+W) + 2K + 64 terms; it errs by so many u of the same entry of
    |T̂|ᵀPP|T̂|, whose row sums are at most the largest column sum of |T̂| times its largest row sum (P: at most 1). Twice
    that is added to the diagonal. With T the true matrix, ‖PTe‖² ≤ (1 + 10⁻⁹)‖PT̂e‖² + (1 + 10⁹)‖P(T − T̂)e‖². An
    entry of T − T̂ is at most 1e-13, a row has at most 36 and a column at most 64 of them: its norm is below 5e-12, the
    last term below 3e-14‖e‖². P itself errs by 1e-14 of its entries, which adds less than that: MISPLACED takes both.
    """
    height, width = eye.height, eye.width
    index, weight = corner_taps(eye.transform, theta[None], height, width, eye.kernel)
    index, weight = index[0, eye.mask], weight[0, eye.mask]  # [v,K]
    reach = _coupled(eye, theta)
    step_y, step_x = min(2 * reach + 1, height), min(2 * reach + 1, width)
    row, column = (t.flatten() for t in torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))
    row, column = row.to(index), column.to(index)
    colour = row % step_y * step_x + column % step_x
    combs = weight.new_zeros(step_y * step_x, height * width)
    combs[colour, torch.arange(height * width, device=index.device)] = 1
    seen = sum(
        (combs[:, at] * w for at, w in zip(index.unbind(1), weight.unbind(1), strict=True)), weight.new_zeros(())
    )
    seen = eye.blurred(eye.blurred(seen))
    out = torch.zeros_like(combs)
    for at, w in zip(index.unbind(1), weight.unbind(1), strict=True):
        out.index_add_(1, at, seen * w)
    i: list[Tensor] = []
    j: list[Tensor] = []
    value: list[Tensor] = []
    for down in range(min(reach + 1, height)):
        for right in range(-min(reach, width - 1) if down else 0, min(reach + 1, width)):
            here = ((row + down < height) & (column + right >= 0) & (column + right < width)).nonzero()[:, 0]
            there = here + down * width + right
            i.append(there)
            j.append(here)
            value.append(out[colour[here], there])
    span = min(height * width, max(strip, reach * (width + 1)))
    square = Strips.of(torch.cat(i), torch.cat(j), torch.cat(value), height * width, span)
    columns = weight.new_zeros(height * width).index_add_(0, index.flatten(), weight.abs().flatten())
    terms = 2 * (height + width) + 2 * index.shape[1] + 64
    doubt = MISPLACED + 2 * terms * UNIT * float(columns.max() * weight.abs().sum(1).max())
    return (square * (1 + 1.1e-9)).plus(torch.full_like(columns, doubt * (1 + 1e-9)))


def _coupled(eye: Lens, theta: Tensor) -> int:
    """r with (T_θᵀPPT_θ)_jk = 0 for pixels more than r rows or columns apart.

    Rows p, q of T_θ are coupled by PP if they are at most b = 2⌊blur_size/2⌋ apart along both axes. From one pixel to
    the next the source point moves by at most g_y or g_x, so theirs are at most b(g_y + g_x) apart along each axis, and
    a row reads 2·`reach` pixels in line.
    """
    p = eye.preprocess
    apart = 2 * (p.blur_size // 2) if p.blur_sigma > 0 else 0
    most = 0.0
    for s in eye.transform.coordinates(theta[None], eye.height, eye.width):
        steps = (s.diff(dim=-2).abs().flatten(), s.diff(dim=-1).abs().flatten())
        most = max(most, sum(float(t.max()) if t.numel() else 0.0 for t in steps))
    return math.ceil(apart * most + 1e-9) + 2 * eye.kernel.reach - 1
