"""Every γ at which a mean of rounded pixels can change its level, enclosed with proof.

Guarantee. `of_rounded` returns events as `of_means` does, of means of q(z) in place of z: for all γ ∈ Γ and all real z
with |z − T_γ x| ≤ tolerance the level of the mean of q(z) is one of its event's, or the settled one. This is what a
classifier behind a stem sees if the attacker rounds to 8 bits, or if the stem does.

Argument. |q(z) − T_γ x| ≤ ½ + 255·tolerance in every pixel (in 8-bit values; clamping brings q(z) nearer), so the mean
of q(z) is within gain times that, the reach, of the mean of T_γ x. Where this one is farther from all thresholds, the
level is settled, and what it is a look at the unrounded mean tells. What is left of a mean's Γ are closed runs, each
between two intervals where it is settled, or ending where Γ does. In a run all pixels of the mean are isolated
as for a classifier that sees pixels: closed events with levels low … high, settled levels in the gaps. Hence with
integer weights w the sum S = Σ w·v lies between the sums of the least and the largest of what each pixel contributes:

    w·v, if v is the settled level,     min and max of w·low and w·high in an event.

These bounds change at ends of events only. In the order of γ, where events begin before others end, running sums tell
them between any two ends, and from them the least and the largest level of the mean, as integers. Where they differ is
an event of the mean, closed since events of pixels are; next to it the level is settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor

from warpcert.classifier.before.stem import Plane
from warpcert.exhaustive.events.crossings import Crossings
from warpcert.exhaustive.events.isolation import AT_ONCE, Events, Intervals, isolated, nearest, ragged, strides
from warpcert.exhaustive.events.means import Means
from warpcert.exhaustive.events.paths import Look, Moved

__all__ = ["of_rounded"]

_Gamma = tuple[float, float]


class _Runs(NamedTuple):
    """Where a mean may be within reach of a threshold: closed, apart, by cell and γ."""

    cell: Tensor
    first: Tensor
    last: Tensor


def of_rounded(pixels: Moved, means: Means, gamma: _Gamma, tolerance: float) -> Crossings:
    """The events of one plane, for the pixels of the same picture at step 1; `start` is a vector."""
    runs = _runs(means, gamma, 0.5 * means.off(2 * tolerance + 1 / 255) + means.slack)
    inside = _Inside(pixels, means, runs)
    events = isolated(inside, inside.intervals(), pixels.off(tolerance) + pixels.slack, max(map(abs, gamma)))
    return _levels(means, runs, gamma, tolerance, _ends(inside, events, pixels.off(tolerance)))


def _runs(means: Means, gamma: _Gamma, reach: float) -> _Runs:
    """Intervals are halved until no threshold is within reach, or until V changes by no more than the reach."""
    found: list[Intervals] = []
    for interval in strides(means, torch.arange(len(means.taps), device=means.taps.device), *gamma):
        while interval[0].numel():
            cell, a, b = interval
            middle = (a + b) / 2
            half = torch.maximum(b - middle, middle - a) * (1 + 2.0**-40)
            look = means.look(cell, middle, half)
            spread = torch.where(look.smooth, half * (look.slope.abs() + half * look.bend / 2), half * look.steep)
            low, high = (nearest(look.value + side * (spread + reach), means.top) for side in (-1, 1))
            near = low < high
            fine = near & ((spread <= reach) | (middle <= a) | (middle >= b))
            found.append((cell[fine], a[fine], b[fine]))
            cell, a, middle, b = (t[near & ~fine] for t in (cell, a, middle, b))
            interval = cell.repeat(2), torch.cat((a, middle)), torch.cat((middle, b))
    cell, a, b = (torch.cat(t) for t in zip(*found, strict=True))
    order = a.argsort(stable=True)
    order = order[cell[order].argsort(stable=True)]
    cell, a, b = cell[order], a[order], b[order]
    fresh = torch.ones_like(cell, dtype=torch.bool)
    fresh[1:] = (cell[1:] != cell[:-1]) | (a[1:] > b[:-1])
    return _Runs(cell[fresh], a[fresh], b[torch.cat((fresh[1:], fresh[:1]))] if len(fresh) else b)


@final
class _Inside:
    """The pixels of means in runs, as a path: for each run all that its mean is made of, each on the run alone."""

    parts = 1

    def __init__(self, pixels: Moved, means: Means, runs: _Runs) -> None:
        self.pixels, self.means, self.runs = pixels, means, runs
        self.top, self.slack, self.stride = pixels.top, pixels.slack, pixels.stride
        weights = [(channel, w) for channel, w in enumerate(means.plane.weights) if w]
        plane = pixels.height * pixels.width
        self.taps = torch.cat([means.taps + channel * plane for channel, _ in weights], 1)  # [cells, each]
        self.each = self.taps.shape[1]
        self.weight = torch.tensor([w for _, w in weights], device=self.taps.device).repeat_interleave(means.parts)

    def _pixel(self, item: Tensor) -> Tensor:
        return self.taps[self.runs.cell[item // self.each], item % self.each]

    def off(self, tolerance: float) -> float:
        return self.pixels.off(tolerance)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        return self.pixels.on(piece, self._pixel(pixel), gamma)

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        return self.pixels.look(self._pixel(pixel), gamma, half)

    def intervals(self) -> Iterator[Intervals]:
        """Runs, cut at multiples of the stride, 0 among them; with every pixel."""
        runs, stride = self.runs, self.stride / 1.01
        place = (runs.first / stride).floor()
        count = ((runs.last / stride).ceil() - place).clamp_min(1).long()
        run, nth = ragged(count)
        first, last = runs.first[run], runs.last[run]
        a, b = (torch.minimum(torch.maximum((place[run] + n) * stride, first), last) for n in (nth, nth + 1))
        a, b = torch.where(nth == 0, first, a), torch.where(nth + 1 == count[run], last, b)
        every = torch.arange(self.each, device=run.device)
        for part in torch.arange(len(run), device=run.device).chunk(1 + len(run) * self.each // AT_ONCE):
            item = (run[part, None] * self.each + every).flatten()
            yield item, a[part].repeat_interleave(self.each), b[part].repeat_interleave(self.each)


class _Ends(NamedTuple):
    """Where the bounds of S change, by run and γ, and what they are from there on."""

    run: Tensor
    gamma: Tensor
    low: Tensor
    high: Tensor


def _ends(inside: _Inside, events: Events, doubt: float) -> _Ends:
    """Running sums over the events of the pixels of each run."""
    item, lower, upper, low, high, _ = events
    runs, each = inside.runs, inside.each
    every = torch.arange(len(runs.cell) * each, device=item.device)
    none = torch.zeros_like(every, dtype=torch.float64)
    start = nearest(inside.look(every, runs.first[every // each], none).value, inside.top)
    run, weight = item // each, inside.weight[item % each]
    same = item[1:] == item[:-1]
    until = runs.last[run]
    until[:-1] = torch.where(same, lower[1:], until[:-1])
    value = inside.look(item, (upper + until) / 2, torch.zeros_like(upper)).value
    after, early, late = nearest(value, inside.top), lower <= runs.first[run], upper >= runs.last[run]
    before = start[item]
    before[1:] = torch.where(same, after[:-1], before[1:])
    wrong = (~early & ((before < low) | (before > high))) | (~late & ((after < low) | (after > high)))
    near = ((value - 0.5) - (value - 0.5).round()).abs() <= doubt
    if bool((wrong | (near & ~late & (value > 0) & (value < inside.top))).any()):
        raise RuntimeError("a settled level contradicts the events beside it: please report this picture and threat")
    least, most = torch.minimum(weight * low, weight * high), torch.maximum(weight * low, weight * high)
    before, after = weight * before, weight * after

    def total(part: Tensor) -> Tensor:
        """At the first end of each run: in its event, or settled."""
        sums = (inside.weight * start.view(-1, each)).sum(1)
        return sums.index_add(0, run[early], (part - weight * start[item])[early])

    opens, closes, all_runs = ~early, ~late, torch.arange(len(runs.cell), device=item.device)
    owner = torch.cat((all_runs, run[opens], run[closes]))
    gamma = torch.cat((runs.first, lower[opens], upper[closes]))
    change = torch.stack(
        [torch.cat((total(part), (part - before)[opens], (after - part)[closes])) for part in (least, most)]
    )
    order = gamma.argsort(stable=True)  # events that begin come before those that end
    order = order[owner[order].argsort(stable=True)]
    sums = change[:, order].cumsum(1)
    owner = owner[order]
    head = torch.searchsorted(owner, all_runs)
    earlier = (sums - change[:, order])[:, head]
    low, high = sums - earlier[:, owner]
    return _Ends(owner, gamma[order], low, high)


def _levels(means: Means, runs: _Runs, gamma: _Gamma, tolerance: float, ends: _Ends) -> Crossings:
    """The events of the means, from the bounds of S in their runs."""
    (first, last), plane, cells = gamma, means.plane, len(means.taps)
    low, high = (_level(plane, s) for s in (ends.low, ends.high))
    wide, size = low < high, len(low)
    edge = torch.ones(size + 1, dtype=torch.bool, device=low.device)  # where a run begins
    edge[1:-1] = ends.run[1:] != ends.run[:-1]
    joined = torch.zeros_like(wide)
    joined[1:] = wide[1:] & wide[:-1] & ~edge[1:-1]
    begin = (wide & ~joined).nonzero()[:, 0]
    group = (wide & ~joined).cumsum(0)[wide] - 1
    least = low[begin].scatter_reduce(0, group, low[wide], "amin")
    most = high[begin].scatter_reduce(0, group, high[wide], "amax")
    stop = begin + torch.bincount(group, minlength=len(begin))  # the end at which it is settled again, or the next run
    run = ends.run[begin]
    open_left, open_right = edge[begin], edge[stop]
    lower = ends.gamma[begin]
    upper = torch.where(open_right, runs.last[run], ends.gamma[stop.clamp(max=size - 1)])

    def unrounded(which: Tensor, at: Tensor) -> Tensor:
        return nearest(means.look(which, at, torch.zeros_like(at)).value, means.top)

    cell = runs.cell[run]
    before = torch.where(open_left, unrounded(cell, runs.first[run]), low[begin - 1])
    after = torch.where(open_right, unrounded(cell, runs.last[run]), low[stop.clamp(max=size - 1)])
    early, late = open_left & (lower <= first), open_right & (upper >= last)
    every = torch.arange(cells, device=cell.device)
    start = unrounded(every, torch.full((cells,), first, dtype=torch.float64, device=cell.device))
    heads = edge[:-1].nonzero()[:, 0]
    begins = runs.first <= first
    start[runs.cell[begins]] = low[heads][begins]
    # Where Γ ends inside an event nothing is settled beyond, and any of its levels will do: of two, the other one.
    pair = most - least == 1
    before = torch.where(early, torch.where(pair & ~late, least + most - after, least), before)
    after = torch.where(late, torch.where(pair, least + most - before, before), after)
    start[cell[early]] = before[early]
    _check(cell, start, (before, after, least, most))
    quiet = heads[~wide[heads] & ~begins]
    if bool((low[quiet] != unrounded(runs.cell[~wide[heads] & ~begins], runs.first[~wide[heads] & ~begins])).any()):
        raise RuntimeError("a mean's level contradicts the mean: please report this picture and threat")
    columns = (cell, lower, upper, before, after, least, most, cell.new_zeros(len(cell), 6))
    made = Crossings(start.to(torch.uint8), gamma, tolerance, *columns)
    return made.take(upper.argsort(stable=True))


def _level(plane: Plane, total: Tensor) -> Tensor:
    """Of means Σ w·v / (whole·side²), from the sums."""
    scale = plane.whole * plane.side**2 * plane.step
    return ((2 * total + scale) // (2 * scale) + plane.zero).clamp_(0, plane.top)


def _check(cell: Tensor, start: Tensor, levels: tuple[Tensor, ...]) -> None:
    """Settled levels meet, and are among those of the events beside them."""
    before, after, least, most = levels
    expected = start[cell]
    same = cell[1:] == cell[:-1]
    expected[1:] = torch.where(same, after[:-1], expected[1:])
    off = (torch.minimum(before, after) < least) | (torch.maximum(before, after) > most) | (before != expected)
    if bool(off.any()):
        raise RuntimeError("a mean's settled level contradicts its events: please report this picture and threat")
