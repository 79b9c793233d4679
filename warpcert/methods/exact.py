"""Exhaustive verification: the deployed function on every picture that the attacker can hand over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from warpcert.certificates import Certificate, Enumeration, ErrorBound, Exhausted, Kind
from warpcert.classifier import Classifier
from warpcert.classifier.voting import ABSTAIN
from warpcert.exhaustive.finite import glance_shifts, refusal_shifts, shifts_of, verify_shifts
from warpcert.exhaustive.glance import glance
from warpcert.exhaustive.paths import refusal
from warpcert.exhaustive.verify import Terms, Verdict, verify
from warpcert.methods.base import Method, Progress, positive_limit, refuse_tf32, subject
from warpcert.methods.outlook.forecast import Forecast, network_pace
from warpcert.methods.outlook.remedies import against_pictures
from warpcert.threat import Threat
from warpcert.version import __version__

__all__ = ["Exact"]


@final
@dataclass(frozen=True, kw_only=True)
class Exact(Method):
    """PROVED: the classifier answers the same at q(T_γ x) for every γ in the largest t·Γ for which that can be proved;
    if t < 1, with the reason why it ends there and, where one was found, a counterexample outside.

    One parameter, known x, no noise; or shifts by whole pixels, a finite set, alone or before one parameter. Against
    attackers who do not round the classifier must stand behind `Levels` unless they only shift: it cannot see what
    happens between its levels, and the proof is cheaper.

    Every image's leading logit must lead by the classifier's slack, times the largest logit (at least 1). The
    attacker's arithmetic is that of the threat: see `Threat.tolerance`. Attackers that compute T in float32 err by more
    under rotation and scaling (4·10⁻⁶ was seen at 32×32): for them, pass tolerance = 5·10⁻⁷·(H + W). Where many pixels
    meet a threshold at one γ, the statement is about the attackers that its sentence names: see `Enumeration.scope`.

    time_limit  seconds for one picture; what is proved by then is certified
    """

    batch: int | None = None
    time_limit: float | None = None
    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "proved: the classifier itself keeps its label, every possible picture was tried"

    def __post_init__(self) -> None:
        positive_limit(self.time_limit)

    @classmethod
    def beyond(cls, threat: Threat) -> str:
        rest = threat.after_shifts
        if threat.l2:
            return f"{cls.name} knows no ℓ2 part"
        if rest is None or len(rest.transform.parts) == 1:
            return ""
        known = "one transformation at a time, and shifts by whole pixels before it"
        return f"{cls.name} knows {known}, not {threat.transform.name}"

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        if classifier.noise or classifier.over:
            return "exact certifies classifiers without noise: wc.Levels(network, step=8) or wc.Plain(network)"
        return (refusal_shifts if shifts_of(threat) else refusal)(threat, classifier.step)

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        refuse_tf32(x, classifier.slack)
        start, slack, tolerance, step = time.perf_counter(), classifier.slack, threat.off_by, classifier.step
        terms = self._terms(classifier, threat)
        if shifts_of(threat):
            verdict = verify_shifts(classifier, x, threat, terms, progress)
        else:
            verdict = verify(classifier, x, threat, terms=terms, progress=progress)
        seen = threat.transform.quantize(x) if threat.quantized and step == 1 else x
        scores = tuple(classifier(seen[None])[0].tolist())
        done, found = None, verdict.crossings
        if verdict.held is not None:
            margin, scope = verdict.smallest_margin, verdict.scope
            done = Enumeration(verdict.images, found, margin, slack, scope, verdict.held, tolerance)
        isolation = ErrorBound(0.0, 0.0, Kind.PROVED, "crossings", cells=found, seconds=verdict.seconds_isolation)
        return Exhausted(
            method=self.name,
            label=verdict.label if done else ABSTAIN,
            threat=threat,
            classifier=subject(classifier),
            classes=len(scores),
            scores=scores,
            preprocess=classifier.preprocess,
            step=step,
            error=isolation,
            found=done,
            counterexample=verdict.counterexample,
            version=__version__,
            passes=verdict.evaluated,
            seconds=time.perf_counter() - start,
            reason=self._why(verdict, classifier),
        )

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        terms = self._terms(classifier, threat)
        found, size = (glance_shifts if shifts_of(threat) else glance)(x, threat, terms), terms.size(x)
        seconds = found.seconds + found.images * network_pace(classifier, x, size)
        advice = against_pictures(classifier)
        crowded = f"too many crossings coincide: {advice}" if found.crowded else ""
        memory = found.memory + 5 * size * x.numel()
        return Forecast(found.images, seconds, memory, crowded).within(self.time_limit).advised(advice)

    def _terms(self, classifier: Classifier, threat: Threat) -> Terms:
        return Terms(classifier.slack, threat.off_by, classifier.step, self.batch, time_limit=self.time_limit)

    def _why(self, verdict: Verdict, classifier: Classifier) -> str:
        """What ended the walk before Γ did, with a remedy where there were too many pictures."""
        if verdict.verified:
            return ""
        crowded = verdict.reason.startswith("undecided, as")
        return f"{verdict.reason}: {against_pictures(classifier)}" if crowded else verdict.reason
