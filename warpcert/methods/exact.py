"""Exhaustive verification: the deployed function on every picture that the attacker can hand over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.certificates import Certificate, Enumeration, ErrorBound, Exhausted, Kind
from warpcert.classifier import Classifier
from warpcert.classifier.before.front import Front
from warpcert.classifier.before.stem import Stem
from warpcert.classifier.swift import swift
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.exhaustive.events.crossings import levels
from warpcert.exhaustive.events.relative import refusal_behind
from warpcert.exhaustive.finite import glance_shifts, refusal_shifts, shifts_of, verify_shifts
from warpcert.exhaustive.glance import glance
from warpcert.exhaustive.parts import Part
from warpcert.exhaustive.sight import Terms
from warpcert.exhaustive.verify import Verdict, verify
from warpcert.methods.base import Interrupted, Method, Progress, positive_limit, refuse_tf32, subject
from warpcert.methods.outlook.forecast import Forecast, network_pace
from warpcert.methods.outlook.remedies import against_pictures
from warpcert.threat import Threat
from warpcert.version import __version__

__all__ = ["Exact"]

RESTLESS = "its answers must not depend on chance (dropout) or on the rest of the batch"


@final
@dataclass(frozen=True, kw_only=True)
class Exact(Method):
    """PROVED: the classifier answers the same at q(T_γ x) for every γ in the largest t·Γ for which that can be proved;
    if t < 1, with the reason why it ends there and, where one was found, a counterexample outside.

    One parameter, known x, no noise; or shifts by whole pixels, a finite set, alone or before one parameter. Against
    attackers who do not round the classifier must stand behind `Levels` unless they only shift: it cannot see what
    happens between its levels, and the proof is cheaper. If `Levels` has a front, real-valued brightness, or brightness
    and contrast, at the end of the threat cost nothing, for the front does not see them.

    Every image's leading logit must lead by the classifier's slack, times the largest logit (at least 1). The
    attacker's arithmetic is that of the threat: see `Threat.tolerance`. Attackers that compute T in float32 err by more
    under rotation and scaling (4·10⁻⁶ was seen at 32×32): for them, pass tolerance = 5·10⁻⁷·(H + W). Where many pixels
    meet a threshold at one γ, the statement is about the attackers that its sentence names: see `Enumeration.scope`.

    time_limit  seconds for one picture; what is proved by then is certified
    eight_bit   x is the 8-bit picture itself: the attacker starts from v/255, in the type that they compute in. By
                default from the float32 numbers that the classifier is given too, which costs several times as many
                pictures where many pixels meet a threshold at one γ
    """

    batch: int | None = None
    time_limit: float | None = None
    eight_bit: bool = False
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
        seen, _ = Front("stretched").sees(rest)
        if seen is None or len(seen.transform.parts) == 1:
            return ""
        known = "shifts by whole pixels before it and, behind a front, real-valued brightness and contrast after it"
        return f"{cls.name} knows one transformation at a time, {known}, not {threat.transform.name}"

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        if classifier.noise or classifier.over:
            return "exact certifies classifiers without noise: wc.Levels(network, step=8) or wc.Plain(network)"
        if not shifts_of(threat):
            return refusal_behind(threat, classifier.step, classifier.front, isinstance(classifier.sees, Stem))
        if isinstance(classifier.sees, Stem) and threat.after_shifts is not None:
            return "behind a stem shifts by whole pixels are tried alone, not before another part"
        return refusal_shifts(threat, classifier.step, classifier.front)

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        return self._certify(classifier, x, threat, progress, None)

    def go_on(
        self, made: Certificate, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        """From its end, if it says that it is about the tolerance in force, which records made before 0.1.0 do not."""
        known = made if isinstance(made, Exhausted) and made.reach and made.counterexample is None else None
        if known and known.found and known.found.tolerance != threat.off_by:
            known = None
        return self._certify(classifier, x, threat, progress, known)

    def _certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None, known: Exhausted | None
    ) -> Certificate:
        """`known` proves a part of the range: the walk goes on from its end, and what it counted is added."""
        refuse_tf32(x, classifier.slack)
        start, shifts = time.perf_counter(), shifts_of(threat) is not None
        known = None if shifts or (known and known.found and known.found.eight_bit != self.eight_bit) else known
        proved = known.found if known else None
        terms = replace(self._terms(classifier, threat), proved=proved.held if proved else 0.0)
        f = self._asked(classifier, x, terms)
        if shifts:
            alone = threat.after_shifts is None
            verdict = verify_shifts(classifier if alone else f, self._started(x, threat), threat, terms, progress)
        else:
            verdict = verify(f, self._started(x, threat), threat, known.label if known else None, terms, progress)
        made = self._made(classifier, x, threat, verdict, proved)
        made = replace(made, seconds=time.perf_counter() - start + (known.seconds if known else 0.0))
        _refuse_restless(made)
        if verdict.interrupted:
            raise Interrupted(made)
        return made

    def in_parts(self, threat: Threat) -> bool:
        return shifts_of(threat) is None

    def part(
        self, classifier: Classifier, x: Tensor, threat: Threat, share: tuple[float, float],
        progress: Progress | None = None,
    ) -> Part:  # fmt: skip
        refuse_tf32(x, classifier.slack)
        began, (start, until) = time.perf_counter(), share
        terms = replace(self._terms(classifier, threat), proved=start, until=until)
        verdict = verify(self._asked(classifier, x, terms), self._started(x, threat), threat, None, terms, progress)
        made = replace(self._made(classifier, x, threat, verdict), seconds=time.perf_counter() - began)
        if not start:
            _refuse_restless(made)
        ended = verdict.limit <= until and not (verdict.late or verdict.interrupted)
        if not ended:  # if one is known, it lies beyond
            reason = "" if verdict.verified else "undecided beyond, as yet"
            passes = made.found.images if made.found else made.passes  # the others will be asked about again
            made = replace(made, counterexample=None, reason=reason, passes=passes)
        limit = math.inf if verdict.late or verdict.interrupted else verdict.limit
        part = Part(start, until, verdict.held or 0.0, limit, made)
        if verdict.interrupted:
            raise Interrupted(made, part)
        return part

    def _made(
        self, classifier: Classifier, x: Tensor, threat: Threat, verdict: Verdict, proved: Enumeration | None = None
    ) -> Exhausted:
        """The certificate, but for its seconds, with what was proved before."""
        slack, tolerance, step = classifier.slack, threat.off_by, classifier.step
        seen = x
        if (
            threat.quantized and step == 1
        ):  # in float64, as the walk does: 64.5 levels in float32 may have been a bit less
            seen = threat.transform.quantize(levels(x)[0] / 255).float()
        twice = classifier(torch.stack((seen, seen))).detach()
        if float((twice[0] - twice[1]).abs().amax()) > slack * max(1.0, float(twice.abs().amax())):
            raise ValueError(f"asked twice about this picture, the network answers otherwise: {RESTLESS}")
        scores = tuple(twice[0].tolist())
        done, found = None, verdict.crossings + (proved.crossings if proved else 0)
        if verdict.held is not None:
            margin, scope = verdict.smallest_margin, verdict.scope
            done = Enumeration(verdict.images, found, margin, slack, scope, verdict.held, tolerance, self.eight_bit)
            done = done.after(proved) if proved else done
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
            passes=verdict.evaluated + (proved.images if proved else 0),
            seconds=0.0,
            reason=self._why(verdict, classifier, threat),
        )

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        terms = self._terms(classifier, threat)
        look = glance_shifts if shifts_of(threat) else glance
        found, size = look(self._started(x, threat), threat, terms), terms.size(x)
        seconds = found.seconds + found.images * network_pace(classifier, x, size)
        advice = against_pictures(classifier)
        crowded = f"too many crossings coincide: {advice}" if found.crowded else ""
        memory = found.memory + 5 * size * x.numel()
        return Forecast(found.images, seconds, memory, crowded).within(self.time_limit).advised(advice)

    def _started(self, x: Tensor, threat: Threat) -> Tensor:
        """What the attacker starts from; who only copies pixels starts from either."""
        if not self.eight_bit or threat.after_shifts is None:
            return x
        value, whole = levels(x)
        if not whole:
            raise ValueError("this picture is not an 8-bit one: leave eight_bit out")
        return value.to(torch.uint8)

    @staticmethod
    def _asked(classifier: Classifier, x: Tensor, terms: Terms) -> Callable[[Tensor], Tensor]:
        """The classifier as a function of what it sees: rounded already, and made of means, where it does that."""
        one = classifier.preprocess(x[None])
        f = swift(classifier, one.expand(terms.size(x), *one.shape[1:]))
        return lambda seen: f(classifier.preprocess(seen))

    def _terms(self, classifier: Classifier, threat: Threat) -> Terms:
        c = classifier
        return Terms(c.slack, threat.off_by, c.step, c.front, c.sees, self.batch, time_limit=self.time_limit)

    def _why(self, verdict: Verdict, classifier: Classifier, threat: Threat) -> str:
        """What ended the walk before Γ did, with a remedy where there were too many pictures."""
        if verdict.verified:
            return ""
        if verdict.held is None and (at := verdict.counterexample) is not None:  # whatever ended it before it began
            return f"the classifier answers differently at {threat.transform.at(at)}"
        crowded = verdict.reason.startswith("undecided, as") and not verdict.interrupted
        return f"{verdict.reason}: {against_pictures(classifier)}" if crowded else verdict.reason


def _refuse_restless(made: Exhausted) -> None:
    """Of a network whose answers depend on chance, or on the rest of the batch, nothing is proved: alone, the
    picture itself cannot lead by less than the least lead among all pictures, of which it is one.
    """
    found, scores = made.found, made.scores or ()
    if found is None or made.abstains or len(scores) < 2:
        return
    others = max(s for i, s in enumerate(scores) if i != made.label)
    lead = (scores[made.label] - others) / max(1.0, *map(abs, scores))
    if not lead >= found.margin - found.slack:
        raise ValueError(
            f"asked about this picture alone, the network lets {made.label} lead by {lead:.3g}, and among others by at "
            f"least {found.margin:.3g}: {RESTLESS}"
        )
