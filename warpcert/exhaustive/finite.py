"""Finite sets of shifts, alone or before one parameter: every shift is tried, with the whole range of what follows.

Guarantee. As that of `verify`: if `verify_shifts` says t, then f(q(T_γ x)) = label for all γ ∈ t·Γ.

Argument. The γ of Γ are (k, θ), k one of finitely many whole shifts and θ the parameter of what follows, if anything
does. t·Γ holds those with |k| ≤ t·r and θ ∈ t·Θ. For each k let o = |k|/r, the least t for which k is in t·Γ, and let
h be the largest multiple of Θ on which `verify` proves the label for the shifted picture (without Θ: ∞ if the label
leads by more than the slack, else 0). (k, θ) fails at no t < max(o, h), since either k ∉ t·Γ or t·Θ ⊂ h·Θ. So the label
is proved on t·Γ for all t below the least max(o, h) over all k. Shifts are tried in the order of o: those with o ≥ that
least value need not be. A shift copies pixels, so x' of a shift alone is known exactly, whatever the attacker computes
with, and x shifted is a picture of the same values as x for `verify`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from warpcert.exhaustive.events.relative import refusal_behind
from warpcert.exhaustive.glance import Glance, glance
from warpcert.exhaustive.judge import relative_lead
from warpcert.exhaustive.sight import Terms
from warpcert.exhaustive.verify import LESS, Told, Verdict, verify
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.threat import Threat
from warpcert.transforms import Steps

__all__ = ["glance_shifts", "refusal_shifts", "shifts_of", "verify_shifts"]

INTERRUPTED = "undecided, as it was interrupted"
SCOPES = ("tolerance", "program", "exact")  # from the strongest to the weakest


@final
@dataclass(frozen=True)
class _Parts:
    """The shifts of a threat, and the threat of what follows; None if nothing does."""

    steps: Steps
    radius: float
    points: Tensor  # [n,2], the shortest first
    rest: Threat | None

    def onset(self, k: Tensor) -> float:
        """A little less than |k|/r: what fails there is excluded, whatever was rounded."""
        return float(k.norm()) / self.radius * LESS if self.radius else 0.0


def shifts_of(threat: Threat) -> _Parts | None:
    """None if the threat does not begin with shifts."""
    first, box = threat.transform.shared(threat.box)[0]
    if not isinstance(first, Steps):
        return None
    return _Parts(first, first.radius(box), first.points(box), threat.after_shifts)


def refusal_shifts(threat: Threat, step: int, front: str) -> str:
    """Why not every picture of this attacker can be enumerated; "" if it can."""
    parts = shifts_of(threat)
    assert parts is not None
    if parts.rest is not None:
        return refusal_behind(parts.rest, step, front)
    return "shifts copy pixels: leave the tolerance out" if threat.tolerance else ""


def verify_shifts(
    classifier: Callable[[Tensor], Tensor], x: Tensor, threat: Threat, terms: Terms,
    progress: Told | None = None,
) -> Verdict:  # fmt: skip
    """`verify` for threats that begin with shifts; classifier is called on batches of real pictures."""
    parts = shifts_of(threat)
    assert parts is not None
    walk = _Walk(classifier, x, parts, threat, terms)
    return walk.alone(progress) if parts.rest is None else walk.followed(parts.rest, progress)


@final
class _Walk:
    def __init__(
        self, classifier: Callable[[Tensor], Tensor], x: Tensor, parts: _Parts, threat: Threat, terms: Terms
    ) -> None:
        self.classifier, self.x, self.parts, self.threat, self.terms = classifier, x, parts, threat, terms
        self.began = time.perf_counter()
        self.limit, self.reason, self.witness, self.stopped = math.inf, "", list[float](), False
        self.done: list[tuple[float, Verdict]] = []  # onset and verdict

    def late(self, onset: float) -> bool:
        limit = self.terms.time_limit
        if self.done and self.done[-1][1].interrupted:
            self.end(onset, INTERRUPTED)
            return True
        if limit is None or time.perf_counter() - self.began <= limit:
            return False
        self.end(onset, self.terms.late)
        return True

    def end(self, limit: float, reason: str, witness: list[float] | None = None) -> None:
        if limit < self.limit:
            self.limit, self.reason, self.witness = limit, reason, witness or []

    def _pictures(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for some in torch.split(self.parts.points, size):
            moved = self.parts.steps(self.x, some)
            yield some, (self.threat.transform.quantize(moved) if self.threat.quantized else moved)

    def alone(self, progress: Told | None) -> Verdict:
        label, smallest, asked, total = -1, math.inf, 0, len(self.parts.points)
        until = math.inf if self.x.is_cuda or not self.terms.time_limit else self.began + self.terms.time_limit
        try:
            for some, pictures in self._pictures(self.terms.size(self.x)):
                if asked and self.late(self.parts.onset(some[0])):
                    break
                with torch.inference_mode(), limited(until):
                    logits = self.classifier(pictures.float())
                label = int(logits[0].argmax()) if label < 0 else label
                lead = relative_lead(logits, torch.tensor(label, device=logits.device))
                bad = (~(lead > self.terms.slack)).nonzero()[:, 0].tolist()
                smallest = min([smallest, *lead[: bad[0] if bad else None].tolist()])
                if bad:
                    self._failed(some[bad[0]], float(lead[bad[0]]))
                asked += len(some)
                if bad:
                    break
                if progress is not None:
                    progress(asked, total, "")
        except (KeyboardInterrupt, TimeOverError) as stop:  # of the shifts of less onset all were tried
            self.stopped = isinstance(stop, KeyboardInterrupt)
            at = self.parts.onset(self.parts.points[min(asked, total - 1)])
            self.end(at, INTERRUPTED if self.stopped else self.terms.late)
        inside = sum(self.parts.onset(k) < self.limit for k in self.parts.points[:asked])
        return self._verdict(label, inside, asked, smallest, 0.0)

    def _failed(self, k: Tensor, lead: float) -> None:
        at = self.threat.transform.at(k.tolist())
        if lead < -self.terms.slack:
            self.end(self.parts.onset(k), f"the classifier answers differently at {at}", k.tolist())
        else:
            self.end(self.parts.onset(k), f"undecided near {at}, where the lead is too small")

    def followed(self, rest: Threat, progress: Told | None) -> Verdict:
        onset, label = 0.0, list[int]()
        try:
            for number, k in enumerate(self.parts.points):
                onset = self.parts.onset(k)
                if onset >= self.limit or (self.done and self.late(onset)):
                    break
                label = [self._walked(k, rest, *label).label]
                if progress is not None:
                    progress(number + 1, len(self.parts.points), "")
        except KeyboardInterrupt:
            self.stopped = True
            self.end(onset, INTERRUPTED)
        inside = [v for onset, v in self.done if onset < self.limit]
        smallest = min((v.smallest_margin for v in inside), default=math.inf)
        images, passes = sum(v.images for v in inside), sum(v.evaluated for _, v in self.done)
        isolation = sum(v.seconds_isolation for _, v in self.done)
        return self._verdict(label[0] if label else 0, images, passes, smallest, isolation)

    def _walked(self, k: Tensor, rest: Threat, label: int | None = None) -> Verdict:
        """One shift with what follows, as far out as nothing has failed yet."""
        onset, share, left = self.parts.onset(k), min(1.0, self.limit), self.terms.time_limit
        if left is not None:
            left = max(1e-3, left - (time.perf_counter() - self.began))
        moved, part = self.parts.steps(self.x, k[None])[0], replace(rest, box=rest.box.scaled(share))
        found = verify(self.classifier, moved, part, label, replace(self.terms, time_limit=left))
        if not found.verified:
            at = found.reason if found.gamma is None else ""
            witness, still = [*k.tolist(), found.gamma] if found.gamma is not None else [], [0.0] * found.still
            said = at and f"{at} (after the shift by {self.parts.steps.at(k.tolist())})"
            reason = said or f"the classifier answers differently at {self.threat.transform.at(witness + still)}"
            self.end(max(onset, share * (found.held or 0.0)), reason, witness)
        self.done.append((onset, found))
        return found

    def _verdict(self, label: int, images: int, passes: int, smallest: float, isolation: float) -> Verdict:
        done = [v for _, v in self.done]
        held = 1.0 if self.limit == math.inf else min(self.limit, 1.0) * LESS
        return Verdict(
            label=label,
            held=held if self.limit > 0 else None,
            gamma=self.witness[-1] if len(self.witness) > 2 else None,
            image=None,
            scope=max((v.scope for v in done), key=SCOPES.index, default=SCOPES[0]),
            reason=self.reason or f"all {passes} images agree",
            images=images,
            evaluated=passes,
            crossings=sum(v.crossings for v in done),
            cliques=sum(v.cliques for v in done),
            bundles=sum(v.bundles for v in done),
            unresolved=sum(v.unresolved for v in done),
            smallest_margin=smallest,
            seconds_isolation=isolation,
            seconds_classifier=time.perf_counter() - self.began - isolation,
            interrupted=self.stopped or any(v.interrupted for v in done),
            shift=tuple(self.witness[:2]),
            still=0 if self.parts.rest is None else self.parts.rest.transform.dim - 1,
        )


def glance_shifts(x: Tensor, threat: Threat, terms: Terms) -> Glance:
    """The shifts, times what follows them, judged by the picture itself."""
    parts = shifts_of(threat)
    assert parts is not None
    count = len(parts.points)
    if parts.rest is None:
        return Glance(0, count, 0.0, count * x.numel(), False)
    one = glance(x, parts.rest, terms)
    return Glance(count * one.crossings, count * one.images, count * one.seconds, one.memory, one.crowded)
