"""Where γ can lie: cells of Γ from coarse to fine, left out by the interval inverse and then by linear certificates."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from warpcert.originals.interval import ROOM
from warpcert.originals.lagrangian.cell import cells
from warpcert.originals.lagrangian.farkas import excluded
from warpcert.originals.protocol import IntervalInverse, Originals
from warpcert.threat import Threat
from warpcert.transforms import Flow, Shift, Transform

__all__ = ["search_originals"]

MOST = 8192  # cells that may be open at once


def keeps_distances(transform: Transform) -> bool:
    """Whether it moves the plane as a whole: how far float64 is off, and column sums, are known for these."""
    return isinstance(transform, Shift) or (isinstance(transform, Flow) and transform.stretch(-1.0, 1.0) == 1.0)


def search_originals(x_attacked: Tensor, threat: Threat, motion: float, refinements: int) -> Originals:
    """`Originals` whose cells move no pixel by more than `motion` px (unless more than MOST would be open); 0 lies
    between cells.

    A cell is left out only by a proof: an empty interval (`interval_inverse`) or a linear certificate (`excluded`).
    """
    start = time.perf_counter()
    if not keeps_distances(threat.transform) or threat.interpolation != "bilinear":
        raise ValueError(
            "the linear inverses are for rotation and translation, which keep distances, by a bilinear attacker; "
            f"got {threat.transform.name} with {threat.interpolation}"
        )
    if not motion > 0:
        raise ValueError(f"motion must be > 0 px; got {motion}")
    found = IntervalInverse(refinements=refinements, finest=motion / 2, most=MOST).survivors(x_attacked, threat)
    parts = []
    for at in torch.split(torch.arange(len(found.low), device=found.low.device), max(1, ROOM // x_attacked.numel())):
        parts.append(at[~excluded(cells(_picked(found, at)))])
    return replace(_picked(found, torch.cat(parts)), seconds=time.perf_counter() - start)


def _picked(o: Originals, at: Tensor) -> Originals:
    return replace(o, low=o.low[at], high=o.high[at], lower=o.lower[at], upper=o.upper[at])
