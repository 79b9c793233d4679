"""How far the float32 pipelines of attacker and defender can be from the exact ones that the bounds are about.

u = 2^-24 is the unit roundoff of float32. Assumed of the library: correctly rounded +, −, ·, / and fused multiply-add,
and what `SpatialTransform.rounding` says of functions. Parameters are at most `extent` in absolute value. What a
transformation's own arithmetic may err by, it declares itself (`rounding`); interpolation and P are added here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.path import Tables
from warpcert.transforms import Average, PointwiseTransform, SpatialTransform, Transform, grid
from warpcert.transforms.kernels import Kernel, kernel

__all__ = [
    "UNIT",
    "arithmetic_error",
    "coordinate_error",
    "inference_slack",
    "sample_error",
    "steepness_by_steps",
    "steepness_of",
    "value_error",
]

UNIT = 2.0**-24


def coordinate_error(transform: SpatialTransform, height: int, width: int, extent: float) -> Tensor:
    """A bound [H,W] of |s_y| and of |s_x| computed in float32 minus exact, in pixels, the trip through grid_sample's
    [−1,1] included.

    To the transformation's own error, that trip adds g = s·(2/n) (2u relative: the rounded factor and the product) and
    ((g+1)·n − 1)/2: g+1, ·n and −1 round once each. In pixels that is 2u|s| + 3u(|s| + n/2 + ½).
    """
    y, x = grid.axes(height, width, torch.zeros(0, dtype=torch.float64))
    radius = (y.square() + x.square()).sqrt()
    reach, error = transform.reach(radius, extent), transform.rounding(radius, extent)
    total: Tensor = (error + 2 * reach + 3 * (reach + max(height, width) / 2 + 0.5)) * UNIT * 1.01
    return total


def arithmetic_error(k: Kernel) -> float:
    """What float32 adds at most to one interpolated value of an image in [0,1], its coordinates aside.

    The errors of a point's weights along one axis sum to A·u: Horner's rule gives A ≤ 34 (a = −½), 48 (a = −¾) and 61
    (Mitchell's kernel, whose coefficients are rounded too), 2 for the hat. With weights whose absolute values sum to S,
    two axes make 2·A·S·u, products and sums 10·S²·u more. S² = 1 + 2·overshoot; all of it stays below 120·S²·u, and for
    the hat, S = 1, below 24u.
    """
    return (24 if k.reach == 1 else 120) * UNIT * (1 + 2 * k.overshoot)


def value_error(transform: Transform, k: Kernel, height: int, width: int, extent: float) -> Tensor:
    """A bound [H,W] of |T_θ x in float32 − exact| for images in [0,1] and |θ| ≤ extent.

    A misplaced source point changes the interpolant by at most `gradient` per axis and pixel.
    """
    if isinstance(transform, PointwiseTransform):
        return torch.full((height, width), transform.allowance(extent) * UNIT, dtype=torch.float64)
    if isinstance(transform, Average):
        return torch.full((height, width), transform.allowance(height, width, extent) * UNIT, dtype=torch.float64)
    assert isinstance(transform, SpatialTransform)
    if k.gradient is None:
        raise ValueError(f"{k.name} jumps: a rounded coordinate can change its value by 1, so no slack is enough")
    return 2 * k.gradient * coordinate_error(transform, height, width, extent) + arithmetic_error(k)


def sample_error(transform: Transform, x: Tensor, extent: float) -> Tensor:
    """A bound, value by value, of |T_θ x in float32 − exact| for |θ| ≤ extent, if T changes values.

    Quiet samples of a sound err little, which `value_error` (for values of size 1) does not see.
    """
    assert isinstance(transform, PointwiseTransform)
    return transform.rounding(x, extent) * UNIT * 1.01


def inference_slack(
    defence: Defence, height: int, width: int, channels: int, extent: float = 8.0, steepness: float | None = None
) -> float:
    """s with ‖(P T_θ z in float32) − (P T_θ z)‖₂ ≤ s for every image z in [0,1]^(C,H,W) and every |θ| ≤ extent; of
    pictures that are not `grid.SMALL`, θ in float64.

    A misplaced source point costs the coordinate error times |f_y| + |f_x| near it; `steepness` bounds the ℓ2 norm of
    that sum over the kept pixels for the z in question, otherwise the kernel's constant does. P = V B V has
    nonnegative entries with row and column sums ≤ 1, so it does not enlarge errors in ℓ2; it is computed as two
    products with banded matrices whose entries are rounded (u) and whose sums have at most blur_size nonzero terms:
    2(blur_size + 2)u relative to values of at most 1 + overshoot. A reduction is two products more, of four terms each
    with exact weights, so 2·4u, and its norm is at most √(1·¼) (rows sum to 1, columns to ¼).
    """
    k, p = kernel(defence.interpolation), defence.preprocess
    t, mask = defence.transform, p.reads(height, width)
    top = t.top(extent) if isinstance(t, PointwiseTransform) else 1 + k.overshoot
    blur = 2 * (p.blur_size + 2) * UNIT * top
    if p.halved:
        error = _own_value_error(t, k, height, width, extent)[mask].norm() * 0.5
        if steepness is not None and isinstance(t, SpatialTransform):
            moved = float(_own_coordinate_error(t, k, height, width, extent)[mask].amax())
            arithmetic = _own_arithmetic_error(k, height, width) * math.sqrt(int(mask.sum()))
            error = torch.minimum(error, 0.5 * (error.new_tensor(moved * steepness / math.sqrt(channels)) + arithmetic))
        own = (blur + 8 * UNIT * top) * math.sqrt(int(p.returns(height, width).sum()))
        return (float(error) + own) * math.sqrt(channels) * 1.01
    if steepness is None or not isinstance(t, SpatialTransform):
        error = (_own_value_error(t, k, height, width, extent) + blur)[mask]
        return float(error.norm()) * math.sqrt(channels) * 1.01
    moved = float(_own_coordinate_error(t, k, height, width, extent)[mask].amax()) if bool(mask.any()) else 0.0
    each = _own_arithmetic_error(k, height, width) + blur
    return (moved * steepness + each * math.sqrt(channels * int(mask.sum()))) * 1.01


def _own_value_error(transform: Transform, k: Kernel, height: int, width: int, extent: float) -> Tensor:
    """`value_error` of the package's own arithmetic, whose source points are float64 where pictures are large."""
    if not isinstance(transform, SpatialTransform) or k.gradient is None or height * width <= grid.SMALL:
        return value_error(transform, k, height, width, extent)
    moved = _own_coordinate_error(transform, k, height, width, extent)
    return 2 * k.gradient * moved + _own_arithmetic_error(k, height, width)


def _own_coordinate_error(transform: SpatialTransform, k: Kernel, height: int, width: int, extent: float) -> Tensor:
    """`coordinate_error` of the package's own arithmetic.

    With source points in float64, `coordinate_error` is 2⁻²⁹ times as large. The trip through grid_sample, for the
    kernels that it computes, still is float32: g is rounded once (u|s| in pixels), g+1, ·n and −1 once each.
    """
    rough = coordinate_error(transform, height, width, extent)
    if height * width <= grid.SMALL:
        return rough
    y, x = grid.axes(height, width, torch.zeros(0, dtype=torch.float64))
    reach = transform.reach((y.square() + x.square()).sqrt(), extent)
    trip = (reach + 3 * (reach + max(height, width) / 2 + 0.5)) * UNIT * 1.01
    return rough * 2.0**-29 + (trip if k.torch_mode else 0.0)


def _own_arithmetic_error(k: Kernel, height: int, width: int) -> float:
    """`arithmetic_error` of the package's own arithmetic: of large pictures weights too are computed in float64 and
    rounded once, so A ≤ S and 2·A·S·u + 10·S²·u ≤ 24·S²·u. grid_sample computes its weights in float32.
    """
    rough = arithmetic_error(k)
    fine = height * width > grid.SMALL and k.torch_mode is None
    return min(rough, 24 * UNIT * (1 + 2 * k.overshoot)) if fine else rough


def crowding(transform: SpatialTransform, extent: float) -> int:
    """How many source points can lie in (or within a rounding error of) one region.

    Points of mutual distance ≥ 1 in a square of side < √2: at most 4. A transformation that brings them closer by a
    factor c crowds no more than 4 into each of ⌈1.001c⌉² smaller squares.
    """
    closer = transform.crowding(extent)
    return 4 * math.ceil(1.001 * closer) ** 2 if closer > 1 else 4


def steepness_of(t: Tables, transform: SpatialTransform, extent: float) -> float:
    """For z = x itself: Σ_p (|f_y| + |f_x|)² ≤ crowding · Σ_regions (max|f_y| + max|f_x|)²."""
    return math.sqrt(crowding(transform, extent)) * float((t.slopes[:, 0] + t.slopes[:, 1]).norm())


def steepness_by_steps(k: Kernel, transform: SpatialTransform, extent: float) -> float:
    """The factor c with ‖|f_y| + |f_x|‖ ≤ c·(‖D_y z‖ + ‖D_x z‖), D the differences of neighbouring pixels (0 outside).

    f_x(s) = Σ_jl D_jl k(s_y − j) m(s_x − l) with m(v) = −Σ_{n≥0} k'(v + n), since then k'(v) = m(v+1) − m(v). With
    weights w = |k·m| that sum to at most A at any point, f_x² ≤ A Σ w D², and Σ_p w(s_p − (j,l)) ≤ Σ over squares so
    small that each holds at most one source point (0.7 of their distance) of the largest w there. Largest values are
    taken on a grid of step 10⁻³, neighbours included (the hat's m jumps), and raised by 10⁻³ times the Lipschitz
    constants, |k'| ≤ 2 and |m'| ≤ 8.
    """
    assert k.derivative is not None
    v = torch.arange(-2500, 2501, dtype=torch.float64) / 1000 + 5e-4  # off the grid lines, where the hat has no slope
    step = -sum((k.derivative(v + n) for n in range(5)), torch.zeros_like(v))
    tile = 0.7 / transform.crowding(extent)
    pieces = ((v + 2.5005) / tile).floor().long()
    total = 1.0
    for f in (k.value(v).abs() + 2e-3, step.abs() + 8e-3):
        near = torch.nn.functional.max_pool1d(f[None], 3, 1, 1)[0]
        squares = torch.zeros(int(pieces[-1]) + 1, dtype=torch.float64).scatter_reduce(0, pieces, near, "amax")
        total *= float(squares.sum()) * float(near[:5000].reshape(5, 1000).sum(0).max())
    return math.sqrt(total)
