"""Scaling about the image centre."""

from __future__ import annotations

import math
from typing import ClassVar, final

from warpcert.transforms.families.flow import Flow, Matrix

__all__ = ["Scaling"]


@final
class Scaling(Flow):
    """Enlarges the picture by the factor e^γ, so that parameters add; per cent at the surface (30 is ×1.3, −30 is
    ×0.7).
    """

    name: ClassVar[str] = "scaling"
    unit: ClassVar[str] = "%"
    unit_name: ClassVar[str] = "per cent"
    noun: ClassVar[str] = "scaling"
    largest: ClassVar[float] = 100.0
    composition: ClassVar[str] = "factors multiply: their logarithms add"
    natural_vignette: ClassVar[str] = "circle"
    generator: ClassVar[Matrix] = ((-1, 0), (0, -1))

    def internal(self, surface: float) -> float:
        if surface <= -100:
            raise ValueError(f"scaling needs a change above −100 %; got {surface} %")
        return math.log1p(surface / 100)

    def surface(self, internal: float) -> float:
        return 100 * math.expm1(internal)
