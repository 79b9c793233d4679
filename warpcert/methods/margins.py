"""A cover by margins: the plain classifier f∘P with a proved Lipschitz constant, one forward pass per window, no noise.

Window j is certified iff the label leads by more than √2·L·E_j at the window's centre image z_j: every image that the
attacker can hand over there is within E_j of z_j, so two of its logits differ from those at z_j by at most √2·L·E_j.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from warpcert.certificates import ByMargins, ErrorBound, Kind, Margins, Window, abstained
from warpcert.classifier import Classifier
from warpcert.classifier.votes.voting import batch_size, leads, logits_of
from warpcert.methods.base import Progress, deadline, subject
from warpcert.methods.outlook.remedies import against_margin, with_time
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.numerics.region import outward
from warpcert.threat import Threat
from warpcert.transforms import Box
from warpcert.version import __version__
from warpcert.windows.cover import Windows, cover_windows, halved

__all__ = ["MarginCover"]

SHARE = 0.35  # of what the margin at γ = 0 can bear: the first windows are cut for such an E …
WIDE = 1.6  # … and, where their number grows with a power of it, for one of which most have to be halved
ROUNDS = 10  # of halving windows whose margin is positive but too small
DIGITS = 3  # of the margins in a certificate
HASTY = 32  # windows asked about between two looks at the clock


@final
class MarginCover:
    """One certificate by margins; kind proved, no α."""

    def __init__(self, classifier: Classifier, x: Tensor, threat: Threat, margins: Margins, rounded: bool) -> None:
        if not (0 < margins.lipschitz < math.inf and margins.slack >= 0):
            raise ValueError(f"margins need a positive Lipschitz constant and slack ≥ 0; got {margins}")
        self.start = time.perf_counter()
        self.classifier, self.x, self.threat, self.margins, self.rounded = classifier, x, threat, margins, rounded
        self.passes = 0

    def certify(self, max_windows: int, time_limit: float | None = None, progress: Progress | None = None) -> ByMargins:
        """From few wide windows to as many narrow ones as the margins ask for, up to max_windows in all.

        When time is up, windows that were not asked about are left out, and no more are halved: nothing is drawn, so
        that what is proved by then is proved.
        """
        until, late = deadline(time_limit), False
        logits, preprocess = self._logits(self.x[None]), self.classifier.preprocess
        label, scores = int(logits.argmax()), tuple(logits[0].tolist())
        try:
            with limited(until):
                todo = self.first_windows(logits, max_windows)
        except TimeOverError:
            made = self._blank(label, (), ErrorBound(0.0, 0.0, Kind.PROVED, "cover"), scores)
            return abstained(made, f"{with_time(time_limit)}; the windows were still being cut")
        done: list[Window] = []
        cells, seconds, count, frontier = 0, 0.0, 0, math.inf
        for round_ in range(ROUNDS + 1):
            cells, seconds = cells + todo.cells, seconds + todo.seconds
            if round_ == 0 and until < math.inf:
                todo = _picked(todo, outward(self.threat.box, todo.lower, todo.upper).argsort(stable=True))
            margin = self._tested(todo, label, math.inf if round_ else until, progress)
            late |= len(margin) < len(todo)
            todo = _picked(todo, torch.arange(len(margin), device=todo.E.device))
            first = outward(self.threat.box, todo.lower, todo.upper)
            good = margin > self.margins.needed(1.0) * todo.E
            lost = ~good & ((margin <= 0) | (round_ == ROUNDS))
            frontier = min(frontier, float(first[lost].min())) if bool(lost.any()) else frontier
            again = (~good & ~lost & (first < frontier)).nonzero()[:, 0]
            count += len(todo) + len(again)
            if len(again) and self._too_late(2 * len(again), until):
                late = True
            if count > max_windows or late:  # what is left stays undecided
                again = again[:0]
            try:
                with limited(until if len(again) else math.inf):
                    halves = halved(todo, again, self.x, self.threat, preprocess) if len(again) else todo
            except TimeOverError:
                late, again = True, again[:0]
            keep = torch.ones_like(good).index_fill_(0, again, False)
            done += _rows(todo, margin, keep)
            if not len(again):
                break
            todo = halves
        error = ErrorBound(max(w.E for w in done), 0.0, Kind.PROVED, "cover", cells=cells, seconds=seconds)
        made = self._certificate(label, self._inside(done), error, scores)
        return replace(made, reason=with_time(time_limit)) if late else made

    def first_windows(self, logits: Tensor, max_windows: int) -> Windows:
        """The few wide ones, by the lead of the label at γ = 0."""
        lead = max(float(self._leads(logits, int(logits.argmax()))), 0.0)
        share = WIDE if len(self.threat.transform.parts) > 2 else SHARE
        target = max(share * lead / self.margins.needed(1.0), 1e-3)
        return cover_windows(
            self.x,
            self.threat,
            self.classifier.preprocess,
            target=target,
            rounded=self.rounded,
            max_windows=max_windows,
        )

    def _too_late(self, passes: int, until: float) -> bool:
        """Whether so many more passes would end after the deadline, at the pace so far."""
        now = time.perf_counter()
        return now + passes * (now - self.start) / self.passes > until

    def _logits(self, z: Tensor) -> Tensor:
        self.passes += len(z)
        with torch.no_grad():
            return logits_of(self.classifier, z.to(self.x.dtype))

    def _leads(self, logits: Tensor, label: int) -> Tensor:
        """How far `label` leads [B], less the slack, rounded down to DIGITS digits; float64."""
        lead = leads(logits, label, self.margins.slack)
        scale = 10 ** (DIGITS - 1 - lead.abs().clamp_min(1e-6).log10().floor())
        return (lead * scale - 1e-6).floor() / scale

    def _tested(self, windows: Windows, label: int, until: float, progress: Progress | None) -> Tensor:
        """The leads at the windows, or at the first of them if the deadline is before the last."""
        size = batch_size(self.x, None) if until == math.inf else HASTY
        leads: list[Tensor] = []
        for start in range(0, len(windows), size):
            if leads and time.perf_counter() > until:
                break
            if progress is not None:
                progress(start, len(windows))
            images = windows.images(self.x, self.threat, slice(start, start + size))
            leads.append(self._leads(self._logits(images), label))
        return torch.cat(leads).to(windows.E.device)

    def _inside(self, done: list[Window]) -> tuple[Window, ...]:
        """Sorted; without what lies farther out than a window that is not certified: no reach goes there."""
        lost = [w for w in done if not w.margin > self.margins.needed(w.E)]
        if lost:
            ends = _windows(done)
            at = {
                id(w): t for w, t in zip(done, outward(self.threat.box, ends.lower, ends.upper).tolist(), strict=True)
            }
            frontier = min(at[id(w)] for w in lost)
            done = [w for w in done if at[id(w)] <= frontier]
        return tuple(sorted(done, key=lambda w: w.center))

    def _certificate(
        self, label: int, windows: tuple[Window, ...], error: ErrorBound, scores: tuple[float, ...]
    ) -> ByMargins:
        certificate = self._blank(label, windows, error, scores)
        if certificate.reach:
            return certificate
        worst = min(windows, key=lambda w: w.margin - self.margins.needed(w.E))
        place = f"next to γ = 0, class {label}"
        return abstained(certificate, f"{place}: {against_margin(worst.margin, self.margins.needed(worst.E))}")

    def _blank(
        self, label: int, windows: tuple[Window, ...], error: ErrorBound, scores: tuple[float, ...]
    ) -> ByMargins:
        return ByMargins(
            method="cover",
            label=label,
            threat=self.threat,
            preprocess=self.classifier.preprocess,
            classifier=subject(self.classifier),
            error=error,
            windows=windows,
            classes=len(scores),
            scores=scores,
            margins=self.margins,
            version=__version__,
            passes=self.passes,
            seconds=time.perf_counter() - self.start,
        )


def _picked(windows: Windows, at: Tensor) -> Windows:
    return replace(windows, lower=windows.lower[at], upper=windows.upper[at], E=windows.E[at])


def _rows(windows: Windows, margin: Tensor, keep: Tensor) -> list[Window]:
    columns = (windows.lower[keep], windows.upper[keep], windows.E[keep], margin[keep])
    done = []
    for lower, upper, E, lead in zip(*(c.tolist() for c in columns), strict=True):
        box = Box(tuple(lower), tuple(upper))
        done.append(Window(box.center, 0, 0, 0.0, cell=box, E=E, margin=lead))
    return done


def _windows(done: list[Window]) -> Windows:
    boxes = [w.cell for w in done if w.cell]
    lower, upper = (torch.tensor([getattr(b, end) for b in boxes], dtype=torch.float64) for end in ("lower", "upper"))
    return Windows(lower, upper, torch.tensor([w.E for w in done], dtype=torch.float64), True, 0, 0.0)
