"""Every γ at which a rounded pixel of T_γ x can change, enclosed with proof.

Guarantee. Let V_p(γ) be 255 times pixel p of T_γ x in exact arithmetic. `find_crossings` returns closed γ-intervals ("events") such that,
for every γ ∈ Γ and every real image z with |z − T_γ x| ≤ tolerance in each pixel, q(z)_p is

  - the settled value of the gap between the events of p that γ lies in, if γ lies in no event of p,
  - one of the levels low … high of the event of p that contains γ, otherwise.

Argument. Γ is cut into closed intervals for each pixel, halved until each is decided. On [m − h, m + h] the source point s(γ) = e^{γJ} p obeys
|s(γ) − s(m) − (γ−m)s'(m)| ≤ h²R/2 per axis, R ≥ |s| = |s'| = |s''|. If that box lies in one cell of the grid, V is the bilinear polynomial
of the cell with |V''| ≤ M = 2|F_yx| |s_y'||s_x'| + |F_y||s_y''| + |F_x||s_x''|, so V ∈ V(m) ± (h|V'(m)| + h²M/2); elsewhere V ∈ V(m) ± hL, L from the
steepest of the 3 × 3 cells around s(m). An interval is decided when

  clear      no threshold k + ½ comes within `margin` of that range: the rounded value is constant;
  monotone   |V'(m)| > 2hM: V' keeps its sign. Each threshold met is enclosed by two points at which the computed V is beyond k + ½ by `margin`:
             outside of them the rounded value is constant. Newton's method finds them (from the secant its error falls below h/2, h/8, h/128 …),
             but the two evaluations alone carry the proof; where they fail the whole interval is the event;
  stuck      the range is not much wider than `margin` (V touches a threshold, or kinks on it): the interval is the event, with all levels in reach.

Slack. With e = 2⁻⁵³ and N = H + W: sin, cos and exp are good to 2 ulp, so s has error ≤ 3eN, its place in the cell ≤ 5eN, V (gradient ≤ 255
per axis, eight more operations) ≤ 255·12eN; where rounding picked the neighbouring cell, V is extrapolated by that error and off by twice as
much again. margin = 255·(tolerance + 64eN) holds all of it. Pointwise maps make three operations. No monotonicity of libm, no particular
order of operations and no directed rounding is assumed. Settled values are measured in the middle of each gap and checked against the levels
of the events at its ends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from warpcert.threat import Threat
from warpcert.transforms import Brightness, Contrast, PointwiseTransform, Rotation, Scaling, SpatialTransform

__all__ = ["Crossings", "find_crossings", "levels"]

_MAX_ITEMS = 1 << 22  # intervals decided at a time: bounds the memory, not the answer


@final
@dataclass(frozen=True)
class Crossings:
    """E events, sorted by their upper ends; the events of one pixel are disjoint. Index `pixel` runs over x.flatten(); levels are 0 … 255."""

    start: Tensor  # uint8 [C,H,W]: q(T_γ x) at the lower end of Γ
    pixel: Tensor  # int64 [E]
    lower: Tensor  # float64 [E]
    upper: Tensor  # float64 [E]
    before: Tensor  # int64 [E]: settled level to the left, as also `after` to the right
    after: Tensor
    low: Tensor  # int64 [E]: every level from low to high may occur inside
    high: Tensor
    equation: Tensor  # int64 [E,5]: events with proportional rows cross at exactly the same γ; zeros say nothing
    gamma: tuple[float, float]  # Γ
    tolerance: float

    def __len__(self) -> int:
        return self.pixel.numel()


def levels(x: Tensor) -> tuple[Tensor, bool]:
    """255·x in float64, and whether x is an 8-bit picture; if it is (uint8, or floats within 10⁻⁴ of a level), exactly its levels."""
    if x.dtype == torch.uint8:
        return x.double(), True
    value = 255 * x.double()
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError("x must have values in [0, 1] (or dtype uint8); scale it first")
    near = value.round()
    return (near, True) if bool(((value - near).abs() <= 1e-4).all()) else (value, False)


def find_crossings(x: Tensor, threat: Threat, tolerance: float = 1e-12) -> Crossings:
    """All rounding crossings of q(T_γ x), γ ∈ Γ, for x [C,H,W], on x's device; see the module for what is guaranteed.

    tolerance   how far the attacker's arithmetic may be from the exact T_γ x, per pixel: 1e-12 holds for float64 implementations of T.
    """
    if x.dim() != 3:
        raise ValueError(f"x must have shape [C,H,W]; got {list(x.shape)}")
    if not (math.isfinite(tolerance) and 0 <= tolerance < 0.1 / 255):
        raise ValueError(f"tolerance must lie in [0, {0.1 / 255:.1e}), a tenth of a level; got {tolerance}")
    value, whole = levels(x)
    path = _path(value, threat)
    first, last = threat.box.lower[0], threat.box.upper[0]
    margin = 255 * (tolerance + 64 * 2.0**-53 * sum(x.shape[1:]))
    found: list[_Events] = []
    for interval in _intervals(path, x.numel(), first, last, x.device):
        while interval[0].numel():
            events, interval = _decide(path, *interval, margin)
            found.append(events)
    raw = _Events(*(torch.cat(column) for column in zip(*found, strict=True)))
    return _settle(path, _merge(raw, first, last), x, whole, (first, last), tolerance)


class _Events(NamedTuple):
    pixel: Tensor
    lower: Tensor
    upper: Tensor
    low: Tensor
    high: Tensor


class _Look(NamedTuple):
    """What is known of V on [γ − half, γ + half]: value and slope at γ; on a `smooth` interval |V''| ≤ bend, on any |V'| ≤ steep."""

    piece: Tensor
    value: Tensor
    slope: Tensor
    bend: Tensor
    steep: Tensor
    smooth: Tensor


class _Path(ABC):
    """V_p(γ) for all pixels: γ and pixel indices are tensors of one shape [n]."""

    stride: float  # widest interval that `look` may be asked about

    @abstractmethod
    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> _Look: ...

    @abstractmethod
    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope at γ, by the formula of that smooth piece."""

    @abstractmethod
    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor) -> Tensor:
        """Integers [n,5]: on the piece, V_p(γ) − (level + ½) is their sum against fixed linearly independent functions of γ (8-bit x)."""


@final
class _Moved(_Path):
    """Rotation and scaling, bilinear: s(γ) = e^{γJ} p. `piece` numbers the cells of the grid, channel by channel, three outside included."""

    def __init__(self, value: Tensor, transform: SpatialTransform, first: float, last: float) -> None:
        self.transform = transform
        self.turns = isinstance(transform, Rotation)
        channels, self.height, self.width = value.shape
        grow = 1.0 if self.turns else math.exp(max(0.0, -first))
        self.stride = 1 / max(1.0, grow * math.hypot(self.height, self.width) / 2)
        place = torch.arange(value.numel(), device=value.device)
        self.y = (place // self.width % self.height).double() - (self.height - 1) / 2
        self.x = (place % self.width).double() - (self.width - 1) / 2
        self.offset = place // (self.height * self.width) * ((self.height + 3) * (self.width + 3))
        x = pad(value, (2, 2, 2, 2))
        x00, x10, x01, x11 = x[:, :-1, :-1], x[:, 1:, :-1], x[:, :-1, 1:], x[:, 1:, 1:]
        table = torch.stack((x00, x10 - x00, x01 - x00, x11 - x10 - x01 + x00))
        self.f, self.f_y, self.f_x, self.f_yx = table.flatten(1)
        steep_y = torch.maximum((x10 - x00).abs(), (x11 - x01).abs())
        steep_x = torch.maximum((x01 - x00).abs(), (x11 - x10).abs())
        self.steep_y, self.steep_x = steep_y.flatten(), steep_x.flatten()
        self.near_y, self.near_x = (max_pool2d(t, 3, stride=1, padding=1).flatten() for t in (steep_y, steep_x))

    def _point(self, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """s and s' = Js, per axis."""
        s_y, s_x = self.transform.source([gamma], self.y[pixel], self.x[pixel])
        return (s_y, s_x, s_x, -s_y) if self.turns else (s_y, s_x, -s_y, -s_x)

    def _corner(self, piece: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column of the cell's first pixel; −2 and the side itself stand for everything beyond."""
        within = piece % ((self.height + 3) * (self.width + 3))
        return within // (self.width + 3) - 2, within % (self.width + 3) - 2

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> _Look:
        s_y, s_x, t_y, t_x = self._point(pixel, gamma)
        radius = torch.hypot(s_y, s_x) if self.turns else torch.hypot(s_y, s_x) * half.exp()
        u, w = s_y + (self.height - 1) / 2, s_x + (self.width - 1) / 2
        row, column = u.floor().clamp_(-2, self.height), w.floor().clamp_(-2, self.width)
        piece = (row * (self.width + 3) + column).long() + (2 * (self.width + 3) + 2) + self.offset[pixel]
        u, w = u - row, w - column
        f_y, f_x, f_yx = self.f_y[piece], self.f_x[piece], self.f_yx[piece]
        value, slope = _bilinear(self.f[piece], f_y, f_x, f_yx, u, w, t_y, t_x)
        reach = half * radius  # |s − s(m)| stays below it, and below 1
        speed_y, speed_x = t_y.abs(), t_x.abs()
        spread = reach * half / 2
        spread_y, spread_x = half * speed_y + spread, half * speed_x + spread
        smooth = ((u - spread_y >= 0) | (row == -2)) & ((u + spread_y <= 1) | (row == self.height))
        smooth &= ((w - spread_x >= 0) | (column == -2)) & ((w + spread_x <= 1) | (column == self.width))
        speed_y, speed_x = speed_y + reach, speed_x + reach
        bend = 2 * f_yx.abs() * speed_y * speed_x
        bend += self.steep_y[piece] * (s_y.abs() + reach) + self.steep_x[piece] * (s_x.abs() + reach)
        steep = self.near_y[piece] * speed_y + self.near_x[piece] * speed_x
        return _Look(piece, value, slope, bend, steep, smooth)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        s_y, s_x, t_y, t_x = self._point(pixel, gamma)
        row, column = self._corner(piece)
        u, w = s_y + (self.height - 1) / 2 - row, s_x + (self.width - 1) / 2 - column
        return _bilinear(self.f[piece], self.f_y[piece], self.f_x[piece], self.f_yx[piece], u, w, t_y, t_x)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor) -> Tensor:
        # With z = 2s and integers a, b the place in the cell is ((z_y + a)/2, (z_x + b)/2): 8V is an integer polynomial in z.
        f, f_y, f_x, f_yx = (t[piece].round().long() for t in (self.f, self.f_y, self.f_x, self.f_yx))
        row, column = self._corner(piece)
        a, b = self.height - 1 - 2 * row, self.width - 1 - 2 * column
        y, x = (2 * self.y[pixel]).long(), (2 * self.x[pixel]).long()
        one = 8 * f - 8 * level - 4 + 4 * f_y * a + 4 * f_x * b + 2 * f_yx * a * b
        z_y, z_x = 4 * f_y + 2 * f_yx * b, 4 * f_x + 2 * f_yx * a
        if self.turns:  # against 1, cos γ, sin γ, cos 2γ, sin 2γ
            columns = (one, z_y * y + z_x * x, z_y * x - z_x * y, 2 * f_yx * x * y, f_yx * (x * x - y * y))
        else:  # against 1, t, t² with t = e^{−γ}
            columns = (one, z_y * y + z_x * x, 2 * f_yx * x * y, torch.zeros_like(x), torch.zeros_like(x))
        return torch.stack(columns, 1)


def _bilinear(
    f: Tensor, f_y: Tensor, f_x: Tensor, f_yx: Tensor, u: Tensor, w: Tensor, t_y: Tensor, t_x: Tensor
) -> tuple[Tensor, Tensor]:
    along_x = f_x + f_yx * u
    return f + f_y * u + along_x * w, (f_y + f_yx * w) * t_y + along_x * t_x


@final
class _Recoloured(_Path):
    """Brightness, V = 255(x + γ), and contrast, V = 255·x·e^γ: one smooth piece per pixel. Clamping only removes thresholds."""

    stride = 1.0

    def __init__(self, value: Tensor, transform: PointwiseTransform) -> None:
        self.transform, self.value, self.adds = transform, value.flatten(), isinstance(transform, Brightness)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        value = 255 * self.transform.value(gamma, self.value[piece] / 255)
        return value, torch.full_like(value, 255) if self.adds else value

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> _Look:
        value, slope = self.on(pixel, pixel, gamma)
        top = slope * half.exp()
        return _Look(pixel, value, slope, 0 * top if self.adds else top, top, torch.ones_like(pixel, dtype=torch.bool))

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor) -> Tensor:
        x = self.value[piece].round().long()
        zero, threshold = torch.zeros_like(x), 2 * level + 1
        columns = (2 * x - threshold, zero + 510) if self.adds else (-threshold, 2 * x)  # against 1, γ or 1, e^γ
        return torch.stack((*columns, zero, zero, zero), 1)


def _path(value: Tensor, threat: Threat) -> _Path:
    transform = threat.transform
    if not threat.quantized:
        raise ValueError("exhaustive verification needs an 8-bit attacker: Threat(..., quantized=True)")
    if isinstance(transform, Rotation | Scaling):
        if threat.interpolation != "bilinear":
            raise ValueError(f"crossings are known for a bilinear attacker; got {threat.interpolation!r}")
        return _Moved(value, transform, threat.box.lower[0], threat.box.upper[0])
    if isinstance(transform, Brightness | Contrast):
        return _Recoloured(value, transform)
    raise ValueError(f"crossings are known for rotation, scaling, brightness and contrast; got {transform.name}")


def _intervals(path: _Path, pixels: int, first: float, last: float, device: torch.device) -> list[tuple[Tensor, ...]]:
    """(pixel, a, b): all of Γ for all pixels, in intervals short enough for `look`, a few million at a time. γ = 0, where all kink, is an end."""
    sides = [(lo, hi) for lo, hi in ((first, min(last, 0.0)), (max(first, 0.0), last)) if lo < hi] or [(first, last)]
    # 1.01: rounding in linspace never makes an interval wider than the stride
    cuts = [torch.linspace(lo, hi, 1 + math.ceil(1.01 * (hi - lo) / path.stride) or 2, dtype=torch.float64) for lo, hi in sides]
    edges = torch.cat([cuts[0], *(c[1:] for c in cuts[1:])]).to(device)
    if edges.numel() == 1:
        edges = edges.repeat(2)
    count = edges.numel() - 1
    pixel = torch.arange(pixels, device=device)
    return [
        (part.repeat_interleave(count), edges[:-1].repeat(part.numel()), edges[1:].repeat(part.numel()))
        for part in pixel.split(max(1, _MAX_ITEMS // count))
    ]


def _level(value: Tensor) -> Tensor:
    return (value + 0.5).floor().clamp_(0, 255).long()


def _decide(path: _Path, pixel: Tensor, a: Tensor, b: Tensor, margin: float) -> tuple[_Events, tuple[Tensor, ...]]:
    """The events of the decided intervals, and the halves of the others."""
    middle = (a + b) / 2
    half = torch.maximum(b - middle, middle - a) * (1 + 2.0**-40)
    look = path.look(pixel, middle, half)
    spread = torch.where(look.smooth, half * (look.slope.abs() + half * look.bend / 2), half * look.steep) + margin
    low, high = _level(look.value - spread), _level(look.value + spread)
    open_ = low < high
    monotone = look.smooth & (look.slope.abs() > 2 * half * look.bend + 1e-9) & open_
    stuck = ((spread <= 4 * margin) | (middle <= a) | (middle >= b)) & ~monotone & open_
    crossing = _cross(path, look.piece[monotone], pixel[monotone], a[monotone], b[monotone], margin)
    touching = _Events(*(t[stuck] for t in (pixel, a, b, low, high)))
    events = _Events(*(torch.cat(pair) for pair in zip(crossing, touching, strict=True)))
    split = open_ & ~monotone & ~stuck
    pixel, a, middle, b = (t[split] for t in (pixel, a, middle, b))
    return events, (pixel.repeat(2), torch.cat((a, middle)), torch.cat((middle, b)))


def _cross(path: _Path, piece: Tensor, pixel: Tensor, a: Tensor, b: Tensor, margin: float) -> _Events:
    """One event for each threshold that a monotone V comes within `margin` of on [a, b]."""
    value_a, value_b = path.on(piece, pixel, a)[0], path.on(piece, pixel, b)[0]
    lowest = (torch.minimum(value_a, value_b) - margin - 0.5).ceil().clamp_(0, 255).long()
    highest = (torch.maximum(value_a, value_b) + margin - 0.5).floor().clamp_(-1, 254).long()
    count = (highest - lowest + 1).clamp_(min=0)
    item = torch.repeat_interleave(torch.arange(count.numel(), device=a.device), count)
    level = lowest[item] + torch.arange(item.numel(), device=a.device) - (count.cumsum(0) - count)[item]
    piece, pixel, a, b, value_a, value_b = (t[item] for t in (piece, pixel, a, b, value_a, value_b))
    rising = (value_b > value_a).double() * 2 - 1

    def beyond(gamma: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = path.on(piece, pixel, gamma)
        return rising * (value - level - 0.5), rising * slope

    at_a, at_b = rising * (value_a - level - 0.5), rising * (value_b - level - 0.5)
    root = torch.clamp(a - at_a * (b - a) / (at_b - at_a), a, b)
    for _ in range(5):
        ahead, slope = beyond(root)
        root = torch.clamp(root - ahead / slope, a, b)
    lower, upper, slope = a, b, beyond(root)[1]
    for factor in (8.0, 2.0, 1.1):  # the wide ones first: each success replaces the one before
        width = factor * margin / slope
        left, right = torch.clamp(root - width, a, b), torch.clamp(root + width, a, b)
        lower = torch.where(beyond(left)[0] <= -margin, left, lower)
        upper = torch.where(beyond(right)[0] >= margin, right, upper)
    return _Events(pixel, lower, upper, level, level + 1)


def _merge(raw: _Events, first: float, last: float) -> _Events:
    """Events of one pixel that meet become one: the rest are apart, with floats between them. Sorted by pixel, then γ."""
    apart = 2.0**-48 * max(abs(first), abs(last))
    order = raw.lower.argsort(stable=True)
    order = order[raw.pixel[order].argsort(stable=True)]
    pixel, lower, upper, low, high = (t[order] for t in raw)
    total = pixel.numel()
    if total == 0:
        return _Events(pixel, lower, upper, low, high)
    ascending, by_upper = upper.sort()
    rank = torch.empty_like(by_upper)
    rank[by_upper] = torch.arange(total, device=rank.device)
    reach = ascending[(pixel * total + rank).cummax(0).values % total]  # the furthest upper end so far, pixel by pixel
    fresh = torch.ones_like(pixel, dtype=torch.bool)
    fresh[1:] = (pixel[1:] != pixel[:-1]) | (lower[1:] > reach[:-1] + apart)
    group = fresh.cumsum(0) - 1

    def gather(t: Tensor, reduce: str) -> Tensor:
        return t[fresh].scatter_reduce(0, group, t, reduce)

    return _Events(pixel[fresh], lower[fresh], gather(upper, "amax"), gather(low, "amin"), gather(high, "amax"))


def _settle(
    path: _Path, events: _Events, x: Tensor, whole: bool, gamma: tuple[float, float], tolerance: float
) -> Crossings:
    """Measures the settled values, checks them against the events, and sorts by upper end."""
    pixel, lower, upper, low, high = events
    first, last = gamma
    every = torch.arange(x.numel(), device=x.device)
    still = torch.zeros_like(every, dtype=torch.float64)
    start = _level(path.look(every, still + first, still).value)
    same = pixel[1:] == pixel[:-1]  # as the next event's
    until = torch.full_like(lower, last)
    until[:-1] = torch.where(same, lower[1:], until[:-1])
    inside = (upper + until) / 2
    value = path.look(pixel, inside, torch.zeros_like(inside)).value
    after = _level(value)
    nominal = upper >= last  # no gap to the right within Γ: any of the event's levels will do
    after = torch.where(nominal, after.clamp(low, high), after)
    leads = torch.ones_like(same.new_ones(pixel.numel()))
    leads[1:] = ~same
    at_once = leads & (lower <= first)
    start[pixel[at_once]] = start[pixel[at_once]].clamp(low[at_once], high[at_once])
    before = start[pixel]
    before[1:] = torch.where(same, after[:-1], before[1:])
    near = ((value - 0.5) - (value - 0.5).round()).abs() <= 255 * tolerance
    near &= (value > 0) & (value < 255) & ~nominal
    outside = (before < low) | (before > high) | (after < low) | (after > high)
    if bool((near | outside).any()):
        raise RuntimeError("a settled value contradicts the enclosures around it: please report this picture and threat")
    middle, half = (lower + upper) / 2, (upper - lower) / 2 * (1 + 2.0**-40)
    look = path.look(pixel, middle, half)
    equation = path.equation(look.piece, pixel, low)
    equation *= (look.smooth & (high - low == 1) & (before != after) & whole)[:, None]
    order = upper.argsort(stable=True)
    columns = (pixel, lower, upper, before, after, low, high, equation)
    start_image = start.to(torch.uint8).reshape(x.shape)
    return Crossings(start_image, *(t[order] for t in columns), gamma=gamma, tolerance=tolerance)
