"""What a run says: the share of pictures that are certified, at ranges around γ = 0, with an interval for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, NamedTuple, final

from warpcert import certificates
from warpcert import statistics as stats
from warpcert.certificates import Certificate, Kind
from warpcert.transforms import Box, Transform

__all__ = [
    "SURE",
    "Attack",
    "Level",
    "Row",
    "Summary",
    "UnderAttack",
    "accuracy",
    "accuracy_curve",
    "held",
    "interval",
    "parse",
    "share_interval",
    "summarise",
    "under_attack",
]

SURE = 0.95  # confidence of the intervals over the pictures
_TURNS = (0.0, 10.0, 20.0, 30.0, 50.0)  # degrees that tables of rotations share


@final
@dataclass(frozen=True)
class Attack:
    """What led from an original to the picture that was certified, and what was answered there."""

    gamma: tuple[float, ...]  # in internal units
    label: int  # of the network without any defence
    answer: int | None = None  # of the deployed classifier


@final
@dataclass(frozen=True)
class Row:
    """One picture of a run."""

    index: int
    label: int  # the true one
    certificate: Certificate
    attack: Attack | None = None


class Level(NamedTuple):
    """Certified accuracy on a range: the share of pictures that are answered correctly and certified on all of it.

    low, high   where the share among all such pictures lies, with confidence SURE
    """

    range: str
    accuracy: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Summary:
    """Certified accuracy on ranges around γ = 0, and what it cost."""

    count: int
    kind: Kind
    rows: tuple[Level, ...]
    abstained: float
    median_E: float | None  # None if nothing rests on an error bound
    seconds: float  # per picture
    passes: float  # forward passes per picture

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "kind": str(self.kind),
            "certified_accuracy": {level.range: level.accuracy for level in self.rows},
            "intervals": {level.range: [level.low, level.high] for level in self.rows},
            "abstained": self.abstained,
            "median_E": self.median_E,
            "seconds_per_image": self.seconds,
            "passes_per_image": self.passes,
        }


def parse(records: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of a run by index, each certificate with its arithmetic redone; raises if there are none."""
    if not records:
        raise ValueError("there are no certificates to sum up yet")
    return sorted(map(_row, records), key=lambda row: row.index)


def _row(record: dict[str, Any]) -> Row:
    made, stored = certificates.read(record["certificate"]), record.get("attack")
    attack = None
    if stored is not None:
        gamma = made.threat.transform.to_internal(stored["gamma"])
        attack = Attack(gamma, stored["label"], record.get("answer"))
    return Row(record["index"], record["true_label"], made, attack)


def _certified(rows: Sequence[Row], box: Box) -> int:
    return sum(r.certificate.label == r.label and r.certificate.covers(box) for r in rows)


def accuracy(rows: Sequence[Row], box: Box) -> float:
    """The share of the pictures that are answered correctly and certified on all of the box."""
    return _certified(rows, box) / len(rows)


def interval(rows: Sequence[Row], box: Box) -> tuple[float, float]:
    """Where that share lies among all pictures that these were drawn from, with confidence SURE."""
    return share_interval(_certified(rows, box), len(rows))


def share_interval(k: int, n: int) -> tuple[float, float]:
    """The two-sided Clopper–Pearson interval, of confidence SURE, for a share that k of n independent pictures have."""
    side = (1 - SURE) / 2
    return stats.lower_bound(k, n, side), stats.upper_bound(k, n, side)


def _levels(transform: Transform, gamma: Box) -> list[tuple[str, Box]]:
    """The boxes of the table: fixed angles for symmetric turns, quarters of Γ otherwise."""
    if transform.dial and gamma.lower[0] == -gamma.upper[0]:
        top = transform.surface(gamma.upper[0])
        angles = sorted({*(a for a in _TURNS if a <= top + 1e-9), round(top, 9)})
        return [(f"±{a:g}{transform.unit}", gamma.scaled(min(1.0, a / top) if top else 0.0)) for a in angles]
    return [(transform.span(box), box) for box in map(gamma.scaled, (0.0, 0.25, 0.5, 0.75, 1.0))]


def summarise(rows: Sequence[Row]) -> Summary:
    """The table of a run."""
    threat, made = rows[0].certificate.threat, [r.certificate for r in rows]
    unseen = made[0].unseen  # its original is answered for on all of Γ or not at all
    boxes = [(threat.transform.span(threat.box), threat.box)] if unseen else _levels(threat.transform, threat.box)
    levels = tuple(Level(text, accuracy(rows, box), *interval(rows, box)) for text, box in boxes)
    return Summary(
        len(rows),
        Kind.weakest(*(c.kind for c in made)),
        levels,
        fmean(c.abstains for c in made),
        _median_E(made),
        math.fsum(c.seconds for c in made) / len(rows),
        sum(c.passes for c in made) / len(rows),
    )


def _median_E(made: Sequence[Certificate]) -> float | None:
    return median(errors) if (errors := [c.error.E for c in made if c.error.E > 0]) else None


def held(row: Row) -> float | None:
    """The largest t ≤ 1 for which the right label is certified on t·Γ; None if not even at γ = 0."""
    reach, box = row.certificate.reach, row.certificate.threat.box
    if row.certificate.label != row.label or reach is None:
        return None
    pairs = zip((*reach.lower, *reach.upper), (*box.lower, *box.upper), strict=True)
    return min((abs(part / end) for part, end in pairs if end), default=1.0)


def accuracy_curve(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Certified accuracy as a function of t, the multiple of Γ: its steps from 0 to 1, and the value up to each."""
    ends = [t for t in map(held, rows) if t is not None]
    steps = sorted({0.0, 1.0, *ends})
    return steps, [sum(t >= s for t in ends) / len(rows) for s in steps]


@final
@dataclass(frozen=True)
class UnderAttack:
    """A run on attacked pictures: shares of them, and means per picture."""

    answered_correctly_without_votes: float  # by the network behind P
    answered_correctly: float | None  # by the deployed classifier; None if it was not asked
    ruled_out: float | None  # share of Γ that cannot have led to the picture
    analysis_seconds: float
    smoothing_seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def under_attack(rows: Sequence[Row]) -> UnderAttack | None:
    """What a run on attacked pictures says; None if its pictures were not attacked."""
    attacks = [(r, r.attack) for r in rows if r.attack]
    if not attacks:
        return None
    made = [r.certificate for r, _ in attacks]
    answers = [a.answer == r.label for r, a in attacks if a.answer is not None]
    known = [c.excluded for c in made if c.excluded is not None]
    return UnderAttack(
        answered_correctly_without_votes=fmean(a.label == r.label for r, a in attacks),
        answered_correctly=fmean(answers) if answers else None,
        ruled_out=fmean(known) if known else None,
        analysis_seconds=fmean(c.error.seconds for c in made),
        smoothing_seconds=fmean(c.seconds - c.error.seconds for c in made),
    )
