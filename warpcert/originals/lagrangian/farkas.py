"""Cells of γ that are left out by a linear certificate: no original in the boxes fits the data."""

from __future__ import annotations

import torch
from torch import Tensor

from warpcert.originals.lagrangian.cell import Cell

__all__ = ["excluded"]

ROUNDS = 60  # of the search for a certificate
SLACK = 1e-11  # of sums of values in [0,1], relative to Σ|y|


def excluded(c: Cell, rounds: int = ROUNDS) -> Tensor:
    """[k] bool for the cells of a batch: True only if no x with lower ≤ x ≤ upper has |data − A_t x| ≤ doubt for a t ∈
    [−1,1]^d.

    For any y: a consistent x has yᵀA_t x ≥ yᵀdata − doubtᵀ|y|, and yᵀA_t x = Σ_c w_c yᵀA_c x is at most the largest
    over the corners of Σ_j max((A_cᵀy)_j l_j, (A_cᵀy)_j u_j). If that is smaller, there is none (Farkas). y is what
    remains of |data − A₀x| − doubt after minimising it over the box by accelerated projected gradient: where no x
    fits, the minimiser's residual separates. Each channel has its own y; one that proves it is enough.
    """
    y = _residual(c, rounds)
    need = (y * c.data - c.doubt * y.abs()).sum(2)  # [k,C]
    most = torch.full_like(need, -torch.inf)
    for weights in c.at_corners.unbind(1):
        pulled = _adjoint(c, weights, y)
        most = torch.maximum(most, torch.maximum(pulled * c.lower, pulled * c.upper).sum(2))
    return (need - most > SLACK * (1 + y.abs().sum(2))).any(1)


def _adjoint(c: Cell, weights: Tensor, y: Tensor) -> Tensor:
    """Wᵀy [k,C,N] for weights [k,N,K]."""
    pulled = (y[..., None] * weights[:, None]).flatten(2)
    place = c.index.flatten(1)[:, None].expand_as(pulled)
    return torch.zeros_like(y).scatter_add_(2, place, pulled)


def _residual(c: Cell, rounds: int) -> Tensor:
    """y [k,C,N]: the part of data − A₀x beyond the doubt, signed, at an x that nearly minimises its norm in the box."""
    weights = c.weights[:, 0]
    columns = _adjoint(c, weights.abs(), torch.ones_like(c.doubt[:, :1])).amax((1, 2))
    pace = 1 / (columns * weights.abs().sum(2).amax(1)).clamp_min(1e-9)[:, None, None]  # 1/‖A₀‖₂² or less
    index = c.index.flatten(1)[:, None].expand(-1, c.doubt.shape[1], -1)

    def beyond(x: Tensor) -> Tensor:
        near = x.gather(2, index).reshape(*x.shape, -1)  # [k,C,N,K]
        rest = c.data - (near * weights[:, None]).sum(-1)
        over: Tensor = rest - torch.minimum(torch.maximum(rest, -c.doubt), c.doubt)
        return over

    x = ahead = (c.lower + c.upper) / 2
    momentum = 1.0
    for _ in range(rounds):
        new = ahead + _adjoint(c, weights, beyond(ahead)) * pace
        new = torch.minimum(torch.maximum(new, c.lower), c.upper)
        following = (1 + (1 + 4 * momentum * momentum) ** 0.5) / 2
        ahead = new + (momentum - 1) / following * (new - x)
        x, momentum = new, following
    return beyond(x)
