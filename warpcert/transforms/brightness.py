"""Additive brightness."""

from __future__ import annotations

from typing import Any, ClassVar, final

from warpcert.transforms.base import PointwiseTransform

__all__ = ["Brightness"]


@final
class Brightness(PointwiseTransform):
    """Adds γ to every value (0.1 is a tenth of the range from black to white)."""

    name: ClassVar[str] = "brightness"
    unit: ClassVar[str] = "of full scale"
    unit_name: ClassVar[str] = "of full scale"
    noun: ClassVar[str] = "brightness change"
    composition: ClassVar[str] = "offsets add"

    def value(self, gamma: Any, x: Any) -> Any:
        return x + gamma
