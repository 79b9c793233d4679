"""Shifts by whole pixels, with black coming in."""

from __future__ import annotations

from typing import ClassVar, final

from torch import Tensor

from warpcert.transforms.families.steps import Steps

__all__ = ["Shifts"]


@final
class Shifts(Steps):
    """Moves the picture by whole pixels; what comes in is black."""

    name: ClassVar[str] = "shifts"
    noun: ClassVar[str] = "shift by whole pixels (black border)"

    def inside(self, place: Tensor, side: int) -> Tensor:
        return place.where((place >= 0) & (place < side), -1)
