"""A cover's tests: one image per window, from γ = 0 outwards, until all are accepted or one is not."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import Covered, ErrorBound, Kind, Window, abstained
from warpcert.classifier import Classifier
from warpcert.classifier.before.front import Front
from warpcert.classifier.votes.sequential import Rules, run_tests
from warpcert.classifier.votes.voting import Draws, votes
from warpcert.methods.base import Progress, subject
from warpcert.methods.outlook.remedies import against_error, against_votes, with_time
from warpcert.numerics.region import outward
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.transforms import Box
from warpcert.version import __version__
from warpcert.windows.behind import pictures_behind
from warpcert.windows.cover import Windows

if TYPE_CHECKING:
    from warpcert.methods.cover import Cover

__all__ = ["Covering"]

CHUNK = 256  # windows tested at a time …
HASTY = 32  # … and when a clock may end it


@final
class Covering:
    """One certificate by windows without parameter noise."""

    def __init__(
        self, method: Cover, classifier: Classifier, x: Tensor, threat: Threat, until: float = math.inf
    ) -> None:
        self.start, self.until = time.perf_counter(), until
        self.classifier, self.x, self.threat, self.sampling = classifier, x, threat, method
        self.defence = classifier.defence(threat.transform)
        self.generator, self.seed = method.generator(x.device)
        self.ledger = stats.Ledger(method.alpha)

    def certify(self, windows: Windows, progress: Progress | None = None) -> Covered:
        """Tests the windows with α/J each, those nearest to γ = 0 first, until all are accepted, one is not, or
        time is up; the certified set is made of those accepted.
        """
        s = self.sampling
        alpha = self.ledger.spend(f"{len(windows)} windows", s.alpha) / len(windows)
        self._check_n(float(windows.E.min()), alpha)
        guessed = self._guess()
        label, passes = int(guessed.argmax()), s.n0
        outwards = torch.maximum(windows.lower.abs(), windows.upper.abs()).amax(1).argsort()
        if len(self.threat.transform.parts) > 1:  # units differ
            outwards = outward(self.threat.box, windows.lower, windows.upper).argsort(stable=True)
        done: list[Window] = []
        size, late = CHUNK if math.isinf(self.until) else HASTY, False
        for start in range(0, len(outwards), size):
            if late := bool(done) and time.perf_counter() > self.until:
                break
            if progress is not None:
                progress(start, len(outwards))
            chosen = outwards[start : start + size]
            tested, used, good = self._test(windows, chosen, label, alpha)
            done += tested
            passes += used
            if not good:
                late = time.perf_counter() > self.until
                break
        error = ErrorBound(
            float(windows.E.max()), 0.0, Kind.PROVED, "cover", cells=windows.cells, seconds=windows.seconds
        )
        ordered = tuple(sorted(done, key=lambda w: w.center))
        certificate = self._certificate(guessed, ordered, error, passes)
        if late:
            certificate = replace(certificate, reason=with_time(s.time_limit))
        return (
            certificate if certificate.reach else abstained(certificate, certificate.reason or self._why(done, label))
        )

    def late(self) -> Covered:
        """What there is to say if time was up before the windows were cut."""
        error = ErrorBound(0.0, 0.0, Kind.PROVED, "cover")
        made = self._certificate(self._guess(), (), error, self.sampling.n0)
        return abstained(made, f"{with_time(self.sampling.time_limit)}; the windows were still being cut")

    def _guess(self) -> Tensor:
        s = self.sampling
        return votes(self.classifier.logits, self.defence, self.x, s.n0, Draws(self.generator, batch=s.batch))

    def _certificate(self, guessed: Tensor, windows: tuple[Window, ...], error: ErrorBound, passes: int) -> Covered:
        return Covered(
            method=self.sampling.name,
            label=int(guessed.argmax()),
            threat=self.threat,
            defence=self.defence,
            error=error,
            windows=windows,
            alpha=self.sampling.alpha,
            ledger=self.ledger.entries,
            classes=len(guessed),
            scores=tuple(guessed.tolist()),
            seed=self.seed,
            classifier=subject(self.classifier),
            version=__version__,
            passes=passes,
            seconds=time.perf_counter() - self.start,
        )

    def _why(self, done: list[Window], label: int) -> str:
        w, sigma = done[0], self.defence.sigma_noise
        if advice := against_error(self.classifier, self.threat, w.E / sigma):
            return advice
        needed = radius.needed_probability(w.E, sigma) or 1.0
        p = stats.lower_bound(w.k, w.n, w.alpha) if w.n else 0.0
        return f"next to γ = 0, class {label}: {against_votes(p, needed, w.k == w.n)}"

    def _check_n(self, E: float, alpha: float) -> None:
        """n unanimous votes must be able to certify the easiest window."""
        p0 = radius.needed_probability(E, self.defence.sigma_noise)
        if p0 is None or stats.accepts(self.sampling.n, 0, p0, alpha):
            return
        needed = self.sampling.n
        while not stats.accepts(needed, 0, p0, alpha):
            needed += 1 + needed // 50
        raise ValueError(
            f"n = {self.sampling.n} is too small ever to certify a window: about n = {needed} is needed; raise n"
        )

    def _test(self, windows: Windows, chosen: Tensor, label: int, alpha: float) -> tuple[list[Window], int, bool]:
        E = windows.E[chosen].tolist()
        needed = [radius.needed_probability(e, self.defence.sigma_noise) for e in E]
        p0 = np.array([1.0 if p is None else p for p in needed])
        front = Front(self.defence.front)
        images = pictures_behind(windows, self.x, self.threat, front, chosen).to(self.x.dtype)
        views = self.defence.preprocess(front(images))
        tests = run_tests(
            self.classifier.logits,
            views,
            label,
            p0,
            Rules(self.defence.sigma_noise, alpha, self.sampling.n, stop_at_rejection=True, until=self.until),
            self.generator,
        )
        cells = zip(windows.lower[chosen].tolist(), windows.upper[chosen].tolist(), strict=True)
        boxes = [Box(tuple(lower), tuple(upper)) for lower, upper in cells]
        rows = zip(boxes, tests.k.tolist(), tests.n.tolist(), E, strict=True)
        done = [Window(box.center, k, n, alpha, cell=box, E=e) for box, k, n, e in rows]
        return done, tests.passes, bool(tests.accepted.all())
