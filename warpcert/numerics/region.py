"""Certified sets of parameters as unions of simple regions, and whether a box lies inside one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import final

import torch
from torch import Tensor

from warpcert.numerics.box import Box

__all__ = ["Region", "covered", "outward", "reach", "reach_of_cells", "union"]


@final
@dataclass(frozen=True)
class Region:
    """{ γ : ‖(γ − center)/scale‖ < radius } in ℓ2, or the closed `box`."""

    center: tuple[float, ...]
    scale: tuple[float, ...]
    radius: float | None
    box: Box | None = None

    @classmethod
    def cell(cls, box: Box) -> Region:
        return cls(box.center, tuple(1.0 for _ in box.lower), None, box)

    def interval(self) -> tuple[float, float]:
        """The region as a closed interval, for one parameter."""
        if self.box is not None:
            return self.box.lower[0], self.box.upper[0]
        half = (self.radius or 0.0) * self.scale[0] * (1 - 1e-12)
        return self.center[0] - half, self.center[0] + half

    def contains(self, box: Box) -> bool:
        """Every point of the box is inside: decided by the farthest corner."""
        if self.box is not None:
            return self.box.contains(box.lower) and self.box.contains(box.upper)
        far = (
            max(abs(lo - c), abs(hi - c)) / s
            for lo, hi, c, s in zip(box.lower, box.upper, self.center, self.scale, strict=True)
        )
        return self.radius is not None and math.hypot(*far) < self.radius

    def meets(self, box: Box) -> bool:
        """Some point of the box may be inside: decided by the nearest point."""
        if self.box is not None:
            ends = zip(box.lower, box.upper, self.box.lower, self.box.upper, strict=True)
            return all(lo <= high and low <= hi for lo, hi, low, high in ends)
        near = (
            max(lo - c, c - hi, 0.0) / s
            for lo, hi, c, s in zip(box.lower, box.upper, self.center, self.scale, strict=True)
        )
        return self.radius is not None and math.hypot(*near) < self.radius


def reach_of_cells(box: Box, lower: Tensor, upper: Tensor) -> Box | None:
    """`reach` for the closed cells lower … upper [J,d], float64."""
    if box.dim == 1:
        if not len(lower):
            return None
        lower, order = lower[:, 0].sort()
        highest = upper[order, 0].cummax(0).values
        first = torch.ones_like(lower, dtype=torch.bool)
        first[1:] = lower[1:] > highest[:-1]
        last = torch.cat((first[1:], first[:1]))
        pieces = zip(lower[first].tolist(), highest[last].tolist(), strict=True)
        return _stretched(box, [piece for piece in pieces if piece[0] <= 0 <= piece[1]])
    ends = torch.stack((lower, upper), 1)
    if _gaps(box.scaled(0.0), ends).numel():
        return None
    return _shrunk(box, _gaps(box, ends))


def covered(box: Box, regions: Sequence[Region], depth: int = 60) -> bool:
    """True only if the box lies in the union of the regions: for one parameter and for cells if and only if."""
    if box.dim == 1:
        return any(lo <= box.lower[0] and box.upper[0] <= hi for lo, hi in union(regions))
    cells = _cells(regions)
    return _subdivided(box, regions, depth) if cells is None else not _gaps(box, _ends(cells, box.dim)).numel()


def reach(box: Box, regions: Sequence[Region]) -> Box | None:
    """The largest multiple t·box, 0 ≤ t ≤ 1, inside the union, t rounded down; None if not even 0 is inside."""
    if box.dim == 1:
        return _reach_on_a_line(box, regions)
    if not covered(box.scaled(0.0), regions):
        return None
    cells = _cells(regions)
    if cells is None:
        return _reach_by_halving(box, regions)
    return _shrunk(box, _gaps(box, _ends(cells, box.dim)))


def _shrunk(box: Box, gaps: Tensor) -> Box:
    """The largest multiple that meets no gap."""
    if not gaps.numel():
        return box
    return box.scaled(float(outward(box, gaps[:, 0], gaps[:, 1]).min()) * (1 - 1e-12))


def outward(box: Box, lower: Tensor, upper: Tensor) -> Tensor:
    """The least t ≥ 0 [J] such that t·box, which holds 0, meets the cell lower … upper [J,d]; float64."""
    first, last = (torch.tensor(end, dtype=torch.float64).to(lower.device) for end in (box.lower, box.upper))
    after, before = lower / last.clamp_min(1e-300), upper / first.clamp_max(-1e-300)
    return torch.maximum(after, before).amax(1).clamp_min(0) + 0.0  # no −0


def _cells(regions: Sequence[Region]) -> list[Box] | None:
    """The regions, if all of them are cells."""
    cells = [r.box for r in regions if r.box is not None]
    return cells if len(cells) == len(regions) else None


def _reach_on_a_line(box: Box, regions: Sequence[Region]) -> Box | None:
    return _stretched(box, [(lo, hi) for lo, hi in union(regions) if lo <= 0 <= hi])


def _stretched(box: Box, around: list[tuple[float, float]]) -> Box | None:
    """The largest multiple inside the first of the intervals around 0."""
    if not around:
        return None
    (lo, hi), (first, last) = around[0], (box.lower[0], box.upper[0])
    if lo <= first and last <= hi:
        return box
    t = min(lo / first if first < 0 else 1.0, hi / last if last > 0 else 1.0)
    return box.scaled(t * (1 - 1e-12))


def _reach_by_halving(box: Box, regions: Sequence[Region]) -> Box:
    if covered(box, regions):
        return box
    good, bad = 0.0, 1.0
    for _ in range(30):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if covered(box.scaled(middle), regions) else (good, middle)
    return box.scaled(good)


def union(regions: Sequence[Region]) -> list[tuple[float, float]]:
    """Regions of one parameter as disjoint closed intervals in order; open ends move inwards by 1e-12 of the radius."""
    merged: list[tuple[float, float]] = []
    for lo, hi in sorted(r.interval() for r in regions):
        if merged and lo <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        elif lo <= hi:
            merged.append((lo, hi))
    return merged


def _ends(cells: Sequence[Box], dim: int) -> Tensor:
    return torch.tensor([(c.lower, c.upper) for c in cells], dtype=torch.float64).reshape(-1, 2, dim)


def _gaps(box: Box, ends: Tensor) -> Tensor:
    """The pieces of the box that closed cells with these ends [J,2,d] leave uncovered: their ends [n,2,d].

    The ends of the cells cut the box into a grid, and no end lies inside a piece of the grid: a piece is covered if and
    only if one cell contains it. Sides without length count as points.
    """
    first, last = (torch.tensor(end, dtype=torch.float64) for end in (box.lower, box.upper))
    ends = ends[((ends[:, 0] <= last) & (ends[:, 1] >= first)).all(1)].clamp(first, last)  # what lies in the box
    long = (first < last).nonzero()[:, 0].tolist()
    whole = torch.stack((first, last))[None]
    if not long:
        return whole[len(ends) > 0 :]
    cuts = [torch.unique(torch.cat((ends[..., a].flatten(), first[a, None], last[a, None]))) for a in long]
    place = torch.stack([torch.searchsorted(c, ends[..., a].contiguous()) for c, a in zip(cuts, long, strict=True)], -1)
    count = torch.zeros([len(c) for c in cuts], dtype=torch.int32)  # of cells: its differences, then their sums
    for corner in product((0, 1), repeat=len(long)):
        where = tuple(place[:, end, axis] for axis, end in enumerate(corner))
        count.index_put_(where, torch.tensor((-1) ** sum(corner), dtype=torch.int32), accumulate=True)
    for axis in range(len(long)):
        count = count.cumsum(axis, dtype=torch.int32).narrow(axis, 0, len(cuts[axis]) - 1)
    missing = (count <= 0).nonzero()
    gaps = whole.repeat(len(missing), 1, 1)
    for i, axis in enumerate(long):
        gaps[:, 0, axis], gaps[:, 1, axis] = cuts[i][missing[:, i]], cuts[i][missing[:, i] + 1]
    return gaps


def _subdivided(box: Box, regions: Sequence[Region], depth: int) -> bool:
    """A box is covered if one region contains it, or if both of its halves are, cut across its longest side (as the
    regions measure it); False when the cuts run out.
    """
    near = [r for r in regions if r.meets(box)]
    if any(r.contains(box) for r in near):
        return True
    if depth <= 0 or not near or box.lower == box.upper:
        return False
    axis = max(range(box.dim), key=lambda i: (box.upper[i] - box.lower[i]) / near[0].scale[i])
    cut = (box.lower[axis] + box.upper[axis]) / 2
    first = Box(box.lower, (*box.upper[:axis], cut, *box.upper[axis + 1 :]))
    second = Box((*box.lower[:axis], cut, *box.lower[axis + 1 :]), box.upper)
    rest = depth - 8 // box.dim
    return _subdivided(first, near, rest) and _subdivided(second, near, rest)
