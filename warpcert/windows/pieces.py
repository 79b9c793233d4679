"""How far whatever the attacker can hand over with γ in a window is from the window's centre image.

A window is cut into pieces. On a piece, T_γ x is a combination of its values at the corners of the piece, with weights
that are affine in each parameter, up to a remainder per pixel:

  a flow    two ends, and the remainder of a chord (`chord_remainder`);
  a shift   four corners; between grid lines a bilinear interpolant is exactly such a combination, and a bicubic one up
            to (w_y²/8)·sup|f_yy| + (w_x²/8)·sup|f_xx|: a chord along y, then one along x;
  a tone    two ends, exactly: the picture moves along a straight line;
  a gradation, an average  two ends, up to (w²/8)·sup|V''| for a piece of width w: the remainder of a chord;
  a product    of one of these and tones after it: all corners. A tone is affine in its scalar (γ or e^γ) and in the
            value that it is given, so corners of the first part, remainder r, become corners of the product, remainder
            r times the tones' factors. Weights depend on one parameter each, so their products are affine in each.

What the attacker computes may differ from T_γ x: float32 coordinates are rounded, which costs that much times the slope
of the interpolant around the source point, and so are float32 sums. Both join the remainder. Rounding to levels is
monotone, so q(T_γ x) lies between the rounded (smallest corner − remainder) and the rounded (largest corner +
remainder).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from warpcert.errors.curve.path import Tables, chord_remainder, tables
from warpcert.errors.float32 import UNIT, coordinate_error, sample_error, value_error
from warpcert.threat import Threat
from warpcert.transforms import (
    Average,
    Box,
    Flow,
    Gradation,
    Preprocess,
    Shift,
    SpatialTransform,
    Tone,
    Transform,
    grid,
)
from warpcert.transforms.kernels import Kernel, kernel

__all__ = ["Scene", "center_images", "distances"]

SLACK = 1e-11  # of float64 evaluations of T_γ x, here or on another device
FLOAT_SLACK = 1e-9  # relative and absolute, of float64 sums
GRADED = (0, 0.04, 0.18, 0.5, 0.82, 0.96, 1)
MOTION = 0.5  # pixels that the fastest pixel may move in a window: `steepness` looks one pixel around its middle


@final
@dataclass(frozen=True)
class Scene:
    """One image x [C,H,W] (float64, in [0,1]), or a sound [C,L] in [−1,1], under a threat and P; `rounded` says which
    centre images are meant.
    """

    x: Tensor
    threat: Threat
    preprocess: Preprocess
    rounded: bool

    @property
    def kernel(self) -> Kernel:
        return kernel(self.threat.interpolation)

    @property
    def levels(self) -> bool:
        """Whether centre images are made of levels; for an attacker who does not round they never are."""
        return self.rounded and self.threat.quantized

    @property
    def first(self) -> Transform:
        """What is applied first: of a product, all that follows are tones."""
        return self.threat.transform.parts[0]

    @property
    def tones(self) -> list[tuple[Tone, Box]]:
        """What follows it, with the ranges."""
        return [
            (part, box) for part, box in self.threat.transform.shared(self.threat.box)[1:] if isinstance(part, Tone)
        ]

    @cached_property
    def pace(self) -> Tensor:
        """About how far the picture moves for a unit of each parameter [d], to compare them: 1 within one part."""
        transform, box = self.threat.transform, self.threat.box
        gamma = torch.zeros(transform.dim + 1, transform.dim).to(self.x)
        if len(transform.parts) == 1:
            return gamma[0] + 1
        step = 1e-3 * torch.tensor(box.upper).sub(torch.tensor(box.lower)).clamp_min(1e-9).to(self.x)
        gamma[1:].diagonal().copy_(step)
        moved = _images(self, gamma)
        pace: Tensor = (moved[1:] - moved[:1]).flatten(1).norm(dim=1) / step + 1e-9
        return pace

    @property
    def widest(self) -> float:
        """The widest window of a flow's parameter: no pixel moves by more than MOTION."""
        transform, box = self.first, self.threat.box
        if not isinstance(transform, Flow):
            return math.inf
        fastest = math.hypot(*self.x.shape[1:]) / 2 * transform.speed * transform.stretch(box.lower[0], box.upper[0])
        return MOTION / fastest if fastest else math.inf

    @property
    def shares(self) -> tuple[float, ...]:
        """Where a window is cut along each axis.

        An unrounded bilinear shift needs no cut. Rounding loses sight of how the signs of pixels go together within a
        piece, which matters where values mix (under P, or with two parameters) and only far from the centre image:
        there the pieces are short. Otherwise cuts only shorten chords.
        """
        if self.tones:  # many corners: short pieces would cost more than they save
            return (0, 0.5, 1)
        two = self.threat.transform.dim > 1
        if self.threat.quantized:
            return GRADED if two or not self.preprocess.is_identity else (0, 0.5, 1)
        return (0, 1) if two else (0, 0.25, 0.5, 0.75, 1)

    @cached_property
    def tables(self) -> Tables:
        return tables(self.x, self.kernel)

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """Centred coordinates (y, x) [H·W] of the pixels."""
        return grid.points(self.x.shape[1], self.x.shape[2], self.x)

    @cached_property
    def steepness(self) -> Tensor:
        """A bound [R,C] of |f_y| + |f_x| on region R and on the eight around it."""
        t = self.tables
        steep = (t.slopes[:, 0] + t.slopes[:, 1]).T.reshape(-1, t.height + 2 * t.ring - 1, t.width + 2 * t.ring - 1)
        return max_pool2d(steep, 3, stride=1, padding=1).flatten(1).T.contiguous()

    def steepness_near(self, gamma: Tensor) -> Tensor:
        """A bound [J,C,H,W] of |f_y| + |f_x| within a pixel of the source points of γ [J,d]."""
        steep = self.steepness[_regions(self, gamma)]  # [J, H·W, C]
        return steep.movedim(-1, 1).reshape(-1, *self.x.shape)

    @cached_property
    def arithmetic(self) -> tuple[Tensor, Tensor]:
        """(coordinates, values) [H,W]: float32 errors of the attacker's source points, and of all else.

        The second is `value_error` less its share of the coordinates; 4u more hold the rounding of x and of 255·z. A
        tone that follows makes both `gain` times as large and adds its own rounding, of values of at most `most`. Of a
        sound the second is `sample_error`, value by value; multiples of 1/32768 and 32768·z are float32 numbers.
        """
        (transform, box), *_ = self.threat.transform.shared(self.threat.box)
        extent = _extent(box)
        if self.x.dim() == 2:
            total = sample_error(transform, self.x, extent) + 4 * UNIT * self.top
            return torch.zeros_like(total), total
        k, (height, width) = self.kernel, self.x.shape[1:]
        values = value_error(transform, k, height, width, extent) + 4 * UNIT
        coordinates = torch.zeros_like(values)
        if isinstance(transform, SpatialTransform):
            assert k.gradient is not None  # value_error refuses kernels that jump
            coordinates = coordinate_error(transform, height, width, extent)
            values = values - 2 * k.gradient * coordinates
        for tone, own, most in self._tops():
            gain = float(tone.gain(values.new_tensor([own.upper])))
            rounding = float(tone.rounding(values.new_tensor([-most, most]), _extent(own)).max())
            coordinates, values = gain * coordinates, gain * values + (1.01 * rounding + 4) * UNIT
        return coordinates.to(self.x), values.to(self.x)

    def _tops(self) -> list[tuple[Tone, Box, float]]:
        """The tones that follow, and how large the values that they are given can be."""
        found, most = [], self._top(self.first)
        for tone, box in self.tones:
            found.append((tone, box, most))
            most = max(1.0, most * tone.top(_extent(box)))
        return found

    def _top(self, transform: Transform) -> float:
        """≥ all values of the first part."""
        most = 1 + self.kernel.overshoot if isinstance(transform, SpatialTransform) else 1.0
        if isinstance(transform, Tone):
            most = max(1.0, transform.top(_extent(self.threat.transform.shared(self.threat.box)[0][1])))
        return most

    @cached_property
    def float_slack(self) -> float:
        """‖P z‖₂ in float32 against exact, for two images rounded to float32: P is two products with banded matrices.

        Per pixel 2u for the image and 2(blur_size + 2)u for P (rounded entries, sums of blur_size terms, twice), times
        the largest value. Sounds have no P.
        """
        if self.x.dim() == 2:
            return 4 * UNIT * self.top * math.sqrt(self.x.numel()) * 1.01
        top = 1 + self.kernel.overshoot
        if isinstance(self.threat.transform, Tone) and not self.threat.quantized:
            top = self.top
        elif self.tones and not self.threat.quantized:
            tone, box, most = self._tops()[-1]
            top = max(1.0, most * tone.top(_extent(box)))
        pixels = self.x.shape[0] * int(self.preprocess.mask(*self.x.shape[1:]).sum())
        return 2 * (2 + 2 * (self.preprocess.blur_size + 2)) * UNIT * top * math.sqrt(pixels) * 1.01

    @cached_property
    def top(self) -> float:
        """≥ 1, and ≥ |T_γ x| for every γ if T is a tone, which is monotone in γ."""
        ends = self.x.new_tensor([self.threat.box.lower, self.threat.box.upper])
        return max(1.0, float(self.threat.transform(self.x, ends).abs().max()))


def _extent(box: Box) -> float:
    return max(map(abs, (*box.lower, *box.upper)))


def _images(scene: Scene, gamma: Tensor) -> Tensor:
    """T_γ x: [..., d] → [..., C, H, W]."""
    moved = scene.threat.transform(scene.x, gamma.reshape(-1, gamma.shape[-1]), scene.threat.interpolation)
    return moved.reshape(*gamma.shape[:-1], *scene.x.shape)


def _lattice(scene: Scene, nodes: Tensor) -> Tensor:
    """T_γ x at every combination of the nodes [J,S+1,d] of the axes: [J,S+1,…,S+1,C,H,W]. Each tone is applied to what
    the parts before it made once.
    """
    own = scene.first.dim
    sides = [nodes[..., a].reshape(-1, *(nodes.shape[1] if b == a else 1 for b in range(own))) for a in range(own)]
    gamma = torch.stack([side.expand(-1, *(nodes.shape[1],) * own) for side in sides], -1)
    value = scene.first(scene.x, gamma.reshape(-1, own), scene.threat.interpolation)
    value = value.reshape(*gamma.shape[:-1], *scene.x.shape)
    for place, (tone, _) in enumerate(scene.tones, own):
        amount = nodes[..., place].reshape(-1, *(1,) * place, nodes.shape[1], *(1,) * scene.x.dim())
        value = tone.value(amount, value.unsqueeze(place + 1))
    return value


def _nodes(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """The ends of the pieces of [lower, upper] [J,d]: [J, S+1, d], both outer ends exact."""
    share = lower.new_tensor(scene.shares)[:, None]
    nodes = lower[:, None] + (upper - lower)[:, None] * share
    nodes[:, -1] = upper
    return nodes


def _regions(scene: Scene, gamma: Tensor) -> Tensor:
    """Flat indices [J, H·W] of the regions that hold the source points of γ [J,d]."""
    transform, t, (places_y, places_x) = scene.first, scene.tables, scene.places
    assert isinstance(transform, SpatialTransform)
    y, x = transform.source([g[:, None] for g in gamma[:, : transform.dim].unbind(1)], places_y, places_x)
    return t.index((y + (t.height - 1) / 2).floor().long(), (x + (t.width - 1) / 2).floor().long())


def _doubt(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """A bound [J or 1, C, H, W] of |what is computed, by the attacker or here, − T_γ x| in the window, before q."""
    coordinates, values = scene.arithmetic
    doubt = (values + SLACK).expand(1, *scene.x.shape)
    if isinstance(scene.first, SpatialTransform):
        doubt = doubt + coordinates * scene.steepness_near((lower + upper) / 2)
    return doubt


def _remainder(scene: Scene, nodes: Tensor) -> Tensor:
    """How far T_γ x can be from the combination of corners on each piece: [J,S^d,C,H,W]."""
    rest = _first_remainder(scene, nodes[..., : scene.first.dim])
    count, place = nodes.shape[1] - 1, scene.first.dim
    for tone, _ in scene.tones:
        gain = tone.gain(nodes[:, -1, place : place + 1])[:, None, None, None, None]
        rest, place = (gain * rest).repeat_interleave(count, 1), place + 1
    return rest


def _first_remainder(scene: Scene, nodes: Tensor) -> Tensor:
    """The same of the first part alone, for its own parameters."""
    transform, shape = scene.first, scene.x.shape
    if isinstance(transform, Flow):
        low, high = nodes[:, :-1, 0], nodes[:, 1:, 0]
        rest = chord_remainder(scene.tables, transform, low.flatten(), high.flatten(), *scene.places)
        return rest.reshape(*low.shape, *shape)
    if isinstance(transform, Shift) and scene.tables.slopes.shape[1] > 3:  # else f_yy = f_xx = 0
        square = nodes.diff(dim=1).square()[..., None, None] / 8
        right, down = square[:, :, None, 0], square[:, None, :, 1]  # [J,a,1,1,1] and [J,1,b,1,1]
        curved = scene.tables.slopes[_regions(scene, (nodes[:, 0] + nodes[:, -1]) / 2)]  # [J, H·W, 5, C]
        f_yy, f_xx = (curved[:, None, None, :, i] for i in (3, 4))
        bent: Tensor = right * f_xx + down * f_yy  # [J,a,b,H·W,C]
        return bent.movedim(-1, -2).flatten(1, 2).reshape(len(nodes), -1, *shape)
    if isinstance(transform, Average):
        low, high = nodes[:, :-1, 0], nodes[:, 1:, 0]
        slope, bend = transform.bends(low, high)
        spread = scene.x.amax((1, 2)) - scene.x.amin((1, 2))  # no channel's values can lie farther apart
        sag = (high - low).square() / 8 * (bend + slope.square())
        return (sag[..., None] * spread)[..., None, None].expand(*low.shape, *shape)
    if isinstance(transform, Gradation):
        low, high = nodes[:, :-1, :, None, None], nodes[:, 1:, :, None, None]
        return (high - low).square() / 8 * transform.bends(low, high, scene.x)[1]
    return nodes.new_zeros(len(nodes), (nodes.shape[1] - 1) ** transform.dim, *shape)


def _pieces(scene: Scene, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """corner [J,S,K,C,H,W] and radius [J,S,C,H,W]: on piece s of window j, what is computed before q is a combination
    of the K corners, affine in each parameter, ± radius.
    """
    nodes, dim = _nodes(scene, lower, upper), lower.shape[1]
    count = nodes.shape[1] - 1
    value = _lattice(scene, nodes)
    starts = product((0, 1), repeat=dim)
    corners = [value[(slice(None), *(slice(a, count + a) for a in start))] for start in starts]
    corner = torch.stack(corners, dim + 1).flatten(1, dim)
    radius = _remainder(scene, nodes) + _doubt(scene, lower, upper)[:, None]
    return corner, radius.expand(len(lower), corner.shape[1], *scene.x.shape)


def _anchors(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """What a centre image is made of [J,K,C,H,W]: T at the middle of the window, or at its 2^d corners for levels."""
    if not scene.levels:
        return _images(scene, (lower + upper) / 2).unsqueeze(1)
    dim = lower.shape[1]
    top = torch.cartesian_prod(*[torch.arange(2, device=lower.device)] * dim).reshape(-1, dim) > 0
    return _images(scene, torch.where(top, upper[:, None], lower[:, None]))


def _middle(scene: Scene, anchors: Tensor) -> Tensor:
    """Centre images [J,C,H,W]: T at the middle, or halfway between the smallest and the largest level at the corners.

    An image that crosses N levels one after the other stays within √N/2 of that middle, in steps of 1/255. No centre
    does better: it is half of the distance between the ends. From q(T) at the middle it goes as far as √(N/2).
    """
    if scene.levels:
        anchors = scene.threat.transform.quantize(anchors)
    return (anchors.amin(1) + anchors.amax(1)) / 2


def center_images(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """The centre images z_j [J,C,H,W] of windows [J,d], float64."""
    return _middle(scene, _anchors(scene, lower, upper))


def _farthest(preprocess: Preprocess, corner: Tensor, radius: Tensor) -> Tensor:
    """sup ‖P v‖₂ [J] over all v = combination of the corners [J,S,K,C,H,W] ± radius [J,S,C,H,W].

    A norm is convex and the combination affine in each parameter: a corner decides. There, as P is symmetric with
    entries ≥ 0, ‖P(c + r)‖² ≤ ‖P c‖² + 2⟨|P P c|, |r|⟩ + ‖P |r|‖². Without P that is ‖|c| + |r|‖², which is attained.
    """
    if preprocess.is_identity:
        return (corner.abs() + radius.unsqueeze(2)).square().flatten(3).sum(-1).amax((1, 2)).sqrt()
    seen = preprocess(corner)
    cross = (preprocess(seen).abs() * radius.unsqueeze(2)).flatten(3).sum(-1)
    spread = preprocess(radius).square().flatten(2).sum(-1).unsqueeze(2)
    return (seen.square().flatten(3).sum(-1) + 2 * cross + spread).amax((1, 2)).sqrt()


def _distance(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """`distances` of a few windows, less the slack.

    z_j may come out one level higher or lower on another device where a corner is within SLACK of a threshold.
    """
    anchors = _anchors(scene, lower, upper)
    low, high = (_middle(scene, anchors + shift)[:, None] for shift in (-SLACK, SLACK))
    center, play = (low + high) / 2, (high - low) / 2 + SLACK
    corner, radius = _pieces(scene, lower, upper)
    if scene.threat.quantized:
        q = scene.threat.transform.quantize
        below, above = q(corner.amin(2) - radius), q(corner.amax(2) + radius)
        corner, radius = ((below + above) / 2).unsqueeze(2), (above - below) / 2
    return _farthest(scene.preprocess, corner - center.unsqueeze(2), radius + play)


def distances(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """E [J] ≥ ‖P x' − P z_j‖₂ for all x' that the attacker can hand over with γ in window j [J,d], P exact or float32.

    P is symmetric with entries ≥ 0 and sums of rows ≤ 1, so ‖P‖₂ ≤ 1: an ℓ2 part adds no more than its own norm, and
    what float32 makes of that, as in `float_slack`.
    Windows of one parameter are at most `Scene.widest`; windows of shifts have no integer inside.
    """
    if bool((upper[:, 0] - lower[:, 0] > 1.001 * scene.widest).any()):
        raise ValueError(f"a window is too wide: some pixel moves by more than {MOTION} pixels")
    line = lower.floor() + 1
    if isinstance(scene.first, Shift) and bool(((lower < line) & (line < upper))[:, :2].any()):
        raise ValueError("a window of shifts has an integer inside: cut it there")
    elements = 40 * scene.x.numel() * (len(scene.shares) - 1) ** lower.shape[1]
    room = max(1, (2**27 if scene.x.is_cuda else 2**22) // elements)
    parts = range(0, len(lower), room)
    bound = torch.cat([_distance(scene, lower[i : i + room], upper[i : i + room]) for i in parts])
    added = scene.threat.l2 * (1 + (4 + 2 * (scene.preprocess.blur_size + 2)) * UNIT)
    return bound * (1 + FLOAT_SLACK) + FLOAT_SLACK + scene.float_slack + added
