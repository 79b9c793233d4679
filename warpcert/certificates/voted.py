"""Certificates by votes around γ's of a known picture, or around an attacked one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from warpcert.certificates import words
from warpcert.certificates.balls import Balls, Law
from warpcert.certificates.evidence import Kind, Share, Window
from warpcert.classifier.defence import Defence
from warpcert.numerics import region
from warpcert.numerics.region import Region

__all__ = ["Voted"]


@final
@dataclass(frozen=True, kw_only=True)
class Voted(Balls):
    """With probability ≥ 1 − alpha (kind permitting): the smoothed classifier answers `label` at q(T_γ x) for every γ
    of the certified set.

    form       certified set
    joint      Γ ∩ ⋃_j { ‖(γ − γ_j)/σ_γ‖₂ < r_j }, r_j² = κ_j² − E²/σ_δ². Each window compares the law of β + γ with
               that of its own samples, so a γ may be vouched for by any of them
    nested     the same with r_j = κ_j: E sits inside the votes
    base       the same with E dropped: heuristic
    attacked   x' was sampled: all of Γ or nothing, and the claim is g(x) = g(x') for the unseen original x
    """

    statement: ClassVar[str] = "voted"
    laws: ClassVar[dict[str, Law]] = {
        "joint": Law(absorbs=True),
        "nested": Law(nested=True),
        "base": Law(),
        "attacked": Law(absorbs=True, unseen=True),
    }

    share: Share | None = None

    @property
    def kind(self) -> Kind:
        return Kind.HEURISTIC if self.form == "base" else Kind.weakest(self.strongest, self.error.kind)

    @property
    def bounded(self) -> Defence | None:
        return self.defence if self.form in ("joint", "nested") else None

    def _error_in(self, window: Window) -> float:
        return self.error.E

    def _regions(self) -> tuple[Region, ...]:
        radii = ((w.center, self.whitened_radius(w)) for w in self.windows)
        balls = tuple(Region(center, self.defence.sigma_param, r) for center, r in radii if r is not None)
        if not self.unseen:
            return balls
        box = self.threat.box
        return (Region.cell(box),) if region.covered(box, balls) else ()

    def _claim(self) -> str:
        return self._of_original if self.unseen else f"{self._who} answers {self.label} under {self._every}"

    def _more(self) -> list[str]:
        if self.share is None:
            return []
        thing, percent = words.thing(self.threat.transform), math.floor(1e4 * self.share.share) / 100
        return [
            f"This holds if the error of the {thing} is within E = {self.error.E:.4g}, which is so for at least "
            f"{percent:g} % of such {thing}s (tested with confidence {1 - self.share.alpha:g})."
        ]

    def because(self) -> str:
        if self.kind is Kind.HEURISTIC:
            why = "left out" if self.error.bound == "none" else "only sampled"
            return f"Heuristic: this may be false, because the interpolation error is {why}."
        sure = super().because()
        if self.share is None:
            return sure
        thing = words.thing(self.threat.transform)
        return (
            f"{sure} It is about {thing}s whose error is within E: at least {100 * self.share.share:.4g} % of such "
            f"{thing}s."
        )

    def _derived(self) -> dict[str, Any]:
        return super()._derived() | {"share": self.share and [self.share.share, self.share.rho]}
