"""Rotation about the image centre."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, final

from warpcert.transforms.base import SpatialTransform

__all__ = ["Rotation"]


@final
class Rotation(SpatialTransform):
    """Turns the picture counter-clockwise by γ radians (degrees at the surface)."""

    name: ClassVar[str] = "rotation"
    unit: ClassVar[str] = "°"
    unit_name: ClassVar[str] = "degrees"
    noun: ClassVar[str] = "rotation"
    composition: ClassVar[str] = "angles add"
    natural_vignette: ClassVar[str] = "circle"
    dial: ClassVar[bool] = True

    def internal(self, surface: float) -> float:
        return math.radians(surface)

    def surface(self, internal: float) -> float:
        return math.degrees(internal)

    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        cos, sin = gamma[0].cos(), gamma[0].sin()
        return cos * y + sin * x, cos * x - sin * y
