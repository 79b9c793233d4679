"""Shear along the horizontal axis."""

from __future__ import annotations

from typing import ClassVar, final

from warpcert.transforms.families.flow import Flow, Matrix

__all__ = ["Shear"]


@final
class Shear(Flow):
    """Moves each row to the right by γ pixels per pixel below the centre; per cent at the surface (10 is 0.1)."""

    name: ClassVar[str] = "shear"
    unit: ClassVar[str] = "%"
    unit_name: ClassVar[str] = "per cent"
    noun: ClassVar[str] = "shear"
    composition: ClassVar[str] = "slopes add"
    natural_vignette: ClassVar[str] = "rectangle"
    generator: ClassVar[Matrix] = ((0, 0), (-1, 0))

    def internal(self, surface: float) -> float:
        return surface / 100

    def surface(self, internal: float) -> float:
        return 100 * internal
