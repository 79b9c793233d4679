"""Shifts by whole pixels: black comes in, or the picture's own reflection."""

from __future__ import annotations

from typing import ClassVar, final

from torch import Tensor

from warpcert.transforms.families.steps import Steps

__all__ = ["ReflectedShifts", "Shifts"]


@final
class Shifts(Steps):
    """Moves the picture by whole pixels; what comes in is black."""

    name: ClassVar[str] = "shifts"
    noun: ClassVar[str] = "shift by whole pixels (black border)"

    def inside(self, place: Tensor, side: int) -> Tensor:
        return place.where((place >= 0) & (place < side), -1)


@final
class ReflectedShifts(Steps):
    """Moves the picture by whole pixels; what comes in is the picture reflected at the middle of its outermost pixels,
    which do not occur twice ("reflect" in numpy and torch).
    """

    name: ClassVar[str] = "reflected-shifts"
    noun: ClassVar[str] = "shift by whole pixels (reflected border)"

    def inside(self, place: Tensor, side: int) -> Tensor:
        period = max(1, 2 * (side - 1))
        place = place.remainder(period)
        return place.minimum(period - place) if side > 1 else place * 0
