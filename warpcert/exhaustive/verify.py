"""Exhaustive verification: the plain classifier on every 8-bit image that the attacker can hand over; no smoothing.

Guarantee. If `verify` says t, then f(q(T_γ x)) = label for all γ ∈ t·Γ.

Argument. Γ is cut at γ = 0. On the right half, and on the left one mirrored, images come in the order of their onset
(see `enumeration`): those possible at γ are among those with onset at most |γ|. Both halves are walked outwards, side
by side, and every image is asked about until one fails: until f does not lead by more than the slack, whether or not
some γ produces that image. Let t be the least onset of one that failed, as a multiple of Γ's end on its side. Images of
less onset were all asked about and did not fail, so the label is proved on u·Γ for all u < t; t is reported less 10⁻¹²
of it, which contains its rounding. Cliques beyond the limit count as failed.

Behind `Coarse` f sees Q_w(T_γ x) only, and Q_w takes the place of q in all of this: fewer images, and it matters not
whether the attacker rounds.

A grid of γ is tried first: a counterexample found there ends the walk, and Γ is not looked at beyond.

Arithmetic. f receives float32 image/255, correctly rounded, in batches; deployment must feed the same values. The
logits of an image depend on its batch only by rounding, which the slack stands for: on a GPU turn TF32 off or raise it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from warpcert.classifier.levels import level, shown
from warpcert.exhaustive.crossings import Crossings, find_crossings, levels
from warpcert.exhaustive.enumeration import Chunks, Plan, plan
from warpcert.threat import Threat

__all__ = ["Verdict", "verify"]

_Batch = tuple[Tensor, Tensor]  # images, and per image γ, γ (between which it occurs, see `Chunks`) and onset, t


@final
@dataclass(frozen=True)
class Verdict:
    """What was found out about f on {q(T_γ x) : γ ∈ Γ}.

    held        f answers `label` for all γ ∈ held·Γ; None if not even γ = 0 is proved. `scope` says for which attacker:
                "tolerance", any arithmetic within the tolerance of T; "exact", exact arithmetic only, as some crossings
                coincide in too many pixels
    gamma       a parameter at which f answers differently, on `image` = q(T_γ x), the nearest to 0 that was found
    reason      what ended the walk, if it ended before Γ did
    """

    label: int
    held: float | None
    gamma: float | None
    image: Tensor | None  # uint8 [C,H,W]
    scope: str
    reason: str
    images: int  # that can occur in held·Γ, all of which got the label
    evaluated: int
    crossings: int
    cliques: int
    bundles: int
    unresolved: int  # cliques beyond the limit
    smallest_margin: float  # of those that got the label, in units of max(1, largest |logit|), as the slack
    seconds_isolation: float
    seconds_classifier: float

    @property
    def verified(self) -> bool:
        """The label is proved on all of Γ."""
        return self.held == 1.0


def verify(
    classifier: Callable[[Tensor], Tensor],
    x: Tensor,
    threat: Threat,
    label: int | None = None,
    *,
    batch: int | None = None,
    slack: float = 1e-4,
    tolerance: float = 1e-12,
    limit: int | None = None,
    step: int = 1,
) -> Verdict:
    """Proves f(q(T_γ x)) = label for all γ ∈ t·Γ, with the largest t that can be proved; x [C,H,W] on f's device.

    label   defaults to f's answer on x
    slack   an image counts as label if its logit leads by more than slack·max(1, largest |logit|), as another class if
            that leads by more; anything between leaves the answer open
    limit   combinations of one clique, beyond which coinciding crossings are bundled (see `enumeration`), or else the
            walk ends: 1024, and 32768 for an attacker who does not round and has no bundles
    step    w > 1: f is a classifier behind `Coarse` with this step: f(z) = f(Q_w(z)) for all real z, and the attacker
            may round or not
    """
    began = time.perf_counter()
    judge = _Judge(classifier, levels(x)[0] / 255, threat, label, slack, step)
    judge.probe(255)
    limit = limit or (1024 if threat.quantized else 1 << 15)
    halves = [_Half(side, end, plan(c, limit)) for side, end, c in _cut(x, threat, judge.limit, tolerance, step)]
    isolation = time.perf_counter() - began
    unresolved = sum(h.made.unresolved for h in halves)
    if (doubt := min(h.made.doubt / h.unit for h in halves)) < judge.limit:
        judge.limit = doubt
        judge.reason = f"{unresolved} sets of crossings overlap in more than {limit} combinations each"
    size = batch or (8192 if x.is_cuda else 1024)
    for image, where in _full(_outwards(halves, judge, size), size):
        judge.ask(image, where)
    held = 1.0 if judge.limit == math.inf else min(judge.limit, 1.0) * (1 - 1e-12)
    return Verdict(
        label=judge.label,
        held=held if judge.limit > 0 else None,
        gamma=judge.gamma,
        image=judge.image,
        scope="exact" if any(h.made.bundles for h in halves) else "tolerance",
        reason=judge.reason or f"all {judge.evaluated} images agree",
        images=sum(h.made.below(judge.limit * h.unit) for h in halves),
        evaluated=judge.evaluated,
        crossings=sum(len(h.made.crossings) for h in halves),
        cliques=sum(h.made.base.numel() for h in halves),
        bundles=sum(h.made.bundles for h in halves),
        unresolved=unresolved,
        smallest_margin=judge.smallest,
        seconds_isolation=isolation,
        seconds_classifier=time.perf_counter() - began - isolation,
    )


class _Half(NamedTuple):
    """One side of Γ, from γ = 0 outwards."""

    side: int  # of γ: 1 or −1
    end: float  # of Γ on this side, ≥ 0
    made: Plan  # against |γ|

    @property
    def unit(self) -> float:
        return self.end or 1.0


def _cut(
    x: Tensor, threat: Threat, limit: float, tolerance: float, step: int
) -> Iterator[tuple[int, float, Crossings]]:
    """Γ up to `limit` times its ends, cut at 0: side, end of Γ, and its events against |γ|. A point has one side."""
    first, last, share = threat.box.lower[0], threat.box.upper[0], min(1.0, limit)
    found = find_crossings(x, replace(threat, box=threat.box.scaled(share)), tolerance, step)
    if last > 0 or first == 0:
        yield 1, last, found.from_zero()
    if first < 0:
        yield -1, -first, found.mirrored().from_zero()


def _outwards(halves: list[_Half], judge: _Judge, size: int) -> Iterator[_Batch]:
    """The images of both halves, the chunks in the order of their onset, up to what the judge says is of interest."""
    ways = [(Chunks(h.made, size), h) for h in halves]
    order = sorted((t / h.unit, way, i) for way, (chunks, h) in enumerate(ways) for i, t in enumerate(chunks.onset))
    for t, way, i in order:
        if t >= judge.limit:
            return
        chunks, h = ways[way]
        for image, where in chunks.images(i):
            yield shown(image, judge.step), torch.cat((h.side * where[:, :2], where[:, 2:] / h.unit), 1)


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


@final
class _Judge:
    """Asks f about images, and remembers from where on nothing is proved, why, and the nearest counterexample."""

    def __init__(
        self,
        classifier: Callable[[Tensor], Tensor],
        x: Tensor,
        threat: Threat,
        label: int | None,
        slack: float,
        step: int,
    ) -> None:
        self.classifier, self.x, self.threat, self.slack, self.step = classifier, x, threat, slack, step
        self.full = torch.tensor(255.0, device=x.device)  # a tensor: a GPU multiplies by the reciprocal of a number
        self.gamma: float | None = None
        self.image: Tensor | None = None
        self.limit = math.inf  # the least onset, as a multiple of Γ, of an image that failed
        self.evaluated, self.smallest, self.reason = 0, math.inf, ""
        own = self._seen(x)[None]
        self.label = int(classifier(own.float() / self.full).argmax()) if label is None else label
        self.own = torch.tensor(self.label, device=x.device)

    def _seen(self, z: Tensor) -> Tensor:
        """What f sees of real z: q(z), or Q_w(z); uint8."""
        if self.step > 1:
            return shown(level(z, self.step), self.step)
        return (255 * self.threat.transform.quantize(z)).round().to(torch.uint8)

    def _leads(self, image: Tensor) -> Tensor:
        """By how much label leads, in units of max(1, largest |logit|) of the image, [B]."""
        with torch.inference_mode():
            logits = self.classifier(image.float().div_(self.full))
            others = logits.index_fill(1, self.own, -math.inf).amax(1)
            return (logits[:, self.label] - others) / logits.abs().amax(1).clamp_min(1)

    def probe(self, count: int) -> None:
        """Looks for the counterexample nearest to 0 on a grid of γ: cheap, and most images that have one show it."""
        grid = self.threat.box.grid(count).to(self.x.device)
        moved = self.threat.transform(self.x, grid, self.threat.interpolation)
        clear = ((255 * moved - 0.5) - (255 * moved - 0.5).round()).abs().flatten(1).amin(1) > 1e-8
        image = self._seen(moved)
        wrong = ((self._leads(image) < -self.slack) & clear).nonzero()[:, 0].tolist()
        first, last = self.threat.box.lower[0], self.threat.box.upper[0]
        found = [(g / last if g > 0 else g / first if g < 0 else 0.0, i) for i in wrong for g in grid[i].tolist()]
        for t, i in sorted(found)[:16]:
            if self._refutes(image[i], float(grid[i, 0])):
                self.limit = t
                return

    def ask(self, image: Tensor, where: Tensor) -> None:
        """Whether all of the images get the label: if not, the limit moves inwards."""
        lead = self._leads(image)
        self.evaluated += lead.numel()
        if not (smallest := float(lead.min())) > self.slack:
            smallest = float(lead[lead > self.slack].amin()) if bool((lead > self.slack).any()) else math.inf
            self._end(image, where, lead)
        self.smallest = min(self.smallest, smallest)

    def _end(self, image: Tensor, where: Tensor, lead: Tensor) -> None:
        """Takes note of the images that failed, if one of them has an onset below the limit."""
        failed = (~(lead > self.slack) & (where[:, 2] < self.limit)).nonzero()[:, 0]
        if not failed.numel():
            return
        failed = failed[where[failed, 2].argsort(stable=True)]
        self.limit = float(where[failed[0], 2])
        wrong = failed[lead[failed] < -self.slack]
        surely = (where[wrong, 1].abs() > where[wrong, 0].abs()).int().argsort(descending=True, stable=True)
        for i in wrong[surely][:16].tolist():
            gamma = self._witness(image[i], where[i])
            if gamma is not None and self._refutes(image[i], gamma):
                return
        doubt = (
            "that perhaps no γ produces, and f errs" if wrong.numel() else "on which f decides by less than the slack"
        )
        near = self.threat.transform.to_text(float(where[failed[0], :2].mean()))
        self.reason = f"open: there is an image near {near} {doubt}"

    def _witness(self, image: Tensor, where: Tensor) -> float | None:
        """A γ at which the attack in float64 hands over exactly this image."""
        start, end, _ = where.tolist()
        grid = torch.linspace(start, end, 33, dtype=torch.float64, device=where.device)[:, None]
        moved = self.threat.transform(self.x, grid, self.threat.interpolation)
        same = (self._seen(moved) == image).flatten(1).all(1).nonzero()[:, 0]
        return float(grid[same[same.numel() // 2], 0]) if same.numel() else None

    def _refutes(self, image: Tensor, gamma: float) -> bool:
        """Asks once more about this image alone."""
        wrong = bool(self._leads(image[None]) < -self.slack)
        if wrong:
            self.gamma, self.image = gamma, image.clone()
            self.reason = f"f answers differently at {self.threat.transform.to_text(gamma)}"
        return wrong
