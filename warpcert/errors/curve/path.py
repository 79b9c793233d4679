"""How an interpolated pixel moves along the path of a linear flow: tables of an image's derivatives, and the remainder
of a chord.

A pixel of T_γ x is f(s(γ)), f the interpolant of x and s(γ) = e^{γA} p its source point. f is a polynomial on each
region (a unit square between four neighbouring pixel centres), f and s are continuous, s is smooth. On a cell of γ of
width w a continuous, piecewise smooth function h equals the chord of its end values up to

    (w²/8)·sup|h''| + (w/4)·Σ|jumps of h'| ,

because h(t) − chord(t) = −∫ G(t,τ) h''(τ) dτ with Green's function 0 ≤ G ≤ w/4, ∫G ≤ w²/8, and a jump of h' is an
atom of h''.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.numerics.interval import Interval
from warpcert.transforms import Flow
from warpcert.transforms.kernels import Kernel

__all__ = ["COORDINATE_SLACK", "Tables", "bernstein", "chord_remainder", "jumps", "second_derivative", "tables"]

COORDINATE_SLACK = 1e-9  # pixels; float64 source points of images up to 10⁵ pixels wide err by less than 1e-10


def bernstein(k: Kernel, order: int, device: torch.device) -> Tensor:
    """Bernstein coefficients [2·reach, 4−order] of the order-th derivative on [0,1] of t ↦ k(t − i), i = 1−reach …
    reach.

    On [0,1] each piece is a polynomial of degree ≤ 3: its monomial coefficients follow from four values, those of the
    derivative by differentiation. A polynomial lies between its smallest and largest Bernstein coefficient, so do
    tensor products.
    """
    t = torch.linspace(0, 1, 4, dtype=torch.float64)
    taps = torch.arange(1 - k.reach, k.reach + 1, dtype=torch.float64)
    inside = t.clamp(1e-300, 1 - 2**-53)  # the pieces of k are continuous up to the ends of the region
    coefficient = torch.linalg.solve(t[:, None] ** torch.arange(4), k.value(inside[:, None] - taps)).T  # [taps, power]
    for _ in range(order):
        coefficient = coefficient[:, 1:] * torch.arange(1, coefficient.shape[1])
    degree = 3 - order
    to_bernstein = torch.zeros(degree + 1, degree + 1, dtype=torch.float64)  # t^m = Σ_b C(b,m)/C(degree,m) B_b
    for m in range(degree + 1):
        for b in range(m, degree + 1):
            to_bernstein[m, b] = math.comb(b, m) / math.comb(degree, m)
    out: Tensor = coefficient @ to_bernstein
    return out.to(device)


@dataclass(frozen=True)
class Tables:
    """Bounds of |derivatives| of the interpolant of one image on every region, and of the jumps of its gradient
    across grid lines.

    Region (i, j) is [i, i+1] × [j, j+1] in pixel indices and is stored at [i + ring, j + ring]; the image is 0
    outside, so an index that leaves the ring may be clamped to it. slopes [R, 5, C]: |f_y|, |f_x|, |f_xy|, |f_yy|,
    |f_xx| per flat region (the last two are left out, [R, 3, C], where they vanish). jump_y [R, C]: |jump of f_y|
    across the line y = i anywhere on the edge from (i, j) to (i, j+1); jump_x likewise across x = j, on the edge from
    (i, j) to (i+1, j).
    """

    height: int
    width: int
    ring: int
    slopes: Tensor
    jump_y: Tensor
    jump_x: Tensor

    def index(self, i: Tensor, j: Tensor) -> Tensor:
        """Flat index of region (i, j); regions outside the ring are clamped onto it, where everything is 0."""
        i = (i + self.ring).clamp(0, self.height + 2 * self.ring - 2)
        j = (j + self.ring).clamp(0, self.width + 2 * self.ring - 2)
        return i * (self.width + 2 * self.ring - 1) + j


def tables(x: Tensor, k: Kernel) -> Tables:
    """`Tables` of x [C,H,W] (float64): the largest |Bernstein coefficient| of each derivative, exact for the jumps of
    the bilinear kernel.

    Cubic convolution is continuously differentiable and has no jumps. The hat has f_y(i+) − f_y(i−) = x[i+1] − 2x[i]
    + x[i−1] at a column, linear between two columns, hence at most the larger of the two.
    """
    if k.derivative is None:
        raise ValueError(
            f"the curve bound needs an interpolation with a derivative; {k.name} jumps: use interval boxes"
        )
    channels, height, width = x.shape
    ring = k.reach + 1
    padded = torch.nn.functional.pad(x, (2 * ring - 1,) * 4)
    side_y, side_x = height + 2 * ring - 1, width + 2 * ring - 1
    first = ring - 1 - (k.reach - 1)  # padded index of the first tap of region (−ring, −ring)
    patch = padded[:, first:, first:].unfold(1, 2 * k.reach, 1).unfold(2, 2 * k.reach, 1)[:, :side_y, :side_x]

    def bound(order_y: int, order_x: int) -> Tensor:
        weight_y, weight_x = bernstein(k, order_y, x.device), bernstein(k, order_x, x.device)
        value = torch.einsum("chwij,ia,jb->chwab", patch, weight_y, weight_x)
        return value.abs().amax((-1, -2)).reshape(channels, -1).T

    if k.reach == 1:
        at = slice(ring - 1, None)  # padded index ring−1+m belongs to pixel index m − ring
        line_y = (padded[:, 2:] - 2 * padded[:, 1:-1] + padded[:, :-2]).abs()[:, ring - 2 :, at]
        line_x = (padded[:, :, 2:] - 2 * padded[:, :, 1:-1] + padded[:, :, :-2]).abs()[:, at, ring - 2 :]
        jump_y = torch.maximum(line_y[:, :side_y, :side_x], line_y[:, :side_y, 1 : side_x + 1])
        jump_x = torch.maximum(line_x[:, :side_y, :side_x], line_x[:, 1 : side_y + 1, :side_x])
    else:
        jump_y = jump_x = x.new_zeros(channels, side_y, side_x)
    flat = [j.reshape(channels, -1).T.contiguous() for j in (jump_y, jump_x)]
    orders = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2))[
        : 3 if k.reach == 1 else 5
    ]  # the hat is bilinear: f_yy = f_xx = 0
    return Tables(height, width, ring, torch.stack([bound(*o) for o in orders], 1), *flat)


@dataclass(frozen=True)
class Span:
    """Where a source point can be while γ crosses a cell, per cell and pixel [m, n]: its box, and the regions it can
    touch.
    """

    y: Interval
    x: Interval
    i: tuple[Tensor, Tensor]  # first and last row of regions, equal or neighbours
    j: tuple[Tensor, Tensor]
    zeros: Tensor  # [m, 1] how often a component of the velocity can vanish in the cell, at most


def span(t: Tables, flow: Flow, low: Tensor, high: Tensor, y: Tensor, x: Tensor) -> Span:
    """The `Span` of pixels (y, x) [n] over the cells [low, high] [m].

    Each coordinate stays within (w²/8)·sup|s''| of the chord of its ends, |s''| ≤ `curvature`·|s|. Cells must be so
    narrow that no point can touch three regions of a row or column.
    """
    y0, x0 = flow.source([low[:, None]], y, x)
    y1, x1 = flow.source([high[:, None]], y, x)
    width = (high - low)[:, None]
    far = flow.farthest(torch.maximum(y0.square() + x0.square(), y1.square() + x1.square()).sqrt(), width)
    sides, regions = [], []
    for a, b, curvature, side in ((y0, y1, flow.curvature[0], t.height), (x0, x1, flow.curvature[1], t.width)):
        sag = width.square() / 8 * (curvature * far) + COORDINATE_SLACK
        s = Interval(torch.minimum(a, b) - sag, torch.maximum(a, b) + sag)
        first, last = ((end + (side - 1) / 2).floor().long() for end in (s.low, s.high))
        if bool((last - first > 1).any()):
            raise ValueError("a cell is so wide that a pixel crosses two grid lines of one axis: use narrower cells")
        sides.append(s)
        regions.append((first, last))
    return Span(sides[0], sides[1], regions[0], regions[1], 1 + (width / flow.half_turn).floor())


def second_derivative(t: Tables, flow: Flow, s: Span) -> Tensor:
    """A bound [m, n, C] of |d²/dγ² f(s(γ))| inside the regions touched.

    The second derivative is f_yy v_y² + 2 f_xy v_y v_x + f_xx v_x² + f_y a_y + f_x a_x with velocity v = A s and
    acceleration a = A² s; each factor is replaced by the bound of its absolute value over the (at most four) regions
    and over the cell.
    """
    v_y, v_x = (v.magnitude for v in flow.velocity(s.y, s.x))
    a_y, a_x = (a.magnitude for a in flow.acceleration(s.y, s.x))
    factor = torch.stack((a_y, a_x, 2 * v_y * v_x, v_y * v_y, v_x * v_x)[: t.slopes.shape[1]], -1)
    worst = t.slopes[t.index(s.i[0], s.j[0])]
    for i, j in ((0, 1), (1, 0), (1, 1)):
        worst = torch.maximum(worst, t.slopes[t.index(s.i[i], s.j[j])])
    return (worst * factor.unsqueeze(-1)).sum(-2)


def jumps(t: Tables, flow: Flow, s: Span) -> Tensor:
    """A bound [m, n, C] of Σ|jumps of d/dγ f(s(γ))| in a cell.

    f's gradient jumps only across grid lines, and only its component across the line. At most one line per axis can be
    crossed (see `span`): once while that component of the velocity keeps its sign, and once more for every time it
    vanishes. Each crossing of y = i adds |jump of f_y|·|v_y|.
    """
    v_y, v_x = flow.velocity(s.y, s.x)
    total = torch.zeros(*v_y.low.shape, t.jump_y.shape[1], dtype=v_y.low.dtype, device=v_y.low.device)
    if not bool((t.jump_y != 0).any()) and not bool((t.jump_x != 0).any()):
        return total
    edge_y = torch.maximum(t.jump_y[t.index(s.i[1], s.j[0])], t.jump_y[t.index(s.i[1], s.j[1])])
    edge_x = torch.maximum(t.jump_x[t.index(s.i[0], s.j[1])], t.jump_x[t.index(s.i[1], s.j[1])])
    for edge, (first, last), v in ((edge_y, s.i, v_y), (edge_x, s.j, v_x)):
        crossings = (last > first) * (1 + s.zeros * v.contains(torch.zeros_like(v.low)))
        total += edge * (crossings * v.magnitude).unsqueeze(-1)
    return total


def chord_remainder(t: Tables, flow: Flow, low: Tensor, high: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """A bound [m, C, n] of |f(s(γ)) − chord| for γ in the cells [low, high] [m], at the pixels (y, x) [n]."""
    s = span(t, flow, low, high, y, x)
    width = (high - low)[:, None, None]
    bound = width.square() / 8 * second_derivative(t, flow, s) + width / 4 * jumps(t, flow, s)
    return bound.movedim(-1, 1)
