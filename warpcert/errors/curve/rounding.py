"""What the attacker can hand over while γ crosses a cell: every value of q(T_γ x), enclosed on sub-cells. Independent
of β.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.errors.curve.gram import passed
from warpcert.errors.curve.model import Model
from warpcert.errors.curve.path import chord_remainder
from warpcert.errors.float32 import value_error

__all__ = ["Handed", "handed", "quantized_range", "rounding_box"]

SLACK = 1e-12  # of float64 evaluations of values in [−1, 2]


def quantized_range(m: Model, low: Tensor, high: Tensor, doubt: float) -> tuple[Tensor, Tensor]:
    """q(a) lies in the returned [low, high] if a does in the given one, for every evaluation of a that errs by at
    most `doubt`.

    q (clamp, then round) is monotone: q(low − doubt) ≤ q(a) ≤ q(high + doubt).
    """
    return m.transform.quantize(low - doubt), m.transform.quantize(high + doubt)


def rounding_box(m: Model, low: Tensor, high: Tensor) -> Tensor:
    """A bound of |q(a) − a| for a in [low, high]: half a step, plus what lies outside the legal range; 0 where a is 0
    throughout.
    """
    t = m.transform
    outside = torch.maximum(t.low - low, high - t.high).clamp_min(0)
    exact = (low == high) & (t.quantize(low) == low)
    return torch.where(exact, 0.0, t.step / 2 + outside)


@dataclass(frozen=True)
class Handed:
    """q(T_γ x) ∈ chord(start, end) ± radius on sub-cell s of cell c, and what that means for the chord of T_γ x over
    the whole cell.

    start, end, radius   [c, S, C, n] (start is end where the attacker rounds)
    off      [c, S] ≥ ‖q(T_γ x) − chord of T_γ x over the cell‖₂ over the pixels that some T_β reads
    spread   [c, S] ≥ ‖radius‖₂ over the same pixels
    steps    ≥ ‖D_y z‖ + ‖D_x z‖ for every z handed over in any of the cells, D the differences of neighbouring pixels
    seen_off, seen_spread   [c, S, B] ≥ the same after P T_β, where they are known (see `gram`)
    """

    start: Tensor
    end: Tensor
    radius: Tensor
    off: Tensor
    spread: Tensor
    steps: float
    seen_off: Tensor | None = None
    seen_spread: Tensor | None = None

    def noise(self, norm: Tensor, which: Tensor, cell: Tensor) -> Tensor:
        """≥ ‖P T_β (q(T_γ x) − chord)‖ [..., S] for β's and cells of these numbers [...], given norm ≥ ‖P T_β‖."""
        return _after(norm[which], self.off[cell], self.seen_off, which, cell)

    def doubt(self, norm: Tensor, which: Tensor, cell: Tensor) -> Tensor:
        """≥ ‖P T_β r‖ [..., S] for all |r| ≤ radius."""
        return _after(norm[which], self.spread[cell], self.seen_spread, which, cell)


def _after(norm: Tensor, size: Tensor, seen: Tensor | None, which: Tensor, cell: Tensor) -> Tensor:
    plain = norm[..., None] * size
    return plain if seen is None else torch.minimum(plain, seen.transpose(1, 2)[cell, which])


def handed(m: Model, low: Tensor, high: Tensor, pieces: int, extent: float, over: Tensor | None = None) -> Handed:
    """`Handed` of the cells [low, high] [c], each cut into equal sub-cells.

    On a sub-cell T_γ x is its chord ± `chord_remainder`, hence between its smaller end − remainder and its larger end
    + remainder; rounding is monotone. The distance to the chord over the whole cell is, up to the radius, convex
    along the sub-cell: its ends decide, before P T_β and after it. `over` is that of `passed`.
    """
    cells = low.numel()
    share = torch.arange(pieces + 1, dtype=low.dtype, device=low.device) / pieces
    nodes = low[:, None] + (high - low)[:, None] * share
    nodes[:, -1] = high
    value = m.attack(nodes)  # [c, S+1, C, n]
    rest = chord_remainder(
        m.attacker_tables, m.flow, nodes[:, :-1].flatten(), nodes[:, 1:].flatten(), m.y, m.x_
    ).reshape(cells, pieces, m.channels, m.pixels)
    first, last = value[:, :-1], value[:, 1:]
    if m.threat.quantized:
        doubt = SLACK + float(value_error(m.transform, m.attacker, *m.size, extent).amax())
        below, above = quantized_range(m, torch.minimum(first, last) - rest, torch.maximum(first, last) + rest, doubt)
        start = end = (below + above) / 2
        radius = (above - below) / 2
    else:
        start, end, radius = first, last, rest + SLACK
    chord = value[:, :1] + (value[:, -1:] - value[:, :1]) * share[:, None, None]
    used = m.used.to(value)
    spread = (radius * used).flatten(2).norm(dim=-1)
    off = torch.maximum(
        ((start - chord[:, :-1]) * used).flatten(2).norm(dim=-1), ((end - chord[:, 1:]) * used).flatten(2).norm(dim=-1)
    )
    steps = _steps(m, start, end, radius)
    if over is None:
        return Handed(start, end, radius, off + spread, spread, steps)
    seen_spread = passed(m, radius * used, over)
    seen_off = torch.maximum(
        passed(m, (start - chord[:, :-1]) * used, over), passed(m, (end - chord[:, 1:]) * used, over)
    )
    return Handed(start, end, radius, off + spread, spread, steps, seen_off + seen_spread, seen_spread)


def _steps(m: Model, start: Tensor, end: Tensor, radius: Tensor) -> float:
    """‖D z‖ ≤ ‖D centre‖ + ‖D‖‖radius‖, ‖D‖ ≤ 2 along each axis; along the chord of centres the ends decide."""
    worst = 2 * 2 * radius.flatten(2).norm(dim=-1)
    shape = (*start.shape[:-1], *m.x.shape[1:])

    def norms(z: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(z.reshape(shape), (1, 1, 1, 1))
        size: Tensor = padded.diff(dim=-1).flatten(2).norm(dim=-1) + padded.diff(dim=-2).flatten(2).norm(dim=-1)
        return size

    size = norms(start) if end is start else torch.maximum(norms(start), norms(end))
    return float((size + worst).max())
