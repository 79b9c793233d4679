"""Every γ at which a mean behind a stem can change its level, enclosed with proof: unrounded means.

Guarantee. Let a(γ) be a mean of `classifier.before.stem` of T_γ x in exact arithmetic. `of_means` returns events as
`find_crossings` does, of levels of means in place of pixels: for all γ ∈ Γ and all real images z with |z − T_γ x| ≤
tolerance the level of the mean of z is one of its event's, or the settled one.

Argument. A mean is linear: first of the colours of a pixel, then of the pixels of a square. T moves all colours alike,
so the mix of the colours of T_γ x is T_γ of the mix, a picture of its own; V is the mean of `parts` pixels of that, and
so are its slope, and the bounds of its slope and of its curvature. V is smooth where all of them are. With
V' = V/step + zero + offset the thresholds of the levels are V' = k + ½, and all that `isolation` says holds.

If every pixel is off by τ, the mix is by gain·τ, and so is the mean.

Slack. The mix of values up to 255 is up to gain·255 in size, and so are its differences: gain times the slack of one
pixel's path. Mixing adds three roundings, the mean `parts`, and who computes the mean (the classifier, in float64) as
many once more, of numbers up to gain·255: 255·gain·(2·parts + 16)·2⁻⁵³. Division by a power of two is exact; adding
zero and offset rounds numbers below 2⁸.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from warpcert.classifier.before.stem import Plane
from warpcert.exhaustive.events.crossings import Crossings, settled
from warpcert.exhaustive.events.isolation import isolated, strides
from warpcert.exhaustive.events.paths import EPS, Look, Moved
from warpcert.transforms import Flow

__all__ = ["Means", "of_means"]

_Pair = tuple[Tensor, Tensor]


@final
class Means:
    """The means of one plane, as the path of a picture [C,H,W] of values 0 … 255. Its pieces are those of its parts."""

    def __init__(self, value: Tensor, transform: Flow, ends: tuple[float, float], plane: Plane) -> None:
        self.plane, self.top, self.parts = plane, plane.top, plane.side**2
        self.taps = squares(plane.side, *value.shape[1:]).to(value.device)
        mix = torch.stack([w * value[c] for c, w in enumerate(plane.weights) if w]).sum(0) / plane.whole
        self.pixels = Moved(mix[None], transform, ends, 1)
        self.stride, self.shift = self.pixels.stride, plane.zero + plane.offset
        own = plane.gain * (self.pixels.slack + 255 * (2 * self.parts + 16) * EPS)
        self.slack = own / plane.step + 2**9 * EPS

    def off(self, tolerance: float) -> float:
        return 255 * self.plane.gain / self.plane.step * tolerance

    def _mean(self, each: Tensor) -> Tensor:
        return each.mean(1) / self.plane.step

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        value, slope = self.pixels.on(piece, self.taps[pixel], gamma[:, None])
        return self._mean(value) + self.shift, self._mean(slope)

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        each = self.pixels.look(self.taps[pixel], gamma[:, None], half[:, None])
        value, slope, bend, steep = map(self._mean, (each.value, each.slope, each.bend, each.steep))
        return Look(each.piece, value + self.shift, slope, bend, steep, each.smooth.all(1))


def squares(side: int, height: int, width: int) -> Tensor:
    """Which pixels of [H,W], counted row by row, each square holds: [squares, side²]."""
    place = torch.arange(height * width).view(height // side, side, width // side, side)
    return place.transpose(1, 2).reshape(-1, side * side)


def of_means(means: Means, gamma: tuple[float, float], tolerance: float) -> Crossings:
    """The events of one plane; `start` is a vector."""
    cells, device = len(means.taps), means.taps.device
    intervals = strides(means, torch.arange(cells, device=device), *gamma)
    events = isolated(means, intervals, means.off(tolerance) + means.slack, max(map(abs, gamma)))
    return settled(means, events, torch.Size([cells]), gamma, tolerance)
