"""Interval analysis with splitting, as in the paper: simple, loose, independent of the curve bound; for nearest too."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.float32 import inference_slack, value_error
from warpcert.numerics.interval import Interval, outward
from warpcert.threat import Threat
from warpcert.transforms import SpatialTransform
from warpcert.transforms.kernels import Kernel, gather, kernel

__all__ = ["BoxesResult", "box_image", "boxes_bound", "halved", "pulled"]

SLACK = 1e-12  # of float64 sums of values in [0,1]


@final
@dataclass(frozen=True)
class BoxesResult:
    """max_{γ∈Γ} ‖ε(β,γ,x)‖₂ ≤ upper [B] (proved), ≥ lower [B] (evaluated)."""

    upper: Tensor
    lower: Tensor
    boxes: int
    seconds: float


def box_image(x: Tensor, transform: SpatialTransform, k: Kernel, low: Tensor, high: Tensor) -> Interval:
    """Every T_γ x with γ in the boxes [low, high] [m, d] → intervals [m, C, H, W]; bilinear or nearest.

    The source points of a pixel lie in a rectangle, by interval arithmetic. Bilinear: inside a region the interpolant
    is bilinear, so on the rectangle it is extreme at a corner or where a side or a grid line crosses a grid line or
    side: at the points of (ends and grid lines)². Nearest: the values of the pixels nearest to some point of the
    rectangle.
    """
    if k.reach != 1:
        raise ValueError(f"interval boxes know bilinear and nearest interpolation; got {k.name}")
    height, width = x.shape[-2:]
    y = torch.arange(height, dtype=x.dtype, device=x.device)[:, None] - (height - 1) / 2
    x_ = torch.arange(width, dtype=x.dtype, device=x.device)[None, :] - (width - 1) / 2
    gamma = [Interval(a[:, None, None], b[:, None, None]) for a, b in zip(low.unbind(1), high.unbind(1), strict=True)]
    shape = (low.shape[0], height, width)
    ends = [s.expand(shape) for s in transform.source(gamma, y, x_)]
    stops = [_stops(s, side, k) for s, side in zip(ends, (height, width), strict=True)]
    least: Tensor | None = None
    most: Tensor | None = None
    for at_y, at_x in itertools.product(*stops):
        value = gather(x, at_y, at_x, k)
        least = value if least is None else torch.minimum(least, value)
        most = value if most is None else torch.maximum(most, value)
    assert least is not None and most is not None
    return Interval(least - SLACK, most + SLACK)


def _stops(s: Interval, side: int, k: Kernel) -> list[Tensor]:
    """Coordinates along one axis at which the interpolant must be evaluated: bilinear: both ends and the grid lines
    between them; nearest: the pixels nearest to some point between the ends.
    """
    shift = (side - 1) / 2
    if k.name == "nearest":
        first, last = (s.low + shift - 1e-9).round(), (s.high + shift + 1e-9).round()
    else:
        first, last = (s.low + shift).ceil(), (s.high + shift).floor()
    count = int((last - first).max()) + 1
    lines = [torch.minimum(first + i, last) for i in range(max(count, 0))]
    inside = [torch.where(line < first, s.low, line - shift) for line in lines]
    return inside if k.name == "nearest" else [s.low, s.high, *inside]


def pulled(z: Interval, transform: SpatialTransform, beta: Tensor, k: Kernel) -> Interval:
    """T_β of every image in z [m, C, H, W], beta [d]: the weights of bilinear and nearest are not negative."""
    if k.reach != 1:
        raise ValueError(f"interval boxes know bilinear and nearest interpolation; got {k.name}")
    source = transform.coordinates(beta[None], *z.low.shape[-2:])
    y, x = (s.expand(z.low.shape[0], -1, -1) for s in source)
    return Interval(gather(z.low, y, x, k) - SLACK, gather(z.high, y, x, k) + SLACK)


def boxes_bound(
    x: Tensor,
    defence: Defence,
    threat: Threat,
    beta: Tensor,
    *,
    first: int = 64,
    tightness: float = 1.1,
    most: int = 200_000,
    time_limit: float | None = None,
) -> BoxesResult:
    """For each β [B,d]: sup_{γ∈Γ}‖P(T_β q(T_γ x) − T_{β+γ} x)‖₂ ≤ upper, x [C,H,W] in [0,1].

    Γ is cut into `first` equal parts along every axis, all first^d of them; both images are enclosed on each part, P
    has nonnegative entries, and the norm of the largest absolute values bounds ‖ε‖. Parts above `tightness` times the
    largest error found are halved along every axis, until `most` parts were bounded or time is up. With nearest the
    bound is about the exact pipelines only: a rounded coordinate can pick another pixel.
    """
    start = time.perf_counter()
    if defence.reference is not None:
        raise ValueError(f"interval boxes know no reference; got {defence.reference}: use the curve bound, or none")
    deadline = math.inf if time_limit is None else start + time_limit
    transform = threat.transform
    if not isinstance(transform, SpatialTransform) or transform != defence.transform:
        raise ValueError(f"interval boxes need one spatial transformation on both sides; got {transform.name}")
    x, beta = x.double(), beta.double()
    attacker, defender = kernel(threat.interpolation), kernel(defence.interpolation)
    extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
    smooth = attacker.gradient is not None
    doubt = float(value_error(transform, attacker, x.shape[1], x.shape[2], extent).amax()) if smooth else 0.0
    slack = (
        inference_slack(defence, x.shape[1], x.shape[2], x.shape[0], extent) if defender.gradient is not None else 0.0
    )
    mask = defence.preprocess.mask(*x.shape[1:]).to(x)
    trivial = math.sqrt(x.shape[0] * float(mask.sum()))
    upper = torch.zeros(beta.shape[0], dtype=x.dtype, device=x.device)
    lower = torch.zeros_like(upper)
    done = 0

    def bound(b: int, low: Tensor, high: Tensor) -> Tensor:
        given = box_image(x, transform, attacker, low, high)
        if threat.quantized:
            given = Interval(transform.quantize(given.low - doubt), transform.quantize(given.high + doubt))
        else:
            given = Interval(given.low - doubt, given.high + doubt)
        back = pulled(given, transform, beta[b], defender)
        shifted = outward(low + beta[b], high + beta[b])
        error = back - box_image(x, transform, defender, shifted.low, shifted.high)
        size: Tensor = defence.preprocess(error.magnitude).flatten(1).norm(dim=-1)
        middle = (low + high) / 2
        true = defence.view(threat.attacked(x, middle), beta[b].expand_as(middle)) - defence.view(x, middle + beta[b])
        lower[b] = torch.maximum(lower[b], true.flatten(1).norm(dim=-1).max())
        return size * (1 + 1e-9) + 1e-9

    edges = [
        torch.linspace(a, b, first + 1, dtype=x.dtype, device=x.device)
        for a, b in zip(threat.box.lower, threat.box.upper, strict=True)
    ]
    low = torch.cartesian_prod(*(e[:-1] for e in edges)).reshape(-1, len(edges))
    high = torch.cartesian_prod(*(e[1:] for e in edges)).reshape(-1, len(edges))
    room = max(1, 2**21 // x.numel())
    opened = [
        (b, low, high, torch.full((low.shape[0],), trivial, dtype=x.dtype, device=x.device)) for b in range(len(beta))
    ]
    fresh = True
    while opened:
        following = []
        for b, low, high, known in opened:
            if (done + low.shape[0] > most and not fresh) or time.perf_counter() > deadline:
                upper[b] = torch.maximum(upper[b], known.max())
                continue
            parts = zip(torch.split(low, room), torch.split(high, room), strict=True)
            size = torch.minimum(known, torch.cat([bound(b, *part) for part in parts]))
            done += low.shape[0]
            wide = size > tightness * lower.max()
            if bool((~wide).any()):
                upper[b] = torch.maximum(upper[b], size[~wide].max())
            if bool(wide.any()):
                following.append((b, *halved(low[wide], high[wide]), size[wide].repeat_interleave(2 ** len(edges))))
        opened, fresh = following, False
    return BoxesResult(upper + 2 * slack, lower, done, time.perf_counter() - start)


def halved(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Each box [m, d] as its 2^d halves, neighbours in the order of the boxes."""
    middle = (low + high) / 2
    sides = list(itertools.product((False, True), repeat=low.shape[1]))
    pick = torch.tensor(sides, device=low.device)
    return (
        torch.where(pick, middle[:, None], low[:, None]).flatten(0, 1),
        torch.where(pick, high[:, None], middle[:, None]).flatten(0, 1),
    )
