"""Certificates by enumeration: the network was asked about every input that is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from warpcert.certificates import words
from warpcert.certificates.base import Certificate
from warpcert.certificates.evidence import Enumeration, Kind
from warpcert.classifier.before.front import FRONTS
from warpcert.classifier.before.sees import Sees, sees
from warpcert.numerics.region import Region
from warpcert.transforms import Preprocess

__all__ = ["Exhausted"]


@final
@dataclass(frozen=True, kw_only=True)
class Exhausted(Certificate):
    """Proved: the plain classifier answers `label` at q(T_γ x) for every γ ∈ t·Γ, t = found.held, because it did so on
    every image that is possible there. `step` is that of the levels to which it rounds its input (1: none), behind a
    front if its facts name one.
    """

    statement: ClassVar[str] = "exhausted"
    strongest: ClassVar[Kind] = Kind.PROVED

    preprocess: Preprocess
    step: int = 1
    found: Enumeration | None = None  # None if nothing was proved
    counterexample: tuple[float, ...] | None = None

    @property
    def sees(self) -> Sees | None:
        """What the levels are of, if not of every pixel."""
        return sees((self.classifier.facts or {}).get("sees"))

    @property
    def front(self) -> str:
        """What is done to pictures before they are rounded."""
        return str((self.classifier.facts or {}).get("front", "none"))

    @property
    def _levels(self) -> str:
        behind = f"{FRONTS[self.front]}, and " if self.front != "none" else ""
        return behind + (self.sees.in_words(self.step) if self.sees else f"levels of {self.step}")

    @property
    def deployed(self) -> str:
        seen = self.step > 1 or self.sees is not None
        return f"plain classifier behind {self._levels}" if seen else "plain classifier"

    def _regions(self) -> tuple[Region, ...]:
        done = self.found
        proved = done is not None and done.margin > done.slack
        return (Region.cell(self.threat.box.scaled(done.held)),) if done and proved else ()

    def _claim(self) -> str:
        proviso = self.found.proviso(self.threat) if self.found else ""
        return f"{self._who} answers {self.label} under {self._every[:-1]}{proviso})"

    def _more(self) -> list[str]:
        count, rest = self.found.images if self.found else 0, self.threat.after_shifts
        if rest is not None and len(self.threat.transform.parts) > 1:  # what lies beyond the end was asked about too
            asked = f"It was asked about {count} inputs, among them every one that such an attacker can produce."
            return [asked, f"Why the range ends there: {self.reason}."] if self.reason else [asked]
        asked = f"It was asked about every input that such an attacker can produce, {count} in all."
        return [asked, f"Why the range ends there: {self.reason}."] if self.reason else [asked]

    def settings(self) -> list[words.Fact]:
        rounding = self._levels if self.front != "none" else f"rounding to {self._levels}"
        before = rounding if self.step > 1 or self.sees is not None else words.preparation(self.preprocess)
        return [("defender's noise", "none"), ("before the network", before), ("error bound", "exact")]

    def facts(self) -> list[words.Fact]:
        e = self.found
        if e is None:
            return []
        lead = f"{e.margin:.4g} (needed: {e.slack:g})"
        return [("inputs asked about", e.images), ("crossings", e.crossings), ("smallest lead", lead)]

    def because(self) -> str:
        thing = words.thing(self.threat.transform)
        return f"Proved: the plain classifier was asked about every {thing} that such an attacker can produce."
