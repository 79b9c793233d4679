"""Rounding to few levels: Q_w.

Q_w rounds every pixel to a multiple of w levels: level k = ⌊(v + w/2)/w⌋ of v = ⌊255z + ½⌋, shown as min(255, wk).
A classifier behind it cannot see what happens between its thresholds. These are thresholds of 8-bit rounding too, so it
does not see either whether the attacker rounds: exhaustive verification holds against a real-valued attacker, and there
are about w times fewer images to ask about.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["check_step", "coarsened", "highest", "level", "shown"]


def check_step(step: int) -> int:
    if step not in (1, 2, 4, 8, 16, 32, 64):
        raise ValueError(f"the step between coarse levels must be a power of two from 1 to 64; got {step}")
    return int(step)


def highest(step: int) -> int:
    """The highest level: that of 255."""
    return (255 + step // 2) // step


def level(z: Tensor, step: int) -> Tensor:
    """k of every pixel, uint8."""
    value = (255 * z.double() + 0.5).floor_().clamp_(0, 255)
    return value.add_(step // 2).div_(step).floor_().to(torch.uint8)


def shown(k: Tensor, step: int) -> Tensor:
    """8-bit values of levels, both uint8."""
    return k if step == 1 else (k.short() * step).clamp_(max=255).to(torch.uint8)


def coarsened(z: Tensor, step: int) -> Tensor:
    """Q_w(z), of the dtype of z. Nothing in it waits for the device."""
    full = z.new_full((), 255.0)  # a tensor, for a GPU multiplies by the reciprocal of a number
    return shown(level(z, step), step).to(z.dtype) / full
