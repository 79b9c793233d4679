"""The error analyses under the names that people choose them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from warpcert.certificates import Kind
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound, Suprema
from warpcert.errors.boxes import boxes_bound
from warpcert.errors.curve.bound import curve_bound
from warpcert.errors.sampled import Sampled
from warpcert.threat import Threat

__all__ = ["BOUNDS", "Boxes", "Curve", "named"]


@final
@dataclass(frozen=True)
class Curve(SupBound):
    """The curve bound: within `tightness` of the largest error found, or what `time_limit` seconds reached."""

    tightness: float = 1.05
    time_limit: float | None = None
    name: ClassVar[str] = "curve"
    kind: ClassVar[Kind] = Kind.PROVED

    def __call__(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> Suprema:
        r = curve_bound(x, defence, threat, beta, tightness=self.tightness, time_limit=self.time_limit)
        return Suprema(r.upper.cpu(), r.cells, r.seconds)

    def within(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, E: float) -> Tensor:
        r = curve_bound(x, defence, threat, beta, target=E, tightness=self.tightness, time_limit=self.time_limit)
        return r.upper.cpu()


@final
@dataclass(frozen=True)
class Boxes(SupBound):
    """Interval analysis with splitting, as in the paper: the baseline. Bilinear on both sides; loose and slow beside
    `Curve`.

    Nearest interpolation is refused: in float32 a rounded coordinate may pick another pixel than the exact one, so
    no certificate can rest on it. `boxes_bound` itself bounds the exact pipelines for it.
    """

    tightness: float = 1.1
    time_limit: float | None = None
    name: ClassVar[str] = "interval"
    kind: ClassVar[Kind] = Kind.PROVED

    def __call__(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> Suprema:
        for who, interpolation in (("attacker", threat.interpolation), ("defender", defence.interpolation)):
            if interpolation != "bilinear":
                raise ValueError(
                    f"interval analysis is proved for bilinear interpolation, but the {who} uses {interpolation}; "
                    "use bound curve (bilinear, bicubic), or sampled (anything, heuristic)"
                )
        r = boxes_bound(x, defence, threat, beta, tightness=self.tightness, time_limit=self.time_limit)
        return Suprema(r.upper.cpu(), r.boxes, r.seconds)


BOUNDS = ("curve", "interval", "sampled")


def named(bound: str | SupBound, time_limit: float | None = None) -> SupBound:
    """The analysis of that name, or the one that is given."""
    if isinstance(bound, SupBound):
        return bound
    if bound not in BOUNDS:
        raise ValueError(f"there is no error analysis {bound!r}; choose one of {', '.join(BOUNDS)}")
    if bound == "sampled":
        return Sampled()
    return (Boxes if bound == "interval" else Curve)(time_limit=time_limit)
