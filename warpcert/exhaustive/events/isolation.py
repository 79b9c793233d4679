"""Where a function of γ may be near a threshold k + ½, enclosed with proof.

Guarantee. `isolated` returns closed γ-intervals, the events of each item of a path (a pixel, or a mean of pixels), such
that outside of them the item's value stays further than `margin` from every threshold that it can cross: its level is
constant in each gap. In an event its level, for all values within `margin` of the path's, is one of low … high.

Argument. Γ is cut into closed intervals for each pixel; they are halved until each is decided. On [m − h, m + h] the
source point s(γ) = e^{γA} p, for whatever matrix A, stays within h|s'(m)| + h²·sup|s''|/2 of s(m), axis by axis, with
s' = As and s'' = A²s (see `paths`). If this box lies in
one cell of the grid ("smooth"), V is the bilinear polynomial F of the cell and
|V''| ≤ M = 2|F_yx| |s_y'| |s_x'| + |F_y| |s_y''| + |F_x| |s_x''|, so V ∈ V(m) ± (h|V'(m)| + h²M/2). Otherwise
V ∈ V(m) ± hL with L from the steepest of the 3 × 3 cells around s(m). The interval is decided when it is

  clear      no threshold k + ½ comes within `margin` of that range: the level is constant;
  monotone   smooth and |V'(m)| > 2hM. Each threshold in reach is enclosed by two points where the computed V is beyond
             it by `margin`; outside of them the level is constant. Newton's method proposes them (its error, from the
             secant, is below h/2, h/8, h/128, …), the two evaluations prove them; where they fail, [a, b] is the event;
  stuck      the range is hardly wider than `margin` (V touches or kinks on a threshold): [a, b] is the event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from warpcert.exhaustive.events.paths import Path

__all__ = ["AT_ONCE", "Events", "Intervals", "isolated", "nearest", "ragged", "strides"]

AT_ONCE = 1 << 22  # intervals decided together: bounds the memory, not the answer
Intervals = tuple[Tensor, ...]  # item, a, b
Events = tuple[Tensor, ...]  # item, lower, upper, low, high, once (V is strictly monotone on the event)


def isolated(path: Path, intervals: Iterable[Intervals], margin: float, extent: float) -> Events:
    """The events in these intervals, by item and γ; those of an item that meet are one. |γ| is at most `extent`."""
    found: list[Events] = []
    for interval in intervals:
        while interval[0].numel() or not found:
            events, interval = _decide(path, interval, margin)
            found.append(events)
    return _merge(tuple(map(torch.cat, zip(*found, strict=True))), 2.0**-48 * extent)


def ragged(count: Tensor, total: int | None = None) -> tuple[Tensor, Tensor]:
    """For runs of these lengths laid end to end: whose run each place is in, and its position there.

    `total` is their sum, for who knows it: a GPU need not be waited for then.
    """
    owner = torch.repeat_interleave(torch.arange(count.numel(), device=count.device), count, output_size=total)
    return owner, torch.arange(owner.numel(), device=count.device) - (count.cumsum(0) - count)[owner]


def strides(path: Path, every: Tensor, first: float, last: float, cuts: Tensor | None = None) -> Iterator[Intervals]:
    """(item, [a, b]): [first, last] for all items in intervals no wider than the stride, cut at 0, where all kink, and
    at these cuts.
    """
    ends = (first, 0.0, last) if first <= 0 <= last else (first, last)
    parts = [
        torch.linspace(a, b, 1 + max(1, math.ceil(1.01 * (b - a) / path.stride)), dtype=torch.float64)
        for a, b in pairwise(ends)
    ]
    edges = torch.cat((parts[0], *(part[1:] for part in parts[1:]))).to(every.device)
    if cuts is not None:
        edges = torch.unique(torch.cat((edges, cuts)))
        edges = edges if len(edges) > 1 else edges.repeat(2)
    for part in every.chunk(1 + every.numel() * edges.numel() * path.parts // AT_ONCE):
        item = part.repeat_interleave(edges.numel() - 1)
        yield item, edges[:-1].repeat(part.numel()), edges[1:].repeat(part.numel())


def nearest(value: Tensor, top: int) -> Tensor:
    """The levels of values."""
    return (value + 0.5).floor().clamp_(0, top).long()


def _decide(path: Path, interval: Intervals, margin: float) -> tuple[Events, Intervals]:
    """The events of the intervals that are decided, and the halves of the others."""
    item, a, b = interval
    middle = (a + b) / 2
    half = torch.maximum(b - middle, middle - a) * (1 + 2.0**-40)
    look = path.look(item, middle, half)
    spread = torch.where(look.smooth, half * (look.slope.abs() + half * look.bend / 2), half * look.steep) + margin
    low, high = nearest(look.value - spread, path.top), nearest(look.value + spread, path.top)
    unclear = low < high
    # the error of the slope is at most that of V times |s'| ≤ 1/stride
    monotone = unclear & look.smooth & (look.slope.abs() > 2 * half * look.bend + path.slack / path.stride)
    stuck = unclear & ~monotone & ((spread <= 4 * margin) | (middle <= a) | (middle >= b))
    chosen = item[monotone], a[monotone], b[monotone]
    crossing = _cross(path, look.piece[monotone], look.slope[monotone].sign(), chosen, margin)
    touching = tuple(t[stuck] for t in (item, a, b, low, high, monotone))
    split = unclear & ~monotone & ~stuck
    item, a, middle, b = (t[split] for t in (item, a, middle, b))
    events = tuple(map(torch.cat, zip(crossing, touching, strict=True)))
    return events, (item.repeat(2), torch.cat((a, middle)), torch.cat((middle, b)))


def _cross(path: Path, piece: Tensor, rising: Tensor, interval: Intervals, margin: float) -> Events:
    """One event for each threshold that a monotone V comes within `margin` of on [a, b]; `rising` is the sign of V'."""
    ends = torch.stack([path.on(piece, interval[0], end)[0] for end in interval[1:]])
    lowest = (ends.amin(0) - margin - 0.5).ceil().clamp_(0, path.top).long()
    highest = (ends.amax(0) + margin - 0.5).floor().clamp_(-1, path.top - 1).long()
    of, position = ragged((highest - lowest + 1).clamp_(min=0))
    level = lowest[of] + position
    piece, rising, item, a, b = (t[of] for t in (piece, rising, *interval))

    def beyond(gamma: Tensor) -> tuple[Tensor, Tensor]:
        """How far V is past the threshold at γ, and how fast it goes on."""
        value, slope = path.on(piece, item, gamma)
        return rising * (value - level - 0.5), rising * slope

    at_a, at_b = rising * (ends[:, of] - level - 0.5)
    root = torch.clamp(a - at_a * (b - a) / (at_b - at_a), a, b)
    for _ in range(5):
        past, slope = beyond(root)
        root = torch.clamp(root - past / slope, a, b)
    lower, upper, slope = a, b, beyond(root)[1]
    for factor in (8.0, 2.0, 1.1):  # wide to narrow: each success replaces the one before
        width = factor * margin / slope
        left, right = torch.clamp(root - width, a, b), torch.clamp(root + width, a, b)
        lower = torch.where(beyond(left)[0] <= -margin, left, lower)
        upper = torch.where(beyond(right)[0] >= margin, right, upper)
    return item, lower, upper, level, level + 1, level >= 0


def _merge(events: Events, apart: float) -> Events:
    """Joins events of one item that meet; others are further than `apart`. Sorted by item, then γ."""
    order = events[1].argsort(stable=True)
    order = order[events[0][order].argsort(stable=True)]
    item, lower, upper, low, high, once = (t[order] for t in events)
    ascending, by_upper = upper.sort()
    rank = by_upper.argsort()
    total = max(1, rank.numel())
    furthest = ascending[(item * total + rank).cummax(0).values % total]  # upper end so far, item by item
    fresh = torch.ones_like(once)
    fresh[1:] = (item[1:] != item[:-1]) | (lower[1:] > furthest[:-1] + apart)
    group = fresh.cumsum(0) - 1

    def gather(t: Tensor, reduce: str) -> Tensor:
        return t[fresh].scatter_reduce(0, group, t, reduce)

    upper, once = gather(upper, "amax"), gather(once.long(), "amin") > 0
    return item[fresh], lower[fresh], upper, gather(low, "amin"), gather(high, "amax"), once
