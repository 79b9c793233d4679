"""Certificates about an attacked picture and every original that can have led to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from warpcert.certificates import words
from warpcert.certificates.balls import Balls, Law
from warpcert.certificates.evidence import Window
from warpcert.numerics.box import Box
from warpcert.numerics.region import Region

__all__ = ["Individual"]


@final
@dataclass(frozen=True, kw_only=True)
class Individual(Balls):
    """With probability ≥ 1 − alpha: g(x) = g(x') = label for the unseen original x of x' = q(T_γ x), whichever γ ∈ Γ.

    The windows hold all γ that are not proved impossible; votes and E_j of a window come from β around −γ_j, and its
    cell must lie within r_j of γ_j, with r_j² = κ_j² − E_j²/σ_δ² (indiv-nested: r_j = κ_j). γ sits in one window,
    whichever, so α is spent on one. `centred` shows g(x') = label.
    """

    statement: ClassVar[str] = "individual"
    laws: ClassVar[dict[str, Law]] = {
        "indiv": Law(absorbs=True, unseen=True),
        "indiv-nested": Law(nested=True, unseen=True),
    }

    centred: Window | None = None  # the votes at x' itself
    excluded: float | None = None
    impossible: tuple[Box, ...] = ()  # windows in which every γ turned out to be impossible, by one of the β's

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "windows", tuple(self.windows))

    def _error_in(self, window: Window) -> float:
        return window.E

    def vouches(self, window: Window) -> bool:
        """Whether g(x) = label follows for every γ in the window's cell."""
        r = self.whitened_radius(window)
        return (
            r is not None
            and window.cell is not None
            and Region(window.center, self.defence.sigma_param, r).contains(window.cell)
        )

    def _regions(self) -> tuple[Region, ...]:
        settled = self.centred is not None and self.p_lower(self.centred) > 0.5
        proved = settled and bool(self.windows) and all(map(self.vouches, self.windows))
        return (Region.cell(self.threat.box),) if proved else ()

    def _claim(self) -> str:
        return self._of_original

    def _more(self) -> list[str]:
        noun = self.threat.transform.noun
        if not self.excluded:
            return [f"No {noun} is ruled out; E ≤ {self.error.E:.3g}."]
        left = " and ".join(self.threat.transform.place(w.cell) for w in self.windows if w.cell)
        return [f"All {noun}s outside {left} are ruled out; E ≤ {self.error.E:.3g}."]

    def _derived(self) -> dict[str, Any]:
        of_centred = self.centred and self.p_lower(self.centred)
        return super()._derived() | {"p_centred": of_centred, "sum of E": math.fsum(w.E for w in self.windows)}

    def facts(self) -> list[words.Fact]:
        found = super().facts()
        return found if self.excluded is None else [*found, ("share of Γ ruled out", f"{100 * self.excluded:.1f} %")]

    def _row(self, w: Window) -> dict[str, Any]:
        around, *rest = super()._row(w).items()
        place = self.threat.transform.place(w.cell) if w.cell else "–"
        return dict([around, ("range", place), ("E", w.E), *rest])
