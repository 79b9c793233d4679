"""How much of a known picture's high frequencies P T_β lets through, for every β of a batch at once.

Rounding leaves r = q(T_γ x) − T_γ x, about ½/255·√n/√3 long. ‖P T_β‖₂ is about 1, but of noise like r the blur keeps
little, and that little hardly depends on β. Write K = P T_β and M = KᵀK − PᵀP. M is symmetric, so M ⪯ diag(D) with
D_i = Σ_j |M_ij| (Gershgorin: diag(D) − M is diagonally dominant), and for every vector r

    ‖K r‖² = rᵀPᵀP r + rᵀM r ≤ ‖P r‖² + Σ_i D_i r_i² .                                                       (*)

If only |r| ≤ ρ is known: rᵀKᵀK r ≤ ρᵀ|KᵀK|ρ ≤ ρᵀPᵀPρ + ρᵀ|M|ρ, as P has no negative entry, and |M| ⪯ diag(D) too: the
right-hand side of (*) with ρ in place of r. Where β = 0, D = 0; a wide blur makes all β nearly alike, so D is small.
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from warpcert.errors.curve.model import Model

__all__ = ["excess", "passed"]

SLACK = 1e-9  # on sums of products of weights, whose absolute values sum to 4·1.25⁴ at most


def passed(m: Model, r: Tensor, over: Tensor) -> Tensor:
    """(*) for r [..., C, n] and D = `over` [B, n]: [..., B] ≥ ‖P T_β r‖₂; for r ≥ 0 also of all r' with |r'| ≤ r."""
    seen = m.blur(r[..., m.kept]).square().sum((-2, -1))
    size: Tensor = (seen[..., None] + r.square().sum(-2) @ over.T).sqrt()
    return size * (1 + SLACK)


def excess(m: Model, deadline: float = math.inf) -> Tensor | None:
    """D [B, n], or None if it is not known by the deadline (of time.perf_counter).

    Columns of M are found by probing with several unit vectors at once, so far apart that no two of their columns
    overlap: (KᵀK)_ij ≠ 0 needs p, p' that one row of P reads, with i and j among the taps of s(p) and s(p'). A row
    reads `extent` + 1 pixels along each axis: as many as the blur's, or with a reduction twice as many and two more.
    Then |i − j|_∞ ≤ half = 2·reach + stretch·√2·extent, and in PᵀP it is at most the extent.
    """
    height, width = m.size
    grown = m.flow.stretch(float(m.beta.min()), float(m.beta.max()))
    extent = m.defence.preprocess.blur_size - 1 if m.band_y is not None else 0
    extent = 2 * extent + 3 if m.half_y is not None else extent
    half = math.ceil(2 * m.defender.reach + max(1.0, grown) * math.sqrt(2) * extent)
    apart = 2 * half + 1
    y, x = (torch.arange(side, device=m.x.device) for side in (height, width))
    down, across = height // apart + 3, width // apart + 3
    every = torch.arange(m.beta.numel(), device=m.x.device)
    out = torch.zeros(every.numel(), m.pixels, dtype=m.x.dtype, device=m.x.device)
    room = max(1, (2**28 if m.x.is_cuda else 2**24) // (8 * m.pixels))
    for some in torch.split(torch.cartesian_prod(y[:apart], x[:apart]), min(64, room)):
        rows, columns = y - some[:, :1] + half, x - some[:, 1:] + half
        if time.perf_counter() > deadline:
            return None
        # the unit vectors are at rows and columns ≡ half; each is at the centre of a square, which holds its column
        unit = (rows % apart == half)[:, :, None] & (columns % apart == half)[:, None, :]
        square = (rows.div(apart, rounding_mode="floor") + 1)[:, :, None] * across
        square = (square + (columns.div(apart, rounding_mode="floor") + 1)[:, None, :]).flatten(1)
        units = unit.flatten(1).to(m.x)  # [F, n]
        still = torch.zeros_like(units)
        still[:, m.kept] = m.adjoint(m.blur(units[:, m.kept]))
        for which in torch.split(every, max(1, room // some.shape[0])):
            p = m.adjoint(m.blur(m.pull(which, units[None], torch.zeros_like(which))))
            column = (m.push(which, p) - still).abs_()
            sums = column.new_zeros(*column.shape[:2], down * across)
            sums.scatter_add_(2, square.expand_as(column), column)
            out[which] += (sums.gather(2, square.expand_as(column)) * units).sum(1)  # each pixel is probed once
    return out * (1 + SLACK) + SLACK
