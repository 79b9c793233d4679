"""Multiplicative contrast."""

from __future__ import annotations

import math
from typing import ClassVar, final

from warpcert.transforms.families.tone import Tone

__all__ = ["Contrast"]


@final
class Contrast(Tone):
    """Multiplies every value by e^γ, so that parameters add.

    At the surface it is a share: −0.4 takes 0.4 of the contrast away, ×0.6, and 0.4 undoes that, ÷0.6. As 1 − s ≤ e^−s
    and 1/(1 − s) ≥ e^s ≥ 1 + s, a range of ±s holds both readings of it, ×(1 − s) … ×(1 + s) and ×e^−s … ×e^s.
    """

    name: ClassVar[str] = "contrast"
    unit: ClassVar[str] = "of contrast"
    unit_name: ClassVar[str] = "of contrast (0.4: from ×0.6 to ÷0.6)"
    noun: ClassVar[str] = "contrast change"
    composition: ClassVar[str] = "factors multiply: their logarithms add"
    pivot: ClassVar[float | None] = 0.0
    largest: ClassVar[float] = 100.0
    signed: ClassVar[bool] = False

    def internal(self, surface: float) -> float:
        if not -1 < surface < 1:
            raise ValueError(f"a contrast change lies between -1 and 1 (0.4: from ×0.6 to ÷0.6); got {surface:g}")
        return math.log1p(surface) if surface < 0 else -math.log1p(-surface)

    def surface(self, internal: float) -> float:
        return math.expm1(internal) if internal < 0 else -math.expm1(-internal)

    def said(self, surface: float) -> str:
        """As a factor of six digits, not farther from 1."""
        factor = math.ceil(1e6 * (1 - abs(surface)) - 1e-6) / 1e6
        return f"{'÷' if surface > 0 else '×'}{factor:.6g}"
