"""Translation in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

from warpcert.transforms.base import SpatialTransform

__all__ = ["Translation"]


@final
class Translation(SpatialTransform):
    """Moves the picture by γ = (right, down) pixels."""

    name: ClassVar[str] = "translation"
    dim: ClassVar[int] = 2
    unit: ClassVar[str] = "px"
    unit_name: ClassVar[str] = "pixels"
    noun: ClassVar[str] = "translation"
    composition: ClassVar[str] = "shifts add, axis by axis"
    natural_vignette: ClassVar[str] = "rectangle"

    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        right, down = gamma
        return y - down, x - right
