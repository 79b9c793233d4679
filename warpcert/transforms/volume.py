"""Volume of a sound."""

from __future__ import annotations

import math
from typing import ClassVar, final

from warpcert.transforms.families.tone import Tone

__all__ = ["Volume"]


@final
class Volume(Tone):
    """Multiplies a signal [C,L] in [−1,1] by e^γ; decibels at the surface. The attacker hands over 16-bit samples."""

    name: ClassVar[str] = "volume"
    unit: ClassVar[str] = "dB"
    unit_name: ClassVar[str] = "decibels"
    noun: ClassVar[str] = "volume change"
    composition: ClassVar[str] = "decibels add"
    pivot: ClassVar[float | None] = 0.0
    largest: ClassVar[float] = 100.0
    item_dims: ClassVar[int] = 2
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 32767 / 32768
    step: ClassVar[float] = 1 / 32768

    def internal(self, surface: float) -> float:
        return surface * math.log(10) / 20

    def surface(self, internal: float) -> float:
        return internal * 20 / math.log(10)
