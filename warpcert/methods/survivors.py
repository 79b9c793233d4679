"""What is left of Γ, in windows."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from warpcert.originals.protocol import Originals
from warpcert.transforms import Box

__all__ = ["excluded", "possible_windows"]


def possible_windows(originals: Originals, box: Box, per_axis: int) -> list[tuple[Originals, Box]]:
    """The surviving cells in groups, each with its hull.

    What survives of Γ is split evenly, so finely that no part is wider than Γ/per_axis; a cell goes where its middle
    lies. The groups depend on x' alone, not on what is drawn: γ lies in one fixed group.
    """
    if not len(originals.low):
        return []
    first, last = originals.low.amin(0), originals.high.amax(0)
    widest = torch.tensor([hi - lo for lo, hi in zip(box.lower, box.upper, strict=True)]).to(first) / per_axis
    parts = ((last - first) / widest.clamp_min(1e-300) * (1 - 1e-9)).ceil().clamp_min(1)
    middle = (originals.low + originals.high) / 2
    place = ((middle - first) * parts / (last - first).clamp_min(1e-300)).floor()
    groups = []
    for one in torch.unique(place, dim=0):
        kept = (place == one).all(1)
        low, high, lower, upper = (t[kept] for t in (originals.low, originals.high, originals.lower, originals.upper))
        ends = zip(low.amin(0).tolist(), high.amax(0).tolist(), box.lower, box.upper, strict=True)
        clipped = [(max(a, lo), min(b, hi)) for a, b, lo, hi in ends]  # γ ∈ Γ anyway
        hull = Box(tuple(a for a, _ in clipped), tuple(b for _, b in clipped))
        groups.append((replace(originals, low=low, high=high, lower=lower, upper=upper), hull))
    return groups


def excluded(originals: Originals, box: Box) -> float:
    """The share of Γ that is not among the survivors, by volume over the axes that have a width."""
    wide = [i for i, (lo, hi) in enumerate(zip(box.lower, box.upper, strict=True)) if hi > lo]
    if not wide:
        return float(not len(originals.low))
    left = float((originals.high - originals.low)[:, wide].prod(1).sum())
    return max(0.0, 1 - left / math.prod(box.upper[i] - box.lower[i] for i in wide))
