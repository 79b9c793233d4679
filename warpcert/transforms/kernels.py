"""Interpolation kernels: a value off the grid is Σ_ij x[i,j] k(s_y − i) k(s_x − j), with x = 0 outside the frame.

This sum is the definition of T^I. `gather` and `taps` evaluate it literally, in any dtype and for every kernel;
`sample` hands the same sum to torch's fused `grid_sample` for the kernels that it knows (the tests hold the two
together).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

__all__ = ["KERNELS", "Kernel", "gather", "interpolating", "kernel", "sample", "taps"]


@dataclass(frozen=True)
class Kernel:
    """A 1-D interpolation kernel with support [−reach, reach].

    `value` and `derivative` map distances to k and k'. `gradient` bounds |∂/∂s| of the 2-D interpolant per axis and
    `overshoot` how far its values leave [0,1], both for images in [0,1] (`gradient` is None where the interpolant
    jumps).
    """

    name: str
    reach: int
    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor] | None
    gradient: float | None
    overshoot: float
    torch_mode: str | None  # the mode of torch's grid_sample that computes the same sum
    interpolates: bool = True  # T_0 x = x


def _hat(u: Tensor) -> Tensor:
    return (1 - u.abs()).clamp_min(0)


def _hat_derivative(u: Tensor) -> Tensor:
    return torch.where(u.abs() < 1, -u.sign(), 0)


def _cubic(a: float) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Keys' cubic convolution kernel with parameter a, and its derivative."""

    def value(u: Tensor) -> Tensor:
        v = u.abs()
        inner = ((a + 2) * v - (a + 3)) * v * v + 1
        outer = a * (((v - 5) * v + 8) * v - 4)
        return torch.where(v <= 1, inner, torch.where(v < 2, outer, 0))

    def derivative(u: Tensor) -> Tensor:
        v = u.abs()
        inner = (3 * (a + 2) * v - 2 * (a + 3)) * v
        outer = a * ((3 * v - 10) * v + 8)
        return u.sign() * torch.where(v <= 1, inner, torch.where(v < 2, outer, 0))

    return value, derivative


def _mitchell() -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The kernel of Mitchell and Netravali (1988), B = C = ⅓, and its derivative: a cubic that smooths a little."""

    def value(u: Tensor) -> Tensor:
        v = u.abs()
        inner = (7 / 6 * v - 2) * v * v + 8 / 9
        outer = ((-7 / 18 * v + 2) * v - 10 / 3) * v + 16 / 9
        return torch.where(v <= 1, inner, torch.where(v < 2, outer, 0))

    def derivative(u: Tensor) -> Tensor:
        v = u.abs()
        inner = (3.5 * v - 4) * v
        outer = (-7 / 6 * v + 4) * v - 10 / 3
        return u.sign() * torch.where(v <= 1, inner, torch.where(v < 2, outer, 0))

    return value, derivative


# Overshoot of a separable kernel: with S = max_t Σ|k(t − i)| the weights of a point sum to 1 and their absolute values
# to at most S², so
# values of [0,1] images lie in [(1 − S²)/2, (1 + S²)/2]. S is 1.25 (a=−½), 1.375 (a=−¾) and 41/36
# (Mitchell), all at t = ½. Gradient: weights k' sum to 0, so |Σ k' y| ≤ ½Σ|k'| times the range of the y, at most S;
# ½Σ|k'| is at most 3/2 (both cubics) and 1.18 (Mitchell).
KERNELS = {
    k.name: k
    for k in (
        Kernel("nearest", 1, lambda u: ((u > -0.5) & (u <= 0.5)).to(u.dtype), None, None, 0.0, "nearest"),
        Kernel("bilinear", 1, _hat, _hat_derivative, 1.0, 0.0, "bilinear"),
        Kernel("bicubic", 2, *_cubic(-0.75), 2.0625, (1.375**2 - 1) / 2, "bicubic"),
        Kernel("bicubic-0.5", 2, *_cubic(-0.5), 1.875, (1.25**2 - 1) / 2, None),
        Kernel("mitchell", 2, *_mitchell(), 1.35, (1.14**2 - 1) / 2, None, False),
    )
}


def kernel(name: str) -> Kernel:
    """The kernel of that name; bicubic has a = −¾ (as in torch and OpenCV), bicubic-0.5 a = −½ (as in Pillow)."""
    if name not in KERNELS:
        raise ValueError(f"interpolation {name!r} is not known; choose one of {', '.join(KERNELS)}")
    return KERNELS[name]


def interpolating(name: str) -> Kernel:
    """The kernel of that name, if it leaves pictures as they are at γ = 0."""
    k = kernel(name)
    if not k.interpolates:
        raise ValueError(f"{name} smooths pictures even at γ = 0: here it can only be a reference")
    return k


def _axis(s: Tensor, side: int, k: Kernel) -> tuple[Tensor, Tensor]:
    """Indices and weights [..., 2·reach] of the pixels that take part along one axis; weight 0 (and a valid index)
    outside the frame.
    """
    u = s + (side - 1) / 2
    if k.name == "nearest":  # one pixel, ties to even as torch does
        index = u.round().long().unsqueeze(-1)
        weight = torch.ones_like(u).unsqueeze(-1)
    else:
        index = u.floor().long().unsqueeze(-1) + torch.arange(1 - k.reach, k.reach + 1, device=s.device)
        weight = k.value(u.unsqueeze(-1) - index)
    inside = (index >= 0) & (index < side)
    return index.clamp(0, side - 1), weight * inside


def taps(source_y: Tensor, source_x: Tensor, height: int, width: int, k: Kernel) -> tuple[Tensor, Tensor]:
    """Flat pixel indices and weights [..., K] of the interpolation at centred coordinates [...]."""
    row, weight_y = _axis(source_y, height, k)
    column, weight_x = _axis(source_x, width, k)
    index = row.unsqueeze(-1) * width + column.unsqueeze(-2)
    weight = weight_y.unsqueeze(-1) * weight_x.unsqueeze(-2)
    return index.flatten(-2), weight.flatten(-2)


def gather(x: Tensor, source_y: Tensor, source_x: Tensor, k: Kernel) -> Tensor:
    """The definition, evaluated literally: x [C,H,W] or [B,C,H,W] at coordinates [B,H',W'] → [B,C,H',W'].

    Row by row of the kernel, Σ_j k(s_y − j) Σ_i k(s_x − i) x_ji, so that no tensor holds all pixels that take part.
    """
    (height, width), places = x.shape[-2:], source_y.shape
    (row, weight_y), (column, weight_x) = _axis(source_y, height, k), _axis(source_x, width, k)
    weight_y, weight_x = weight_y.to(x.dtype), weight_x.to(x.dtype)
    along = [t.movedim(-1, 0).flatten(2) for t in (row * width, weight_y, column, weight_x)]  # [2·reach, B, H'W']
    if x.dim() == 3:  # all points of all parameters as one long row: [C,B·H'W']
        along, flat = [t.flatten(1) for t in along], x.flatten(1)
    else:
        along, flat = [t.unsqueeze(2) for t in along], x.flatten(2)
    rows, weights_y, columns, weights_x = (t.contiguous().unbind() for t in along)

    def at(index: Tensor) -> Tensor:
        return flat.index_select(1, index) if x.dim() == 3 else flat.gather(2, index.expand(-1, x.shape[1], -1))

    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for r, w_y in zip(rows, weights_y, strict=True):
        line = torch.zeros((), dtype=x.dtype, device=x.device)
        for c, w_x in zip(columns, weights_x, strict=True):
            line = line + at(r + c) * w_x
        total = total + line * w_y
    if x.dim() == 3:
        return total.reshape(x.shape[0], *places).movedim(0, 1)
    return total.reshape(*x.shape[:2], *places[1:])


def sample(x: Tensor, source_y: Tensor, source_x: Tensor, k: Kernel) -> Tensor:
    """`gather`, by torch's fused kernel where it computes the same sum; one image [C,H,W] serves all B parameters
    without copies.
    """
    if k.torch_mode is None:
        return gather(x, source_y, source_x, k)
    height, width = x.shape[-2:]
    # Planes side by side, seen as pairs: writing pairs would cost as much as the interpolation itself.
    grid = torch.stack((source_x * (2 / width), source_y * (2 / height))).permute(1, 2, 3, 0).to(x.dtype)
    batch = x.expand(grid.shape[0], *x.shape) if x.dim() == 3 else x
    return grid_sample(batch, grid, mode=k.torch_mode, padding_mode="zeros", align_corners=False)
