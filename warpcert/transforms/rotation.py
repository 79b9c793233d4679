"""Rotation about the image centre."""

from __future__ import annotations

import math
from typing import ClassVar, final

from warpcert.transforms.families.flow import Flow, Matrix

__all__ = ["Rotation"]


@final
class Rotation(Flow):
    """Turns the picture counter-clockwise by γ radians (degrees at the surface)."""

    name: ClassVar[str] = "rotation"
    unit: ClassVar[str] = "°"
    unit_name: ClassVar[str] = "degrees"
    noun: ClassVar[str] = "rotation"
    composition: ClassVar[str] = "angles add"
    natural_vignette: ClassVar[str] = "circle"
    dial: ClassVar[bool] = True
    generator: ClassVar[Matrix] = ((0, 1), (-1, 0))
    symmetry: ClassVar[float] = math.pi / 2

    def internal(self, surface: float) -> float:
        return math.radians(surface)

    def surface(self, internal: float) -> float:
        return math.degrees(internal)
