"""What an error analysis will cost, from a few β's."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence

__all__ = ["QUICK", "foreseen"]

FEW, MORE = 1, 8  # β's that are tried: what the picture costs is told from what every β costs
QUICK = 10.0  # seconds for few, beyond which more are not tried; and for each trial, of analyses that can be stopped


def foreseen(
    errors: Callable[[Tensor], Tensor], defence: Defence, x: Tensor, betas: int, center: tuple[float, ...] | None = None
) -> tuple[float, float]:
    """The largest of a few errors, and the seconds that so many β's will take."""
    generator = torch.Generator(device=x.device).manual_seed(0)
    timed: list[tuple[int, float]] = []
    largest = 0.0
    for count in (FEW, MORE):
        start = time.perf_counter()
        largest = max(largest, float(errors(defence.draw_beta(count, generator, center)).max()))
        timed.append((count, time.perf_counter() - start))
        if timed[-1][1] > QUICK:
            break
    (count, took), (first, least) = timed[-1], timed[0]
    stopped = count == first or took >= QUICK  # then what more β's cost is not known, and no less than the first
    each = least / first if stopped else max(0.0, took - least) / (count - first)
    return largest, took + each * max(0, betas - count)
