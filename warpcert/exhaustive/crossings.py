"""Every γ at which a rounded pixel of T_γ x can change, enclosed with proof.

Guarantee. Let V(γ) be 255 times one pixel of T_γ x in exact arithmetic. `find_crossings` returns closed γ-intervals,
the events of the pixel, such that for all γ ∈ Γ and all real images z with |z − T_γ x| ≤ tolerance the pixel of q(z) is

  - one of the levels low … high of its event that contains γ, or
  - if γ lies in none of its events, the settled level of the gap that γ lies in.

Coarse levels. With step w > 1 q is replaced by Q_w of `classifier.levels`: level k holds the 8-bit values wk − w/2 … wk
+ w/2 − 1, so its upper threshold is V = wk + w/2 − ½, which is V' = k + ½ for V' = (V + ½)/w. All below is about V'
then: values, slopes and margins are those of V divided by w, exactly as w is a power of two; only adding 1/(2w) rounds
once more. Every threshold of Q_w is one of q, so Q_w(q(z)) = Q_w(z): an attacker who rounds and one who does not are
the same.

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

Slack. What float64 adds to V and V' is told by the path; margin = (255/w)·tolerance + slack holds all of it. Settled
levels are measured inside each gap and checked against the events at its ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from warpcert.classifier.levels import check_step
from warpcert.exhaustive.paths import Path, path_of
from warpcert.exhaustive.programs import Program, programs, switches
from warpcert.threat import Threat
from warpcert.transforms import Gradation

__all__ = ["Crossings", "find_crossings", "levels", "ragged"]

_AT_ONCE = 1 << 22  # intervals decided together: bounds the memory, not the answer
_Intervals = tuple[Tensor, ...]  # pixel, a, b
_Events = tuple[Tensor, ...]  # pixel, lower, upper, low, high, once (V is strictly monotone on the event)


@final
@dataclass(frozen=True)
class Crossings:
    """E events in the order of their upper ends; those of one pixel are disjoint. Levels are 0 … 255, or coarse."""

    start: Tensor  # uint8 [C,H,W]: q(T_γ x) at the lower end of Γ
    gamma: tuple[float, float]  # Γ
    tolerance: float
    pixel: Tensor  # int64 [E]: index into x.flatten()
    lower: Tensor  # float64 [E]
    upper: Tensor  # float64 [E]
    before: Tensor  # int64 [E]: the settled level to the left
    after: Tensor  # int64 [E]: and to the right
    low: Tensor  # int64 [E]: inside, every level from low …
    high: Tensor  # int64 [E]: … to high may occur
    equation: Tensor  # int64 [E,6]: overlapping events with proportional rows cross at exactly the same γ; 0: not known
    switch: Tensor  # float64 [E,P]: in the order of these the events with an equation happen in each of P programs

    def __len__(self) -> int:
        return self.pixel.numel()

    def take(self, event: Tensor) -> Crossings:
        """These events, in this order."""
        columns = ("pixel", "lower", "upper", "before", "after", "low", "high", "equation", "switch")
        return replace(self, **{name: getattr(self, name)[event] for name in columns})

    def mirrored(self) -> Crossings:
        """The same events against −γ, beginning at the other end of Γ; equations stay, as they are only compared."""
        turned = replace(
            self,
            start=self._settled(self.pixel >= 0),
            gamma=(-self.gamma[1], -self.gamma[0]),
            lower=-self.upper,
            upper=-self.lower,
            before=self.after,
            after=self.before,
            switch=-self.switch,
        )
        return turned.take(turned.upper.argsort(stable=True))

    def from_zero(self) -> Crossings:
        """The events for γ ≥ 0. One that holds 0 begins there, and keeps its levels."""
        start, gamma = self._settled(self.upper < 0), (0.0, self.gamma[1])
        right = replace(self, start=start, gamma=gamma, lower=self.lower.clamp_min(0))
        return right.take((self.upper >= 0).nonzero()[:, 0])

    def _settled(self, passed: Tensor) -> Tensor:
        """The image after the first events of each pixel, those that have passed: settled levels meet."""
        change = (self.after - self.before) * passed
        now = self.start.flatten().long().index_add(0, self.pixel, change)
        return now.to(torch.uint8).view(self.start.shape)


def levels(x: Tensor) -> tuple[Tensor, bool]:
    """255·x in float64, and whether x is an 8-bit picture (uint8, or all within 10⁻⁴ of a level): then exact levels."""
    if x.dtype == torch.uint8:
        return x.double(), True
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError("x must have values in [0, 1], or dtype uint8; scale it first")
    value = 255 * x.double()
    whole = bool(((value - value.round()).abs() <= 1e-4).all())
    return value.round() if whole else value, whole


def find_crossings(
    x: Tensor, threat: Threat, tolerance: float = 1e-12, step: int = 1, near: tuple[float, float] | None = None
) -> Crossings:
    """All events of x [C,H,W] for γ ∈ Γ, on x's device; tolerance 1e-12 holds for attackers who compute in float64.

    step    of the levels: 1 for those of an 8-bit attacker, w for those that a classifier behind levels sees
    near    an interval to look at instead of Γ

    Of an 8-bit picture that came as floats the levels are meant; an attacker who starts from those floats is covered
    too: how far they are from the levels (3·10⁻⁸ in float32), grown as T makes it grow, is added to the tolerance.
    """
    if x.dim() != 3:
        raise ValueError(f"x must have shape [C,H,W]; got {list(x.shape)}")
    if not 0 <= tolerance < 0.1 / 255:
        raise ValueError(f"tolerance must lie in [0, {0.1 / 255:.1e}), a tenth of a level; got {tolerance}")
    value, whole = levels(x)
    if isinstance(threat.transform, Gradation) and bool(((value == 0) & (x != 0)).any()):
        value, whole = 255 * x.double(), False  # no `gain` holds for what is nearly black: it is taken as it is
    first, last = near or (threat.box.lower[0], threat.box.upper[0])
    path = path_of(value, threat, check_step(step), (first, last))
    # Equations are about exact values. Who rounds these hands over what they give; unrounded they become floats first.
    exact = whole and threat.quantized
    followed = programs(threat, x, value, tolerance) if exact else []
    if whole and x.dtype != torch.uint8:
        away = float((x.double() - value / 255).abs().max()) if x.numel() else 0.0
        tolerance += 1.01 * away * path.gain
    margin = 255 / step * tolerance + path.slack
    found: list[_Events] = []
    for interval in _intervals(path, torch.arange(x.numel(), device=x.device), first, last):
        while interval[0].numel():
            events, interval = _decide(path, interval, margin, path.slack)
            found.append(events)
    events = _merge(tuple(map(torch.cat, zip(*found, strict=True))), 2.0**-48 * max(abs(first), abs(last)))
    return _follow(_settle(path, events, x.shape, (first, last), tolerance, exact), followed, step)


def ragged(count: Tensor, total: int | None = None) -> tuple[Tensor, Tensor]:
    """For runs of these lengths laid end to end: whose run each place is in, and its position there.

    `total` is their sum, for who knows it: a GPU need not be waited for then.
    """
    owner = torch.repeat_interleave(torch.arange(count.numel(), device=count.device), count, output_size=total)
    return owner, torch.arange(owner.numel(), device=count.device) - (count.cumsum(0) - count)[owner]


def _intervals(path: Path, every: Tensor, first: float, last: float) -> Iterator[_Intervals]:
    """(pixel, [a, b]): [first, last] for all pixels in intervals no wider than the stride, cut at 0, where all kink."""
    ends = (first, 0.0, last) if first <= 0 <= last else (first, last)
    parts = [
        torch.linspace(a, b, 1 + max(1, math.ceil(1.01 * (b - a) / path.stride)), dtype=torch.float64)
        for a, b in pairwise(ends)
    ]
    edges = torch.cat((parts[0], *(part[1:] for part in parts[1:]))).to(every.device)
    for part in every.chunk(1 + every.numel() * edges.numel() // _AT_ONCE):
        pixel = part.repeat_interleave(edges.numel() - 1)
        yield pixel, edges[:-1].repeat(part.numel()), edges[1:].repeat(part.numel())


def _level(value: Tensor, top: int) -> Tensor:
    return (value + 0.5).floor().clamp_(0, top).long()


def _decide(path: Path, interval: _Intervals, margin: float, slack: float) -> tuple[_Events, _Intervals]:
    """The events of the intervals that are decided, and the halves of the others."""
    pixel, a, b = interval
    middle = (a + b) / 2
    half = torch.maximum(b - middle, middle - a) * (1 + 2.0**-40)
    look = path.look(pixel, middle, half)
    spread = torch.where(look.smooth, half * (look.slope.abs() + half * look.bend / 2), half * look.steep) + margin
    low, high = _level(look.value - spread, path.top), _level(look.value + spread, path.top)
    unclear = low < high
    # the error of the slope is at most that of V times |s'| ≤ 1/stride
    monotone = unclear & look.smooth & (look.slope.abs() > 2 * half * look.bend + slack / path.stride)
    stuck = unclear & ~monotone & ((spread <= 4 * margin) | (middle <= a) | (middle >= b))
    chosen = pixel[monotone], a[monotone], b[monotone]
    crossing = _cross(path, look.piece[monotone], look.slope[monotone].sign(), chosen, margin)
    touching = tuple(t[stuck] for t in (pixel, a, b, low, high, monotone))
    split = unclear & ~monotone & ~stuck
    pixel, a, middle, b = (t[split] for t in (pixel, a, middle, b))
    events = tuple(map(torch.cat, zip(crossing, touching, strict=True)))
    return events, (pixel.repeat(2), torch.cat((a, middle)), torch.cat((middle, b)))


def _cross(path: Path, piece: Tensor, rising: Tensor, interval: _Intervals, margin: float) -> _Events:
    """One event for each threshold that a monotone V comes within `margin` of on [a, b]; `rising` is the sign of V'."""
    ends = torch.stack([path.on(piece, interval[0], end)[0] for end in interval[1:]])
    lowest = (ends.amin(0) - margin - 0.5).ceil().clamp_(0, path.top).long()
    highest = (ends.amax(0) + margin - 0.5).floor().clamp_(-1, path.top - 1).long()
    item, position = ragged((highest - lowest + 1).clamp_(min=0))
    level = lowest[item] + position
    piece, rising, pixel, a, b = (t[item] for t in (piece, rising, *interval))

    def beyond(gamma: Tensor) -> tuple[Tensor, Tensor]:
        """How far V is past the threshold at γ, and how fast it goes on."""
        value, slope = path.on(piece, pixel, gamma)
        return rising * (value - level - 0.5), rising * slope

    at_a, at_b = rising * (ends[:, item] - level - 0.5)
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
    return pixel, lower, upper, level, level + 1, level >= 0


def _merge(events: _Events, apart: float) -> _Events:
    """Joins events of one pixel that meet; others are further than `apart`. Sorted by pixel, then γ."""
    order = events[1].argsort(stable=True)
    order = order[events[0][order].argsort(stable=True)]
    pixel, lower, upper, low, high, once = (t[order] for t in events)
    ascending, by_upper = upper.sort()
    rank = by_upper.argsort()
    total = max(1, rank.numel())
    furthest = ascending[(pixel * total + rank).cummax(0).values % total]  # upper end so far, pixel by pixel
    fresh = torch.ones_like(once)
    fresh[1:] = (pixel[1:] != pixel[:-1]) | (lower[1:] > furthest[:-1] + apart)
    group = fresh.cumsum(0) - 1

    def gather(t: Tensor, reduce: str) -> Tensor:
        return t[fresh].scatter_reduce(0, group, t, reduce)

    upper, once = gather(upper, "amax"), gather(once.long(), "amin") > 0
    return pixel[fresh], lower[fresh], upper, gather(low, "amin"), gather(high, "amax"), once


def _settle(
    path: Path, events: _Events, shape: torch.Size, gamma: tuple[float, float], tolerance: float, exact: bool
) -> Crossings:
    """Measures the settled levels, checks them against the events, and sorts. `exact`: with equations."""
    (first, last), (pixel, lower, upper, low, high, once) = gamma, events
    still = torch.zeros(shape.numel(), dtype=torch.float64, device=pixel.device)
    start = _level(path.look(torch.arange(shape.numel(), device=pixel.device), still + first, still).value, path.top)
    same = pixel[1:] == pixel[:-1]
    until = torch.full_like(lower, last)
    until[:-1] = torch.where(same, lower[1:], until[:-1])
    value = path.look(pixel, (upper + until) / 2, torch.zeros_like(upper)).value
    # Where Γ ends inside an event nothing is settled beyond, and any of its levels will do: of two, the other one.
    early, late, pair = lower <= first, upper >= last, once & (high - low == 1)
    after = torch.where(late, _level(value, path.top).clamp(low, high), _level(value, path.top))
    start[pixel[early]] = torch.where(pair & ~late, low + high - after, start[pixel].clamp(low, high))[early]
    before = start[pixel]
    before[1:] = torch.where(same, after[:-1], before[1:])
    after = torch.where(late & pair, low + high - before, after)
    outside = (torch.minimum(before, after) < low) | (torch.maximum(before, after) > high)
    near = ((value - 0.5) - (value - 0.5).round()).abs() <= 255 / path.step * tolerance
    if bool((outside | (near & ~late & (value > 0) & (value < path.top))).any()):
        raise RuntimeError("a settled level contradicts the events beside it: please report this picture and threat")
    look = path.look(pixel, (lower + upper) / 2, (upper - lower) / 2 + 1e-9)  # 1e-9: clear of other cells for sure
    equation = path.equation(look.piece, pixel, low, (before - after).sign())
    equation *= (look.smooth & pair & (before != after) & ~(early & late) & exact)[:, None]
    image, still = start.to(torch.uint8).reshape(shape), still.new_empty(pixel.numel(), 0)
    columns = (pixel, lower, upper, before, after, low, high, equation, still)
    return Crossings(image, gamma, tolerance, *columns).take(upper.argsort(stable=True))


def _follow(c: Crossings, followed: list[Program], step: int) -> Crossings:
    """With the order in which the programs switch. An event that goes the other way than its program is no part of a
    coincidence.
    """
    if not followed:
        return c
    known, rises = (c.equation != 0).any(1), c.after > c.before
    for program in followed:
        known &= program.rises(c.pixel) == rises
    event, switch = known.nonzero()[:, 0], c.lower.new_zeros(len(c), len(followed))
    for i, program in enumerate(followed):
        least = step * c.high[event] - step // 2
        switch[event, i] = switches(program, c.pixel[event], least, c.gamma)
    return replace(c, equation=c.equation * known[:, None], switch=switch)
