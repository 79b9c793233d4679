"""Certificates by cells of Γ, each tested at one image by votes under pixel noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from warpcert import statistics as stats
from warpcert.certificates import words
from warpcert.certificates.base import Table
from warpcert.certificates.cells import Cells
from warpcert.certificates.evidence import Kind
from warpcert.classifier.defence import Defence
from warpcert.statistics import radius

__all__ = ["Covered"]


@final
@dataclass(frozen=True, kw_only=True)
class Covered(Cells):
    """With probability ≥ 1 − alpha: the noise-smoothed classifier answers `label` at q(T_γ x) for every γ in the
    accepted cells: those whose anytime-valid test rejects P_δ(label) ≤ Φ(E_j/σ_δ). Parameters are not smoothed.
    """

    statement: ClassVar[str] = "covered"
    strongest: ClassVar[Kind] = Kind.WITH_CONFIDENCE

    defence: Defence
    alpha: float
    ledger: words.Entries

    @property
    def confidence(self) -> float:
        return 1 - self.alpha

    @property
    def deployed(self) -> str:
        return words.smoothed(self.defence.without_parameter_noise(self.defence.sigma_noise))

    def _accepted(self) -> NDArray[np.bool_]:
        w, sigma = self.cells, self.defence.sigma_noise
        needed, which = np.unique(w.E, return_inverse=True)
        p0 = np.array([radius.needed_probability(e, sigma) or math.nan for e in needed.tolist()])[which]
        tested = ~np.isnan(p0) & (w.n > 0)
        good = np.zeros(len(w), dtype=np.bool_)
        if not tested.any():
            return good
        if (w.alpha != w.alpha[0]).any():
            raise ValueError("the windows of a cover share one α")
        good[tested] = stats.accepts(w.k[tested], (w.n - w.k)[tested], p0[tested], float(w.alpha[0]))
        return good

    def _claim(self) -> str:
        return f"{self._who} answers {self.label} under {self._every}"

    def settings(self) -> list[words.Fact]:
        return [
            ("defender's noise", words.noise(self.defence)),
            ("before the network", words.preparation(self.defence.preprocess)),
            ("error bound", self.error.bound),
            ("α", f"{self.alpha:g}"),
        ]

    def facts(self) -> list[words.Fact]:
        return [("largest E", f"{self.error.E:.4g} ({self.error.kind})"), ("α spent", words.spent(self.ledger))]

    def table(self, most: int = 12) -> tuple[Table, str]:
        samples = f"{int(self.cells.n.sum()):,}".replace(",", "\u202f")
        return [], f"{len(self.windows)} windows, {self.accepted.sum()} accepted, {samples} samples in all."

    def because(self) -> str:
        return f"Each certificate is false with probability at most {self.alpha:g}."
