"""Shifts: transformations that move every point by γ itself, right and down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.transforms.families.base import SpatialTransform

__all__ = ["Shift"]


class Shift(SpatialTransform):
    """The group of shifts of the plane: s(γ) = p − γ. All pixels move alike, each axis by its own parameter.

    So T_γ x is a polynomial in each component of γ as long as no source point crosses a grid line. All pixels cross
    theirs at once, where a component is a whole number.
    """

    dim: ClassVar[int] = 2

    @final
    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        right, down = gamma
        return y - down, x - right

    @final
    def enlarges(self, box: Box) -> float:
        """Each row and each column of bilinear weights sums to 1 at most."""
        return 1.0

    @final
    def reach(self, radius: Tensor, extent: float) -> Tensor:
        return radius + extent

    @final
    def crowding(self, extent: float) -> float:
        return 1.0

    @final
    def rounding(self, radius: Tensor, extent: float) -> Tensor:
        """In units of u: |γ|u of the rounded parameter, and the rounded difference."""
        return extent + self.reach(radius, extent)
