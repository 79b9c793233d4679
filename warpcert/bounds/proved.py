"""The proved bounds under the names that people choose them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from warpcert.bounds.curve import curve_bound
from warpcert.bounds.error import SupBound, Suprema
from warpcert.certificate import Kind
from warpcert.threat import Defence, Threat

__all__ = ["Curve"]


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
