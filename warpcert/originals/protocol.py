"""Which originals can have led to an attacked picture, and how far the defender's view of it is from theirs.

The protocol that IndivSPT builds on, and its first leaf: the interval inverse with interval arithmetic.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from warpcert.classifier.defence import Defence
from warpcert.errors.boxes import halved
from warpcert.errors.float32 import inference_slack
from warpcert.numerics.interval import Interval
from warpcert.originals.interval import ROOM, interval_inverse, surviving
from warpcert.threat import Threat
from warpcert.transforms import SpatialTransform
from warpcert.transforms.kernels import Kernel, kernel, sample

__all__ = ["IntervalInverse", "InverseBound", "Originals"]

SLACK = 1e-11  # of a pixel: float64 sums of values in [0,1], and source points off by 1e-13


@final
@dataclass(frozen=True, eq=False)
class Originals:
    """If x' = q(T_γ x) with γ ∈ Γ then for one k: γ in cell k and lower[k] ≤ x ≤ upper[k]."""

    x_attacked: Tensor  # x' [C,H,W]
    threat: Threat
    low: Tensor  # [k,d] cells of γ that survive, internal units, float64
    high: Tensor  # [k,d]
    lower: Tensor  # [k,C,H,W] float64
    upper: Tensor  # [k,C,H,W]
    examined: int  # cells looked at
    seconds: float


class InverseBound(ABC):
    """Leads back from x' to the originals, and bounds what the defender's view of x' may differ from theirs."""

    name: ClassVar[str]

    @abstractmethod
    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        """The cells of Γ that are not proved impossible, for x' [C,H,W]; none: x' is outside the threat model."""

    @abstractmethod
    def errors(
        self,
        originals: Originals,
        defence: Defence,
        beta: Tensor,
        *,
        enough: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """[n,k]: for β_i and cell k of the originals of x' a bound of sup{‖P T_β x' − P T_{β+γ} x‖₂ : γ in cell k, x
        consistent with x'}, float slack included (float64 of the bound, float32 of the deployed P T_β); -inf where
        the cell is proved impossible.

        beta [n,d]; bounds need not be sharper than `enough`; `progress` is told (done, all) from time to time.
        """


@final
@dataclass(frozen=True)
class IntervalInverse(InverseBound):
    """Boxes of the original by the interval inverse (the paper), errors by interval arithmetic: the baseline.

    Γ is cut into `cells` parts (about as many along every axis), and what survives is halved along every axis until
    source points are known to `finest` pixels, or more than `most` cells would be open. `refinements` sharpen the boxes
    of every cell.
    """

    refinements: int = 10
    cells: int = 64
    finest: float = 0.002
    most: int = 256
    name: ClassVar[str] = "interval"

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        start = time.perf_counter()
        per_axis = max(2, round(self.cells ** (1 / threat.box.dim)))
        low, high, found = surviving(x_attacked, threat, per_axis, self.refinements)
        lower, upper, examined = found.low, found.high, per_axis**threat.box.dim
        while 0 < len(low) * 2**threat.box.dim <= self.most and _spread(threat, low, high, x_attacked) > self.finest:
            low, high = halved(low, high)
            examined += len(low)
            low, high, lower, upper = self._kept(x_attacked, threat, low, high)
        return Originals(x_attacked, threat, low, high, lower, upper, examined, time.perf_counter() - start)

    def _kept(self, x: Tensor, threat: Threat, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        parts, room = [], max(1, ROOM // x.numel())
        for a, b in zip(torch.split(low, room), torch.split(high, room), strict=True):
            found = interval_inverse(x, threat, a, b, refinements=self.refinements)
            parts.append(tuple(t[found.possible] for t in (a, b, found.low, found.high)))
        low, high, lower, upper = (torch.cat(each) for each in zip(*parts, strict=True))
        return low, high, lower, upper

    def errors(
        self,
        originals: Originals,
        defence: Defence,
        beta: Tensor,
        *,
        enough: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """As promised, for every interpolation of the defender that does not jump.

        The source point of a pixel under β+γ lies in a rectangle with centre s and half-widths h, by interval
        arithmetic. The interpolant f of x differs there from f(s) by at most `gradient`·(h_y + h_x) times the range of
        x nearby (its slopes are those of an image in [0,1] times that range), and f(s) = D x with x = m ± half. So
        T_{β+γ} x ∈ D m ± r, r = |D| half + motion, and as P has no negative entries the error is at most
        |P(T_β x' − D m)| + P r in every pixel.
        """
        k = _smooth(defence)
        x, threat = originals.x_attacked.double(), originals.threat
        beta = beta.to(x)
        height, width = x.shape[1:]
        extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
        slack = 2 * inference_slack(defence, height, width, x.shape[0], extent)
        count, cells = len(beta), len(originals.low)
        result = torch.empty(count, cells, dtype=torch.float64, device=x.device)
        near = _Near(originals, k)
        pairs = max(1, (2**26 if x.is_cuda else 2**22) // (x.numel() * (2 * k.reach) ** 2))  # at once
        chunk = max(1, pairs // max(1, cells))
        seen = sample(x, *_transform(defence).coordinates(beta, height, width), k)
        for start in range(0, count, chunk):
            part = slice(start, start + chunk)
            for chosen in torch.split(torch.arange(cells, device=x.device), pairs):
                result[part, chosen] = near.errors(seen[part], beta[part], chosen, defence)
            if progress is not None:
                progress(min(start + chunk, count), count)
        return result * (1 + 1e-12) + slack


@final
class _Near:
    """Centres, half-widths and local ranges of the boxes of x, made once for all β."""

    def __init__(self, originals: Originals, k: Kernel) -> None:
        self.k, self.low, self.high = k, originals.low, originals.high
        self.absolute = k if k.reach == 1 else replace(k, value=lambda u: k.value(u).abs(), torch_mode=None)  # |D|
        lower, upper = originals.lower, originals.upper
        self.middle, self.half = (lower + upper) / 2, (upper - lower) / 2
        # The range of x over the pixels within reach of every point at distance ≤ 1 from a point between i and i+1:
        # pixels i − reach … i + reach + 1, zeros outside the frame. i runs from −room to side − 1 + room.
        self.room = k.reach + 2
        sides = (self.room + k.reach, self.room + k.reach + 1) * 2
        size = 2 * k.reach + 2
        most, least = max_pool2d(pad(upper, sides), size, 1), -max_pool2d(-pad(lower, sides), size, 1)
        self.range = most - least

    def errors(self, seen: Tensor, beta: Tensor, cells: Tensor, defence: Defence) -> Tensor:
        """[b,k] without the slack of the whole norm: P T_β x' from seen = T_β x' [b,C,H,W], β [b,d], cells [k]."""
        transform, (height, width) = _transform(defence), seen.shape[2:]
        ends = zip(self.low[cells].unbind(1), self.high[cells].unbind(1), beta.unbind(1), strict=True)
        total = [Interval(a[None], b[None]) + shift[:, None] for a, b, shift in ends]
        gamma = [Interval(t.low.flatten(), t.high.flatten()) for t in total]
        at, away = _rectangles(transform, gamma, height, width)
        which = cells.repeat(len(beta))
        center = sample(self.middle[which], at[0], at[1], self.k)
        radius = sample(self.half[which], at[0], at[1], self.absolute) + self._motion(at, away, which) + SLACK
        difference = seen.repeat_interleave(len(cells), 0) - center
        error = defence.preprocess(difference).abs() + defence.preprocess(radius) + SLACK
        norms: Tensor = torch.linalg.vector_norm(error.flatten(1), dim=1)
        return norms.reshape(len(beta), -1)

    def _motion(self, at: list[Tensor], away: list[Tensor], which: Tensor) -> Tensor:
        """How far the interpolant can be from its value at the centre, within the rectangle [B,C,H,W]."""
        assert self.k.gradient is not None
        height, width = self.middle.shape[-2:]
        row, column = (
            (s + (side - 1) / 2).floor().clamp(-self.room, side - 1 + self.room).long() + self.room
            for s, side in zip(at, (height, width), strict=True)
        )
        place = (row * self.range.shape[-1] + column).flatten(1)[:, None].expand(-1, self.middle.shape[1], -1)
        nearby = self.range.flatten(2)[which].gather(2, place).reshape(len(which), -1, height, width)
        nearby = torch.where((torch.maximum(*away) <= 1)[:, None], nearby, 1.0)
        far = (self.k.gradient * (away[0] + away[1])).clamp_max(1 + 2 * self.k.overshoot)
        return far[:, None] * nearby


def _rectangles(
    transform: SpatialTransform, gamma: list[Interval], height: int, width: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Centres and half-widths (rows, columns), each [m,H,W], of what encloses the source points for γ [m] per axis."""
    low, high = torch.stack([g.low for g in gamma], 1), torch.stack([g.high for g in gamma], 1)
    ends = transform.enclosed(low, high, height, width)
    return [(s.low + s.high) / 2 for s in ends], [(s.high - s.low) / 2 for s in ends]


def _spread(threat: Threat, low: Tensor, high: Tensor, x: Tensor) -> float:
    """How far source points can be from the middle of what is known of them, in the first cell (all are alike)."""
    assert isinstance(threat.transform, SpatialTransform)
    gamma = [Interval(a[:1], b[:1]) for a, b in zip(low.unbind(1), high.unbind(1), strict=True)]
    _, away = _rectangles(threat.transform, gamma, *x.shape[1:])
    return max(float(a.max()) for a in away)


def _transform(defence: Defence) -> SpatialTransform:
    assert isinstance(defence.transform, SpatialTransform)
    return defence.transform


def _smooth(defence: Defence) -> Kernel:
    k = kernel(defence.interpolation)
    if not isinstance(defence.transform, SpatialTransform) or k.gradient is None:
        raise ValueError(
            "the interval inverse bounds transformations that move pixels, for a defender whose interpolation does "
            f"not jump (bilinear, bicubic); got {defence.transform.name} with {k.name}"
        )
    return k
