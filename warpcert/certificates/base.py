"""What all certificates share: whom and what they speak of, the certified range, the record and its reading."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar, final

from warpcert.certificates import words
from warpcert.certificates.columns import columns, rows
from warpcert.certificates.evidence import Enumeration, ErrorBound, Kind, Margins, Share
from warpcert.certificates.sealed import seal
from warpcert.classifier.base import fingerprint_of
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.numerics import region
from warpcert.numerics.region import Region
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess
from warpcert.version import __version__

__all__ = ["Certificate", "Subject", "Table", "abstained"]

Table = list[list[str | int | float | None]]  # the first row is its head


@final
@dataclass(frozen=True)
class Subject:
    """The classifier that was certified.

    network     what stands for its network: its weights' digest
    facts       all else that decides its answers, as JSON types; None if not told
    fingerprint follows from both, where they are told
    formerly    the fingerprint in records made before 0.1.0
    """

    name: str = ""
    fingerprint: str = ""
    network: str = ""
    facts: dict[str, Any] | None = None
    formerly: str = ""

    @classmethod
    def of(cls, name: str, network: str, facts: dict[str, Any]) -> Self:
        """With the fingerprint that follows."""
        return cls(name, fingerprint_of(network, facts), network, facts)


@dataclass(frozen=True, kw_only=True)
class Certificate(ABC):
    """The deployed classifier answers `label` for every γ of the certified set; `kind` says how far to trust that.

    Each leaf makes one kind of statement and holds what is needed to redo its arithmetic.
    """

    statement: ClassVar[str]
    strongest: ClassVar[Kind]  # the best that such a statement can be

    method: str
    label: int
    threat: Threat
    classifier: Subject
    classes: int
    error: ErrorBound
    picture: str = ""  # digest of the picture or sound that it is about; "" if not told
    scores: tuple[float, ...] | None = None  # by class, at the picture: votes that chose the label, or logits
    seed: int | None = None
    version: str = __version__
    passes: int = 0  # forward passes of the network
    seconds: float = 0.0
    reason: str = ""  # why it abstains, or why the certified range ends before Γ does

    @property
    def abstains(self) -> bool:
        return self.label == ABSTAIN

    @property
    def kind(self) -> Kind:
        return Kind.weakest(self.strongest, self.error.kind)

    @property
    def share(self) -> Share | None:
        """The share of pictures that the error bound is about, if not every one."""
        return None

    @property
    def confidence(self) -> float:
        """1 − α; 1 if nothing was drawn."""
        return 1.0

    @property
    def counterexample(self) -> tuple[float, ...] | None:
        """A γ outside the certified set at which the classifier is known to answer otherwise."""
        return None

    @property
    def excluded(self) -> float | None:
        """Of an attacked picture: the share of Γ that is proved not to have led to it."""
        return None

    @property
    def unseen(self) -> bool:
        """Whether it speaks of the unseen original of an attacked picture."""
        return False

    @property
    def bounded(self) -> Defence | None:
        """The defence whose error at the known original `error` bounds; None if E bounds something else."""
        return None

    @property
    @abstractmethod
    def deployed(self) -> str:
        """What must be deployed for the statement to hold, in words without an article."""

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The certified set as a union."""
        return () if self.abstains else self._regions()

    @final
    def covers(self, box: Box) -> bool:
        """True if every γ of the box is certified (False may also mean that the subdivision was too coarse to see)."""
        gamma = self.threat.box
        inside = gamma.contains(box.lower) and gamma.contains(box.upper)
        return inside and region.covered(box, self.regions)

    @cached_property
    def reach(self) -> Box | None:
        """The largest multiple t·Γ, 0 ≤ t ≤ 1, that is certified (t rounded down); None if not even γ = 0 is."""
        return region.reach(self.threat.box, self.regions)

    @property
    def range(self) -> words.Range | dict[str, words.Range] | None:
        """The reach in the unit of the threat, (-50.0, 50.0), or one pair for each parameter; by part, if the threat is
        a product; None if there is none.
        """
        return words.surface_range(self.threat.transform, self.reach) if self.reach else None

    @property
    def unit(self) -> str | dict[str, str]:
        """The unit of the threat; by part, if it is a product."""
        t = self.threat.transform
        return t.unit_name if len(t.parts) == 1 else {part.name: part.unit_name for part in t.parts}

    @property
    def span(self) -> str:
        """The reach in words, never more than it is; "" if there is none."""
        reach, box = self.reach, self.threat.box
        return self.threat.transform.span(reach, inward=reach != box) if reach else ""

    @final
    def __str__(self) -> str:
        if self.abstains or self.reach is None:
            if self.counterexample is not None:
                return f"Not kept: {self.reason}."
            return f"Abstains: {self.reason or 'the votes are too close for this error bound'}."
        start = {
            Kind.PROVED: "Proved: ",
            Kind.WITH_CONFIDENCE: f"With confidence {self.confidence:g}, ",
            Kind.HEURISTIC: f"HEURISTIC, not a proof (nominal confidence {self.confidence:g}): ",
        }
        return " ".join([f"{start[self.kind]}{self._claim()}.", *self._more()])

    @property
    def _who(self) -> str:
        """The classifier by its name and what is deployed of it."""
        if not self.classifier.name:
            return f"the {self.deployed}"
        return f"{self.classifier.name} ({self.deployed.removeprefix('classifier ')})"

    @property
    def _every(self) -> str:
        reach = self.reach or self.threat.box.scaled(0.0)
        within = self.threat.within(reach, inward=reach != self.threat.box)
        return f"every {within} ({words.attacker(self.threat)} attacker)"

    @abstractmethod
    def _claim(self) -> str:
        """What is certified, in words: a sentence without its beginning and its full stop."""

    def _more(self) -> list[str]:
        """Sentences that follow: under which conditions, and what it rests on."""
        return []

    @abstractmethod
    def _regions(self) -> tuple[Region, ...]:
        """The certified set, if a label is given."""

    @abstractmethod
    def settings(self) -> list[words.Fact]:
        """What was deployed and asked for, for people."""

    @abstractmethod
    def facts(self) -> list[words.Fact]:
        """The evidence in figures, for people."""

    @abstractmethod
    def because(self) -> str:
        """Why such a statement may be believed, or not, in a sentence for readers who know no theory."""

    def table(self, most: int = 12) -> tuple[Table, str]:
        """The windows behind it as a table, and a sentence where they are too many for one."""
        return [], ""

    def _derived(self) -> dict[str, Any]:
        """What follows from the evidence, window by window."""
        return {}

    @final
    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON types, sealed; `derived` repeats what follows from the rest."""
        windows = {"windows": columns(self.windows)} if hasattr(self, "windows") else {}
        body = {"statement": self.statement, **self.evidence(), **windows, "derived": self.derived()}
        return seal(json.loads(json.dumps(body)))

    @final
    def evidence(self) -> dict[str, Any]:
        """Its fields but the windows, as JSON types."""
        told = {f.name: _written(f.name, getattr(self, f.name)) for f in fields(self) if f.name != "windows"}
        return dict(json.loads(json.dumps(told)))

    @final
    def derived(self) -> dict[str, Any]:
        """What follows from the evidence."""
        return {
            "kind": self.kind,
            "E": self.error.E,
            "rho": self.error.rho,
            **self._derived(),
            "reach": asdict(self.reach) if self.reach else None,
            "range": self.range,
            "unit": self.unit,
            "sentence": str(self),
        }

    @final
    @classmethod
    def built(cls, body: dict[str, Any]) -> Self:
        """The certificate with these fields, as records write them; nothing is checked."""
        known = {f.name for f in fields(cls)}
        if unknown := body.keys() - known:
            raise ValueError(f"a certificate of this kind ({cls.statement}) has no {', '.join(sorted(unknown))}")
        if lacking := known - body.keys():
            raise ValueError(f"the record lacks {', '.join(sorted(lacking))}")
        return cls(**{name: _read(name, value) for name, value in body.items()})


AnyCertificate = TypeVar("AnyCertificate", bound=Certificate)


def abstained(c: AnyCertificate, reason: str) -> AnyCertificate:
    """The same record with the label withheld and the reason said."""
    return replace(c, label=ABSTAIN, reason=reason)


def _window(stored: dict[str, Any]) -> Any:
    found = rows(stored)
    if len(found) != 1:
        raise ValueError(f"one window was expected; got {len(found)}")
    return found[0]


def _error(stored: dict[str, Any]) -> ErrorBound:
    return ErrorBound(**(stored | {"kind": Kind(stored["kind"])}))


def _ledger(stored: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    return tuple((purpose, amount) for purpose, amount in stored)


def _tuples(d: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) for k, v in d.items()}


# How fields are written and read; those not named are JSON as they are. None is always written as null.
FORMATS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "threat": (Threat.to_dict, Threat.from_dict),
    "classifier": (asdict, lambda d: Subject(**d)),
    "error": (asdict, _error),
    "defence": (Defence.to_dict, Defence.from_dict),
    "preprocess": (Preprocess.to_dict, lambda d: Preprocess(**d)),
    "windows": (columns, rows),
    "centred": (lambda w: columns((w,)), _window),
    "ledger": (list, _ledger),
    "share": (asdict, lambda d: Share(**d)),
    "margins": (asdict, lambda d: Margins(**d)),
    "found": (Enumeration.to_dict, lambda d: Enumeration(**d)),
    "counterexample": (list, tuple),
    "scores": (list, tuple),
    "impossible": (lambda boxes: list(map(asdict, boxes)), lambda ds: tuple(Box(**_tuples(d)) for d in ds)),
}


def _written(name: str, value: Any) -> Any:
    return FORMATS[name][0](value) if name in FORMATS and value is not None else value


def _read(name: str, value: Any) -> Any:
    return FORMATS[name][1](value) if name in FORMATS and value is not None else value
