"""How far the float32 pipelines of attacker and defender can be from the exact ones that the bounds are about.

u = 2^-24 is the unit roundoff of float32. Assumed of the library: correctly rounded +, −, ·, / and fused multiply-add; sin, cos, exp with an
error of at most 2 units in the last place (torch on CPU and, without fast math, on CUDA); |parameter| ≤ `extent`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warpcert.threat import Defence
from warpcert.transforms import PointwiseTransform, Rotation, Scaling, SpatialTransform, Transform, Translation
from warpcert.transforms.kernels import Kernel, kernel

__all__ = ["UNIT", "coordinate_error", "inference_slack", "value_error"]

UNIT = 2.0**-24


def coordinate_error(transform: SpatialTransform, height: int, width: int, extent: float) -> Tensor:
    """A bound [H,W] of |s_y| and of |s_x| computed in float32 minus exact, in pixels, the trip through grid_sample's [−1,1] included.

    The parameter is rounded first: |θ|u. Rotation: that moves the source by r|θ|u along the circle; sin and cos err by 2 ulp ≤ 2u each
    (values ≤ 1), giving 2u(|y|+|x|) ≤ 2√2·ru; two products u(|y|+|x|) ≤ √2·ru; their sum ru: together ru(|θ| + 3√2 + 1). Scaling: e^{−θ}
    errs relatively by |θ|u + 4u and the product by u: at most r·e^{extent}(|θ| + 5)u. Translation: |θ|u and the rounded difference.
    Then g = s·(2/n) (2u relative: the rounded factor and the product) and ((g+1)·n − 1)/2: g+1, ·n and −1 round once each. In pixels
    that is 2u|s| + 3u(|s| + n/2 + ½).
    """
    y = torch.arange(height, dtype=torch.float64)[:, None] - (height - 1) / 2
    x = torch.arange(width, dtype=torch.float64)[None, :] - (width - 1) / 2
    radius = (y.square() + x.square()).sqrt()
    if isinstance(transform, Rotation):
        reach, error = radius, radius * (extent + 3 * math.sqrt(2) + 1)
    elif isinstance(transform, Scaling):
        reach = radius * math.exp(extent)
        error = reach * (extent + 5)
    elif isinstance(transform, Translation):
        reach = radius + extent
        error = extent + reach
    else:
        raise ValueError(f"no rounding analysis is known for {transform.name}")
    total: Tensor = (error + 2 * reach + 3 * (reach + max(height, width) / 2 + 0.5)) * UNIT * 1.01
    return total


def value_error(transform: Transform, k: Kernel, height: int, width: int, extent: float) -> Tensor:
    """A bound [H,W] of |T_θ x in float32 − exact| for images in [0,1] and |θ| ≤ extent.

    A misplaced source point changes the interpolant by at most `gradient` per axis and pixel. Weights: a cubic of the offset, whose own
    roundings are inside the coordinate error; each of the (2·reach)² products of two weights (at most 8u each, relative to Σ|k| ≤ 1.375 per
    axis) and the sums of 2·reach terms, twice: (16 + 4·reach)u·1.375². Pointwise: one rounded parameter, one exp, one operation.
    """
    if isinstance(transform, PointwiseTransform):
        return torch.full((height, width), (1 + extent) * math.exp(extent) * 8 * UNIT, dtype=torch.float64)
    assert isinstance(transform, SpatialTransform)
    if k.gradient is None:
        raise ValueError(f"{k.name} jumps: a rounded coordinate can change its value by 1, so no slack is enough")
    arithmetic = (16 + 4 * k.reach) * UNIT * (1 + 2 * k.overshoot)
    return 2 * k.gradient * coordinate_error(transform, height, width, extent) + arithmetic


def inference_slack(defence: Defence, height: int, width: int, channels: int, extent: float = 8.0) -> float:
    """s with ‖(P T_θ z in float32) − (P T_θ z)‖₂ ≤ s for every image z in [0,1]^(C,H,W) and every |θ| ≤ extent.

    P = V B V is linear with nonnegative entries and row and column sums ≤ 1, so it does not enlarge the error of T_θ z in ℓ2; it is
    computed as two products with banded matrices whose entries are rounded (u) and whose sums have at most blur_size nonzero terms:
    2(blur_size + 2)u relative to values of at most 1 + overshoot.
    """
    k = kernel(defence.interpolation)
    top = math.exp(extent) + extent if isinstance(defence.transform, PointwiseTransform) else 1 + k.overshoot
    mask = defence.preprocess.mask(height, width)
    blur = 2 * (defence.preprocess.blur_size + 2) * UNIT * top
    error = (value_error(defence.transform, k, height, width, extent) + blur)[mask]
    return float(error.norm()) * math.sqrt(channels) * 1.01
