"""Tones: transformations that change every value alike, by a shift or by a factor about a pivot."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.transforms.families.base import PointwiseTransform

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
        return self.moved(x, self.amount(gamma))

    @final
    def amount(self, gamma: Any) -> Any:
        """s, the scalar that moves all values: γ or e^γ."""
        return gamma if self.pivot is None else gamma.exp()

    @final
    def moved(self, x: Any, s: Any) -> Any:
        """x moved by this s."""
        if self.pivot is None:
            return x + s
        if self.pivot == 0:
            return x * s
        return (x - self.pivot) * s + self.pivot

    @property
    @final
    def formula(self) -> str:
        """What `value` computes, operation by operation."""
        if self.pivot is None:
            return "x + γ"
        return "x · e^γ" if self.pivot == 0 else f"(x − {self.pivot:g}) · e^γ + {self.pivot:g}"

    @final
    def follows(self, tolerance: float, extent: float) -> tuple[str, ...]:
        """The floating-point types in which q(T_γ x) stays within the tolerance for |γ| ≤ extent, from 8-bit pictures
        x. With unit roundoff u: u for x, which T makes `gain` times as large, `rounding` for T, u for the product with
        255; 1 % for products of errors.
        """
        gain = 1.0 if self.pivot is None else math.exp(extent)
        most = max(float(self.rounding(torch.tensor(x, dtype=torch.float64), extent)) for x in (0.0, 1.0))
        units = {"float64": 2.0**-53, "float32": 2.0**-24}
        return tuple(name for name, u in units.items() if 1.01 * u * (most + gain + 1) <= tolerance)

    @final
    def gain(self, beta: Tensor) -> Tensor:
        """The factor [B] by which T_β [B,1] enlarges differences of values."""
        return beta[:, 0].new_ones(len(beta)) if self.pivot is None else beta[:, 0].exp()

    @final
    def enlarges(self, box: Box) -> float:
        return float(self.gain(torch.tensor([box.upper], dtype=torch.float64))) * (1 + 1e-12)

    @final
    def top(self, extent: float) -> float:
        if self.pivot is None:
            return 1 + extent
        away = abs(self.pivot)
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
        if self.pivot is None:
            return 8 * (1 + extent)
        return 8 * (1 + extent) * math.exp(extent) * (1 + abs(self.pivot or 0.0))
