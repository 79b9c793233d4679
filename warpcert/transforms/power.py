"""Power, also known as gamma correction."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from warpcert.transforms.families.gradation import Gradation

__all__ = ["Power"]


@final
class Power(Gradation):
    """Raises every value in [0,1] to the power e^γ, so that parameters add; γ > 0 makes pictures darker. People call
    the parameter g.

    With t = e^γ·ln(1/x) ≥ 0, the value is V = e^{−t}, and t' = t. Hence V' = −t e^{−t} and V'' = (t² − t) e^{−t}:

      V'    t e^{−t} is unimodal with its peak 1/e at t = 1, so on [t₁, t₂] it is largest at the point nearest to 1.
      V''   |t² − t| e^{−t} = t e^{−t}·|t − 1|, at most the largest t e^{−t} times the largest |t − 1|.
      in x  the slope p x^{p−1}, p = e^γ, is at most p if p ≥ 1. If p < 1 it is largest at the least x, m, and there it
            is largest in p at p = 1/ln(1/m), or at the end of the range that is nearest to that. It is unbounded in x.

    Black and white stay: V' = V'' = 0. Values beyond [0,1] are taken as the nearest legal ones.
    """

    name: ClassVar[str] = "power"
    unit: ClassVar[str] = "in g"
    unit_name: ClassVar[str] = "g"
    noun: ClassVar[str] = "change of power"
    largest: ClassVar[float] = 100.0
    composition: ClassVar[str] = "exponents multiply: their logarithms add"

    def value(self, gamma: Any, x: Any) -> Any:
        return x.clamp(0, 1) ** gamma.exp()

    def slope(self, gamma: Tensor, x: Tensor) -> Tensor:
        t = self._depth(gamma, x)
        return -t * (-t).exp()

    def bends(self, low: Tensor, high: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        least, most = self._depth(low, x) * (1 - 1e-12), self._depth(high, x) * (1 + 1e-12)
        peak = torch.minimum(torch.maximum(least, torch.ones_like(least)), most)
        steep = peak * (-peak).exp() * (1 + 1e-12)
        return steep, steep * torch.maximum((least - 1).abs(), (most - 1).abs())

    def growth(self, low: float, high: float, least: float) -> float:
        p = min(1.0, max(math.exp(low), -1 / math.log(least))) if least < 1 else 1.0
        return max(math.exp(high), p * math.pow(least, p - 1))

    @staticmethod
    def _depth(gamma: Tensor, x: Tensor) -> Tensor:
        """t, and 0 for black, which stays as white does."""
        x = torch.where(x > 0, x.clamp(0, 1), 1.0)
        return -gamma.exp() * x.log()

    def rounding(self, x: Tensor, extent: float) -> Tensor:
        """In units of u. t e^{−t} ≤ 1/e turns relative errors of the exponent, |γ|u of the parameter and 4u of exp,
        into (|γ| + 4)u/e. The rounded x, off by u relatively, costs x^p·p·u ≤ e^{|γ|}u. The power itself is within 4
        units in the last place, 8u. For the sum, what a slope takes more, and products: (|γ| + 16 + 2e^{|γ|})u.
        """
        return torch.full_like(x, self.allowance(extent))

    def allowance(self, extent: float) -> float:
        return extent + 16 + 2 * math.exp(extent)
