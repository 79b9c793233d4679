"""Exhaustive verification: the plain classifier on every 8-bit image that the attacker can hand over; no smoothing.

Guarantee. `images` yields q(z) for every γ ∈ Γ and every z with |z − T_γ x| ≤ tolerance; in a plan with bundles,
q(T_γ x) for every γ ∈ Γ in exact arithmetic, with values on a threshold rounded up, down or to even. If all of them
get label c by a margin above the slack, f(q(T_γ x)) = c for all γ ∈ Γ.

Argument. Outside its events a pixel is settled, inside it takes one of the event's levels. Given γ let h ≥ γ be the
next upper end of an event. Events that contain γ contain h, and a pixel settled at γ is at h settled alike or in an
event that allows the same level, as no event ends in [γ, h). So what is possible at γ is among the combinations at h:
the events that contain h (a clique) at all their levels, all other pixels settled. Only an h with a lower end since the
last upper end is needed, for otherwise its clique is part of the one before. In the order of upper ends a clique of one
event between two levels has just the images before and after it: the spine, a step at a time, plus all combinations of
larger cliques.

Bundles. Under symmetry, scaling and above all brightness many pixels cross at the same γ*, too many for their 2^m
combinations. If a clique exceeds `limit`, events that are strictly monotone, have a point in common and proportional
equations V − (k+½) = 0 (in integers, compared exactly) are bundled: the union is an interval on which they have one
common root. Left of it none has switched, right of it all have, on it all values lie on thresholds.

Arithmetic. f receives float32 image/255, correctly rounded, in batches; deployment must feed the same values. The
logits of an image depend on its batch only by rounding, which the slack stands for: on a GPU turn TF32 off or raise it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from warpcert.bounds.crossings import Crossings, find_crossings, levels, ragged
from warpcert.threat import Threat

__all__ = ["Plan", "Verdict", "images", "plan", "verify"]

_TIES = 5  # states of a bundle: before, after, rounded to even, down, up; if all rise or all fall the first three


@final
@dataclass(frozen=True)
class Plan:
    """How images are made: S steps by upper ends, K cliques by `base`, M pairs (clique, event) by clique."""

    crossings: Crossings  # events sorted by step
    step: Tensor  # int64 [E]
    lower: Tensor  # float64 [S]
    upper: Tensor  # float64 [S]
    bundled: Tensor  # bool [S]
    base: Tensor  # int64 [K]: steps before the clique
    radix: Tensor  # int64 [K]
    rows: Tensor  # int64 [K]: combinations, radix^members
    common: Tensor  # float64 [K]: all its events contain [common, upper[base]]
    clique: Tensor  # int64 [M]
    event: Tensor  # int64 [M]
    place: Tensor  # int64 [M]: radix^(position of the event's step in the clique)
    unresolved: int  # cliques of more combinations than the limit, left out

    @property
    def total(self) -> int:
        """How many images there are."""
        return self.lower.numel() + 1 + int(self.rows.sum())

    @property
    def bundles(self) -> int:
        return int(self.bundled.sum())


def plan(crossings: Crossings, limit: int = 1024) -> Plan:
    """Steps and cliques; if a clique has more than `limit` combinations, exactly coinciding events are bundled."""
    made, crowded = _draw(crossings, torch.arange(len(crossings), device=crossings.pixel.device), limit)
    return _draw(crossings, _bundle(crossings, crowded), limit)[0] if made.unresolved else made


def _draw(c: Crossings, group: Tensor, limit: int) -> tuple[Plan, Tensor]:
    """The plan in which a group of events is one step, and which events overlap others."""
    _, group, size = torch.unique(group, return_inverse=True, return_counts=True)
    lower = c.lower.new_full(size.shape, -math.inf).scatter_reduce(0, group, c.lower, "amax")
    upper = c.lower.new_full(size.shape, math.inf).scatter_reduce(0, group, c.upper, "amin")
    order = upper.argsort(stable=True)
    step, event = order.argsort()[group].sort(stable=True)
    c, lower, upper, size = c.take(event), lower[order], upper[order], size[order]
    head = size.cumsum(0) - size  # first event of each step
    bundled = size > 1
    alike = torch.zeros_like(size).scatter_add(0, step, (c.after - c.before).sign()).abs() == size
    states = torch.where(bundled, torch.where(alike, 3, _TIES), (c.high - c.low + 1)[head])
    plain = (states == 2) & (c.before != c.after)[head]

    index = torch.arange(size.numel(), device=size.device)
    opened = torch.searchsorted(lower.sort().values, upper, right=True)
    new = torch.ones_like(plain)
    new[1:] = opened[1:] > opened[:-1]
    members = opened - index
    first = torch.searchsorted(upper, lower)  # step s is open at the upper ends of steps first[s] … s

    def among(chosen: Tensor) -> tuple[Tensor, Tensor]:
        """How many chosen steps come before first[s], and how many are in first[s] … s."""
        before = torch.cat((index.new_zeros(1), chosen.cumsum(0)))
        return before[first], before[index + 1] - before[first]

    wanted, bits = new & ((members > 1) | ~plain), math.log2(limit) + 1e-9
    small = wanted & (members <= bits)
    skipped, count = among(small)
    who, position = ragged(count)
    clique, by_clique = (skipped[who] + position).sort(stable=True)
    who, base, members = who[by_clique], index[small], members[small]
    radix = torch.ones_like(base).scatter_reduce(0, clique, states[who], "amax")
    common = lower.new_full(base.shape, -math.inf).scatter_reduce(0, clique, lower[who], "amax")
    position = torch.arange(who.numel(), device=who.device) - (members.cumsum(0) - members)[clique]
    fits = members * radix.double().log2() <= bits
    keep = fits[clique]
    who, clique, position = who[keep], (fits.cumsum(0) - 1)[clique[keep]], position[keep]
    base, radix, common, rows = base[fits], radix[fits], common[fits], radix[fits] ** members[fits]
    pair, nth = ragged(size[who])  # a member is a step: list its events
    listed = clique[pair], head[who[pair]] + nth, (radix[clique] ** position)[pair]
    unresolved = int(wanted.sum()) - base.numel()
    made = Plan(c, step, lower, upper, bundled, base, radix, rows, common, *listed, unresolved)
    return made, among(new & (opened - index > 1))[1][step] > 0


def _bundle(c: Crossings, crowded: Tensor) -> Tensor:
    """Groups: crowded events with proportional equations and a common point share a number, others have their own."""
    group = torch.arange(len(c), device=c.pixel.device)
    index = group[crowded & (c.equation != 0).any(1)]
    apart = torch.zeros_like(group)
    apart[1:] = c.lower.flip(0).cummin(0).values.flip(0)[1:] > c.upper[:-1]
    row = c.equation[index]
    divisor = row[:, 0].abs()
    for column in row[:, 1:].unbind(1):
        divisor = torch.gcd(divisor, column.abs())
    row = row // divisor[:, None]
    row *= row.gather(1, (row != 0).long().argmax(1, keepdim=True)).sign()
    key = torch.unique(torch.cat((apart.cumsum(0)[index, None], row), 1), dim=0, return_inverse=True)[1]
    lower = c.lower.new_full(key.shape, -math.inf).scatter_reduce(0, key, c.lower[index], "amax")
    upper = c.lower.new_full(key.shape, math.inf).scatter_reduce(0, key, c.upper[index], "amin")
    share = (lower <= upper)[key]
    group[index[share]] = len(c) + key[share]
    return group


def images(made: Plan, batch: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
    """All images of the plan: uint8 [B,C,H,W] and float64 [B,2], the γ between which each occurs.

    If the first γ is below the second, the image is q(T_γ x) for all γ strictly between. Otherwise it comes from
    overlapping events, and may occur between the two or not at all.
    """
    c, steps, device = made.crossings, made.lower.numel(), made.step.device
    change = ((c.after - c.before) % 256).to(torch.uint8)  # sums of uint8 are exact modulo 256
    ends = torch.tensor(c.gamma, dtype=torch.float64, device=device)
    since = torch.cat((ends[:1], made.upper))
    until = torch.cat((made.lower, ends[1:])).flip(0).cummin(0).values.flip(0)
    starts = [*range(0, steps + 1, batch), steps + 1]
    cuts = torch.tensor(starts, device=device)
    inner, outer = (torch.searchsorted(made.step, cuts - one).tolist() for one in (1, 0))
    cliques = torch.searchsorted(made.base, cuts).tolist()
    state = c.start.flatten()
    for i, (start, stop) in enumerate(pairwise(starts)):
        now, then = slice(outer[i], inner[i + 1]), slice(inner[i + 1], outer[i + 1])
        spine = torch.zeros(stop - start, state.numel(), dtype=torch.uint8, device=device)
        spine[0] = state
        spine[made.step[now] - start + 1, c.pixel[now]] = change[now]
        spine = spine.cumsum(0, dtype=torch.uint8)
        yield spine.view(-1, *c.start.shape), torch.stack((since[start:stop], until[start:stop]), 1)
        for image, where in _combinations(made, spine, start, cliques[i], cliques[i + 1], batch):
            yield image.view(-1, *c.start.shape), where
        state = spine[-1].clone()
        state[c.pixel[then]] += change[then]


def _combinations(
    made: Plan, spine: Tensor, start: int, first: int, last: int, batch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The images of cliques first … last − 1, based on the spine from step `start`, about `batch` at a time."""
    c, rows = made.crossings, made.rows[first:last]
    for size in torch.unique_consecutive((rows.cumsum(0) - rows) // batch, return_counts=True)[1].tolist():
        rows, base = made.rows[first : first + size], made.base[first : first + size]
        clique, number = ragged(rows)
        image = spine[base[clique] - start]
        lo, hi = torch.searchsorted(made.clique, torch.tensor([first, first + size], device=rows.device)).tolist()
        owner, event, place = made.clique[lo:hi] - first, made.event[lo:hi], made.place[lo:hi]
        pair, number = ragged(rows[owner])
        row, event = (rows.cumsum(0) - rows)[owner[pair]] + number, event[pair]
        digit = number // place[pair] % made.radix[first : first + size][owner[pair]]
        low, high = c.low[event], c.high[event]
        tie = torch.stack((c.before[event], c.after[event], low + low % 2, low, high), 1)
        tie = tie.gather(1, digit.clamp(max=_TIES - 1)[:, None])[:, 0]
        level = torch.where(made.bundled[made.step[event]], tie, torch.minimum(low + digit, high))
        image[row, c.pixel[event]] = level.to(torch.uint8)
        yield image, torch.stack((made.upper[base], made.common[first : first + size]), 1)[clique]
        first += size


def _full(made: Plan, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """`images` in batches of exactly this size but the last: a GPU prepares anew for every size that it meets."""
    held: list[tuple[Tensor, Tensor]] = []
    for part in images(made, batch):
        held.append(part)
        if sum(len(image) for image, _ in held) >= batch:
            image, where = (torch.cat(each) for each in zip(*held, strict=True))
            ready = len(image) // batch * batch
            yield from zip(torch.split(image[:ready], batch), torch.split(where[:ready], batch), strict=True)
            held = [(image[ready:], where[ready:])]
    image, where = (torch.cat(each) for each in zip(*held, strict=True))
    if len(image):
        yield image, where


@final
@dataclass(frozen=True)
class Verdict:
    """What was found out about f on {q(T_γ x) : γ ∈ Γ}.

    verified    f answers `label` on all of it. `scope` says for which attacker: "tolerance", any arithmetic within the
                tolerance of T; "exact", exact arithmetic only, as some crossings coincide in too many pixels
    gamma       a parameter at which f answers differently, on `image` = q(T_γ x); None if none was found
    unresolved  cliques beyond the limit: if not verified and without a gamma, `reason` says what stays open
    """

    label: int
    verified: bool
    gamma: float | None
    image: Tensor | None  # uint8 [C,H,W]
    scope: str
    reason: str
    evaluated: int
    crossings: int
    cliques: int
    bundles: int
    unresolved: int
    smallest_margin: float  # in units of max(1, largest |logit|), as the slack
    seconds_isolation: float
    seconds_classifier: float


def verify(
    classifier: Callable[[Tensor], Tensor],
    x: Tensor,
    threat: Threat,
    label: int | None = None,
    *,
    batch: int | None = None,
    slack: float = 1e-4,
    tolerance: float = 1e-12,
    limit: int = 1024,
) -> Verdict:
    """Proves f(q(T_γ x)) = label for all γ ∈ Γ, or finds a γ where not, or says why neither; x [C,H,W] on f's device.

    label   defaults to f's answer on x
    slack   an image counts as label if its logit leads by more than slack·max(1, largest |logit|), as another class if
            that leads by more; anything between leaves the answer open
    """
    began = time.perf_counter()
    judge = _Judge(classifier, levels(x)[0] / 255, threat, label, slack)
    made, isolation = None, 0.0
    if not judge.probe(255):
        made = plan(find_crossings(x, threat, tolerance), limit)
        isolation = time.perf_counter() - began
        for image, where in _full(made, batch or (8192 if x.is_cuda else 1024)):
            if judge.rejects(image, where):
                break
        if not judge.reason and made.unresolved:
            judge.reason = f"{made.unresolved} sets of crossings overlap in more than {limit} combinations each"
    return Verdict(
        label=judge.label,
        verified=not judge.reason,
        gamma=judge.gamma,
        image=judge.image,
        scope="exact" if made and made.bundles else "tolerance",
        reason=judge.reason or f"all {judge.evaluated} images agree",
        evaluated=judge.evaluated,
        crossings=len(made.crossings) if made else 0,
        cliques=made.base.numel() if made else 0,
        bundles=made.bundles if made else 0,
        unresolved=made.unresolved if made else 0,
        smallest_margin=judge.smallest,
        seconds_isolation=isolation,
        seconds_classifier=time.perf_counter() - began - isolation,
    )


@final
class _Judge:
    """Asks f about images, and remembers a counterexample or why the answer stays open."""

    def __init__(
        self, classifier: Callable[[Tensor], Tensor], x: Tensor, threat: Threat, label: int | None, slack: float
    ) -> None:
        self.classifier, self.x, self.threat, self.slack = classifier, x, threat, slack
        self.full = torch.tensor(255.0, device=x.device)  # a tensor: a GPU multiplies by the reciprocal of a number
        self.gamma: float | None = None
        self.image: Tensor | None = None
        self.evaluated, self.smallest, self.reason = 0, math.inf, ""
        own = _uint8(threat.transform.quantize(x))[None]
        self.label = int(classifier(own.float() / self.full).argmax()) if label is None else label

    def _leads(self, image: Tensor) -> Tensor:
        """By how much label leads, in units of max(1, largest |logit|) of the image, [B]."""
        with torch.inference_mode():
            logits = self.classifier(image.float() / self.full)
            others = logits.index_fill(1, torch.tensor(self.label, device=logits.device), -math.inf).amax(1)
            return (logits[:, self.label] - others) / logits.abs().amax(1).clamp_min(1)

    def probe(self, count: int) -> bool:
        """Looks for a counterexample on a grid of γ: cheap, and most that exist are found."""
        grid = self.threat.box.grid(count).to(self.x.device)
        moved = self.threat.transform(self.x, grid, self.threat.interpolation)
        clear = ((255 * moved - 0.5) - (255 * moved - 0.5).round()).abs().flatten(1).amin(1) > 1e-8
        image = _uint8(self.threat.transform.quantize(moved))
        lead = self._leads(image)
        wrong = ((lead < -self.slack) & clear).nonzero()[:1, 0].tolist()
        return any(self._refutes(image[i], float(grid[i, 0])) for i in wrong)

    def rejects(self, image: Tensor, where: Tensor) -> bool:
        """Whether one of the images is a counterexample."""
        lead = self._leads(image)
        self.evaluated += lead.numel()
        smallest = float(lead.min())
        self.smallest = min(self.smallest, smallest)
        if smallest > self.slack:
            return False
        wrong = (lead < -self.slack).nonzero()[:, 0]
        surely = (where[wrong, 1] > where[wrong, 0]).int().argsort(descending=True, stable=True)
        for i in wrong[surely][:16].tolist():
            gamma = self._witness(image[i], where[i])
            if gamma is not None and self._refutes(image[i], gamma):
                return True
        doubt = (
            "that perhaps no γ produces, and f errs" if wrong.numel() else "on which f decides by less than the slack"
        )
        near = self.threat.transform.to_text(float(where[lead.argmin()].mean()))
        self.reason = self.reason or f"open: there is an image near {near} {doubt}"
        return False

    def _witness(self, image: Tensor, where: Tensor) -> float | None:
        """A γ at which the attack in float64 hands over exactly this image."""
        start, end = where.tolist()
        grid = torch.linspace(start, end, 33, dtype=torch.float64, device=where.device)[:, None]
        same = (_uint8(self.threat.attacked(self.x, grid)) == image).flatten(1).all(1).nonzero()[:, 0]
        return float(grid[same[same.numel() // 2], 0]) if same.numel() else None

    def _refutes(self, image: Tensor, gamma: float) -> bool:
        """Asks once more about this image alone."""
        lead = self._leads(image[None])
        if bool(lead < -self.slack):
            self.gamma, self.image = gamma, image.clone()
            self.reason = f"f answers differently at {self.threat.transform.to_text(gamma)}"
        return self.gamma is not None


def _uint8(z: Tensor) -> Tensor:
    """8-bit images from what `quantize` returns."""
    return (255 * z).round().to(torch.uint8)
