"""Chords of T_γ over small cells of γ: matrices at the corners, and how far T_γ can be from their affine mean.

On a cell, the box low ≤ γ ≤ high with half-widths h and t = (γ − centre)/h ∈ [−1,1]^d, T_γ is replaced by the affine
family A_t = A₀ + Σ_a t_a A_a, A₀ the mean of the corners' matrices A_c and A_a half the difference of the means of its
two faces. Then T_γ x = A_t x + ϱ with |ϱ| ≤ `remainder`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from warpcert.errors.curve.path import bernstein
from warpcert.originals.interval import sources
from warpcert.transforms import Flow, Shift, SpatialTransform
from warpcert.transforms.kernels import Kernel, taps

__all__ = ["Ranges", "affine", "corner_taps", "corners", "family", "remainder", "signs", "slopes"]

NEAR = 1e-9  # pixels: a grid line so close to the end of a path counts as not crossed (see `remainder`)
SLACK = 1e-12  # of a float64 interpolation of values in [0,1], misplaced source points (1e-13 px) included


def signs(dim: int, device: torch.device) -> Tensor:
    """The corners of [−1,1]^d, [2^d, d]."""
    return torch.tensor(list(itertools.product((-1.0, 1.0), repeat=dim)), dtype=torch.float64, device=device)


def corners(low: Tensor, high: Tensor) -> Tensor:
    """The corners [k, 2^d, d] of the cells [k,d], in the order of `signs`; neighbours share them exactly."""
    upper = signs(low.shape[1], low.device) > 0
    return torch.where(upper, high[:, None], low[:, None])


def affine(at_corners: Tensor, dim: int) -> Tensor:
    """[k, 2^d, ...] → [k, 1+d, ...]: the mean, and half the difference along each axis."""
    weight = torch.cat((torch.ones(1, 2**dim, dtype=torch.float64), signs(dim, torch.device("cpu")).T)) / 2**dim
    return torch.einsum("ac,kc...->ka...", weight.to(at_corners), at_corners)


def family(index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """From the taps [k, 2^d, N, K] of the corners to the affine family at the corners: index [k, N, 2^d·K], the pixels
    that a row reads at any corner, and weights [k, 2^d, N, 2^d·K].

    Of one parameter its members at the corners are the corners' matrices. Of two, A_t leaves out their mixed
    difference, and is not the corner's matrix at a corner. With the members as A_c, A_t = Σ_c w_c A_c holds exactly,
    w_c(t) ≥ 0 the weights of independent signs with means t_a.
    """
    count, ends, pixels, own = weight.shape
    wide = weight.new_zeros(count, ends, pixels, ends, own)
    for c in range(ends):
        wide[:, c, :, c] = weight[:, c]
    wide, dim = wide.flatten(3), ends.bit_length() - 1
    if dim > 1:
        sign = torch.cat((torch.ones(ends, 1, dtype=torch.float64), signs(dim, torch.device("cpu"))), 1).to(wide)
        wide = torch.einsum("ca,ka...->kc...", sign, affine(wide, dim))
    return index.transpose(1, 2).flatten(2), wide


def corner_taps(
    transform: SpatialTransform, gamma: Tensor, height: int, width: int, k: Kernel
) -> tuple[Tensor, Tensor]:
    """Pixel indices and weights [..., N, K] of T_γ for γ [..., d]."""
    y, x = transform.coordinates(gamma.reshape(-1, gamma.shape[-1]), height, width)
    index, weight = taps(y.flatten(1), x.flatten(1), height, width, k)
    shape = (*gamma.shape[:-1], *index.shape[1:])
    return index.reshape(shape), weight.reshape(shape)


@lru_cache(maxsize=8)
def slopes(k: Kernel) -> tuple[float, float, float]:
    """Bounds of |f_x|, |f_xx|, |f_xy| of the interpolant inside a region, for data whose values near it differ by at
    most 1.

    f = Σ x_ij k(s_y − i) k(s_x − j); the weights of a derivative sum to 0, so subtracting the middle of the data leaves
    |f_..| ≤ ½ Σ|weights|. With S_n = max Σ_i |k⁽ⁿ⁾(t − i)| that is ½S₀S₁, ½S₀S₂, ½S₁². `gradient` is ½S₀S₁ and
    `overshoot` (S₀² − 1)/2; |k''| is made of linear pieces, so S₂ is attained at the ends of [0,1].
    """
    if k.gradient is None:
        raise ValueError(f"chords need an interpolation that does not jump (bilinear, bicubic); got {k.name}")
    zeroth = math.sqrt(1 + 2 * k.overshoot)
    first = 2 * k.gradient / zeroth
    second = float(bernstein(k, 2, torch.device("cpu")).abs().sum(0).max())
    return k.gradient, zeroth * second / 2 + 1e-9, first * first / 2


@dataclass(frozen=True)
class Ranges:
    """How much the original can vary near a point, for k boxes lower ≤ x ≤ upper [k,C,H,W].

    near [k,C,·] holds, for i and j from −room on, the largest minus the smallest possible value over the pixels
    i+1−reach … i+1+reach (rows) and likewise j (columns), zeros outside the frame included.
    """

    near: Tensor
    room: int
    side: tuple[int, int]
    reach: int

    @classmethod
    def of(cls, lower: Tensor, upper: Tensor, k: Kernel) -> Ranges:
        room = k.reach + 2
        sides = (room + k.reach - 1, room + k.reach) * 2
        size = 2 * k.reach + 1
        near = max_pool2d(pad(upper, sides), size, 1) + max_pool2d(pad(-lower, sides), size, 1)
        return cls(near.flatten(2), room, (int(lower.shape[2]), int(lower.shape[3])), k.reach)

    def at(self, which: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """[b,C,N] for the boxes which [b] at points between rows i, i+1 and columns j, j+1 [b,N]."""
        height, width = self.side
        row = (i + self.room).clamp(0, height + 2 * self.room - 2)
        column = (j + self.room).clamp(0, width + 2 * self.room - 2)
        place = (row * (width + 2 * self.room - 1) + column).long()
        return self.near[which].gather(2, place[:, None].expand(-1, self.near.shape[1], -1))


def remainder(
    transform: SpatialTransform, k: Kernel, low: Tensor, high: Tensor, ranges: Ranges, which: Tensor
) -> Tensor:
    """|T_θ x − A_t x| ≤ remainder [b,C,N] for θ in the cells [low, high] [b,d] and every x of box which[b].

    *One parameter.* A continuous, piecewise smooth h of θ on a cell of width w equals the chord of its ends up to
    (w²/8) sup|h''| + (w/4) Σ|jumps of h'| (Green's function: ∫G ≤ w²/8, G ≤ w/4). Here h = f(s(θ)). The gradient of the
    bilinear f jumps across grid lines, by a second difference ≤ 2·range; a line is crossed once, or twice if that
    component of the velocity can vanish in the cell (once at most: cells are narrower than `half_turn`). Inside regions
    h'' = f_yy v_y² + 2f_xy v_y v_x + f_xx v_x² + f_y a_y + f_x a_x with the velocity v = As and the acceleration a =
    A²s of the flow, and the derivatives of f are at most `slopes`·range. The range is that of the data over all pixels
    that the regions touched read: those of `Ranges` if at most one line per axis is crossed, otherwise the global one.

    *Two parameters* (shifts: v = 1 along its axis, a = 0). Interpolating along one axis, then along the other,
    gives the multilinear chord with an error of at most the sum of both one-parameter remainders, since the second acts
    on a convex combination of two end functions. It has one term more than A_t: t₁t₂ times a quarter of the mixed
    difference of the corners, at most (w₁w₂/4) sup|f_xy|.

    *Ends.* The path leaves the region it starts in by less than NEAR when a line is that close to the end of its
    enclosure and is not counted. Replacing f by the polynomial of that region changes h by at most 2·range·NEAR per
    axis, and the difference from the chord by at most twice that: 8·NEAR for both axes, with SLACK in the total.
    """
    if not isinstance(transform, Flow | Shift):
        raise transform.unknown("no bound of its paths is known")
    height, width = ranges.side
    spans = sources(transform, low, high, height, width)
    first = [torch.minimum(s.low + NEAR, (s.low + s.high) / 2).floor() for s in spans]
    last = [torch.maximum(s.high - NEAR, (s.low + s.high) / 2).floor() for s in spans]
    lines = [b - a for a, b in zip(first, last, strict=True)]
    gradient, straight, mixed = slopes(k)
    kink = 2.0 if k.reach == 1 else 0.0
    step = high - low
    if isinstance(transform, Flow):
        if step.numel() and not float(step.max()) < transform.half_turn:
            raise ValueError(f"cells of γ must be narrower than half a turn; got {float(step.max()):.3g}")
        centred = [s - (side - 1) / 2 for s, side in zip(spans, ranges.side, strict=True)]
        velocity = transform.velocity(*centred)
        fast_y, fast_x = (v.magnitude for v in velocity)
        bent_y, bent_x = (a.magnitude for a in transform.acceleration(*centred))
        turn_y, turn_x = (((v.low <= 0) & (v.high >= 0)).double() for v in velocity)
        curve = straight * (fast_y.square() + fast_x.square()) + 2 * mixed * fast_y * fast_x
        curve = curve + gradient * (bent_y + bent_x)
        jumps = kink * (lines[0] * fast_y * (1 + turn_y) + lines[1] * fast_x * (1 + turn_x))
        each = step.square() / 8 * curve + step / 4 * jumps
    else:
        right, down = step[:, :1], step[:, 1:]
        each = straight * (right.square() + down.square()) / 8 + mixed * right * down / 4
        each = each + kink * (lines[0] * down + lines[1] * right) / 4
    near = ranges.at(which, first[0], first[1])
    wide = (torch.maximum(lines[0], lines[1]) > 1)[:, None]
    near = torch.where(wide, ranges.near.amax((1, 2))[which][:, None, None].clamp_min(1.0), near)
    bound: Tensor = each[:, None] * near * (1 + 1e-9) + 8 * NEAR + SLACK
    return bound
