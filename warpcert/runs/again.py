"""Does again what certificates say was done: votes, passes, enumerations of a sample of a run's pictures.

`verify` redoes a record's arithmetic from its counts; only picture and classifier can tell whether the counts are true.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, final

import torch
from torch import Tensor

from warpcert import methods
from warpcert import statistics as stats
from warpcert.certificates import ByMargins, Certificate, Covered, Kind
from warpcert.certificates.sealed import picture_digest
from warpcert.classifier import Classifier
from warpcert.classifier.before.front import Front
from warpcert.classifier.votes.voting import leads, logits_of
from warpcert.errors.calibration import Calibration
from warpcert.learn.data import Dataset
from warpcert.methods import Method
from warpcert.methods.cover import Cover
from warpcert.numerics.box import Box
from warpcert.runs.job import CALIBRATION
from warpcert.runs.run import Run
from warpcert.runs.summary import Row
from warpcert.windows.behind import bounds_behind
from warpcert.windows.cover import bounds

__all__ = ["Again"]

DOUBT = 1e-6  # two counts of the same votes differ as much with this probability
ROUNDING = 0.01  # of E, as records round it, and of the share of Γ that is ruled out
CELLS = 64  # of a cover that are looked at again
SCOPES = ("tolerance", "program", "exact")  # of an enumeration, the strongest first
LEAST = 0.9  # of a proved range that must be found again: its ends may move by a picture on another device


@final
class Again:
    """A run beside the pictures and the classifier that it speaks of."""

    def __init__(self, run: Run, classifier: Classifier, dataset: Dataset) -> None:
        told = run.config["classifier"]["fingerprint"]
        if classifier.fingerprint != told:
            raise ValueError(
                f"this is not the classifier of {run.folder}: its fingerprint is {classifier.fingerprint[:12]}…, and "
                f"that of the run is {told[:12]}…"
            )
        self.run, self.classifier, self.dataset = run, classifier, dataset
        self.method = _method(run, classifier)

    def pictures(self) -> Iterator[str]:
        """What is wrong with indices, labels and pictures of all records."""
        for row in self.run.rows:
            if row.index >= len(self.dataset):
                yield f"picture {row.index}: the data has only {len(self.dataset)}"
            elif int(self.dataset.labels[row.index]) != row.label:
                yield f"picture {row.index}: its label differs from that in the data"
            elif row.attack is None and row.certificate.picture not in ("", picture_digest(self._x(row))):
                yield f"picture {row.index}: the certificate is about a different picture"

    def sample(self, count: int, seed: int) -> list[Row]:
        """Rows that are done again, those with an answer first."""
        rows = [row for row in self.run.rows if not row.certificate.abstains] or self.run.rows
        return sorted(random.Random(seed).sample(rows, min(count, len(rows))), key=lambda row: row.index)

    def redone(self, row: Row) -> list[str]:
        """What of a record does not come out again, with fresh draws."""
        x = self._x(row).to(self.classifier.device)
        new = methods.certify_with(self.method, self.classifier, x, row.certificate.threat)
        found = [*_contradictions(row.certificate, new), *self._cells(row.certificate, x)]
        return [f"picture {row.index}: {why}" for why in found]

    def _cells(self, c: Certificate, x: Tensor) -> Iterator[str]:
        """Some of the very cells of a cover: their E, and margins at their centre pictures."""
        if not isinstance(c, Covered | ByMargins) or not isinstance(self.method, Cover):
            return
        at = random.Random().sample(range(len(c.cells)), min(CELLS, len(c.cells)))
        lower, upper = (torch.from_numpy(end[at]).to(x.device) for end in (c.cells.lower, c.cells.upper))
        front, rounded = Front(self.classifier.front), self.method.centres == "rounded"
        if front.name == "none":
            windows = bounds(lower, upper, x, c.threat, self.classifier.preprocess, rounded)
        else:
            windows = bounds_behind(lower, upper, x, c.threat, front, rounded)
        E = torch.from_numpy(c.cells.E[at]).to(windows.E)
        if bool((E < (1 - ROUNDING) * windows.E).any()):
            i = int((E - windows.E).argmin())
            yield f"E = {float(E[i]):g} was told of a window, and {float(windows.E[i]):g} comes out now"
        if isinstance(c, ByMargins):
            with torch.no_grad():
                logits = logits_of(self.classifier, windows.images(x, c.threat).to(x.dtype))
            lead, told = leads(logits, c.label, 0.0).cpu(), torch.from_numpy(c.cells.margin[at])
            if not c.abstains and bool((told > lead + c.margins.slack * logits.abs().amax(1).cpu()).any()):
                yield f"a margin of {float(told[(told - lead).argmax()]):g} was told of a window where there is less"

    def _x(self, row: Row) -> Tensor:
        x = self.dataset.image(row.index)
        if row.attack is None:
            return x
        gamma = torch.tensor([row.attack.gamma], dtype=torch.float64)
        return row.certificate.threat.attacked(x, gamma)[0]


def _method(run: Run, classifier: Classifier) -> Method:
    """The method as the run was asked for it, with fresh draws."""
    settings: dict[str, Any] = {k: v for k, v in run.config["settings"].items() if k != "calibration" and v is not None}
    beside = run.folder / CALIBRATION
    if "calibration" in run.config["settings"] and beside.is_file():
        settings["calibration"] = Calibration.read(beside)
    return methods.chosen(classifier, run.config["method"], **settings)


def _contradictions(old: Certificate, new: Certificate) -> Iterator[str]:
    if not (old.abstains or new.abstains) and old.label != new.label:
        yield f"it was answered {old.label}, and is answered {new.label} now"
    if old.classes != new.classes:
        yield f"{old.classes} classes were told, and there are {new.classes}"
    if Kind.weakest(old.kind, new.kind) is not old.kind:
        yield f"it was {old.kind}, and is {new.kind} now"
    first, second = getattr(old, "found", None), getattr(new, "found", None)
    if first and second and SCOPES.index(first.scope) < SCOPES.index(second.scope):
        yield f"scope {first.scope!r} was told, and {second.scope!r} comes out now"
    if not new.reason and (old.excluded or 0.0) > (new.excluded or 0.0) + ROUNDING:
        yield f"{old.excluded:.1%} of the range were ruled out, and {new.excluded or 0.0:.1%} now"
    if new.counterexample is not None and old.covers(Box(new.counterexample, new.counterexample)):
        at = old.threat.transform.at(new.counterexample)
        yield f"at {at}, inside the certified range, the classifier answers differently"
    proved = not getattr(old, "alpha", 0.0)
    if proved and old.reach is not None and not new.covers(old.reach.scaled(LEAST)):
        yield f"{old.span} was proved, and only {new.span or 'nothing'} comes out now"
    yield from _votes(getattr(old, "windows", ()), getattr(new, "windows", ()))


def _votes(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """Windows at the same place whose votes cannot be of one classifier."""
    found = {w.center: w for w in new}
    for w in old:
        other = found.get(w.center)
        if other is None or not w.n or not other.n or w.cell is not None:  # tests of cells stop by their outcome
            continue
        if stats.differ(w.k, w.n, other.k, other.n, DOUBT / len(old)):
            yield f"{w.k} of {w.n} votes were counted around {w.center}, and {other.k} of {other.n} now"
