"""Tones: transformations that change every value alike, by a shift or by a factor about a pivot."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

from torch import Tensor

from warpcert.transforms.base import PointwiseTransform

__all__ = ["Tone"]


class Tone(PointwiseTransform):
    """Values x become x + γ (no pivot), or move away from the pivot c by the factor e^γ: c + e^γ (x − c).

    Both compose exactly, are monotone in γ for every x, and are affine in x: T_β z − T_β z' = `gain`(β)·(z − z'). One
    scalar, γ or e^γ, moves all pixels, so T_γ x stays on a straight line. V = x + γ has the derivatives V' = 1 and
    V'' = 0; V = c + e^γ(x − c) has V' = V'' = V − c.
    """

    pivot: ClassVar[float | None]

    @final
    def value(self, gamma: Any, x: Any) -> Any:
        if self.pivot is None:
            return x + gamma
        if self.pivot == 0:
            return x * gamma.exp()
        return (x - self.pivot) * gamma.exp() + self.pivot

    @final
    def gain(self, beta: Tensor) -> Tensor:
        """The factor [B] by which T_β [B,1] enlarges differences of values."""
        return beta[:, 0].new_ones(len(beta)) if self.pivot is None else beta[:, 0].exp()

    @final
    def top(self, extent: float) -> float:
        away = abs(self.pivot or 0.0)
        return math.exp(extent) * (1 + away) + away + extent

    @final
    def rounding(self, x: Tensor, extent: float) -> Tensor:
        """In units of u. Without a pivot: |γ|u of the rounded parameter and the rounded sum. With one, relative to
        |x − c|: the difference u (none if c = 0), |γ|u of the parameter, 4u of exp, u of the product; then the sum.
        """
        if self.pivot is None:
            return x.abs() + 2 * extent
        if self.pivot == 0:
            return (extent + 6) * math.exp(extent) * x.abs()
        size = (x - self.pivot).abs() * math.exp(extent)
        return (extent + 7) * size + abs(self.pivot)

    @final
    def allowance(self, extent: float) -> float:
        """More than the largest `rounding` of a value in [−1,1], and the same for every tone about 0."""
        return 8 * (1 + extent) * math.exp(extent) * (1 + abs(self.pivot or 0.0))
