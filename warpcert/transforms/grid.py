"""The pixel grid: centred coordinates, (0, 0) in the middle of the frame, one pixel apart."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SMALL", "axes", "points", "precision"]

SMALL = 64 * 64  # pixels


def axes(height: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Rows y [H,1] and columns x [1,W], in the dtype and on the device of `like`."""
    y, x = (torch.arange(side, dtype=like.dtype, device=like.device) - (side - 1) / 2 for side in (height, width))
    return y[:, None], x[None, :]


def points(height: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The same for every pixel, y and x [H·W], row by row."""
    y, x = (t.expand(height, width).flatten() for t in axes(height, width, like))
    return y, x


def precision(x: Tensor) -> torch.dtype:
    """Of the source points of a picture [..., H, W]: float64 if it is not SMALL, otherwise that of its values.

    Far from the centre float32 misplaces points by 10⁻⁴ pixels, which for a photograph is a quarter of what certifying
    it may cost.
    """
    return torch.float64 if x.shape[-2] * x.shape[-1] > SMALL else x.dtype
