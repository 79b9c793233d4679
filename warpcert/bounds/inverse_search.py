"""Where γ can lie: cells of Γ from coarse to fine, left out by the interval inverse and then by linear certificates."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from warpcert.bounds.boxes import halved
from warpcert.bounds.farkas import excluded
from warpcert.bounds.inverse import ROOM, interval_inverse, surviving
from warpcert.bounds.inverse_cell import cells
from warpcert.bounds.originals import Originals
from warpcert.threat import Threat
from warpcert.transforms import Rotation, Translation

__all__ = ["search_originals"]

HALVINGS = 3  # between the first cells and the last


def search_originals(x_attacked: Tensor, threat: Threat, motion: float, refinements: int) -> Originals:
    """`Originals` whose cells move no pixel by much more than `motion` px; 0 lies between cells.

    A cell is left out only by a proof: an empty interval (`interval_inverse`) or a linear certificate (`excluded`).
    """
    start = time.perf_counter()
    if not isinstance(threat.transform, (Rotation, Translation)) or threat.interpolation != "bilinear":
        raise ValueError(
            "the linear inverses know rotation and translation by a bilinear attacker; "
            f"got {threat.transform.name} with {threat.interpolation}"
        )
    if not motion > 0 or refinements < 0:
        raise ValueError(f"motion must be > 0 px and refinements ≥ 0; got {motion} and {refinements}")
    dim = threat.box.dim
    radius = math.hypot(x_attacked.shape[1] - 1, x_attacked.shape[2] - 1) / 2 if dim == 1 else 1.0
    span = max(b - a for a, b in zip(threat.box.lower, threat.box.upper, strict=True)) * radius
    first = 2 * max(1, math.ceil(span / (motion * 2 ** (HALVINGS + 1))))
    low, high, found = surviving(x_attacked, threat, first, refinements)
    lower, upper, examined = found.low, found.high, first**dim
    for _ in range(HALVINGS):
        low, high = halved(low, high)
        examined += len(low)
        low, high, lower, upper = _kept(x_attacked, threat, low, high, refinements)
    room = max(1, ROOM // x_attacked.numel())
    parts = []
    for at in torch.split(torch.arange(len(low), device=low.device), room):
        some = Originals(low[at], high[at], lower[at], upper[at], 0, 0.0)
        parts.append(at[~excluded(cells(x_attacked, some, threat))])
    keep = torch.cat(parts) if parts else torch.arange(0, device=low.device)
    return Originals(low[keep], high[keep], lower[keep], upper[keep], examined, time.perf_counter() - start)


def _kept(x: Tensor, threat: Threat, low: Tensor, high: Tensor, refinements: int) -> tuple[Tensor, ...]:
    parts, room = [], max(1, ROOM // x.numel())
    for a, b in zip(torch.split(low, room), torch.split(high, room), strict=True):
        found = interval_inverse(x, threat, a, b, refinements=refinements)
        parts.append(tuple(t[found.possible] for t in (a, b, found.low, found.high)))
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))
