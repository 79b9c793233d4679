"""Every γ at which a rounded pixel of T_γ x can change, enclosed with proof.

Guarantee. Let V(γ) be 255 times one pixel of T_γ x in exact arithmetic. `find_crossings` returns closed γ-intervals,
the events of the pixel, such that for all γ ∈ Γ and all real images z with |z − T_γ x| ≤ tolerance the pixel of q(z) is

  - one of the levels low … high of its event that contains γ, or
  - if γ lies in none of its events, the settled level of the gap that γ lies in.

Coarse levels. With step w > 1 q is replaced by Q_w (see `rounding`): level k holds the 8-bit values wk − w/2 …
wk + w/2 − 1, so its upper threshold is V = wk + w/2 − ½, which is V' = k + ½ for V' = (V + ½)/w. All below is about V'
then: values, slopes and margins are those of V divided by w, exactly as w is a power of two; only adding 1/(2w) rounds
once more. Every threshold of Q_w is one of q, so Q_w(q(z)) = Q_w(z): an attacker who rounds and one who does not are
the same.

Argument. `isolation` finds where the pixel may be within `margin` of a threshold; elsewhere it is settled.

Slack. What float64 adds to V and V' is told by the path; margin = (255/w)·tolerance + slack holds all of it. Settled
levels are measured inside each gap and checked against the events at its ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from warpcert.classifier.before.front import Front
from warpcert.classifier.before.rounding import check_step
from warpcert.exhaustive.events.isolation import Events, isolated, nearest, strides
from warpcert.exhaustive.events.paths import Chosen, Path, Values, path_of
from warpcert.exhaustive.events.programs import Program, Tied, programs
from warpcert.exhaustive.events.relative import Relative
from warpcert.threat import Threat
from warpcert.transforms import Gradation

__all__ = ["Crossings", "Turns", "find_behind", "find_crossings", "hull", "joined", "levels", "settled", "turns_of"]

Turns = tuple[Tensor, Tensor]  # events, and the moments at which they turn


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
    programs: tuple[
        Program, ...
    ] = ()  # of attackers who compute in floating point; events with an equation follow them
    step: int = 1
    turned: bool = False  # whether it is against −γ

    def __len__(self) -> int:
        return self.pixel.numel()

    def take(self, event: Tensor) -> Crossings:
        """These events, in this order."""
        columns = ("pixel", "lower", "upper", "before", "after", "low", "high", "equation")
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
            turned=not self.turned,
        )
        return turned.take(turned.upper.argsort(stable=True))

    def from_zero(self) -> Crossings:
        """The events for γ ≥ 0. One that holds 0 begins there, and keeps its levels."""
        start, gamma = self._settled(self.upper < 0), (0.0, self.gamma[1])
        right = replace(self, start=start, gamma=gamma, lower=self.lower.clamp_min(0))
        return right.take((self.upper >= 0).nonzero()[:, 0])

    def tied(self, event: Tensor) -> Tied:
        """These events, with an equation, as programs take them."""
        c, (first, last) = self.take(event), self.gamma
        least, rises = self.step * c.high - self.step // 2, (c.after > c.before) != self.turned
        if self.turned:
            return Tied(c.pixel, least, rises, -c.upper, -c.lower, (-last, -first))
        return Tied(c.pixel, least, rises, c.lower, c.upper, (first, last))

    def _settled(self, passed: Tensor) -> Tensor:
        """The image after the first events of each pixel, those that have passed: settled levels meet."""
        change = (self.after - self.before) * passed
        now = self.start.flatten().long().index_add(0, self.pixel, change)
        return now.to(torch.uint8).view(self.start.shape)


def joined(parts: list[Crossings]) -> Crossings:
    """Those of several vectors, laid end to end."""
    names = ("lower", "upper", "before", "after", "low", "high", "equation")
    start = torch.cat([part.start.flatten() for part in parts])
    ends, pixel = 0, list[Tensor]()
    for part in parts:
        pixel.append(part.pixel + ends)
        ends += part.start.numel()
    columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    made = replace(parts[0], start=start, pixel=torch.cat(pixel), **columns)
    return made.take(made.upper.argsort(stable=True))


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
    x: Tensor, threat: Threat, tolerance: float = 1e-12, step: int = 1, near: tuple[float, float] | None = None,
    read: Tensor | None = None,
) -> Crossings:  # fmt: skip
    """All events of x [C,H,W] for γ ∈ Γ, on x's device; tolerance 1e-12 holds for attackers who compute in float64.

    step    of the levels: 1 for those of an 8-bit attacker, w for those that a classifier behind levels sees
    near    an interval to look at instead of Γ
    read    indices into x.flatten() of the pixels that a classifier reads; it sees only these, as a vector

    Of an 8-bit picture that came as floats the levels are meant; an attacker who starts from those floats is covered
    too: how far they are from the levels (3·10⁻⁸ in float32), grown as T makes it grow, is added to the tolerance.
    """
    value, whole = _values(x, threat, tolerance)
    first, last = near or (threat.box.lower[0], threat.box.upper[0])
    pixels = path_of(value, threat, check_step(step), (first, last))
    path: Values = pixels if read is None else Chosen(pixels, read)
    own = (x, value) if read is None else (x.flatten()[read], value.flatten()[read])
    shape = own[0].shape
    # Equations are about exact values. Who rounds these hands over what they give; unrounded they become floats first.
    exact = whole and threat.quantized
    followed = programs(threat, *own, tolerance) if exact else []
    tolerance += _away(x, value, path) if whole else 0.0
    margin, every = path.off(tolerance) + path.slack, torch.arange(shape.numel(), device=x.device)
    events = isolated(path, strides(path, every, first, last), margin, max(abs(first), abs(last)))
    found = settled(path, events, shape, (first, last), tolerance, path if exact else None)
    return _follow(replace(found, step=step), followed)


def find_behind(
    x: Tensor, threat: Threat, front: Front, tolerance: float, step: int, near: tuple[float, float] | None = None
) -> Crossings:
    """The same for levels behind a front, of attackers who do not round; `tolerance` is that before the tones that the
    front does not see.
    """
    if threat.quantized:
        raise ValueError("behind a front only pictures that are not rounded before it can be enumerated")
    value, whole = _values(x, threat, tolerance)
    gamma = near or (threat.box.lower[0], threat.box.upper[0])
    path = path_of(value, threat, check_step(step), gamma)
    tolerance += _away(x, value, path) if whole else 0.0
    seen = Relative(path, front, gamma, tolerance)
    every = torch.arange(x.numel(), device=x.device)
    events = isolated(seen, seen.intervals(every), seen.off(tolerance) + seen.slack, max(map(abs, gamma)))
    return settled(seen, events, x.shape, gamma, tolerance)


def _values(x: Tensor, threat: Threat, tolerance: float) -> tuple[Tensor, bool]:
    """255x in float64, as `levels`, of what can be isolated."""
    if x.dim() != 3:
        raise ValueError(f"x must have shape [C,H,W]; got {list(x.shape)}")
    if not 0 <= tolerance < 0.1 / 255:
        raise ValueError(f"tolerance must lie in [0, {0.1 / 255:.1e}), a tenth of a level; got {tolerance}")
    value, whole = levels(x)
    if isinstance(threat.transform, Gradation) and bool(((value == 0) & (x != 0)).any()):
        return 255 * x.double(), False  # no `gain` holds for what is nearly black: it is taken as it is
    return value, whole


def _away(x: Tensor, value: Tensor, path: Values) -> float:
    """How far who starts from the floats x may be from the path of their levels."""
    if x.dtype == torch.uint8 or not x.numel():
        return 0.0
    return 1.01 * float((x.double() - value / 255).abs().max()) * path.gain


def settled(
    path: Path,
    events: Events,
    shape: torch.Size,
    gamma: tuple[float, float],
    tolerance: float,
    exact: Values | None = None,
) -> Crossings:
    """Measures the settled levels, checks them against the events, and sorts. `exact`: whose equations to add."""
    (first, last), (pixel, lower, upper, low, high, once) = gamma, events
    still = torch.zeros(shape.numel(), dtype=torch.float64, device=pixel.device)
    start = nearest(path.look(torch.arange(shape.numel(), device=pixel.device), still + first, still).value, path.top)
    same = pixel[1:] == pixel[:-1]
    until = torch.full_like(lower, last)
    until[:-1] = torch.where(same, lower[1:], until[:-1])
    value = path.look(pixel, (upper + until) / 2, torch.zeros_like(upper)).value
    # Where Γ ends inside an event nothing is settled beyond, and any of its levels will do: of two, the other one.
    early, late, pair = lower <= first, upper >= last, once & (high - low == 1)
    after = torch.where(late, nearest(value, path.top).clamp(low, high), nearest(value, path.top))
    start[pixel[early]] = torch.where(pair & ~late, low + high - after, start[pixel].clamp(low, high))[early]
    before = start[pixel]
    before[1:] = torch.where(same, after[:-1], before[1:])
    after = torch.where(late & pair, low + high - before, after)
    outside = (torch.minimum(before, after) < low) | (torch.maximum(before, after) > high)
    near = ((value - 0.5) - (value - 0.5).round()).abs() <= path.off(tolerance)
    if bool((outside | (near & ~late & (value > 0) & (value < path.top))).any()):
        raise RuntimeError("a settled level contradicts the events beside it: please report this picture and threat")
    equation = pixel.new_zeros(pixel.numel(), 6)
    if exact is not None:
        look = path.look(pixel, (lower + upper) / 2, (upper - lower) / 2 + 1e-9)  # 1e-9: clear of other cells for sure
        known = look.smooth & pair & (before != after) & ~(early & late)
        equation = exact.equation(look.piece, pixel, low, (before - after).sign()) * known[:, None]
    image = start.to(torch.uint8).reshape(shape)
    columns = (pixel, lower, upper, before, after, low, high, equation)
    return Crossings(image, gamma, tolerance, *columns).take(upper.argsort(stable=True))


def _follow(c: Crossings, followed: list[Program]) -> Crossings:
    """With the programs. An event that goes the other way than its program is no part of a coincidence."""
    known, rises = (c.equation != 0).any(1), c.after > c.before
    for program in followed:
        known &= program.rises(c.pixel, rises) == rises
    return replace(c, equation=c.equation * known[:, None], programs=tuple(followed))


def hull(c: Crossings, group: Tensor, count: int, whole: bool) -> tuple[Tensor, Tensor]:
    """The intervals of groups: what their events have in common or, if `whole`, all that they cover."""
    sign = -1 if whole else 1
    lower = c.lower.new_full((count,), -math.inf).scatter_reduce(0, group, sign * c.lower, "amax")
    upper = c.lower.new_full((count,), math.inf).scatter_reduce(0, group, sign * c.upper, "amin")
    return sign * lower, sign * upper


def _apart(c: Crossings, group: Tensor) -> bool:
    """Whether the events of a pixel lie in groups that do not meet."""
    lower, upper = (end[group] for end in hull(c, group, int(group.max()) + 1, True))
    order = c.lower.argsort(stable=True)
    order = order[c.pixel[order].argsort(stable=True)]
    same = c.pixel[order][1:] == c.pixel[order][:-1]
    return not bool((same & (lower[order][1:] <= upper[order][:-1])).any())


def turns_of(c: Crossings, group: Tensor) -> list[Turns]:
    """For each program which events turn, and when, in the order of γ; none if one cannot be followed."""
    _, group, size = torch.unique(group, return_inverse=True, return_counts=True)
    tied = (size > 1)[group].nonzero()[:, 0]
    if not tied.numel() or not _apart(c, group):
        return []
    found = list[Turns]()
    for program in c.programs:
        turns = program.turns(c.tied(tied))
        if turns is None:
            return []
        found.append((tied[turns[0]], turns[1] * (-program.direction if c.turned else program.direction)))
    return found
