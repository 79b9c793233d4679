"""Bounds of ‖ε‖ over one cell of γ from its two end nodes.

On a cell, t ∈ [0,1], the true error is W(t) = K Q(t) − P d(t): K = P T_β, Q = q(T_γ x) what the attacker hands over,
d = T_{β+γ} x. With a = T_γ x and chords over the cell, u_0 and u_1 the errors without rounding at its ends,

    W(t) = (1−t) u_0 + t u_1 + K(Q − chord a) − P(d − chord d) .                                       (*)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.errors.curve.model import Model
from warpcert.errors.curve.path import jumps, second_derivative, span
from warpcert.errors.curve.rounding import Handed

__all__ = ["Directed", "Ends", "Seen", "directional", "norm_bound", "refined", "towards"]

FINE = 8  # nodes of the shared table of P T_θ x per cell width


def norm_bound(size: Tensor, noise: Tensor, rest: Tensor) -> Tensor:
    """‖W‖ ≤ max(‖u_0‖, ‖u_1‖) + ‖K(Q − chord a)‖ + ‖P(d − chord d)‖: (*) and the convexity of the norm. Sizes at
    nodes [t, k+1], the others in cells [t, k].
    """
    return torch.maximum(size[:, :-1], size[:, 1:]) + noise + rest


@dataclass(frozen=True)
class Seen:
    """P T_θ x at nodes, and the remainder of its chords, for cells of one width; shared by all β.

    Built for a range of θ it holds tables: nodes at multiples of width/FINE, interpolated linearly (the error is that
    of a chord over width/FINE), and remainders per interval [kw, (k+2)w], which contains every cell that starts in
    [kw, (k+1)w]. Without a range, nodes are evaluated as they come and remainders are computed for the intervals met.
    """

    m: Model
    width: float
    first: int = 0
    nodes: Tensor | None = None  # [·, C, v] P T_θ x at (first + i)·width/FINE
    rest: Tensor | None = None  # [·, C, v] remainder of T_θ x on [kw, (k+2)w], k = first/FINE + i
    rest_norm: Tensor | None = None

    @staticmethod
    def table(m: Model, width: float, low: float, high: float) -> Seen:
        """For cells within [low, high]."""
        first = math.floor(low / width) - 1
        last = math.ceil(high / width) + 1
        number = torch.arange(first, last + 1, dtype=torch.float64, device=m.x.device)
        fine = torch.arange(first * FINE, (last + 1) * FINE + 1, dtype=torch.float64, device=m.x.device)
        room = min(2048, m.room(m.channels * m.kept.numel()))
        nodes = torch.cat([m.blur(m.defend(part * (width / FINE))) for part in torch.split(fine, room)])
        rest = torch.cat([_remainder(m, part, width, True) for part in torch.split(number, max(1, room // 8))])
        return Seen(m, width, first, nodes, rest, m.blur(rest).flatten(1).norm(dim=-1))

    def at(self, theta: Tensor) -> Tensor:
        """P T_θ x [..., C, v]; up to the table's error, which `remainder` includes."""
        if self.nodes is None:
            return self.m.blur(self.m.defend(theta))
        place = theta / (self.width / FINE)
        low = place.floor()
        row = low.long() - self.first * FINE
        return torch.lerp(self.nodes[row], self.nodes[row + 1], (place - low)[..., None, None])

    def remainder(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """|T_θ' x − chord of the nodes used| ≤ rest[row] on [θ, θ+width]: row like θ, rest [r, C, v], ‖P rest‖₂ [r]."""
        number = (theta / self.width if self.width > 0 else 0 * theta).floor()
        if self.rest is not None and self.rest_norm is not None:
            return number.long() - self.first, self.rest, self.rest_norm
        some, row = torch.unique(number, return_inverse=True)
        rest = _remainder(self.m, some, self.width, False) if self.width > 0 else self.m.x.new_zeros(1, 1, 1)
        return row, rest, self.m.blur(rest).flatten(1).norm(dim=-1) if self.width > 0 else rest.flatten()


def _remainder(m: Model, number: Tensor, width: float, read: bool) -> Tensor:
    """The chord remainder of T_θ x on cells of this width inside [kw, (k+2)w], k = number [r] → [r, C, v].

    Read from a table, both ends of the chord err by the same formula with width/FINE for the width, on fine cells
    inside that interval.
    """
    low, high = number * width - 1e-12, (number + 2) * width + 1e-12
    wide = span(m.reference_tables, m.flow, low, high, m.y[m.kept], m.x_[m.kept])
    curved, kinked = (1 + 1 / FINE**2, 1 + 1 / FINE) if read else (1.0, 1.0)
    rest = curved * width**2 / 8 * second_derivative(m.reference_tables, m.flow, wide)
    return (rest + kinked * width / 4 * jumps(m.reference_tables, m.flow, wide)).movedim(-1, 1)


@dataclass(frozen=True)
class Ends:
    """Some (β, cell) pairs [t]: β's number, the row of the cell in `Handed`; u and P d at both ends [t, C, v], the
    direction û with Pû and g = T_βᵀ P û [t, C, n], and the remainder of d.
    """

    which: Tensor
    cell: Tensor
    u0: Tensor
    u1: Tensor
    unit: Tensor
    p: Tensor
    g: Tensor
    seen0: Tensor
    seen1: Tensor
    rest: Tensor
    rest_norm: Tensor


@dataclass(frozen=True)
class Directed:
    """What `directional` leaves for `refined`: a bound [t, S] of |⟨û, W⟩| per sub-cell, and the bound [t] without the
    rounding term: what `refined` can hope for.
    """

    along: Tensor
    easy: Tensor


def towards(m: Model, which: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """û, Pᵀû and T_βᵀPᵀû for the cells between the nodes u [t, k+1, C, v]: û [t, k, C, v] is a unit vector along the
    mean of a cell's ends, 0 where that vanishes (the bounds hold for û = 0 as well).
    """
    mean = u[:, :-1] + u[:, 1:]
    unit = mean / mean.flatten(2).norm(dim=-1).clamp_min(1e-30)[..., None, None]
    p = m.adjoint(unit)
    return unit, p, m.push(which, p.flatten(1, 2)).reshape(*unit.shape[:3], m.pixels)


def _products(g: Tensor, cell: Tensor, table: Tensor) -> Tensor:
    """⟨g_t, table[cell_t, s]⟩ [t, S] for g [t, N] and table [c, S, N]: one matrix product per cell where pairs share
    cells.
    """
    if g.shape[0] < 4 * table.shape[0]:
        return torch.einsum("tn,tsn->ts", g, table[cell])
    order = torch.argsort(cell, stable=True)
    number, counts = torch.unique_consecutive(cell[order], return_counts=True)
    out = g.new_empty(g.shape[0], table.shape[1])
    for c, rows in zip(number.tolist(), torch.split(order, counts.tolist()), strict=True):
        out[rows] = g[rows] @ table[c].T
    return out


def directional(m: Model, ends: Ends, table: Handed, norm: Tensor) -> tuple[Tensor, Directed]:
    """sup‖W‖ over each cell [t], by the direction of the mean error: ‖W‖² = ⟨û,W⟩² + ‖W − û⟨û,W⟩‖² for a unit vector û.

    Along û: ⟨û, W⟩ = ⟨g, Q⟩ − ⟨û, P d⟩ with g = T_βᵀ Pᵀ û is linear: on a sub-cell Q ∈ chord ± radius
    and d ∈ chord ± rest, so its ends decide, up to ⟨|g|, radius⟩ and |⟨û, P r⟩| = |⟨Pᵀû, r⟩| ≤ ⟨|Pᵀû|, rest⟩.
    Across: with û along (u_0+u_1)/2 the part of (*) across û is at most |t−½|·‖(u_1−u_0)_⊥‖ + ‖K(Q − chord a)‖ +
    ‖P rest‖.
    """
    unit, p, g = ends.unit, ends.p, ends.g.flatten(1)
    pieces = table.off.shape[1]
    share = torch.arange(pieces + 1, dtype=p.dtype, device=p.device) / pieces
    lean0, lean1 = ((unit * seen).flatten(1).sum(-1)[:, None] for seen in (ends.seen0, ends.seen1))
    lean = lean0 + (lean1 - lean0) * share
    start = _products(g, ends.cell, table.start.flatten(2))
    end = start if table.end is table.start else _products(g, ends.cell, table.end.flatten(2))
    play = _products(g.abs(), ends.cell, table.radius.flatten(2)) + (p.abs() * ends.rest).flatten(1).sum(-1)[:, None]
    first, last = start - lean[:, :-1], end - lean[:, 1:]
    along = torch.maximum(torch.maximum(first, last) + play, play - torch.minimum(first, last))
    turn = ends.u1 - ends.u0
    turn = turn - unit * (turn * unit).flatten(1).sum(-1)[:, None, None]
    reach = torch.maximum((share[:-1] - 0.5).abs(), (share[1:] - 0.5).abs())
    swing = turn.flatten(1).norm(dim=-1)[:, None] * reach + ends.rest_norm[:, None]
    across = swing + table.noise(norm, ends.which, ends.cell)
    bound = (along.square() + across.square()).sqrt().amax(-1)
    return bound, Directed(along, (along.square() + swing.square()).sqrt().amax(-1))


def refined(m: Model, ends: Ends, table: Handed, norm: Tensor, directed: Directed) -> Tensor:
    """`directional` with K applied to what the attacker hands over on each sub-cell, instead of ‖K‖ times its
    distance from the chord.

    On a sub-cell W = [K chord Q − P chord d] + K·(±radius) − P·(±rest). The bracket moves along a segment, so its
    part across û is longest at an end of the sub-cell; the others add ‖K‖‖radius‖ + ‖P rest‖.
    """
    pieces = table.off.shape[1]
    share = torch.arange(pieces + 1, dtype=ends.u0.dtype, device=ends.u0.device) / pieces
    seen = ends.seen0[:, None] + (ends.seen1 - ends.seen0)[:, None] * share[:, None, None]  # [t, S+1, C, v]
    shape = (ends.which.numel(), pieces, m.channels, -1)
    every = torch.arange(ends.which.numel(), device=ends.which.device)

    def image(part: Tensor) -> Tensor:
        return m.blur(m.pull(ends.which, part[ends.cell].flatten(1, 2), every).reshape(shape))

    start = image(table.start)
    end = start if table.end is table.start else image(table.end)
    across = torch.maximum(_across(start - seen[:, :-1], ends.unit), _across(end - seen[:, 1:], ends.unit))
    across = across + table.doubt(norm, ends.which, ends.cell) + ends.rest_norm[:, None]
    return (directed.along.square() + across.square()).sqrt().amax(-1)


def _across(w: Tensor, unit: Tensor) -> Tensor:
    """‖w − û⟨û,w⟩‖₂ for w [t, S, C, v] and û [t, C, v]."""
    part = (w * unit[:, None]).flatten(2).sum(-1)
    size: Tensor = (w - unit[:, None] * part[..., None, None]).flatten(2).norm(dim=-1)
    return size
