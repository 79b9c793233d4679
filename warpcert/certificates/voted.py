"""Certificates by votes around γ's of a known picture, or around an attacked one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from warpcert.certificates import words
from warpcert.certificates.balls import Balls, Law
from warpcert.certificates.evidence import Kind, Share, Window
from warpcert.certificates.spending import check_alpha
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
        if not self.unseen:
            return f"label {self.label} of {self._who} is kept under {self._every}"
        t, thing = self.threat.transform, words.thing(self.threat.transform)
        led = f"a {t.noun} within {self.span} ({words.attacker(self.threat)} attacker) led from it to here"
        return f"the unseen original of this {thing} is answered {self.label} by {self._who}, as this one is, if {led}"

    def _trust(self) -> str:
        if self.kind is Kind.HEURISTIC:
            return f"; nominal confidence {1 - self.alpha:g}."
        sure = f", with confidence {1 - self.alpha:g}"
        if self.share is None:
            return f"{sure}."
        thing = words.thing(self.threat.transform)
        such = f"as for at least {self.share.share:.4g} of {thing}s (tested with confidence {1 - self.share.alpha:g})"
        return f"{sure}, if the {thing}'s error is within E, {such}."

    def because(self) -> str:
        if self.kind is Kind.HEURISTIC:
            why = "left out" if self.error.bound == "none" else "only sampled"
            return f"Heuristic: this may be false, because the interpolation error is {why}."
        sure = super().because()
        if self.share is None:
            return sure
        thing = words.thing(self.threat.transform)
        return (
            f"{sure} It is about {thing}s whose error is within E: a share of at least {self.share.share:.4g} of the "
            "data."
        )

    def _check(self) -> None:
        super()._check()
        e = self.error
        if self.form != "base" and self.share is None and not (e.betas and e.alpha):
            raise ValueError(f"a {self.form} certificate needs ρ from β's that were drawn, and pays for it")
        if self.defence.reference is not None and self.bounded is None:
            raise ValueError(f"a reference turns known originals; a certificate of the form {self.form} has none")
        check_alpha(self.alpha, self.ledger, (e.alpha, *(w.alpha for w in self.windows)))
