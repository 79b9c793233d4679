"""Where each pixel switches at a tie, to the last bit, when the attacker computes in floating point.

Hundreds of pixels can meet their thresholds at one γ*. Within rounding error of γ* the order in which they switch is
not that of exact arithmetic: it is that of the program which computes them. So the program is named, and followed: the
package's own attack, `Threat.attacked`, with one scalar s = γ or e^{aγ} that moves all values, or all points:

    tones   z = x + s, or x·s, or (x − c)·s + c
    flows   points s·p, or p + s·Bp; then bilinear in the order of `kernels.gather`
    both    clamp to [0, 1], times 255, round half to even

each operation correctly rounded in one floating-point type. s is one number for all pixels, so it does not matter how
well or badly e^{aγ} is computed: what is found here is true of every s of that type.

Guarantee. Let an event of a pixel have the levels low and low + 1, m the least 8-bit value of the upper one, and r
whether the exact value rises with s. The event has *happened* at s if (v(s) ≥ m) = r, where v(s) is the program's 8-bit
value. `turns` returns the numbers s at which that changes, in the order of s, for all s that come from γ in the event,
or from γ where its pixel is settled: before the first it has not happened, after the last it has.

Tones. A correctly rounded operation is monotone in each operand where the exact one is. So x + s and x·s (x ≥ 0) do
not decrease with s; nor does (x − c)·s + c where x − c, rounded, is ≥ 0, and where it is ≤ 0 it does not increase.
Clamping, times 255 and rounding do not decrease. Hence an event turns once at most, and bisection over the bit
patterns of s, which have the order of the numbers, finds where (`switches`); t = −∞ or ∞ if not in [least, most].

Flows. A bilinear value goes up and down in its last bits, so an event may turn several times, but only in a window.
Let V(s) be 255 times the exact value at the exact point that s gives, from `start`, and W(s) the program's value times
255 before it is rounded, u = 2⁻⁵³. |W − V| ≤ e, where

    e = 255·20u + g_y δ_y + g_x δ_x,    δ = 1.01u(3(|s_i| + 2|p_i|) + side),    and 1 % more.

Points: δ bounds the roundings of s·p_i or p_i + s·(Bp)_i, of numbers up to |s_i| + 2|p_i|, and of adding half a side; V
changes by at most g times that, the steepest of the 3 × 3 cells around. Weights: s − j and 1 − |s − j| each err by u at
most. A line sums two products: its weights make it err by 4u, products and sum by u each. The column of two lines
adds 4u, the 6u of the lines, and 2u: 12u. Half as much again and more is left for 255W and the comparisons.

Lemma. Let V be strictly monotone for all s at hand. If W(a) is before the threshold by 2e, and W(b) beyond it by 2e,
then V is before it by e at a, and beyond it by e at b, and so at all s before a and after b: there W is on the same
side as V. So outside the *window* (a, b) the event has not happened before and has happened after, and inside it every
s of its type is tried. A window is at most 2·`MOST` numbers wide, less than 10⁻¹⁰ of s; V is shown to be monotone on
the event and 10⁻⁹ of γ on both sides by its derivative in the middle and the bound of the second. (Equations are known
of flows whose generators are whole numbers only, so s changes at least as fast as γ, or as e^γ.)

The program stays within the tolerance, or it is left out (`follows` of the family). So where a pixel is settled by the
tolerance, the program agrees. Pictures that came as floats are a second start: how far they are from the levels is in
the tolerance of the events already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import torch
from torch import Tensor

from warpcert.exhaustive.events.isolation import ragged
from warpcert.exhaustive.events.paths import EPS, Moved
from warpcert.threat import Threat
from warpcert.transforms import Flow, Tone
from warpcert.transforms.kernels import gather, kernel

__all__ = ["MOST", "Program", "Tied", "programs", "switches"]

MOST = 1 << 17  # floating-point numbers on each side of a window's middle; beyond, an event is not followed
_BEYOND = 1e-9  # of γ, on both sides of an event, where V is monotone too
_TOTAL = 1 << 23  # and in all windows together: a few seconds
_AT_ONCE = 1 << 20  # values that a program computes at once
_BITS = {torch.float64: torch.int64, torch.float32: torch.int32}


class Tied(NamedTuple):
    """Events of ties against γ: pixel, m, whether V rises with γ, and the event's interval; Γ, or the part at hand."""

    pixel: Tensor
    least: Tensor
    rises: Tensor
    lower: Tensor
    upper: Tensor
    ends: tuple[float, float]


class Program(ABC):
    """Starts from `start` and computes in its type; `direction` is 1 if s grows with γ, −1 if it falls."""

    start: Tensor
    direction: int

    @abstractmethod
    def rises(self, pixel: Tensor, rises: Tensor) -> Tensor:
        """Whether the program's values of these pixels rise with γ, given whether the exact ones do."""

    @abstractmethod
    def value(self, pixel: Tensor, s: Tensor) -> Tensor:
        """z for these pixels, each with its own s."""

    @abstractmethod
    def turns(self, tied: Tied) -> tuple[Tensor, Tensor] | None:
        """Which event turns, and at which s, in float64; None if that cannot be told."""

    @final
    def passed(self, pixel: Tensor, s: Tensor, least: Tensor) -> Tensor:
        """v(s) ≥ m."""
        return (255 * self.value(pixel, s).clamp(0, 1)).round() >= least


@final
class Toned(Program):
    def __init__(self, transform: Tone, start: Tensor) -> None:
        self.transform, self.start, self.direction = transform, start.flatten(), 1

    def rises(self, pixel: Tensor, rises: Tensor) -> Tensor:
        pivot = self.transform.pivot
        return torch.ones_like(rises) if pivot is None else self.start[pixel] - pivot >= 0

    def value(self, pixel: Tensor, s: Tensor) -> Tensor:
        moved: Tensor = self.transform.moved(self.start[pixel], s)
        return moved

    def turns(self, tied: Tied) -> tuple[Tensor, Tensor] | None:
        t = switches(self, tied.pixel, tied.least, tied.ends)
        return torch.arange(len(t), device=t.device), t


@final
class Flowing(Program):
    """In float64."""

    def __init__(self, transform: Flow, start: Tensor, ends: tuple[float, float]) -> None:
        self.transform, self.start, self.direction = transform, start, transform.direction
        self.path = Moved(255 * start, transform, ends, 1)
        self.kernel = kernel("bilinear")

    def rises(self, pixel: Tensor, rises: Tensor) -> Tensor:
        return rises

    def value(self, pixel: Tensor, s: Tensor) -> Tensor:
        y, x = self.transform.placed(s, self.path.y[pixel], self.path.x[pixel])
        channel, made = pixel // self.start[0].numel(), torch.empty_like(s)
        for number in range(len(self.start)):
            own = channel == number
            point = y[own][None, None], x[own][None, None]
            made[own] = gather(self.start[number : number + 1], *point, self.kernel).flatten()
        return made

    def _error(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> Tensor:
        """e."""
        path, error = self.path, torch.full_like(gamma, 255 * 20 * EPS)
        moved = self.transform.source([gamma], path.y[pixel], path.x[pixel])
        sides = (path.y, path.near_y, path.height), (path.x, path.near_x, path.width)
        for s, (p, near, side) in zip(moved, sides, strict=True):
            error += near[piece] * (1.01 * EPS * (3 * (s.abs() + 2 * p[pixel].abs()) + side))
        return 1.01 * error

    def turns(self, tied: Tied) -> tuple[Tensor, Tensor] | None:
        pixel, least, path = tied.pixel, tied.least, self.path
        middle, half = (tied.lower + tied.upper) / 2, (tied.upper - tied.lower) / 2
        look = path.look(pixel, middle, half + _BEYOND)
        steady = look.smooth & (look.slope.abs() > (half + _BEYOND) * look.bend + path.slack / path.stride)
        if not bool(steady.all()):
            return None
        rising, error = tied.rises == (self.direction > 0), self._error(look.piece, pixel, middle)
        ends = torch.stack([_key(self.transform.amount(end)) for end in (tied.lower, tied.upper)])
        low, high = ends.amin(0) - 16, ends.amax(0) + 16  # e^γ errs by 4 numbers at most
        sign = torch.where(rising, 1, -1)

        def beyond(key: Tensor) -> Tensor:
            return sign * (255 * self.value(pixel, _number(key, torch.float64)) - (least - 0.5))

        at_low, at_high = beyond(low), beyond(high)
        always, never = at_low >= 2 * error, at_high <= -2 * error  # of an event at an end of what is looked at
        while bool((high - low > 1).any()):
            middle_key = (low >> 1) + (high >> 1) + (low & high & 1)  # without overflow
            past = beyond(middle_key) >= 0
            low, high = torch.where(past, low, middle_key), torch.where(past, middle_key, high)
        left, right = torch.where(always, 0, 1), torch.where(never, 0, 1)
        while True:
            doubt = ~always & (beyond(high - left) > -2 * error), ~never & (beyond(high + right) < 2 * error)
            if not bool((doubt[0] | doubt[1]).any()):
                break
            if bool((doubt[0] & (left >= MOST) | doubt[1] & (right >= MOST)).any()):
                return None
            left, right = torch.where(doubt[0], 2 * left, left), torch.where(doubt[1], 2 * right, right)
        if int((left + right).sum()) > _TOTAL:
            return None
        return self._tried(tied, rising, (high - left, high + right))

    def _tried(self, tied: Tied, rising: Tensor, window: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Every number in each window, its ends included: it has not happened at the first, and has at the last."""
        found: list[tuple[Tensor, Tensor]] = []
        first, count = window[0], window[1] - window[0] + 1
        parts = torch.bincount(count.cumsum(0) // _AT_ONCE).tolist()
        for some in torch.split(torch.arange(len(first), device=first.device), parts):
            of, position = ragged(count[some])
            event = some[of]
            key = first[event] + position
            number = _number(key, torch.float64)
            happened = self.passed(tied.pixel[event], number, tied.least[event]) == rising[event]
            happened = torch.where(position == 0, False, (position == count[event] - 1) | happened)
            turned = happened & True
            turned[1:] ^= happened[:-1] & (position[1:] > 0)
            found.append((event[turned], number[turned]))
        return torch.cat([e for e, _ in found]), torch.cat([s for _, s in found])


def programs(threat: Threat, x: Tensor, value: Tensor, tolerance: float) -> list[Program]:
    """Those that stay within the tolerance, from the 8-bit picture and from x itself; value = 255x in whole levels."""
    found, transform = list[Program](), threat.transform
    ends = threat.box.lower[0], threat.box.upper[0]
    extent, names = max(map(abs, ends)), tuple[str, ...]()
    if isinstance(transform, Tone):
        names = transform.follows(tolerance, extent)
    elif isinstance(transform, Flow) and threat.interpolation == "bilinear" and x.dim() == 3:  # not single pixels
        names = transform.follows(tolerance, extent, max(x.shape[1:]))
    for name in names:
        dtype = getattr(torch, name)
        starts = [value.to(dtype) / value.new_full((), 255.0, dtype=dtype)]
        if x.dtype != torch.uint8 and not torch.equal(starts[0], x.to(dtype)):
            starts.append(x.to(dtype))
        if isinstance(transform, Tone):
            found += [Toned(transform, start) for start in starts]
        elif isinstance(transform, Flow):
            found += [Flowing(transform, start, ends) for start in starts]
    return found


def switches(program: Program, pixel: Tensor, least: Tensor, ends: tuple[float, float]) -> Tensor:
    """t in float64 for these pixels of a tone with m = `least`; s comes from γ in [ends], and a little more on both
    sides.
    """
    assert isinstance(program, Toned)
    start = program.start
    case = torch.stack((start[pixel].double(), least.double()), 1)  # pixels of equal value switch together
    _, back = torch.unique(case, dim=0, return_inverse=True)
    first = pixel.new_full((int(back.max()) + 1 if back.numel() else 0,), pixel.numel())
    first = first.scatter_reduce(0, back, torch.arange(pixel.numel(), device=pixel.device), "amin")
    pixel, least = pixel[first], least[first]
    rising = program.rises(pixel, pixel >= 0)

    def switched(key: Tensor) -> Tensor:
        return program.passed(pixel, _number(key, start.dtype), least) == rising

    s = program.transform.amount(torch.tensor(ends, dtype=torch.float64, device=start.device))
    wide = 1e-5 * s.abs() + 1e-30  # more than e^γ is off by in float32
    low, high = (_key(e.to(start.dtype).expand(len(pixel))) for e in (s[0] - wide[0], s[1] + wide[1]))
    always, never = switched(low), ~switched(high)
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # without overflow
        past = switched(middle)
        low, high = torch.where(past, low, middle), torch.where(past, middle, high)
    t = _number(high, start.dtype).double()
    t = torch.where(always, -torch.inf, torch.where(never, torch.inf, t))
    return t[back]


def _key(s: Tensor) -> Tensor:
    """Integers in the order of the floating-point numbers."""
    bits = s.contiguous().view(_BITS[s.dtype])
    return bits ^ ((bits >> (8 * bits.element_size() - 1)) & torch.iinfo(bits.dtype).max)


def _number(key: Tensor, dtype: torch.dtype) -> Tensor:
    return (key ^ ((key >> (8 * key.element_size() - 1)) & torch.iinfo(key.dtype).max)).view(dtype)
