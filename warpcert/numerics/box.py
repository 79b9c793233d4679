"""Boxes of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

__all__ = ["Box"]


@final
@dataclass(frozen=True)
class Box:
    """A product of closed intervals of parameters, in internal units: lower[i] ≤ γ_i ≤ upper[i]."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.lower) != len(self.upper) or not self.lower:
            raise ValueError(
                f"a box needs as many lower as upper ends, at least one; got {self.lower} and {self.upper}"
            )
        if not all(math.isfinite(v) for v in (*self.lower, *self.upper)):
            raise ValueError(f"a box needs finite ends; got {self.lower} and {self.upper}")
        if any(lo > hi for lo, hi in zip(self.lower, self.upper, strict=True)):
            raise ValueError(f"a box needs lower ends ≤ upper ends; got {self.lower} and {self.upper}")

    @property
    def dim(self) -> int:
        return len(self.lower)

    @property
    def center(self) -> tuple[float, ...]:
        return tuple((lo + hi) / 2 for lo, hi in zip(self.lower, self.upper, strict=True))

    def contains(self, gamma: Sequence[float]) -> bool:
        return len(gamma) == self.dim and all(
            lo <= g <= hi for lo, g, hi in zip(self.lower, gamma, self.upper, strict=True)
        )

    def scaled(self, factor: float) -> Box:
        """The box with every end multiplied by factor ≥ 0 (shrinks towards γ = 0)."""
        return Box(tuple(factor * v for v in self.lower), tuple(factor * v for v in self.upper))

    def uniform(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform parameters [count, d], float64, on the generator's device."""
        u = torch.rand(count, self.dim, generator=generator, device=generator.device, dtype=torch.float64)
        lower = torch.tensor(self.lower, dtype=torch.float64, device=u.device)
        upper = torch.tensor(self.upper, dtype=torch.float64, device=u.device)
        return lower + u * (upper - lower)

    def grid(self, per_axis: int) -> Tensor:
        """A regular grid with ends [per_axis^d, d], float64."""
        axes = [
            torch.linspace(lo, hi, per_axis, dtype=torch.float64) for lo, hi in zip(self.lower, self.upper, strict=True)
        ]
        return torch.cartesian_prod(*axes).reshape(-1, self.dim)
