"""Averages: each value becomes a weighted mean of those around it, with weights that one parameter changes smoothly."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.transforms.families.base import Transform

__all__ = ["Average"]


class Average(Transform):
    """T_γ x = K(γ) x along rows and along columns: Σ_j Σ_k w_j(γ) w_k(γ) x[p + (j, k)], with weights w ≥ 0 that sum to
    1 for every γ and reach as far for all of them. Beyond the frame lies the picture's reflection at the middle of its
    outermost pixels, which do not occur twice.

    γ runs from 0, where nothing changes, to one side: there is no inverse, so no parameter noise and no composition to
    the other side. As the weights sum to 1, their derivatives sum to 0, so that

        |V'| ≤ (max x − min x)·½‖(w⊗w)'‖₁ ≤ (max x − min x)·‖w'‖₁,
        |V''| ≤ (max x − min x)·½‖(w⊗w)''‖₁ ≤ (max x − min x)·(‖w''‖₁ + ‖w'‖₁²).
    """

    one_sided: ClassVar[bool] = True
    no_error_bound: ClassVar[str] = "its parameters are not a group: use exact or cover"

    @abstractmethod
    def reach(self, side: int) -> int:
        """How many pixels away a weight may be, along an axis of so many."""

    @abstractmethod
    def weights(self, gamma: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        """w and w' [B, 2·reach + 1] for γ [B], of relative error below 64u(1 + reach) in ℓ1, u the unit roundoff."""

    @abstractmethod
    def bends(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """≥ ‖w'‖₁ and ≥ ‖w''‖₁ for all γ in [low, high], whatever the reach."""

    @abstractmethod
    def check(self, gamma: Tensor, height: int, width: int) -> None:
        """A ValueError if such a picture cannot be averaged so."""

    @final
    def allowance(self, height: int, width: int, extent: float) -> float:
        """How far T_γ x in float32 is from the exact one at most, in units of u = 2^-24, for x in [0,1] and γ ≤ extent.

        The rounded γ costs uγ·sup|V'|. Weights err by 64u(1 + reach) in ℓ1, and 3u more where reflections meet: at most
        four of them add up in one place. Rows of both matrices sum to 1, and a product of n terms errs by nu, in any
        order; 1 % for products of errors.
        """
        side = max(height, width)
        slope = float(self.bends(*torch.tensor([[0.0], [extent]], dtype=torch.float64))[0])
        return 1.01 * (2 * (64 * (1 + self.reach(side)) + 3) + height + width + extent * slope)

    @final
    def rows(self, gamma: Tensor, place: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """With which weights the pixels of an axis enter the one at `place` [B], and their derivatives: [B, side]."""
        reach = self.reach(side)
        weight, slope = self.weights(gamma, reach)
        offset = torch.arange(-reach, reach + 1, device=gamma.device)
        period = max(1, 2 * (side - 1))
        at = (place[:, None] + offset).remainder(period)
        at = torch.minimum(at, period - at).clamp_max(side - 1)
        zero = weight.new_zeros(len(gamma), side)
        return zero.scatter_add(1, at, weight), zero.scatter_add(1, at, slope)

    @final
    def __call__(self, x: Tensor, gamma: Tensor, interpolation: str = "bilinear") -> Tensor:
        self._check(x, gamma)
        height, width = x.shape[-2:]
        self.check(gamma, height, width)
        matrices = []
        for side in (height, width):
            place = torch.arange(side, device=x.device).repeat(len(gamma))
            each = gamma[:, 0].to(x).repeat_interleave(side)
            matrices.append(self.rows(each, place, side)[0].reshape(len(gamma), 1, side, side))
        return matrices[0] @ x @ matrices[1].mT
