"""Multiplicative contrast."""

from __future__ import annotations

import math
from typing import ClassVar, final

from warpcert.transforms.families.tone import Tone

__all__ = ["Contrast"]


@final
class Contrast(Tone):
    """Multiplies every value by e^γ, so that parameters add; per cent at the surface (30 is ×1.3)."""

    name: ClassVar[str] = "contrast"
    unit: ClassVar[str] = "%"
    unit_name: ClassVar[str] = "per cent"
    noun: ClassVar[str] = "contrast change"
    composition: ClassVar[str] = "factors multiply: their logarithms add"
    pivot: ClassVar[float | None] = 0.0
    largest: ClassVar[float] = 100.0

    def internal(self, surface: float) -> float:
        if surface <= -100:
            raise ValueError(f"contrast needs a change above −100 %; got {surface} %")
        return math.log1p(surface / 100)

    def surface(self, internal: float) -> float:
        return 100 * math.expm1(internal)
