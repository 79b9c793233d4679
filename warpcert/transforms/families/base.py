"""What a transformation is: maps T_γ with T_β∘T_γ = T_{β+γ}, written once, as a coordinate map or as a value map.

Proofs are about families, not about names. A transformation joins one by inheriting from it, states its numbers, and is
then known to every method: `Flow` (a matrix), `Shift`, `Tone` (a pivot). One that writes its own `source` or `value`
belongs to no family; it can be applied, attacked and sampled, and what needs a proof says that none is known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.numerics.interval import Interval
from warpcert.transforms import grid, kernels

__all__ = ["PointwiseTransform", "SpatialTransform", "Transform"]


class Transform(ABC):
    """A parametrised transformation. Leaves are final and stateless; equality is by type.

    Units: `internal` turns what a person writes (degrees, pixels, per cent, dB) into the additive parameter γ;
    `surface` goes back. Both are increasing and keep 0.
    """

    name: ClassVar[str]
    dim: ClassVar[int] = 1
    unit: ClassVar[str]  # of the surface
    unit_name: ClassVar[str]  # the same as a word
    interpolates: ClassVar[bool] = False  # whether it reads between pixels
    noun: ClassVar[str]  # as in "every rotation up to ±30°"
    composition: ClassVar[str]  # the law T_β∘T_γ = T_{β+γ}, in words
    natural_vignette: ClassVar[str]  # what hides the content that T pushes out of the frame
    item_dims: ClassVar[int] = 3  # of one x: [C,H,W], or [C,L] for sound
    signed: ClassVar[bool] = True  # whether what is said of a positive value carries no sign of its own
    dial: ClassVar[bool] = False  # whether its range is drawn as an arc around the picture, counter-clockwise
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    step: ClassVar[float] = 1 / 255  # between neighbouring values of what the attacker hands over
    largest: ClassVar[float] = 1e6  # |γ|: ranges beyond it mean nothing, and floating point does not hold them
    one_sided: ClassVar[bool] = False  # whether γ < 0 makes no sense: then no noise over γ does
    disc: ClassVar[bool] = False  # whether a box ±r stands for the disc of radius r in it
    no_error_bound: ClassVar[str] = ""  # why what q does between two of them has no proved bound, if that is so

    @abstractmethod
    def __call__(self, x: Tensor, gamma: Tensor, interpolation: str = "bilinear") -> Tensor:
        """T_γ x for gamma [B,d]: one x [C,...] for all parameters, or a batch x [B,C,...] with one parameter each →
        [B,C,...].
        """

    def unknown(self, what: str) -> ValueError:
        """To raise where a proof is asked for that this transformation's family does not have."""
        return ValueError(f"{what} for {self.name}: declare it as a Flow, a Shift or a Tone, whose bounds are proved")

    def internal(self, surface: float) -> float:
        return surface

    def surface(self, internal: float) -> float:
        return internal

    @property
    def parts(self) -> tuple[Transform, ...]:
        """What it is made of, in the order in which it is applied: itself, unless it is a product."""
        return (self,)

    def legal(self, gamma: Tensor, box: Box) -> Tensor:
        """Parameters [B,d] of the box, each near the one given, that the attacker can choose: all of them, usually."""
        return gamma

    @property
    @final
    def axes(self) -> tuple[Transform, ...]:
        """For each parameter the part that it belongs to, which knows its unit."""
        return tuple(part for part in self.parts for _ in range(part.dim))

    def enlarges(self, box: Box) -> float:
        """≥ ‖T_γ z − T_γ w‖₂ / ‖z − w‖₂ for γ in the box, if T is affine; bilinear, if it interpolates."""
        raise self.unknown("no bound of its norm is known")

    @final
    def shared(self, box: Box) -> list[tuple[Transform, Box]]:
        """Each part with its own parameters' box."""
        found, first = [], 0
        for part in self.parts:
            last = first + part.dim
            found.append((part, Box(box.lower[first:last], box.upper[first:last])))
            first = last
        return found

    @final
    def holds(self, gamma: Sequence[float], box: Box) -> bool:
        """Whether γ is in the set for which the box stands."""
        if len(gamma) != self.dim:
            return False
        first, inside = 0, True
        for part, own in self.shared(box):
            values = gamma[first : first + part.dim]
            inside &= math.hypot(*values) <= own.upper[0] if part.disc else own.contains(values)
            first += part.dim
        return inside

    @final
    def to_internal(self, surface: Sequence[float]) -> tuple[float, ...]:
        """A point in surface units as γ."""
        return tuple(axis.internal(v) for axis, v in zip(self.axes, surface, strict=True))

    @final
    def to_surface(self, gamma: Sequence[float]) -> list[float]:
        """γ in surface units."""
        return [axis.surface(v) for axis, v in zip(self.axes, gamma, strict=True)]

    def box(self, *surface: float) -> Box:
        """The box of surface units: box(30) is ±30 on every axis, box(-10, 30) one asymmetric axis, box(2, 3) is ±2 ×
        ±3 for d = 2.
        """
        if len(surface) == 2 and self.dim == 1 and surface[0] <= surface[1]:
            return Box((self.internal(surface[0]),), (self.internal(surface[1]),))
        if len(surface) == 1:
            surface = surface * self.dim
        if len(surface) != self.dim or any(not math.isfinite(v) or v < 0 for v in surface):
            wanted = "a number r ≥ 0 (for ±r) or both ends" if self.dim == 1 else f"1 or {self.dim} numbers ≥ 0"
            unit = self.unit_name if self.unit_name.startswith("of ") else f"in {self.unit_name}"
            raise ValueError(f"the range of a {self.noun} is {wanted}, {unit}; got {surface}")
        return Box(tuple(self.internal(-v) for v in surface), tuple(self.internal(v) for v in surface))

    @final
    def quantize(self, z: Tensor) -> Tensor:
        """q: clamps to the legal range and rounds to its steps (8-bit images, 16-bit sound)."""
        levels = round(1 / self.step)
        return (z.clamp(self.low, self.high) * levels).round_().div_(levels)

    @final
    def to_text(self, internal: float, inward: bool = False) -> str:
        """An internal value in surface units, for people: four digits, the nearest or (inward) the next towards 0."""
        value = self.surface(internal) + 0.0  # no −0
        if inward and value:
            scale = 10.0 ** (3 - math.floor(math.log10(abs(value))))
            value = math.trunc(value * scale * (1 - 1e-12)) / scale
        return self.said(value)

    def said(self, surface: float) -> str:
        """A value in surface units, for people."""
        return f"{surface:.4g}{'' if self.unit in '°%' else ' '}{self.unit}"

    @final
    def at(self, gamma: Sequence[float]) -> str:
        """γ in surface units, for people: 3.22°, 0.1 px × 0.9 px."""
        return " × ".join(axis.to_text(v) for axis, v in zip(self.axes, gamma, strict=True))

    @final
    def span(self, box: Box, inward: bool = False) -> str:
        """A box in surface units, for people: ±30°, −20% … +30%, ±2 px × ±2 px; what is said lies inside, if inward."""
        if self.disc:
            return f"a radius of {self.to_text(box.upper[0], inward)}"
        if len(self.parts) > 1:
            return " × ".join(part.span(own, inward) for part, own in self.shared(box))
        axes = []
        for axis, lo, hi in zip(self.axes, box.lower, box.upper, strict=True):
            low, high = axis.to_text(lo, inward), axis.to_text(hi, inward)
            alike = axis.signed and low in (f"-{high}", high)
            axes.append(f"±{high}" if alike else f"{low} … {'+' if axis.signed else ''}{high}")
        return " × ".join(axes)

    @final
    def within(self, box: Box, inward: bool = False) -> str:
        """A box with what it is the range of, for people: rotation within ±30°, then brightness change within ±0.2."""
        return ", then ".join(f"{part.noun} within {part.span(own, inward)}" for part, own in self.shared(box))

    @final
    def place(self, box: Box) -> str:
        """A box in surface units by its ends, for people: 3.22° … 3.34°, 0 px … 0.1 px × 0.9 px … 1 px."""
        ends = zip(self.axes, box.lower, box.upper, strict=True)
        return " × ".join(f"{axis.to_text(low)} … {axis.to_text(high)}" for axis, low, high in ends)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @final
    def _check(self, x: Tensor, gamma: Tensor) -> None:
        dims = self.item_dims
        if gamma.dim() != 2 or gamma.shape[1] != self.dim:
            raise ValueError(f"{self.name} takes parameters of shape [B, {self.dim}]; got {list(gamma.shape)}")
        if x.dim() not in (dims, dims + 1):
            raise ValueError(
                f"{self.name} takes x with {dims} dimensions, or {dims + 1} for a batch; got {list(x.shape)}"
            )
        if x.dim() == dims + 1 and x.shape[0] != gamma.shape[0]:
            raise ValueError(f"a batch of {x.shape[0]} needs as many parameters; got {gamma.shape[0]}")


class SpatialTransform(Transform):
    """Moves pixels: the value at p is the image's at the point `source(γ, p)` = T_γ^{-1}(p), interpolated."""

    interpolates: ClassVar[bool] = True

    @abstractmethod
    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        """T_γ^{-1}(y, x) in centred coordinates, written in +, −, ·, sin(), cos(), sinh(), cosh() and exp(), so that
        tensors and intervals both pass.
        """

    def reach(self, radius: Tensor, extent: float) -> Tensor:
        """≥ |source(γ, p)| for |p| = radius and |γ| ≤ extent."""
        raise self.unknown("no bound of the source points is known")

    def crowding(self, extent: float) -> float:
        """≥ 1: |source(γ, p) − source(γ, p')| is at least |p − p'| divided by this, for |γ| ≤ extent."""
        raise self.unknown("no bound of the source points is known")

    def rounding(self, radius: Tensor, extent: float) -> Tensor:
        """How far `source(γ, p)` in float32 is from the exact one at most, in units of u = 2^-24, for |p| = radius and
        |γ| ≤ extent.

        Assumed of the library: correctly rounded +, −, ·; sin, cos, exp within 2 units in the last place, sinh and cosh
        within 3 (torch on CPU and, without fast math, on CUDA). Products of two errors are left out: whoever uses this
        adds 1 %.
        """
        raise self.unknown("no rounding analysis is known")

    @final
    def coordinates(self, gamma: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """The source points (y, x), each [B,H,W], in the dtype and on the device of gamma."""
        source_y, source_x = self.source([g[:, None, None] for g in gamma.unbind(1)], *grid.axes(height, width, gamma))
        shape = (gamma.shape[0], height, width)
        return source_y.expand(shape), source_x.expand(shape)

    @final
    def enclosed(self, low: Tensor, high: Tensor, height: int, width: int) -> tuple[Interval, Interval]:
        """Enclosures (y, x) [m,H,W] of the source points for γ in the boxes [low, high] [m,d]: interval arithmetic."""
        ends = zip(low.unbind(1), high.unbind(1), strict=True)
        gamma = [Interval(a[:, None, None], b[:, None, None]) for a, b in ends]
        y, x = self.source(gamma, *grid.axes(height, width, low))
        shape = (low.shape[0], height, width)
        return y.expand(shape), x.expand(shape)

    @final
    def __call__(self, x: Tensor, gamma: Tensor, interpolation: str = "bilinear") -> Tensor:
        self._check(x, gamma)
        source_y, source_x = self.coordinates(gamma.to(grid.precision(x)), *x.shape[-2:])
        # In float64 operation by operation: what this hands over is the same on every processor, but for e^γ.
        interpolate = kernels.gather if x.dtype == torch.float64 else kernels.sample
        return interpolate(x, source_y, source_x, kernels.kernel(interpolation))

    @final
    def matrix(self, gamma: Sequence[float], height: int, width: int, interpolation: str = "bilinear") -> Tensor:
        """T_γ as a sparse matrix [H·W, H·W] (coalesced COO, float64): matrix @ x.flatten() = T_γ x."""
        point = torch.tensor([list(gamma)], dtype=torch.float64)
        source_y, source_x = self.coordinates(point, height, width)
        index, weight = kernels.taps(source_y[0], source_x[0], height, width, kernels.kernel(interpolation))
        row = torch.arange(height * width).repeat_interleave(index.shape[-1])
        entries = torch.stack((row, index.flatten()))
        keep = weight.flatten() != 0
        size = (height * width, height * width)
        values = weight.flatten()[keep]
        return torch.sparse_coo_tensor(entries[:, keep], values, size, check_invariants=True).coalesce()


class PointwiseTransform(Transform):
    """Changes values, not places: composes exactly until the attacker clips and rounds. `interpolation` is ignored."""

    natural_vignette: ClassVar[str] = "none"

    def top(self, extent: float) -> float:
        """≥ |value(γ, x)| for x in [−1,1] and |γ| ≤ extent."""
        raise self.unknown("no bound of the values is known")

    def rounding(self, x: Tensor, extent: float) -> Tensor:
        """How far `value(γ, x)` in float32 is from the exact one at most, in units of u = 2^-24, value by value, for
        |γ| ≤ extent. Assumptions as for `SpatialTransform.rounding`.
        """
        raise self.unknown("no rounding analysis is known")

    def allowance(self, extent: float) -> float:
        """`rounding` for all x in [−1,1] at once."""
        raise self.unknown("no rounding analysis is known")

    @abstractmethod
    def value(self, gamma: Any, x: Any) -> Any:
        """The new value of x under γ, written so that tensors and intervals both pass."""

    @final
    def __call__(self, x: Tensor, gamma: Tensor, interpolation: str = "bilinear") -> Tensor:
        self._check(x, gamma)
        moved: Tensor = self.value(gamma.to(x).reshape(-1, *(1,) * self.item_dims), x)
        return moved
