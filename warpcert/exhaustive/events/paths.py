"""One pixel of T_γ x as a function of γ: its value, its slope, and how much both can change nearby."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from warpcert.classifier.before.rounding import highest
from warpcert.exhaustive.events.equations import FlowEquation, ToneEquation
from warpcert.threat import Threat
from warpcert.transforms import Average, Flow, Gradation, Tone
from warpcert.transforms.grid import points

__all__ = ["EPS", "Averaged", "Chosen", "Look", "Moved", "Path", "Recoloured", "Values", "Whole", "path_of", "refusal"]

EPS = 2.0**-53
_Pair = tuple[Tensor, Tensor]
_SOME = 1 << 15  # pixels averaged at once


class Look(NamedTuple):
    """V at γ, and on [γ − half, γ + half]: |V'| ≤ steep; where smooth, one formula ("piece") and |V''| ≤ bend."""

    piece: Tensor
    value: Tensor
    slope: Tensor
    bend: Tensor
    steep: Tensor
    smooth: Tensor


class Path(Protocol):
    """Values of items as functions of γ, with their slopes; levels are 0 … top, their thresholds k + ½.

    slack    by how much float64 is off, in V, and divided by the stride in V'
    stride   the widest interval to `look` at
    parts    how many pixels one value is made of
    """

    @property
    def top(self) -> int: ...
    @property
    def slack(self) -> float: ...
    @property
    def stride(self) -> float: ...
    @property
    def parts(self) -> int: ...

    def off(self, tolerance: float) -> float:
        """By how much V is off if every pixel, in [0, 1], is by no more than that."""

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        """V and V' at γ by the formula of the piece."""

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look: ...


@final
class Moved:
    """V under a flow s(γ) = e^{γA} p, for any matrix A. Pieces are the cells of the grid, by channel; rows −2 and H
    stand for the rest.

    V = F(s) with F bilinear on each piece, so V' = ∇F·As, and V lies `between` the least and the largest pixel, black
    among them. `Flow.around` bounds |s| on an interval, axis by axis, and with the absolute values of the entries of A
    and A² that bounds |s'| = |As| ≤ |A||s| and |s''| = |A²s| ≤ |A²||s|.

    Slack. With e = 2⁻⁵³, N = H + W, r = N/2 ≥ |p| and R ≥ |s|, `Flow.rounding` tells that s errs by ρe. The place in
    the cell takes two more roundings of numbers below R + N: p = (ρ + 2R + 2N)e. F has a gradient of at most 255 per
    axis and eight operations on numbers below 3·255: 255(2p + 8Ne), where N ≥ 2. Where rounding chose the neighbouring
    cell, V is off by twice as much again: 255(6ρ + 12R + 20N)e in all. V' errs by no more than that times max(1, ‖A‖R)
    ≤ 1/stride.
    """

    gain = 1.0
    parts = 1

    def __init__(self, value: Tensor, transform: Flow, ends: tuple[float, float], step: int) -> None:
        self.transform, self.value, self.step, self.top = transform, value, step, highest(step)
        self.height, self.width = value.shape[1:]
        size, extent = self.height + self.width, max(map(abs, ends))
        radius = math.hypot(self.height, self.width) / 2
        reach = radius * transform.stretch(*ends)
        self.stride = 1 / max(1.0, transform.speed * reach)  # widest to `look` at: s moves by less than a pixel
        error = float(transform.rounding(value.new_tensor(radius), extent))
        self.slack = 255 / step * (8 * error + 16 * reach + 32 * size) * EPS
        a = transform.generator
        self.first = _absolute(a)
        self.second = _absolute([[sum(a[i][k] * a[k][j] for k in (0, 1)) for j in (0, 1)] for i in (0, 1)])
        self.y, self.x = (t.repeat(value.shape[0]) for t in points(self.height, self.width, value))
        place = torch.arange(value.numel(), device=value.device)
        self.channel = place // (self.height * self.width) * ((self.height + 3) * (self.width + 3))
        cell = torch.arange(value.shape[0] * (self.height + 3) * (self.width + 3), device=value.device)
        self.row, self.column = cell // (self.width + 3) % (self.height + 3) - 2, cell % (self.width + 3) - 2
        x = (pad(value, (2, 2, 2, 2)) + _offset(step)) / step
        self.between = float(x.amin()), float(x.amax())
        x00, x10, x01, x11 = x[:, :-1, :-1], x[:, 1:, :-1], x[:, :-1, 1:], x[:, 1:, 1:]
        f_y, f_x, f_yx = x10 - x00, x01 - x00, x11 - x10 - x01 + x00
        self.f = [t.flatten() for t in (x00, f_y, f_x, f_yx)]
        steep = [torch.maximum(t.abs(), (t + f_yx).abs()) for t in (f_y, f_x)]
        self.steep_y, self.steep_x = (t.flatten() for t in steep)
        self.near_y, self.near_x = (max_pool2d(t, 3, stride=1, padding=1).flatten() for t in steep)

    def _point(self, pixel: Tensor, gamma: Tensor) -> _Pair:
        s_y, s_x = self.transform.source([gamma], self.y[pixel], self.x[pixel])
        return s_y, s_x

    def off(self, tolerance: float) -> float:
        return 255 / self.step * tolerance

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        s_y, s_x = self._point(pixel, gamma)
        u, w = s_y + (self.height - 1) / 2 - self.row[piece], s_x + (self.width - 1) / 2 - self.column[piece]
        return _bilinear([t[piece] for t in self.f], u, w, *self.transform.velocity(s_y, s_x))

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        s_y, s_x = self._point(pixel, gamma)
        t_y, t_x = self.transform.velocity(s_y, s_x)
        near = self.transform.around(s_y, s_x, half)
        (fast_y, fast_x), (bent_y, bent_x) = _times(self.first, near), _times(self.second, near)
        u, w = s_y + (self.height - 1) / 2, s_x + (self.width - 1) / 2
        row, column = u.floor().clamp_(-2, self.height), w.floor().clamp_(-2, self.width)
        piece = ((row + 2) * (self.width + 3) + (column + 2)).long() + self.channel[pixel]
        u, w = u - row, w - column
        f = [t[piece] for t in self.f]
        value, slope = _bilinear(f, u, w, t_y, t_x)
        move_y, move_x = half * (t_y.abs() + half / 2 * bent_y), half * (t_x.abs() + half / 2 * bent_x)
        smooth = ((u >= move_y) | (row == -2)) & ((u + move_y <= 1) | (row == self.height))
        smooth &= ((w >= move_x) | (column == -2)) & ((w + move_x <= 1) | (column == self.width))
        bend = 2 * f[3].abs() * fast_y * fast_x + self.steep_y[piece] * bent_y + self.steep_x[piece] * bent_x
        steep = self.near_y[piece] * fast_y + self.near_x[piece] * fast_x
        return Look(piece, value, slope, bend, steep, smooth)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        """V' − (level + ½) on the piece, in integers (see `equations`); `falls` is the sign of −V'."""
        # With z = 2s the place in the cell is ((z_y + a)/2, (z_x + b)/2), so 8wV' is an integer polynomial in z.
        eight_f = (8 * self.step * self.f[0][piece]).round().long()
        f_y, f_x, f_yx = ((self.step * t[piece]).round().long() for t in self.f[1:])
        a, b = self.height - 1 - 2 * self.row[piece], self.width - 1 - 2 * self.column[piece]
        one = eight_f - (8 * level + 4) * self.step + 4 * f_y * a + 4 * f_x * b + 2 * f_yx * a * b
        polynomial = one, 4 * f_y + 2 * f_yx * b, 4 * f_x + 2 * f_yx * a, 2 * f_yx
        point = (2 * self.y[pixel]).long(), (2 * self.x[pixel]).long()
        return FlowEquation(self.transform.generator).rows(polynomial, point, falls)


def _absolute(matrix: object) -> Tensor:
    return torch.tensor(matrix, dtype=torch.float64).abs()


def _times(matrix: Tensor, v: _Pair) -> _Pair:
    (yy, yx), (xy, xx) = matrix.tolist()
    return yy * v[0] + yx * v[1], xy * v[0] + xx * v[1]


def _bilinear(f: list[Tensor], u: Tensor, w: Tensor, t_y: Tensor, t_x: Tensor) -> _Pair:
    along_x = f[2] + f[3] * u
    return f[0] + f[1] * u + along_x * w, (f[1] + f[3] * w) * t_y + along_x * t_x


@final
class Recoloured:
    """V under a tone, 255(v + γ) or 255(c + e^γ(v − c)): one piece per pixel. Clamping only removes thresholds.

    Slack. `Tone.rounding` tells how far float64 is off; dividing by 255, multiplying again, and adding the offset of
    the levels take a few more operations on numbers below 255·`top`.
    """

    stride = 1.0
    parts = 1
    between = -math.inf, math.inf

    def __init__(self, value: Tensor, transform: Tone, ends: tuple[float, float], step: int) -> None:
        self.transform, self.value = transform, value.flatten()
        self.step, self.top = step, highest(step)
        self.pivot = None if transform.pivot is None else 255 * transform.pivot
        self.gain = float(transform.gain(value.new_tensor([[ends[1]]])).clamp_min(1))
        extent = max(map(abs, ends))
        error = float(transform.rounding(value.new_tensor(1.0), extent))
        self.slack = 255 / step * (2 * error + 32 * transform.top(extent)) * EPS

    def off(self, tolerance: float) -> float:
        return 255 / self.step * tolerance

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        value = 255 * self.transform.value(gamma, self.value[piece] / 255)
        slope = torch.full_like(value, 255) if self.pivot is None else value - self.pivot
        return (value + _offset(self.step)) / self.step, slope / self.step

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        value, slope = self.on(pixel, pixel, gamma)
        steep = slope.abs() * (1.0 if self.pivot is None else half.exp())  # V' = V'' about a pivot
        return Look(pixel, value, slope, 0 * steep if self.pivot is None else steep, steep, steep >= 0)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        one = int(2 * _offset(self.step)) - (2 * level + 1) * self.step
        return ToneEquation(self.transform.pivot).rows(one, self.value[piece].round().long())


@final
class Graded:
    """V under a gradation: one piece per pixel, with bounds of V' and V'' on every interval.

    Of an 8-bit picture pixels of equal value meet each threshold together: an equation names the value and the level.
    Of two values no more is claimed. `gain` is about values of at least almost one level: black has to be exact.

    Slack. `rounding` tells how far float64 is off, in V and in V'; multiplying by 255 and adding the offset of the
    levels take a few more operations on numbers below 2·255.
    """

    stride = 1.0
    parts = 1
    between = -math.inf, math.inf

    def __init__(self, value: Tensor, transform: Gradation, ends: tuple[float, float], step: int) -> None:
        self.transform, self.value, self.step, self.top = transform, value.flatten(), step, highest(step)
        self.gain = transform.growth(*ends, least=0.99 / 255)
        self.slack = 255 / step * (2 * transform.allowance(max(map(abs, ends))) + 32) * EPS

    def off(self, tolerance: float) -> float:
        return 255 / self.step * tolerance

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        x = self.value[piece] / 255
        value, slope = self.transform.value(gamma, x), self.transform.slope(gamma, x)
        return (255 * value + _offset(self.step)) / self.step, 255 / self.step * slope

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        value, slope = self.on(pixel, pixel, gamma)
        steep, bend = self.transform.bends(gamma - half, gamma + half, self.value[pixel] / 255)
        scale = 255 / self.step
        return Look(pixel, value, slope, scale * bend, scale * steep, steep >= 0)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        rows = level.new_zeros(len(level), 6)
        rows[:, 0], rows[:, 1] = 1, 1 + 256 * self.value[piece].round().long() + level
        return rows


@final
class Averaged:
    """V under an average: one piece per pixel, with bounds of V' and V'' from those of the weights and from how far the
    values of the channel are apart.

    Slack. Weights err by 64u(1 + reach) in ℓ1, twice, and each axis sums up to `side` products: 255·(128(1 + reach) +
    8(H + W))u, in V and, with |V'| < 4·255 for the weights at hand, in V' four times that.
    """

    stride = 0.25
    parts = 1
    gain = 1.0

    def __init__(self, value: Tensor, transform: Average, ends: tuple[float, float], step: int) -> None:
        self.transform, self.value, self.step, self.top = transform, value, step, highest(step)
        height, width = value.shape[1:]
        transform.check(value.new_tensor(ends), height, width)
        reach = transform.reach(max(height, width))
        self.slack = 4 * 255 / step * (128 * (1 + reach) + 8 * (height + width)) * EPS
        flat = value.flatten(1)
        self.wide = flat.amax(1) - flat.amin(1)
        self.between = tuple((float(v) + _offset(step)) / step for v in value.aminmax())

    def off(self, tolerance: float) -> float:
        return 255 / self.step * tolerance

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        parts = [self._some(*part) for part in zip(torch.split(pixel, _SOME), torch.split(gamma, _SOME), strict=True)]
        value, slope = (torch.cat(each) for each in zip(*parts, strict=True)) if parts else (gamma, gamma)
        return (value + _offset(self.step)) / self.step, slope / self.step

    def _some(self, pixel: Tensor, gamma: Tensor) -> _Pair:
        channels, height, width = self.value.shape
        channel, row, column = pixel // (height * width), pixel // width % height, pixel % width
        down, down_slope = self.transform.rows(gamma, row, height)
        along, along_slope = self.transform.rows(gamma, column, width)
        value, slope = torch.zeros_like(gamma), torch.zeros_like(gamma)
        for c in range(channels):
            mixed, moved = along @ self.value[c].T, along_slope @ self.value[c].T  # [B,H]
            own = channel == c
            value = torch.where(own, (mixed * down).sum(1), value)
            slope = torch.where(own, (mixed * down_slope + moved * down).sum(1), slope)
        return value, slope

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        value, slope = self.on(pixel, pixel, gamma)
        once, twice = self.transform.bends((gamma - half).clamp_min(0), (gamma + half).clamp_min(0))
        wide = self.wide[pixel // self.value[0].numel()] / self.step
        return Look(pixel, value, slope, wide * (twice + once.square()), wide * once, once >= 0)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        """No coincidence is known to be exact."""
        return level.new_zeros(len(level), 6)


Whole = Moved | Recoloured | Graded | Averaged


@final
class Chosen:
    """Some of the items of a path, in the order of their indices: those that a classifier reads."""

    def __init__(self, path: Whole, which: Tensor) -> None:
        self.path, self.which, self.gain = path, which, path.gain
        self.top, self.slack, self.stride, self.parts = path.top, path.slack, path.stride, path.parts

    def off(self, tolerance: float) -> float:
        return self.path.off(tolerance)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> _Pair:
        return self.path.on(piece, self.which[pixel], gamma)

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        return self.path.look(self.which[pixel], gamma, half)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        return self.path.equation(piece, self.which[pixel], level, falls)


Values = Whole | Chosen


def _offset(step: int) -> float:
    """wV' − V."""
    return 0.5 * (step > 1)


def refusal(threat: Threat, step: int, behind: bool = False) -> str:
    """Why not every picture of this attacker can be enumerated; "" if it can. `behind`: behind a stem. What a front
    does not see is no part of the threat (see `relative`).
    """
    t = threat.transform
    if behind and not isinstance(t, Flow):
        return f"behind a stem exhaustive verification is for rotation, scaling, shear and other flows; got {t.name}"
    if t.item_dims != 3 or not isinstance(t, Average | Flow | Tone | Gradation):
        return (
            "exhaustive verification is for pictures under a linear flow, a change of values or a blur, with one "
            f"parameter (rotation, scaling, shear, brightness, contrast, power, blur); got {t.name}"
        )
    if not threat.quantized and step == 1:
        return "against attackers who do not round, the classifier must see levels only: wc.Levels(network, step=8)"
    if t.interpolates and threat.interpolation != "bilinear":
        return f"exhaustive verification is for bilinear attackers; got {threat.interpolation}"
    return ""


def path_of(value: Tensor, threat: Threat, step: int, ends: tuple[float, float]) -> Whole:
    """The pixels of T_γ x for γ in [ends], from 255x [C,H,W] in float64."""
    if why := refusal(threat, step):
        raise ValueError(why)
    transform = threat.transform
    if isinstance(transform, Flow):
        return Moved(value, transform, ends, step)
    if isinstance(transform, Average):
        return Averaged(value, transform, ends, step)
    if isinstance(transform, Gradation):
        return Graded(value, transform, ends, step)
    assert isinstance(transform, Tone)
    return Recoloured(value, transform, ends, step)
