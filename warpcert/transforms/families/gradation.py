"""Gradations: transformations that change every value alike, along a path in γ with two bounded derivatives."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, final

from torch import Tensor

from warpcert.transforms.families.base import PointwiseTransform

__all__ = ["Gradation"]


class Gradation(PointwiseTransform):
    """Values in [0,1] become V(γ, x) in [0,1], where V is monotone in x, monotone in γ for every x, and twice
    differentiable in γ. Parameters add: V(β, V(γ, x)) = V(β + γ, x).

    A leaf states V' and V'' in γ and bounds of both on intervals of γ. From these follow where a rounded pixel can
    change (`exact`) and how far V is from its chord, (w²/8)·sup|V''| on an interval of width w (`cover`). Nothing is
    asked of the slope in x. It may be infinite, and then what rounding did to V(γ, x) may grow without bound under a
    second V(β, ·): this is why no bound of the error between two of them is claimed.
    """

    no_error_bound: ClassVar[str] = "what rounding did may grow without bound under a second one; use exact or cover"

    @abstractmethod
    def slope(self, gamma: Tensor, x: Tensor) -> Tensor:
        """V' in γ, as exact as `rounding` says of V, in units of u."""

    @abstractmethod
    def bends(self, low: Tensor, high: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """≥ |V'| and ≥ |V''| for all γ in [low, high]."""

    @abstractmethod
    def growth(self, low: float, high: float, least: float) -> float:
        """≥ |V(γ, x) − V(γ, y)| / |x − y| for x, y in [least, 1] and γ in [low, high]."""

    @final
    def unknown(self, what: str) -> ValueError:
        """Said where the error between two gradations is asked for."""
        return ValueError(f"{what} for {self.name}: {self.no_error_bound}")

    @final
    def top(self, extent: float) -> float:
        return 1.0
