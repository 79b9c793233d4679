"""Translation in the plane."""

from __future__ import annotations

from typing import ClassVar, final

from warpcert.transforms.families.shift import Shift

__all__ = ["Translation"]


@final
class Translation(Shift):
    """Moves the picture by γ = (right, down) pixels."""

    name: ClassVar[str] = "translation"
    unit: ClassVar[str] = "px"
    unit_name: ClassVar[str] = "pixels"
    noun: ClassVar[str] = "translation"
    composition: ClassVar[str] = "shifts add, axis by axis"
    natural_vignette: ClassVar[str] = "rectangle"
