"""Interval tensors: every operation returns an enclosure of what it could have returned for members of its arguments.

Rounding has one home, `outward`: each end is moved to the next float away from the interval, by as many steps as the
operation may err (one for +, −, ·, two for sin, cos and exp, whose library versions err by less than a unit in the
last place, four for sinh and cosh, with less than three).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

__all__ = ["Interval", "outward"]


def outward(low: Tensor, high: Tensor, steps: int = 1) -> Interval:
    """[low, high] enlarged by so many floats on both sides."""
    for _ in range(steps):
        low = torch.nextafter(low, torch.full_like(low, -math.inf))
        high = torch.nextafter(high, torch.full_like(high, math.inf))
    return Interval(low, high)


@final
@dataclass(frozen=True, eq=False)
class Interval:
    """Elementwise closed intervals low ≤ high, two tensors of one shape. Plain tensors and numbers count as points."""

    low: Tensor
    high: Tensor

    @staticmethod
    def point(value: Tensor) -> Interval:
        return Interval(value, value)

    @property
    def magnitude(self) -> Tensor:
        """The largest absolute value of a member."""
        return torch.maximum(self.low.abs(), self.high.abs())

    def contains(self, value: Tensor) -> Tensor:
        return (self.low <= value) & (value <= self.high)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval | Tensor | float) -> Interval:
        low, high = _ends(other)
        return outward(self.low + low, self.high + high)

    __radd__ = __add__

    def __sub__(self, other: Interval | Tensor | float) -> Interval:
        low, high = _ends(other)
        return outward(self.low - high, self.high - low)

    def __rsub__(self, other: Interval | Tensor | float) -> Interval:
        return -self + other

    def __mul__(self, other: Interval | Tensor | float) -> Interval:
        low, high = _ends(other)
        a, b, c, d = self.low * low, self.low * high, self.high * low, self.high * high
        smallest = torch.minimum(torch.minimum(a, b), torch.minimum(c, d))
        return outward(smallest, torch.maximum(torch.maximum(a, b), torch.maximum(c, d)))

    __rmul__ = __mul__

    def exp(self) -> Interval:
        return outward(self.low.exp(), self.high.exp(), 2)

    def sinh(self) -> Interval:
        return outward(self.low.sinh(), self.high.sinh(), 4)

    def cosh(self) -> Interval:
        """Falls, then rises: the ends, and 1 where 0 lies between them."""
        first, last = self.low.cosh(), self.high.cosh()
        least = torch.where((self.low <= 0) & (self.high >= 0), 1.0, torch.minimum(first, last))
        return outward(least, torch.maximum(first, last), 4)

    def sin(self) -> Interval:
        """The ends, and ±1 where a crest or trough can lie between them (found with a margin for the rounded π)."""
        return self._wave(torch.sin, math.pi / 2)

    def cos(self) -> Interval:
        return self._wave(torch.cos, 0.0)

    def expand(self, shape: tuple[int, ...]) -> Interval:
        return Interval(self.low.expand(shape), self.high.expand(shape))

    def _wave(self, f: object, crest: float) -> Interval:
        assert callable(f)
        first, last = f(self.low), f(self.high)
        margin = 1e-12 * (1 + self.magnitude)

        def inside(at: float) -> Tensor:
            turns = ((self.high + margin - at) / (2 * math.pi)).floor()
            return turns * (2 * math.pi) + at >= self.low - margin

        low = torch.where(inside(crest + math.pi), -1.0, torch.minimum(first, last))
        high = torch.where(inside(crest), 1.0, torch.maximum(first, last))
        return outward(low, high, 2)


def _ends(other: Interval | Tensor | float) -> tuple[Tensor, Tensor]:
    if isinstance(other, Interval):
        return other.low, other.high
    value = torch.as_tensor(other, dtype=torch.float64) if not isinstance(other, Tensor) else other
    return value, value
