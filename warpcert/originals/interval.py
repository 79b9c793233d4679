"""Interval inverse, as in the paper: boxes of every original that could have produced an attacked image.

It knows x' and not x. Each pixel of x' is a bilinear equation for four pixels of x; solved for one of them, with the
others in boxes and γ in a small cell, it bounds that one. A cell that leaves a pixel no value does not hold γ.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.errors.float32 import UNIT, value_error
from warpcert.numerics.interval import Interval
from warpcert.threat import Threat
from warpcert.transforms import SpatialTransform
from warpcert.transforms.kernels import kernel

__all__ = ["Inverse", "interval_inverse", "sources", "surviving", "values"]

SLACK = 1e-12  # of float64 sums of four products of numbers in [0,1], and of the weights: these err by less than 1e-14
FAINT = 1e-6  # pixels that may have less weight than this are left alone
ROOM = 2**18  # attacked pixels that `surviving` handles at once, all boxes together


@final
@dataclass(frozen=True, eq=False)
class Inverse:
    """If x' came from x with γ in box j of m, then possible[j] and low[j] ≤ x ≤ high[j] at every pixel.

    low, high [m,C,H,W] within [0,1] and possible [m]; what stands in low and high of an impossible box means nothing.
    """

    low: Tensor
    high: Tensor
    possible: Tensor


def interval_inverse(
    x_attacked: Tensor, threat: Threat, low: Tensor, high: Tensor, *, refinements: int = 10
) -> Inverse:
    """Every x ∈ [0,1]^(C,H,W) with x' = q(T_γ x) for a γ in box j lies in the intervals j of the result; possible[j] is
    False only if there is no such x.

    x_attacked [C,H,W], low and high [m,d]; bilinear attacker, in float32 or better; x = 0 outside the frame. Computed
    in float64 on the device of x'.

    *One equation.* The pixel p' of x' has its source points in a rectangle S, by interval arithmetic, and there the
    interpolant takes a value v ∈ [x'−½/255, x'+½/255] ∩ [0,1], widened by the attacker's float32 error. Take a pixel
    k of the grid with a positive weight on all of S: S lies in the open square of side 2 around k, which is made of
    four interpolation regions. At a source point at distances (s,t) from k, with the neighbours x_v, x_h, x_d of k in
    that region (vertical, horizontal, diagonal),

        v = (1−s)(1−t) x_k + s(1−t) x_v + (1−s)t x_h + st x_d .

    With σ = s/(1−s), τ = t/(1−t), hence 1/(1−s) = 1+σ and 1/(1−t) = 1+τ, solving for x_k gives

        x_k = v(1+σ)(1+τ) − σ x_v − τ x_h − στ x_d ,

    which for fixed v and x is affine in σ and in τ. These increase with s and t, so the part of S in the region is a
    rectangle in (σ,τ) too, and x_k is extreme at one of its four corners; which one depends on the x's. (With all
    three in [0,1] the ends are v₊(1+σ)(1+τ) and 1 − (1−v₋)(1+σ)(1+τ): always at the corner furthest from k.) Over
    all regions that S meets these corners are the points of {ends of S, grid lines between them}², and joining the
    regions means taking the least and the largest value over these points. At each of them x_k increases with v and
    decreases with the others: with w the weight of k and B(u), B(l) the interpolants of the upper and lower ends
    known so far,

        x_k ≥ u_k + min (v₋ − B(u))/w ,      x_k ≤ l_k + max (v₊ − B(l))/w .

    Where k may have no weight, p' says nothing about it. Bounds of all p' are intersected, with the ones before too:
    first [0,1], then `refinements` times those just found. A pixel that nothing bounds stays [0,1].

    *Border.* The pixels outside the frame are unknowns like the others, with the interval [0,0]. One ring of them is
    enough: further ones are folded onto it, as all are 0.

    *Emptiness.* An interval that became empty leaves x no value. A forward check, B over S against v, finds no more
    where such a k exists: if B(u) < v₋ on all of S, the first inequality already puts x_k above u_k.

    *Rounding.* S is rounded outwards. Differences of stops and grid lines, weights and B err by less than 1e-14, which
    moves the quotients by less than SLACK/w as long as w > FAINT and they are of size 1 at most; larger ones bind
    only if empty, which the sign of v₋ − B(u) − SLACK decides. SLACK is taken off v₋ and added to v₊.
    """
    transform = threat.transform
    if not isinstance(transform, SpatialTransform) or threat.interpolation != "bilinear":
        raise ValueError(
            "the interval inverse needs a transformation that moves pixels and a bilinear attacker; "
            f"got {transform.name} with {threat.interpolation}"
        )
    if threat.l2:
        raise ValueError("no inverse knows an ℓ2 part: it may have moved any pixel")
    if x_attacked.dim() != 3:
        raise ValueError(f"the interval inverse takes one attacked image [C, H, W]; got {list(x_attacked.shape)}")
    if low.dim() != 2 or low.shape[1] != transform.dim or low.shape != high.shape:
        raise ValueError(
            f"boxes for {transform.name} need both ends of shape [m, {transform.dim}]; "
            f"got {list(low.shape)} and {list(high.shape)}"
        )
    if not bool((low <= high).all()) or not bool((low.isfinite() & high.isfinite()).all()):
        raise ValueError("boxes of parameters need finite ends, lower ≤ upper; got others")
    if refinements < 0:
        raise ValueError(f"refinements must be 0 or more; got {refinements}")
    x = x_attacked.double()
    low, high = low.to(x), high.to(x)
    count, (height, width) = low.shape[0], x.shape[1:]
    extent = max(low.abs().amax().item(), high.abs().amax().item()) if count else 0.0
    value = values(x, threat, transform, extent)
    (row, rows), (column, columns) = (
        _axis(s, side) for s, side in zip(sources(transform, low, high, height, width), (height, width), strict=True)
    )
    index = row[:, :, None] * (width + 2) + column[:, None]  # [m,3,3,N]
    ring = torch.nn.functional.pad(torch.ones_like(x), (1, 1, 1, 1)).flatten(1)
    known = Interval(torch.zeros_like(ring).repeat(count, 1, 1), ring.repeat(count, 1, 1))  # [m,C,(H+2)(W+2)]
    possible = torch.ones(count, dtype=torch.bool, device=x.device)
    for _ in range(1 + refinements):
        alive = possible.nonzero()[:, 0]
        if not len(alive):
            break
        part = Interval(known.low[alive], known.high[alive])
        part = _narrowed(part, value, index[alive], rows[alive], columns[alive])
        known.low[alive], known.high[alive] = part.low, part.high
        possible[alive] = (part.low <= part.high).flatten(1).all(1)
    shape = (count, x.shape[0], height + 2, width + 2)
    least, most = (end.reshape(shape)[..., 1:-1, 1:-1] for end in (known.low, known.high))
    return Inverse(least, most, possible)


def surviving(x_attacked: Tensor, threat: Threat, cells: int, refinements: int = 10) -> tuple[Tensor, Tensor, Inverse]:
    """Boxes low, high [k,d] and their inverses: if x' = q(T_γ x) with γ ∈ Γ, then γ lies in one of the boxes and x in
    its intervals.

    Γ is cut into `cells` parts along every axis, all cells^d of them, with 0 between two parts (there the source
    points of all pixels cross grid lines together); the boxes returned are those not proved empty.
    """
    axes = [_edges(a, b, cells).to(x_attacked.device) for a, b in zip(threat.box.lower, threat.box.upper, strict=True)]
    low = torch.cartesian_prod(*(e[:-1] for e in axes)).reshape(-1, len(axes))
    high = torch.cartesian_prod(*(e[1:] for e in axes)).reshape(-1, len(axes))
    room = max(1, ROOM // x_attacked.numel())
    parts = []
    for a, b in zip(torch.split(low, room), torch.split(high, room), strict=True):
        found = interval_inverse(x_attacked, threat, a, b, refinements=refinements)
        kept = found.possible
        parts.append((a[kept], b[kept], found.low[kept], found.high[kept], kept[kept]))
    first, last, lowest, highest, possible = (torch.cat(each) for each in zip(*parts, strict=True))
    return first, last, Inverse(lowest, highest, possible)


def _edges(lower: float, upper: float, cells: int) -> Tensor:
    """Ends of `cells` intervals that cover [lower, upper] ∋ 0, with 0 among them; a point is one interval."""
    if cells < 1 or (cells < 2 and lower < 0 < upper):
        raise ValueError(f"Γ needs at least 2 cells along an axis that 0 divides, otherwise 1; got {cells}")
    if lower == upper:
        return torch.tensor([lower, upper], dtype=torch.float64)
    before = round(cells * -lower / (upper - lower))
    before = min(max(before, int(lower < 0)), cells - int(upper > 0))
    left = torch.linspace(lower, 0, before + 1, dtype=torch.float64)
    right = torch.linspace(0, upper, cells - before + 1, dtype=torch.float64)
    return torch.cat((left[:-1], right)) if before < cells else left


def values(x: Tensor, threat: Threat, transform: SpatialTransform, extent: float) -> Interval:
    """T_γ x, as a real number, lies here [C,N] if the attacker handed over x: rounding, then the float32 error of T and
    q, then [0,1].
    """
    doubt = value_error(transform, kernel(threat.interpolation), x.shape[1], x.shape[2], extent).to(x) + 4 * UNIT
    if threat.quantized:
        levels = round(1 / transform.step)
        exact = (x * levels).round()
        if bool(((x * levels - exact).abs() > 1e-3).any()):
            raise ValueError(f"a quantized x' has values k/{levels}; got others: quantize it, or say so in Threat")
        x, doubt = exact / levels, doubt + transform.step / 2
    return Interval((x - doubt).clamp_min(0).flatten(1), (x + doubt).clamp_max(1).flatten(1))


def sources(transform: SpatialTransform, low: Tensor, high: Tensor, height: int, width: int) -> list[Interval]:
    """Enclosures [m,N] of the source rows and columns of all pixels, counted from the first pixel's."""
    ends = zip(transform.enclosed(low, high, height, width), (height, width), strict=True)
    full = [s + (side - 1) / 2 for s, side in ends]
    return [Interval(s.low.flatten(1), s.high.flatten(1)) for s in full]


def _stops(s: Interval) -> Tensor:
    """Both ends and the grid line between them, if any [m,3,N]; of several lines only one, as then no pixel has weight
    at both ends.
    """
    return torch.stack((s.low, torch.minimum(s.low.ceil(), s.high), s.high), 1)


def _axis(s: Interval, side: int) -> tuple[Tensor, Tensor]:
    """Along one axis: the three pixels from floor(s.low) on, as places 0 … side+1 in the ring [m,3,N], and their
    weights at the stops [m, 3 stops, 3 pixels, N].
    """
    pixel = s.low.floor()[:, None] + torch.arange(3, dtype=s.low.dtype, device=s.low.device)[:, None]
    weight = (1 - (_stops(s)[:, :, None] - pixel[:, None]).abs()).clamp_min(0)
    return pixel.clamp(-1, side).long() + 1, weight


def _narrowed(known: Interval, value: Interval, index: Tensor, rows: Tensor, columns: Tensor) -> Interval:
    """`known` [m,C,·] intersected with what every attacked pixel [C,N] says of the (at most) four pixels of positive
    weight: those at floor(s.low) and one further, on both axes.
    """
    channels = known.low.shape[1]
    wide = index.flatten(1)[:, None].expand(-1, channels, -1)

    def at_stops(end: Tensor) -> tuple[Tensor, Tensor]:
        near = end.gather(2, wide).reshape(*end.shape[:2], *index.shape[1:])  # [m,C,3,3,N]
        lines = (rows[:, None, :, :, None] * near[:, :, None]).sum(3)  # [m,C,stop,pixel,N]
        return near, (columns[:, None, None] * lines[:, :, :, None]).sum(4).flatten(2, 3)  # [m,C,9,N]

    least, least_at = at_stops(known.low)
    most, most_at = at_stops(known.high)
    missing, excess = value.low[:, None] - SLACK - most_at, value.high[:, None] + SLACK - least_at
    low, high = known.low, known.high
    for i, j in itertools.product((0, 1), repeat=2):
        weight = (rows[:, :, i][:, :, None] * columns[:, :, j][:, None]).flatten(1, 2)[:, None]  # [m,1,9,N]
        clear = weight.amin(2) > FAINT
        above = torch.where(clear, most[:, :, i, j] + (missing / weight).amin(2), -math.inf)
        below = torch.where(clear, least[:, :, i, j] + (excess / weight).amax(2), math.inf)
        place = index[:, None, i, j].expand_as(above)
        low = low.scatter_reduce(2, place, above, "amax")
        high = high.scatter_reduce(2, place, below, "amin")
    return Interval(low, high)
