"""One pixel of T_γ x as a function of γ: its value, its slope, and how both can bend between."""

from __future__ import annotations

import math
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from warpcert.classifier.levels import highest
from warpcert.threat import Threat
from warpcert.transforms import Brightness, Contrast, PointwiseTransform, Rotation, Scaling, SpatialTransform

__all__ = ["Moved", "Path", "Recoloured", "path_of"]


class Look(NamedTuple):
    """V at γ, and on [γ − half, γ + half]: |V'| ≤ steep; where smooth, one formula ("piece") and |V''| ≤ bend."""

    piece: Tensor
    value: Tensor
    slope: Tensor
    bend: Tensor
    steep: Tensor
    smooth: Tensor


@final
class Moved:
    """V under rotation and scaling. Pieces are the cells of the grid, by channel; rows −2 and H stand for the rest."""

    def __init__(self, value: Tensor, transform: SpatialTransform, first: float, step: int) -> None:
        self.transform, self.turns = transform, isinstance(transform, Rotation)
        self.step, self.top = step, highest(step)
        self.height, self.width = value.shape[1:]
        radius = math.hypot(self.height, self.width) / 2 * (1.0 if self.turns else math.exp(-min(first, 0.0)))
        self.stride = 1 / max(1.0, radius)  # widest interval to `look` at: s moves by less than a pixel from its middle
        place = torch.arange(value.numel(), device=value.device)
        self.y = (place // self.width % self.height).double() - (self.height - 1) / 2
        self.x = (place % self.width).double() - (self.width - 1) / 2
        self.channel = place // (self.height * self.width) * ((self.height + 3) * (self.width + 3))
        cell = torch.arange(value.shape[0] * (self.height + 3) * (self.width + 3), device=value.device)
        self.row, self.column = cell // (self.width + 3) % (self.height + 3) - 2, cell % (self.width + 3) - 2
        x = (pad(value, (2, 2, 2, 2)) + _offset(step)) / step
        x00, x10, x01, x11 = x[:, :-1, :-1], x[:, 1:, :-1], x[:, :-1, 1:], x[:, 1:, 1:]
        f_y, f_x, f_yx = x10 - x00, x01 - x00, x11 - x10 - x01 + x00
        self.f = [t.flatten() for t in (x00, f_y, f_x, f_yx)]
        steep = [torch.maximum(t.abs(), (t + f_yx).abs()) for t in (f_y, f_x)]
        self.steep_y, self.steep_x = (t.flatten() for t in steep)
        self.near_y, self.near_x = (max_pool2d(t, 3, stride=1, padding=1).flatten() for t in steep)

    def _point(self, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """s and s' = Js, axis by axis."""
        s_y, s_x = self.transform.source([gamma], self.y[pixel], self.x[pixel])
        return (s_y, s_x, s_x, -s_y) if self.turns else (s_y, s_x, -s_y, -s_x)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """V and V' at γ by the formula of the piece."""
        s_y, s_x, t_y, t_x = self._point(pixel, gamma)
        u, w = s_y + (self.height - 1) / 2 - self.row[piece], s_x + (self.width - 1) / 2 - self.column[piece]
        return _bilinear([t[piece] for t in self.f], u, w, t_y, t_x)

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        s_y, s_x, t_y, t_x = self._point(pixel, gamma)
        if self.turns:
            reach = half * torch.hypot(s_y, s_x)
            top_y, top_x = s_y.abs() + reach, s_x.abs() + reach  # bounds of |s|, hence of |s''| = |J²s|, and of |s'|:
            fast_y, fast_x = top_x, top_y
        else:
            fast_y, fast_x = top_y, top_x = s_y.abs() * half.exp(), s_x.abs() * half.exp()
        u, w = s_y + (self.height - 1) / 2, s_x + (self.width - 1) / 2
        row, column = u.floor().clamp_(-2, self.height), w.floor().clamp_(-2, self.width)
        piece = ((row + 2) * (self.width + 3) + (column + 2)).long() + self.channel[pixel]
        u, w = u - row, w - column
        f = [t[piece] for t in self.f]
        value, slope = _bilinear(f, u, w, t_y, t_x)
        move_y, move_x = half * (t_y.abs() + half / 2 * top_y), half * (t_x.abs() + half / 2 * top_x)
        smooth = ((u >= move_y) | (row == -2)) & ((u + move_y <= 1) | (row == self.height))
        smooth &= ((w >= move_x) | (column == -2)) & ((w + move_x <= 1) | (column == self.width))
        bend = 2 * f[3].abs() * fast_y * fast_x + self.steep_y[piece] * top_y + self.steep_x[piece] * top_x
        steep = self.near_y[piece] * fast_y + self.near_x[piece] * fast_x
        return Look(piece, value, slope, bend, steep, smooth)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        """V' − (level + ½) on the piece, in integers against independent functions of γ; `falls` is the sign of −V'."""
        # With z = 2s the place in the cell is ((z_y + a)/2, (z_x + b)/2), so 8wV' is an integer polynomial in z.
        eight_f = (8 * self.step * self.f[0][piece]).round().long()
        f_y, f_x, f_yx = ((self.step * t[piece]).round().long() for t in self.f[1:])
        a, b = self.height - 1 - 2 * self.row[piece], self.width - 1 - 2 * self.column[piece]
        y, x = (2 * self.y[pixel]).long(), (2 * self.x[pixel]).long()
        one = eight_f - (8 * level + 4) * self.step + 4 * f_y * a + 4 * f_x * b + 2 * f_yx * a * b
        z_y, z_x = 4 * f_y + 2 * f_yx * b, 4 * f_x + 2 * f_yx * a
        linear, square = z_y * y + z_x * x, 2 * f_yx * x * y
        if self.turns:  # 1, cos γ, cos 2γ, sin γ, sin 2γ
            return torch.stack((one, linear, square, z_y * x - z_x * y, f_yx * (x * x - y * y)), 1)
        # 1, t, t² with t = e^{−γ}; a rational root (−linear ± root)/(2·square) by its own linear equation
        inner = linear * linear - 4 * square * one
        root = inner.clamp_min(0).double().sqrt().round().long()
        rational = (square != 0) & (root * root == inner)
        one, linear = torch.where(rational, linear - falls * root, one), torch.where(rational, 2 * square, linear)
        return torch.stack((one, linear, square * ~rational, 0 * one, 0 * one), 1)


def _bilinear(f: list[Tensor], u: Tensor, w: Tensor, t_y: Tensor, t_x: Tensor) -> tuple[Tensor, Tensor]:
    along_x = f[2] + f[3] * u
    return f[0] + f[1] * u + along_x * w, (f[1] + f[3] * w) * t_y + along_x * t_x


@final
class Recoloured:
    """V under brightness, 255(x + γ), and contrast, 255x·e^γ: one piece per pixel. Clamping only removes thresholds."""

    stride = 1.0

    def __init__(self, value: Tensor, transform: PointwiseTransform, step: int) -> None:
        self.transform, self.value, self.adds = transform, value.flatten(), isinstance(transform, Brightness)
        self.step, self.top = step, highest(step)

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        value = 255 * self.transform.value(gamma, self.value[piece] / 255)
        slope = torch.full_like(value, 255) if self.adds else value
        return (value + _offset(self.step)) / self.step, slope / self.step

    def look(self, pixel: Tensor, gamma: Tensor, half: Tensor) -> Look:
        value, slope = self.on(pixel, pixel, gamma)
        steep = slope * half.exp()
        return Look(pixel, value, slope, steep * (not self.adds), steep, steep >= 0)

    def equation(self, piece: Tensor, pixel: Tensor, level: Tensor, falls: Tensor) -> Tensor:
        x, zero = self.value[piece].round().long(), torch.zeros_like(piece)
        one = int(2 * _offset(self.step)) - (2 * level + 1) * self.step
        columns = (2 * x + one, zero + 510) if self.adds else (one, 2 * x)  # 1, γ or 1, e^γ
        return torch.stack((*columns, zero, zero, zero), 1)


Path = Moved | Recoloured


def _offset(step: int) -> float:
    """wV' − V."""
    return 0.5 * (step > 1)


def path_of(value: Tensor, threat: Threat, step: int) -> Path:
    if not threat.quantized and step == 1:
        raise ValueError(
            "only an 8-bit attacker has crossings, unless the classifier rounds its input: use Threat(..., "
            "quantized=True), or put the classifier behind Coarse"
        )
    if isinstance(transform := threat.transform, Brightness | Contrast):
        return Recoloured(value, transform, step)
    if not isinstance(transform, Rotation | Scaling):
        raise ValueError(f"crossings are known for rotation, scaling, brightness, contrast; got {transform.name}")
    if threat.interpolation != "bilinear":
        raise ValueError(f"crossings are known for a bilinear attacker; got {threat.interpolation!r}")
    return Moved(value, transform, threat.box.lower[0], step)
