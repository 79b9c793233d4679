"""Exhaustive verification: the plain classifier on every 8-bit image that the attacker can hand over; no smoothing.

Guarantee. If `verify` says t, then f(q(T_γ x)) = label for all γ ∈ t·Γ.

Argument. Γ is cut at γ = 0, and both halves into slices that are no larger than memory allows. On the right half, and
on the left one mirrored, images come in the order of their onset (see `enumeration`): those possible at γ are among
those of its slice with onset at most |γ|. The halves are walked outwards, slice by slice and side by side, and every
image is asked about until one fails: until f does not lead by more than the slack, whether or not some γ produces that
image. Let t be the least onset of one that failed, as a multiple of Γ's end on its side. Images of less onset were all
asked about and did not fail, so the label is proved on u·Γ for all u < t; t is reported less 10⁻¹² of it, which
contains its rounding. Cliques beyond the limit count as failed, and so does what was left when the time was over.

Behind levels f sees Q_w(T_γ x) only, and Q_w takes the place of q in all of this: fewer images, and it does not matter
whether the attacker rounds. Behind a front, see `relative`.

A grid of γ is tried first: a counterexample found there ends the walk, and Γ is not looked at beyond.

Arithmetic. f receives float32 image/255, correctly rounded, in batches; deployment must feed the same values. The
logits of an image depend on its batch only by rounding, which the slack allows for: on a GPU turn TF32 off or raise it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, final

import torch
from torch import Tensor

from warpcert.classifier.before.stem import Stem
from warpcert.exhaustive.enumeration import Chunks, Plan, plan
from warpcert.exhaustive.events.relative import Faint, before_tones, refusal_behind
from warpcert.exhaustive.judge import Judge
from warpcert.exhaustive.sight import Sight, Terms, sight_of
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.threat import Threat
from warpcert.transforms import Transform

__all__ = ["Terms", "Told", "Verdict", "verify"]

_Batch = tuple[Tensor, Tensor]  # images, and per image γ, γ (between which it occurs, see `Chunks`) and onset, t
Told = Callable[[int, int, str], None]  # done, of how much, how fast
_FIRST = (
    1 << 26
)  # values that the pictures of the first slice have, and on a GPU 32 times as many; each slice has twice
# as many as the one before, up to what memory allows
_LARGE = 1 << 15  # values in a picture of which a CPU asks about fewer to begin with
_SLICES = 16  # at least, if the time is limited
_USUAL = Terms()
LESS = 1 - 1e-12  # of the range up to what failed


@final
@dataclass(frozen=True)
class Verdict:
    """What was found out about f on {q(T_γ x) : γ ∈ Γ}.

    held        f answers `label` for all γ ∈ held·Γ; None if not even γ = 0 is proved. `scope` says for which attacker:
                "tolerance", any arithmetic within the tolerance of T; where some crossings coincide in too many pixels
                "program", the floating-point programs of `programs`, or "exact", exact arithmetic only
    gamma       a parameter at which f answers differently, on `image` = q(T_γ x), the nearest to 0 that was found
    reason      what ended the walk, if it ended before Γ did
    """

    label: int
    held: float | None
    gamma: float | None
    image: Tensor | None  # uint8 [C,H,W]
    scope: str
    reason: str
    images: int  # that can occur in held·Γ, from what was proved already on: all of them got the label
    evaluated: int
    crossings: int
    cliques: int
    bundles: int
    unresolved: int  # cliques beyond the limit
    smallest_margin: float  # of those that got the label, in units of max(1, largest |logit|), as the slack
    seconds_isolation: float
    seconds_classifier: float
    interrupted: bool = False  # by Ctrl-C: what was proved by then holds
    late: bool = False  # the time was over
    limit: float = math.inf  # the least multiple of Γ at which something failed, was undecided or left out
    shift: tuple[float, ...] = ()  # before it, if the threat begins with one (see `finite`)
    still: int = 0  # parameters after it, of parts that f does not see (see `relative`)

    @property
    def counterexample(self) -> tuple[float, ...] | None:
        """All parameters at which f answers differently."""
        found = (*self.shift, *(() if self.gamma is None else (self.gamma, *(0.0,) * self.still)))
        return found or None

    @property
    def verified(self) -> bool:
        """The label is proved on all of Γ."""
        return self.held == 1.0


def verify(
    classifier: Callable[[Tensor], Tensor],
    x: Tensor,
    threat: Threat,
    label: int | None = None,
    terms: Terms = _USUAL,
    progress: Told | None = None,
) -> Verdict:
    """Proves f(q(T_γ x)) = label for all γ ∈ t·Γ, with the largest t that can be proved; x [C,H,W] on f's device.

    label     defaults to f's answer on x
    progress  is told how much of the range is proved, in thousandths, and how many pictures are asked about a second
    """
    began = time.perf_counter()
    if why := refusal_behind(threat, terms.step, terms.front, isinstance(terms.sees, Stem)):
        raise ValueError(why)
    whole, (threat, off) = threat.transform, before_tones(threat, terms.front, terms.tolerance)
    terms, still = replace(terms, tolerance=off), whole.dim - 1
    sight = sight_of(x, threat, terms)
    judge = Judge(classifier, sight, label, terms)
    walk = _Walk(sight, terms, judge, progress)
    walk.until = math.inf if terms.time_limit is None else began + terms.time_limit
    try:
        with limited(math.inf if x.is_cuda else walk.until):  # a GPU is quick, and compiled networks know no such limit
            points = 255 if x.is_cuda or x.numel() < _LARGE else 33
            changed = judge.probe(points if threat.box.lower < threat.box.upper else 2)
            for start, end in _slices(changed, sight, min(terms.until, judge.limit), terms):
                if start >= judge.limit:
                    break
                walk.go(start, end)
    except KeyboardInterrupt:
        walk.ended("undecided, as it was interrupted")
        walk.stopped = True
    except TimeOverError:
        walk.ended(terms.late)
    held = terms.until if judge.limit > terms.until else judge.limit * LESS
    held = min(held, LESS) if judge.limit < math.inf else held
    walk.tell(1.0 if terms.until == 1 or judge.limit <= terms.until else held)
    return Verdict(
        label=judge.label,
        held=held if judge.limit > 0 else None,
        gamma=judge.gamma,
        image=judge.image,
        scope=walk.scope,
        reason=_reason(judge, whole) or f"all {judge.evaluated} images agree",
        images=walk.images,
        evaluated=judge.evaluated,
        crossings=walk.crossings,
        cliques=walk.cliques,
        bundles=walk.bundles,
        unresolved=walk.unresolved,
        smallest_margin=judge.smallest,
        seconds_isolation=walk.isolation,
        seconds_classifier=time.perf_counter() - began - walk.isolation,
        interrupted=walk.stopped,
        late=terms.time_limit is not None and judge.reason == terms.late,
        limit=judge.limit,
        still=still,
    )


def _reason(judge: Judge, whole: Transform) -> str:
    """What ended the walk, with all parameters of what was asked for."""
    if judge.gamma is None:
        return judge.reason
    return f"the classifier answers differently at {whole.at((judge.gamma, *(0.0,) * (whole.dim - 1)))}"


def _slices(changed: Tensor, sight: Sight, share: float, terms: Terms) -> list[tuple[float, float]]:
    """[0, share] in parts t … t′ such that the crossings of t·Γ … t′·Γ fit into memory, by what the probe saw of them;
    the first ones small, for something is to be proved soon.
    """
    first, last = sight.threat.box.lower[0], sight.threat.box.upper[0]
    grid = torch.linspace(first, last, len(changed) + 1, dtype=torch.float64)
    middle = (grid[1:] + grid[:-1]) / 2
    t = torch.maximum(middle / (last or 1.0), middle / (first or -1.0)).clamp_max(1.0)
    order = t.argsort()
    total = torch.cat((t.new_zeros(1), (2 * changed.cpu()[order]).cumsum(0)))
    place = torch.cat((t.new_zeros(1), t[order]))
    most, part = sight.memory / sight.bytes, (32 if sight.x.is_cuda else 1) * _FIRST / sight.x.numel()
    if terms.time_limit is not None:
        most = min(most, float(total[-1]) / _SLICES)
    ends, reached = list[float](), 0.0
    while (reached := reached + min(part, most)) < float(total[-1]):
        ends.append(reached)
        part *= 2
    found = [_between(total, place, e) for e in ends]
    edges = sorted({terms.proved, *(e for e in found if terms.proved < e < share), max(share, terms.proved)})
    return list(pairwise(edges)) or [(terms.proved, share)]


def _between(total: Tensor, place: Tensor, value: float) -> float:
    """Where a sum that grows along `place` reaches the value."""
    i = int(torch.searchsorted(total, value).clamp(1, len(total) - 1))
    low, high = float(total[i - 1]), float(total[i])
    share = (value - low) / (high - low) if high > low else 1.0
    return float(place[i - 1] + share * (place[i] - place[i - 1]))


class _Half(NamedTuple):
    """One side of a slice, from γ = 0 outwards."""

    side: int  # of γ: 1 or −1
    unit: float  # the end of Γ on this side, > 0
    made: Plan  # against |γ|


@final
class _Walk:
    """Leads the judge outwards, and counts."""

    def __init__(self, sight: Sight, terms: Terms, judge: Judge, progress: Told | None) -> None:
        self.sight, self.threat, self.terms, self.judge, self.progress = sight, sight.threat, terms, judge, progress
        self.began, self.until = time.perf_counter(), math.inf
        self.crossings = self.cliques = self.bundles = self.unresolved = self.images = 0
        self.isolation, self.followed, self.stopped = 0.0, True, False
        self.asked = 0  # images handed to the judge
        self.marks: list[tuple[float, int]] = [(terms.proved, 0)]  # t, and how many were before all of larger onset
        self.halves: list[_Half] = []

    @property
    def scope(self) -> str:
        """For which arithmetic of the attacker all images were asked about."""
        return "tolerance" if not self.bundles else "program" if self.followed else "exact"

    def go(self, start: float, end: float) -> None:
        """Through the slice start … end, as multiples of Γ."""
        if self._late(start):
            return
        began, most = time.perf_counter(), self.terms.combinations(self.threat)
        self.marks = [(start, self.asked)]
        try:
            self.halves = halves = list(self._halves(start, end, most))
        except Faint as why:
            self.judge.end(start, f"undecided, as {why}")
            return
        self.isolation += time.perf_counter() - began
        self.unresolved += (beyond := sum(h.made.unresolved for h in halves))
        doubt = min(h.made.doubt / h.unit for h in halves)
        self.judge.end(doubt, f"undecided, as {beyond} sets of crossings overlap in more than {most} combinations each")
        size = self.terms.size(self.sight.x)
        for image, where in _full(self._outwards(halves, size), size):
            self.judge.ask(image, where)
        self.judge.finish()
        self._count()

    def ended(self, reason: str) -> None:
        """Keeps what is proved when the walk ends anywhere. Images are asked about in the order in which they are made,
        and the judge counts those whose answers it has seen: of less onset than t are none but those made before t was
        noted.
        """
        seen = [t for t, before in self.marks if before <= self.judge.settled]
        self.judge.end(max(seen), reason)
        self._count()

    def _count(self) -> None:
        """What was found in the slice at hand, once: Ctrl-C finds it counted as a whole, or not at all."""
        halves = self.halves
        crossings = self.crossings + sum(len(h.made.crossings) for h in halves)
        cliques = self.cliques + sum(h.made.base.numel() for h in halves)
        bundles = self.bundles + sum(h.made.bundles for h in halves)
        images = self.images + sum(h.made.below(self.judge.limit * LESS * h.unit) for h in halves)
        self.followed &= all(h.made.followed for h in halves if h.made.bundles)
        self.crossings, self.cliques, self.bundles, self.images = crossings, cliques, bundles, images
        self.halves = []

    def _late(self, t: float) -> bool:
        """Whether the time is over: then nothing is proved from t on."""
        if late := time.perf_counter() > self.until:
            self.judge.end(t, self.terms.late)
        else:
            self.tell(min(1.0, t / (min(1.0, self.judge.limit) or 1.0)))
        return late

    def tell(self, share: float) -> None:
        if self.progress is not None:
            pace = self.judge.evaluated / max(1e-9, time.perf_counter() - self.began)
            self.progress(int(1000 * share), 1000, f"{pace:.0f} pictures/s")

    def _halves(self, start: float, end: float, most: int) -> Iterator[_Half]:
        """Both sides of a slice. A range that is a point has one side."""
        first, last = self.threat.box.lower[0], self.threat.box.upper[0]
        find = self.sight.crossings
        if start == 0:
            whole = find((end * first, end * last))
        if last > 0 or first == 0:
            near = (start * last, end * last)
            c = find(near) if start else whole.from_zero()
            yield _Half(1, last or 1.0, plan(c, most))
        if first < 0:
            near = (end * first, start * first)
            c = find(near) if start else whole
            yield _Half(-1, -first, plan(c.mirrored() if start else c.mirrored().from_zero(), most))

    def _outwards(self, halves: list[_Half], size: int) -> Iterator[_Batch]:
        """The images of both halves, the chunks in the order of their onset, up to where the judge or the time ends."""
        ways = [(Chunks(h.made, size), h) for h in halves]
        order = sorted((t / h.unit, way, i) for way, (chunks, h) in enumerate(ways) for i, t in enumerate(chunks.onset))
        for t, way, i in order:
            if t >= self.judge.limit or self._late(t):
                return
            chunks, h = ways[way]
            self.marks.append((t, self.asked))
            for image, where in chunks.images(i):
                self.asked += len(image)
                yield image, torch.cat((h.side * where[:, :2], where[:, 2:] / h.unit), 1)


def _full(parts: Iterable[_Batch], batch: int) -> Iterator[_Batch]:
    """The same images in batches of exactly this size but the last: a GPU prepares anew for every size it meets."""
    held: list[_Batch] = []
    for part in parts:
        held.append(part)
        if sum(len(image) for image, _ in held) >= batch:
            image, where = (torch.cat(each) for each in zip(*held, strict=True))
            ready = len(image) // batch * batch
            yield from zip(torch.split(image[:ready], batch), torch.split(where[:ready], batch), strict=True)
            held = [(image[ready:], where[ready:])]
    if any(len(image) for image, _ in held):
        image, where = (torch.cat(each) for each in zip(*held, strict=True))
        yield image, where
