"""Pixels behind a front: how far each is above the least of all, or where it lies between the least and the largest.

Guarantee. Let V_i be the values of a path, m and M the least and the largest of them at γ. `behind` gives a path of

    grounded    V_i − m,            stretched   s·(V_i − m)/(M − m),

with s the value of white: what the front makes of T_γ x, and so of c·T_γ x + b, whose c and b it does not see. `slack`
and `off` hold what the following leaves out.

Argument. m has a kink wherever another pixel becomes the least one. But between kinks it is the path of one pixel, its
holder, so V_i − m crosses a threshold t where V_i crosses V_j + t, the path of j moved by t; and (V_i − m)/(M − m)
crosses it where V_i crosses (1 − t)V_j + tV_k, with k the holder of M. `_held` cuts Γ into intervals and names for each
a holder j with m ≤ V_j ≤ m + gap on all of it, so that near a kink, where two pixels are about equal, either will do.
Nothing has to meet at the cuts: events are isolated on every interval apart, with a margin that holds the gap.

  holders      On an interval each V_i lies in V_i(mid) ± r_i by the bounds of its path, and between the ends of
               `between`. Who is above the least upper end of another is not the least there; with i the others,
               V_j − m ≤ max_i sup(V_j − V_i), or V_j's upper end less the least that any value can be. If that is more
               than the gap, the interval is halved.
  derivatives  With N = V_i − V_j, R = V_k − V_j and θ = N/R they are N' and N'', or s(N' − θR')/R and
               s(N'' − 2θ'R' − θR'')/R, where |θ| ≤ 1.02 and R is at least its bound on the interval.
  attackers    Who is off by τ in every pixel is off by 2τ in V_i − m, as |min w − min z| ≤ max |w − z|. In θ he is off
               by 2τ/(M − m − 2τ): along the way from z to w it changes by (dz_i − (1 − θ)dm − θ dM)/(M − m). If he is
               off by τ after a tone that multiplies by c, that is τ/c before it: front(c w + b + η) = front(w + η/c).
  rounding     V_i, V_j and V_k err by the slack σ of their path each, and the holders' gap by 2σ more; slopes, by
               σ/stride each over half a stride at most, add σ/2 for each path: 6σ cover both. Of θ ∈ [0, 1] values
               they make 9σ/r at most, with r = R/s ≤ 1, and of its slope 17σ/r² over the stride, as |V'| ≤ 1.5s over
               the stride. The classifier's own front rounds three times: 8·2⁻⁵³·s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor

from warpcert.classifier.before.front import FRONTS, Front
from warpcert.exhaustive.events.isolation import AT_ONCE, Intervals, strides
from warpcert.exhaustive.events.paths import EPS, Averaged, Look, Moved, Whole, refusal
from warpcert.threat import Threat
from warpcert.transforms import Box

__all__ = ["Faint", "Relative", "before_tones", "refusal_behind"]

_Gamma = tuple[float, float]
_Pair = tuple[Tensor, Tensor]
FINEST = 0.1 / 255  # a tenth of a level: no larger tolerance is isolated
LEAST = 8 / 255  # of the range of a picture that is stretched
FINE = 4 / 255  # how far V may be from its value in the middle where a holder is named


def refusal_behind(threat: Threat, step: int, front: str, stem: bool = False) -> str:
    """Why not every picture that the front and the levels, or the stem, show can be enumerated; "" if it can."""
    if front != "none" and threat.quantized:
        return "behind a front exhaustive verification is for attackers who neither clip nor round"
    rest, unseen = Front(front).sees(threat)
    if unseen and not before_tones(threat, front, threat.off_by)[1] < FINEST:
        return f"a tolerance of {threat.off_by:g} per pixel is more than a tenth of a level before these tones"
    if rest is None:
        return ""
    if len(rest.transform.parts) > 1:
        behind = f"behind {FRONTS[front]} it sees" if front != "none" else "without a front it sees all of"
        return (
            f"{behind} {rest.transform.name}, and exhaustive verification knows one transformation: real-valued "
            'brightness at the end is not seen behind wc.Levels(network, step=8, front="grounded"), nor is contrast '
            'behind front="stretched"'
        )
    return refusal(rest, step, stem)


def before_tones(threat: Threat, front: str, tolerance: float) -> tuple[Threat, float]:
    """What the front sees of a threat, where that is one parameter; where it sees nothing, the first tone without a
    range. And how far off pictures may be before the tones that it does not see.
    """
    rest, unseen = Front(front).sees(threat)
    if rest is None:
        rest = Threat(unseen[0][0], Box((0.0,), (0.0,)), threat.interpolation, quantized=False)
    return rest, Front(front).before(threat, tolerance)


class Faint(ValueError):
    """A picture of which the least and the largest value are not known to stay apart."""


class _Held(NamedTuple):
    """Who is the least on [edges[k], edges[k + 1]]; and on finer intervals, from `since` on, a bound of m there: not
    below it. For the largest, of −V.
    """

    edges: Tensor
    holder: Tensor
    since: Tensor
    bound: Tensor


@final
class Relative:
    """The path of V behind a front, on the interval `gamma` alone."""

    def __init__(self, path: Whole, front: Front, gamma: _Gamma, tolerance: float) -> None:
        self.path, self.top, self.stride, self.parts = path, path.top, path.stride, 3 * path.parts
        self.white, self.shift = 255 / path.step, 0.5 / path.step * (path.step > 1)
        self.stretched, self.range = front.name == "stretched", 1.0
        near = 1e-5 if isinstance(path, Averaged) else 1e-6  # averages: bounds of V'' are the same for all pixels
        self.gap = gap = min(max(path.off(tolerance) / 2, near), 0.004 * LEAST * self.white)
        self.low = _held(path, gamma, 1, gap)
        self.high = _held(path, gamma, -1, gap) if self.stretched else None
        self.slack = 6 * path.slack + gap + 8 * EPS * self.white
        if self.high is not None:
            self.range = _least_range(self.low, self.high, path.slack) / self.white
            if not self.range > LEAST:
                raise Faint(f"values may come within {round(255 * LEAST)} levels of each other, too few to stretch")
            self.slack = 20 * path.slack / self.range**2 + 2.2 * gap / self.range + 8 * EPS * self.white
        others = [] if self.high is None else [self.high.edges]
        self.edges = torch.unique(torch.cat([self.low.edges, *others]))

    def off(self, tolerance: float) -> float:
        return 2 * self.path.off(tolerance) / (self.range - 2 * tolerance if self.stretched else 1.0)

    def intervals(self, every: Tensor) -> Iterator[Intervals]:
        """Those of all pixels, each with one holder."""
        return strides(self, every, float(self.edges[0]), float(self.edges[-1]), self.edges)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        """`piece` has columns: the pixel's own, and the holders with theirs."""
        own, low = self.path.on(piece[:, 0], pixel, gamma), self.path.on(piece[:, 2], piece[:, 1], gamma)
        value, slope = own[0] - low[0], own[1] - low[1]
        if self.high is None:
            return value + self.shift, slope
        high = self.path.on(piece[:, 4], piece[:, 3], gamma)
        wide, wider = high[0] - low[0], high[1] - low[1]
        return self.white * value / wide + self.shift, self.white * (slope - value / wide * wider) / wide

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        least = _holder(self.low, gamma)
        own, low = self.path.look(pixel, gamma, half), self.path.look(least, gamma, half)
        made = _difference(own, low, pixel == least)
        piece = [own.piece, least, low.piece]
        if self.high is None:
            return made._replace(piece=torch.stack(piece, 1), value=made.value + self.shift)
        most = _holder(self.high, gamma)
        high = self.path.look(most, gamma, half)
        piece += [most, high.piece]
        made = self._share(made, _difference(high, low, most == least), half)
        return made._replace(piece=torch.stack(piece, 1))

    def _share(self, n: Look, r: Look, half: Tensor) -> Look:
        """s·N/R."""
        smooth = n.smooth & r.smooth
        move = torch.where(r.smooth, half * (r.slope.abs() + half / 2 * r.bend), half * r.steep)
        least = torch.maximum(r.value - move, r.value.new_tensor(0.99 * self.range * self.white))
        share = n.value / r.value
        steep = (n.steep + 1.02 * r.steep) / least
        bend = (n.bend + 2 * steep * r.steep + 1.02 * r.bend) / least
        s, slope = self.white, (n.slope - share * r.slope) / r.value
        return Look(n.piece, s * share + self.shift, s * slope, s * bend, s * steep, smooth)


def _holder(held: _Held, gamma: Tensor) -> Tensor:
    return held.holder[torch.searchsorted(held.edges[1:-1].contiguous(), gamma.contiguous(), right=True)]


def _difference(a: Look, b: Look, same: Tensor) -> Look:
    """a − b, which is 0 where both are the same path."""
    other = (~same).to(a.value)
    bend, steep = other * (a.bend + b.bend), other * (a.steep + b.steep)
    return Look(
        a.piece, other * (a.value - b.value), other * (a.slope - b.slope), bend, steep, a.smooth & b.smooth | same
    )


def _pool(path: Whole, sign: int) -> Tensor:
    """Pixels of which one is always the least (largest): one that is the least itself, where values change in order;
    otherwise those of all channels that differ.
    """
    if not isinstance(path, Moved | Averaged):
        return (sign * path.value).argmin()[None]
    value = path.value.flatten(1)
    new = [c for c, row in enumerate(value) if not any(torch.equal(row, other) for other in value[:c])]
    return torch.arange(value.numel(), device=value.device).view(value.shape)[new].flatten()


def _held(path: Whole, gamma: _Gamma, sign: int, gap: float) -> _Held:
    """The holders of the least of sign·V on the interval."""
    pool, found = _pool(path, sign), list[tuple[Tensor, ...]]()
    floor = sign * path.between[0 if sign > 0 else 1]
    one = pool.new_zeros(1)
    cells = torch.cat([torch.stack((a, b), 1) for _, a, b in strides(path, one, *gamma)])
    for some in torch.split(cells, max(1, AT_ONCE // pool.numel())):
        cell = torch.arange(len(some), device=pool.device).repeat_interleave(pool.numel())
        item = pool.repeat(len(some))
        while len(some):
            named, open_, keep = _named(path, (item, cell, some), sign, floor, gap)
            found.append(named)
            number = torch.cumsum(open_, 0) - 1
            keep &= open_[cell]
            item, cell, some = item[keep], number[cell[keep]], some[open_]
            middle = some.mean(1)
            halves = torch.stack((some[:, 0], middle), 1), torch.stack((middle, some[:, 1]), 1)
            item, cell, some = item.repeat(2), torch.cat((cell, cell + len(some))), torch.cat(halves)
    first, last, holder, bound = (torch.cat(t) for t in zip(*found, strict=True))
    order = first.argsort(stable=True)
    first, last, holder, bound = first[order], last[order], holder[order], bound[order]
    fresh = torch.ones_like(holder, dtype=torch.bool)
    fresh[1:] = holder[1:] != holder[:-1]
    return _Held(torch.cat((first[fresh], last[-1:])), holder[fresh], first, bound)


def _named(
    path: Whole, candidates: tuple[Tensor, Tensor, Tensor], sign: int, floor: float, gap: float
) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """For intervals [n,2] and the (item, interval) that may be the least there: (first, last, holder, bound) of those
    that are decided, which are not, and which candidates are left.
    """
    item, cell, ends = candidates
    middle = ends.mean(1)
    half = torch.maximum(ends[:, 1] - middle, middle - ends[:, 0]) * (1 + 2.0**-40)
    look, h = path.look(item, middle[cell], half[cell]), half[cell]
    reach = torch.where(look.smooth, h * (look.slope.abs() + h * look.bend / 2), h * look.steep)
    value, none = sign * look.value, middle.new_full(middle.shape, torch.inf)
    upper = value + reach
    ceiling = none.scatter_reduce(0, cell, upper, "amin")
    keep = value - reach <= ceiling[cell] + 2 * path.slack
    best = torch.full_like(ends[:, 0], item.numel(), dtype=torch.int64)
    place = torch.arange(item.numel(), device=item.device)
    best = best.scatter_reduce(0, cell[upper == ceiling[cell]], place[upper == ceiling[cell]], "amin")
    mine = best[cell]
    apart = value[mine] - value
    smooth = look.smooth & look.smooth[mine]
    bent = h * ((look.slope - look.slope[mine]).abs() + h / 2 * (look.bend + look.bend[mine]))
    apart = torch.where(mine == place, 0.0, apart + torch.where(smooth, bent, h * (look.steep + look.steep[mine])))
    worst = (-none).scatter_reduce(0, cell[keep], apart[keep], "amax")
    worst = torch.minimum(worst, upper[best] - floor)
    done = (worst <= gap) & (reach[best] <= FINE * 255 / path.step)
    done |= (middle <= ends[:, 0]) | (middle >= ends[:, 1])  # no wider than rounding is
    return (ends[done, 0], ends[done, 1], item[best[done]], ceiling[done]), ~done, keep


def _least_range(low: _Held, high: _Held, slack: float) -> float:
    """≤ M − m on all of the interval."""
    since = torch.unique(torch.cat((low.since, high.since)))
    m, most = (h.bound[torch.searchsorted(h.since, since, right=True) - 1] for h in (low, high))
    return float((-most - m).min()) - 4 * slack
