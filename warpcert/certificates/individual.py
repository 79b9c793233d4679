"""Certificates about an attacked picture and every original that can have led to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from warpcert.certificates import words
from warpcert.certificates.balls import Balls, Law
from warpcert.certificates.evidence import Kind, Window
from warpcert.certificates.spending import check_alpha
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
        t, thing = self.threat.transform, words.thing(self.threat.transform)
        came = f"if it came from a {t.noun} within {self.span} ({words.attacker(self.threat)} attacker)"
        return (
            f"the unseen original of this {thing} is answered {self.label} by {self._who}, and so is this {thing}, "
            f"{came}"
        )

    def _trust(self) -> str:
        left = " and ".join(self.threat.transform.place(w.cell) for w in self.windows if w.cell)
        ruled = f"Impossible values of γ are ruled out, which leaves {left}" if self.excluded else "No γ is ruled out"
        start = "; nominal" if self.kind is Kind.HEURISTIC else ", with"
        return f"{start} confidence {1 - self.alpha:g}. {ruled}; E ≤ {self.error.E:.3g}."

    def facts(self) -> list[words.Fact]:
        found = super().facts()
        return found if self.excluded is None else [*found, ("share of Γ ruled out", f"{100 * self.excluded:.1f} %")]

    def _row(self, w: Window) -> dict[str, Any]:
        around, *rest = super()._row(w).items()
        place = self.threat.transform.place(w.cell) if w.cell else "–"
        return dict([around, ("range", place), ("E", w.E), *rest])

    def _check(self) -> None:
        super()._check()
        if self.defence.reference is not None:
            raise ValueError("a reference turns known originals; an individual certificate has none")
        if not self.abstains:
            self._check_windows()
        # γ lies in one of the windows: which one does not depend on the draws
        dearest = max((w.alpha for w in self.windows), default=0.0)
        bounds = (self.error.alpha, dearest, self.centred.alpha if self.centred else 0.0)
        check_alpha(self.alpha, self.ledger, bounds)

    def _check_windows(self) -> None:
        if self.centred is None or any(self.centred.center) or not self.windows:
            raise ValueError("an individual certificate needs votes around β = 0 and in at least one window")
        if bool(self.error.betas) != bool(self.error.alpha):
            raise ValueError("an individual certificate pays for ρ, or counts only β's within E and has none")
        cells = [(w.center, w.cell) for w in self.windows]
        if any(c is None or c.center != at or not _inside(c, self.threat.box) for at, c in cells):
            raise ValueError("every window of an individual certificate stands in the middle of a cell of Γ")
        if any(w.E > self.error.E for w in self.windows):
            raise ValueError(f"E = {self.error.E:g} is less than that of a window")


def _inside(cell: Box, box: Box) -> bool:
    return box.contains(cell.lower) and box.contains(cell.upper)
