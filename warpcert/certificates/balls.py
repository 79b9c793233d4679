"""Votes of random views around centres, and the radius that follows from each."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

from warpcert import statistics as stats
from warpcert.certificates import words
from warpcert.certificates.base import Certificate, Table
from warpcert.certificates.evidence import Kind, Window
from warpcert.classifier.defence import Defence
from warpcert.statistics import radius

__all__ = ["Balls", "Law"]

# A record asks for the same few several times.
_lower_bound, _upper_bound = lru_cache(4096)(stats.lower_bound), lru_cache(4096)(stats.upper_bound)
_acceptance_bound, _kappa_two = lru_cache(4096)(stats.acceptance_bound), lru_cache(4096)(radius.kappa_two)


@final
@dataclass(frozen=True)
class Law:
    """How votes become a radius.

    absorbs   noise absorbs the error: r² = κ² − E²/σ_δ²; otherwise r = κ
    nested    every vote is a test of its own, of level alpha_inner, that has E in it
    unseen    the original is unseen: x' was sampled
    """

    absorbs: bool = False
    nested: bool = False
    unseen: bool = False


@dataclass(frozen=True, kw_only=True)
class Balls(Certificate):
    """With probability ≥ 1 − alpha, for a classifier smoothed over parameters (and pixel noise)."""

    strongest: ClassVar[Kind] = Kind.WITH_CONFIDENCE
    laws: ClassVar[dict[str, Law]]

    form: str
    defence: Defence
    windows: tuple[Window, ...]
    alpha: float
    ledger: words.Entries
    alpha_inner: float = 0.0

    def __post_init__(self) -> None:
        if self.form not in self.laws:
            raise ValueError(f"form {self.form!r} is not one of {', '.join(self.laws)}")

    @property
    def confidence(self) -> float:
        return 1 - self.alpha

    @property
    def law(self) -> Law:
        return self.laws[self.form]

    @property
    def unseen(self) -> bool:
        return self.law.unseen

    @property
    def deployed(self) -> str:
        return words.smoothed(self.defence, nested=self.law.nested)

    @final
    def p_lower(self, window: Window) -> float:
        """Lower bound of the probability of the label around the window's centre."""
        alpha = window.alpha / 2 if window.runner_up is not None else window.alpha
        if self.law.nested:
            return _acceptance_bound(window.k, window.n, alpha, self.alpha_inner)
        return _lower_bound(window.k, window.n, alpha)

    @final
    def kappa(self, window: Window) -> float | None:
        """The largest μ that the window's votes survive, None if none."""
        p = self.p_lower(window)
        if self.law.unseen:
            return radius.kappa_attacked(p, self.error.rho)
        if window.runner_up is None:
            return radius.kappa_one(p, self.error.rho)
        # The runner-up is chosen after looking: its bound must hold for every other class.
        p_b = _upper_bound(window.runner_up, window.n, window.alpha / 2 / (self.classes - 1))
        return _kappa_two(p, min(p_b, 1 - p), self.error.rho)

    @abstractmethod
    def _error_in(self, window: Window) -> float:
        """E as it counts in the window."""

    @final
    def whitened_radius(self, window: Window) -> float | None:
        """r_j: the certified radius around the window's centre in units of σ_γ, None if nothing is certified there."""
        kappa = None if self.abstains else self.kappa(window)
        E = self._error_in(window)
        if kappa is None or not self.law.absorbs or E == 0:
            return kappa
        if self.defence.sigma_noise == 0 or not math.isfinite(E):
            return None
        return radius.param_radius(kappa, E / self.defence.sigma_noise)

    @property
    def _of_original(self) -> str:
        thing, how = words.thing(self.threat.transform), self.threat.transform.noun
        made = f"a {how} within {self.span} ({words.attacker(self.threat)} attacker) turned that into this one"
        return f"{self._who} answers {self.label} for this {thing}, and for its unseen original, if {made}"

    def settings(self) -> list[words.Fact]:
        return [
            ("defender's noise", words.noise(self.defence)),
            ("before the network", words.preparation(self.defence.preprocess)),
            ("error bound", self.error.bound),
            ("α", f"{self.alpha:g}"),
        ]

    def facts(self) -> list[words.Fact]:
        e = self.error
        found: list[words.Fact] = [("E", f"{e.E:.4g} ({e.bound}, {e.kind})"), ("ρ", f"{e.rho:.4g}")]
        if e.betas:
            found.append(("β's drawn", f"{e.betas}, {e.exceeded} allowed above E"))
        return [*found, ("α spent", words.spent(self.ledger))]

    def table(self, most: int = 12) -> tuple[Table, str]:
        if not self.windows:
            return [], ""
        rows = [self._row(w) for w in self.windows[:most]]
        rest = f"The first {most} of {len(self.windows)} windows." if len(self.windows) > most else ""
        return [list(rows[0]), *(list(row.values()) for row in rows)], rest

    def _row(self, w: Window) -> dict[str, Any]:
        t, r = self.threat.transform, self.whitened_radius(w)
        return {
            "around γ =": " × ".join(t.to_text(g) for g in w.center),
            "votes": str(w.k),
            "of": str(w.n),
            "p ≥": f"{self.p_lower(w):.5f}",
            "κ": self.kappa(w),
            "radius": "–" if r is None else " × ".join(t.to_text(r * s) for s in self.defence.sigma_param),
        }

    def because(self) -> str:
        return f"Each certificate is false with probability at most {self.alpha:g}."

    def _derived(self) -> dict[str, Any]:
        return {
            "p_lower": [self.p_lower(w) for w in self.windows],
            "kappa": [self.kappa(w) for w in self.windows],
            "radius": [self.whitened_radius(w) for w in self.windows],
        }
