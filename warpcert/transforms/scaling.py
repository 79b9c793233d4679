"""Scaling about the image centre."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, final

from warpcert.transforms.base import SpatialTransform

__all__ = ["Scaling"]


@final
class Scaling(SpatialTransform):
    """Enlarges the picture by the factor e^γ, so that parameters add; per cent at the surface (30 is ×1.3, −30 is
    ×0.7).
    """

    name: ClassVar[str] = "scaling"
    unit: ClassVar[str] = "%"
    unit_name: ClassVar[str] = "per cent"
    noun: ClassVar[str] = "scaling"
    composition: ClassVar[str] = "factors multiply: their logarithms add"
    natural_vignette: ClassVar[str] = "circle"

    def internal(self, surface: float) -> float:
        if surface <= -100:
            raise ValueError(f"scaling needs a change above −100 %; got {surface} %")
        return math.log1p(surface / 100)

    def surface(self, internal: float) -> float:
        return 100 * math.expm1(internal)

    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        shrink = (-gamma[0]).exp()
        return shrink * y, shrink * x
