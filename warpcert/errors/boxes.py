"""Interval analysis with splitting, as in the paper: simple, loose, independent of the curve bound; for nearest too."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.certificates import Kind
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound, Suprema
from warpcert.errors.float32 import inference_slack, value_error
from warpcert.numerics.interval import Interval, outward
from warpcert.threat import Threat
from warpcert.transforms import SpatialTransform
from warpcert.transforms.kernels import Kernel, gather, kernel

__all__ = ["Boxes", "box_image", "halved", "pulled"]

SLACK = 1e-12  # of float64 sums of values in [0,1]


@final
@dataclass(frozen=True)
class Boxes(SupBound):
    """For each β: sup_{γ∈Γ}‖P(T_β q(T_γ x) − T_{β+γ} x)‖₂ ≤ value: the baseline, loose and slow beside `Curve`.

    Γ is cut into `first` equal parts along every axis, all first^d of them; both images are enclosed on each part, P
    has nonnegative entries, and the norm of the largest absolute values bounds ‖ε‖. Parts above `tightness` times the
    largest error found are halved along every axis, until `most` parts were bounded or time is up.

    For bilinear interpolation on both sides. Nearest is refused: in float32 a rounded coordinate may pick another pixel
    than the exact one, so no certificate can rest on it; `exact_pipelines` bounds the exact ones.
    """

    tightness: float = 1.1
    time_limit: float | None = None
    first: int = 64
    most: int = 200_000
    progress: Callable[[int, int], None] | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "interval"
    kind: ClassVar[Kind] = Kind.PROVED

    def __call__(
        self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, target: float | None = None
    ) -> Suprema:
        for who, interpolation in (("attacker", threat.interpolation), ("classifier", defence.interpolation)):
            if interpolation != "bilinear":
                raise ValueError(
                    f"interval analysis is proved for bilinear interpolation, but the {who} uses {interpolation}; "
                    "use bound curve (bilinear, bicubic), or sampled (anything, heuristic)"
                )
        return self.exact_pipelines(x, defence, threat, beta)

    def exact_pipelines(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> Suprema:
        """As above, but with nearest it is about exact arithmetic only."""
        start = time.perf_counter()
        deadline = math.inf if self.time_limit is None else start + self.time_limit
        search = _Search(x.double(), defence, threat, beta.double())
        done, converged, fresh = 0, True, True
        opened = search.parts(self.first)
        while opened:
            following: list[tuple[int, Tensor, Tensor, Tensor]] = []
            for i, (b, low, high, known) in enumerate(opened):
                if self.progress is not None:
                    left = len(opened) - i + len(following)
                    self.progress(max(0, len(beta) - left), len(beta))
                if (done + len(low) > self.most and not fresh) or time.perf_counter() > deadline:
                    search.settle(b, known)
                    converged = False
                    continue
                size = torch.minimum(known, search.bound(b, low, high))
                done += len(low)
                wide = size > self.tightness * search.lower.max()
                search.settle(b, size[~wide])
                if bool(wide.any()):
                    following.append(
                        (b, *halved(low[wide], high[wide]), size[wide].repeat_interleave(2 ** low.shape[1]))
                    )
            opened, fresh = following, False
        upper = search.upper + 2 * search.slack
        return Suprema(upper.cpu(), search.lower.cpu(), done, time.perf_counter() - start, converged)


@final
@dataclass
class _Search:
    """The suprema of one image so far. upper [B] bounds the parts that are settled; slack is float32's, per side."""

    x: Tensor
    defence: Defence
    threat: Threat
    beta: Tensor
    upper: Tensor = field(init=False)
    lower: Tensor = field(init=False)
    transform: SpatialTransform = field(init=False)
    attacker: Kernel = field(init=False)
    defender: Kernel = field(init=False)
    doubt: float = 0.0  # of the attacker's arithmetic
    slack: float = 0.0

    def __post_init__(self) -> None:
        defence, threat, transform = self.defence, self.threat, self.threat.transform
        if defence.reference is not None:
            raise ValueError(f"interval boxes have no reference kernel; got {defence.reference}: use the curve bound")
        if not isinstance(transform, SpatialTransform) or transform != defence.transform:
            raise ValueError(
                f"interval boxes need one transformation that moves pixels, on both sides; got {transform.name}"
            )
        self.transform, (channels, height, width) = transform, self.x.shape
        self.attacker, self.defender = kernel(threat.interpolation), kernel(defence.interpolation)
        extent = float(self.beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
        if self.attacker.gradient is not None:
            self.doubt = float(value_error(transform, self.attacker, height, width, extent).amax())
        if self.defender.gradient is not None:
            self.slack = inference_slack(defence, height, width, channels, extent)
        self.upper = torch.zeros_like(self.beta[:, 0])
        self.lower = torch.zeros_like(self.upper)

    def parts(self, first: int) -> list[tuple[int, Tensor, Tensor, Tensor]]:
        """(number of β, low [m,d], high [m,d], bound known so far [m]): Γ in `first` parts along every axis."""
        box, mask = self.threat.box, self.defence.preprocess.mask(*self.x.shape[1:])
        ends = zip(box.lower, box.upper, strict=True)
        edges = [torch.linspace(a, b, first + 1, dtype=self.x.dtype, device=self.x.device) for a, b in ends]
        low = torch.cartesian_prod(*(e[:-1] for e in edges)).reshape(-1, len(edges))
        high = torch.cartesian_prod(*(e[1:] for e in edges)).reshape(-1, len(edges))
        known = torch.full_like(low[:, 0], math.sqrt(self.x.shape[0] * float(mask.sum())))
        return [(b, low, high, known) for b in range(len(self.beta))]

    def settle(self, b: int, bound: Tensor) -> None:
        if len(bound):
            self.upper[b] = torch.maximum(self.upper[b], bound.max())

    def bound(self, b: int, low: Tensor, high: Tensor) -> Tensor:
        """‖ε(β_b, γ, x)‖ ≤ [m] for γ in the boxes [low, high] [m,d]; raises `lower`."""
        room = max(1, 2**21 // self.x.numel())
        return torch.cat(
            [self._bound(b, *part) for part in zip(torch.split(low, room), torch.split(high, room), strict=True)]
        )

    def _bound(self, b: int, low: Tensor, high: Tensor) -> Tensor:
        x, beta, defence, t = self.x, self.beta[b], self.defence, self.transform
        given = box_image(x, t, self.attacker, low, high)
        given = Interval(given.low - self.doubt, given.high + self.doubt)
        if self.threat.quantized:
            given = Interval(t.quantize(given.low), t.quantize(given.high))
        shifted = outward(low + beta, high + beta)
        error = pulled(given, t, beta, self.defender) - box_image(x, t, self.defender, shifted.low, shifted.high)
        size: Tensor = defence.preprocess(error.magnitude).flatten(1).norm(dim=-1)
        middle = (low + high) / 2
        true = defence.view(self.threat.attacked(x, middle), beta.expand_as(middle)) - defence.view(x, middle + beta)
        self.lower[b] = torch.maximum(self.lower[b], true.flatten(1).norm(dim=-1).max())
        return size * (1 + 1e-9) + 1e-9


def box_image(x: Tensor, transform: SpatialTransform, k: Kernel, low: Tensor, high: Tensor) -> Interval:
    """Every T_γ x with γ in the boxes [low, high] [m, d] → intervals [m, C, H, W]; bilinear or nearest.

    The source points of a pixel lie in a rectangle, by interval arithmetic. Bilinear: inside a region the interpolant
    is bilinear, so on the rectangle it is extreme at a corner or where a side or a grid line crosses a grid line or
    side: at the points of (ends and grid lines)². Nearest: the values of the pixels nearest to some point of the
    rectangle.
    """
    if k.reach != 1:
        raise ValueError(f"interval boxes are for bilinear and nearest interpolation; got {k.name}")
    height, width = x.shape[-2:]
    ends = transform.enclosed(low, high, height, width)
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
        raise ValueError(f"interval boxes are for bilinear and nearest interpolation; got {k.name}")
    source = transform.coordinates(beta[None], *z.low.shape[-2:])
    y, x = (s.expand(z.low.shape[0], -1, -1) for s in source)
    return Interval(gather(z.low, y, x, k) - SLACK, gather(z.high, y, x, k) + SLACK)


def halved(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Each box [m, d] as its 2^d halves, neighbours in the order of the boxes."""
    middle = (low + high) / 2
    sides = list(itertools.product((False, True), repeat=low.shape[1]))
    pick = torch.tensor(sides, device=low.device)
    return (
        torch.where(pick, middle[:, None], low[:, None]).flatten(0, 1),
        torch.where(pick, high[:, None], middle[:, None]).flatten(0, 1),
    )
