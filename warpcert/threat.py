"""What the attacker may do, and what their arithmetic is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, final

from torch import Tensor

from warpcert import transforms
from warpcert.transforms import Box, Flow, Steps, Tone, Transform, kernels

__all__ = ["Threat"]

LARGEST = 1e6  # ℓ2 norm
Range = float | tuple[float, ...]  # ±r, or (from, to) of one parameter, or one r per axis


@final
@dataclass(frozen=True)
class Threat:
    """The attacker picks γ ∈ Γ = `box` and hands over x' = q(T_γ x), or T_γ x itself when `quantized` is off.

    A product of parts is applied in their order, clipped and rounded once, at the end; `then` makes them.

    l2          what is added at last, after rounding: x' = q(T_γ x) + η for any η of this ℓ2 norm at most, in the norm
                of pictures with values in [0,1]
    tolerance   how far each pixel handed over may be, before rounding, from the exact T_γ x. None: 10⁻¹² for attackers
                who round; 10⁻⁷ for others: T in float64, handed over in float32, whose values below 1.6 err by less,
                and as many times more as brightness and contrast may lead beyond that. Only `exact` needs to be told,
                since the other methods bound float32 arithmetic themselves
    """

    transform: Transform
    box: Box
    interpolation: str = "bilinear"
    quantized: bool = True
    tolerance: float | None = None
    l2: float = 0.0

    def __post_init__(self) -> None:
        kernels.interpolating(self.interpolation)
        if self.box.dim != self.transform.dim:
            raise ValueError(
                f"Γ has {self.box.dim} dimension(s), but {self.transform.name} has {self.transform.dim} parameter(s)"
            )
        for part, own in self.transform.shared(self.box):
            if max(map(abs, (*own.lower, *own.upper))) > part.largest:
                raise ValueError(f"the range of a {part.noun} is too large to mean anything; got {part.place(own)}")
            if part.one_sided and min(own.lower) < 0:
                raise ValueError(f"the range of a {part.noun} begins at 0; got {part.place(own)}")
        if not self.box.contains((0.0,) * self.box.dim):
            raise ValueError(f"the range must contain 0 (the picture as it is); got {self.transform.place(self.box)}")
        if self.tolerance is not None and not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"a tolerance must be finite and ≥ 0; got {self.tolerance}")
        if not 0 <= self.l2 <= LARGEST:
            raise ValueError(f"the ℓ2 norm of a perturbation lies between 0 and {LARGEST:g}; got {self.l2:g}")

    @classmethod
    def made_of(cls, parts: Mapping[str, Range], **arithmetic: Any) -> Threat:
        """A product of parts by name, in the order in which they are applied; the last one may be l2."""
        first = next(iter(parts), "l2")
        if first == "l2":
            raise ValueError("a threat begins with a transformation, for instance rotation; l2 is what may follow it")
        made = cls.of(first, *_spread(parts[first]), **arithmetic)
        return made.then(**{name: given for name, given in parts.items() if name != first})

    def then(self, **parts: Range) -> Threat:
        """The same, followed by these parts in this order: rotation(30).then(brightness=0.2, l2=0.05)."""
        made = self
        for name, given in parts.items():
            made = made._then(name.replace("_", "-"), _spread(given))
        return made

    def _then(self, name: str, given: tuple[float, ...]) -> Threat:
        if self.l2:
            raise ValueError(f"the ℓ2 part comes last: put {name} before it")
        if name == "l2":
            if len(given) != 1 or not given[0] > 0:
                raise ValueError(f"the ℓ2 part is one norm > 0; got {given}")
            return replace(self, l2=given[0])
        part = transforms.get(name)
        own = part.box(*given)
        box = Box((*self.box.lower, *own.lower), (*self.box.upper, *own.upper))
        return replace(self, transform=transforms.product(self.transform, part), box=box)

    def __repr__(self) -> str:
        t = self.transform
        words = [self.interpolation] if t.interpolates else []
        words += ["rounded" if self.quantized else "not rounded"]
        words += [] if self.tolerance is None else [f"tolerance {self.tolerance:g}"]
        words += [f"then any change of ℓ2 norm {self.l2:g} or less"] if self.l2 else []
        return f"Threat({t.noun} within {t.span(self.box)}, {', '.join(words)})"

    @classmethod
    def of(cls, transform: str, *gamma: float, **arithmetic: Any) -> Threat:
        """By name, in surface units: of("rotation", 30) is ±30°, of("scaling", -10, 30) is ×0.9 to ×1.3."""
        t = transforms.get(transform)
        return cls(t, t.box(*gamma), **arithmetic)

    @classmethod
    def rotation(cls, degrees: Range, **arithmetic: Any) -> Threat:
        """Every rotation within ±degrees, or within (from, to), counter-clockwise."""
        return cls.of("rotation", *_spread(degrees), **arithmetic)

    @classmethod
    def translation(cls, pixels: Range, **arithmetic: Any) -> Threat:
        """Every shift by up to ±pixels along each axis, or (right, down)."""
        return cls.of("translation", *_spread(pixels), **arithmetic)

    @classmethod
    def scaling(cls, percent: Range, **arithmetic: Any) -> Threat:
        """Every change of size within ±percent, or within (from, to)."""
        return cls.of("scaling", *_spread(percent), **arithmetic)

    @classmethod
    def shear(cls, percent: Range, **arithmetic: Any) -> Threat:
        """Every horizontal shear within ±percent, or within (from, to): 10 moves rows that are 10 pixels apart by 1."""
        return cls.of("shear", *_spread(percent), **arithmetic)

    @classmethod
    def brightness(cls, shift: Range, **arithmetic: Any) -> Threat:
        """Every brightness change within ±shift, in shares of the range from black to white."""
        return cls.of("brightness", *_spread(shift), **arithmetic)

    @classmethod
    def contrast(cls, share: Range, **arithmetic: Any) -> Threat:
        """Every contrast change within ±share, or within (from, to): 0.4 is every factor from 0.6 to 1/0.6."""
        return cls.of("contrast", *_spread(share), **arithmetic)

    @classmethod
    def power(cls, g: Range, **arithmetic: Any) -> Threat:
        """Every gamma correction x ↦ x^(e^g) with g within ±g, or within (from, to). Positive g darkens."""
        return cls.of("power", *_spread(g), **arithmetic)

    @classmethod
    def shifts(cls, pixels: float, border: str = "black", **arithmetic: Any) -> Threat:
        """Every shift by whole pixels of Euclidean length up to `pixels`; what comes in is black, or reflected."""
        names = {"black": "shifts", "reflected": "reflected-shifts"}
        if border not in names:
            raise ValueError(f"the border is {' or '.join(names)}; got {border!r}")
        return cls.of(names[border], pixels, **arithmetic)

    @classmethod
    def blur(cls, variance: float, **arithmetic: Any) -> Threat:
        """Every Gaussian blur of a variance up to this, in px²; beyond the frame lies the picture's reflection."""
        return cls.of("blur", variance, **arithmetic)

    @classmethod
    def volume(cls, decibels: Range, **arithmetic: Any) -> Threat:
        """Every change of volume within ±decibels, of a sound."""
        return cls.of("volume", *_spread(decibels), **arithmetic)

    @property
    def off_by(self) -> float:
        """The tolerance in force."""
        if self.tolerance is not None:
            return self.tolerance
        if self.after_shifts is None:
            return 0.0
        return 1e-12 if self.quantized else 1e-7 * max(1.0, self._most / 1.6)

    @property
    def _most(self) -> float:
        """≥ |x'| of an attacker who neither clips nor rounds."""
        most = 1.0 + kernels.kernel(self.interpolation).overshoot * self.transform.interpolates
        for part, own in self.transform.shared(self.box):
            if isinstance(part, Tone):
                most = max(1.0, most * part.top(max(map(abs, (*own.lower, *own.upper)))))
        return most

    @property
    def after_shifts(self) -> Threat | None:
        """What follows, if it begins with shifts by whole pixels, which only copy pixels; None if nothing does."""
        (first, _), *others = self.transform.shared(self.box)
        if not isinstance(first, Steps):
            return self
        if not others:
            return None
        box = Box(*(tuple(v for _, own in others for v in getattr(own, end)) for end in ("lower", "upper")))
        return replace(self, transform=transforms.product(*(part for part, _ in others)), box=box)

    @property
    def floats(self) -> tuple[str, ...]:
        """The floating-point types in which `attacked` stays within the tolerance, so far as that is known: of tones,
        and of bilinear flows that one scalar leads, rounded to 8 bits, from an 8-bit picture (under flows a small one).
        """
        rest = self.after_shifts
        if not self.quantized or rest is None or not isinstance(rest.transform, Flow | Tone):
            return ()
        if rest.transform.interpolates and self.interpolation != "bilinear":
            return ()
        return rest.transform.follows(self.off_by, max(map(abs, (*rest.box.lower, *rest.box.upper))))

    def legal(self, gamma: Tensor) -> Tensor:
        """Parameters [B,d] that the attacker can choose, each near the one given in Γ."""
        return self.transform.legal(gamma, self.box)

    def attacked(self, x: Tensor, gamma: Tensor) -> Tensor:
        """x' for parameters [B,d]: [C,...] or [B,C,...] → [B,C,...]."""
        moved = self.transform(x, gamma, self.interpolation)
        return self.transform.quantize(moved) if self.quantized else moved

    def within(self, box: Box, inward: bool = False) -> str:
        """The part of it in which γ ∈ `box`, for people: all parts, in their order."""
        said = self.transform.within(box, inward)
        return f"{said}, then any change of ℓ2 norm up to {self.l2:g}" if self.l2 else said

    def in_words(self) -> dict[str, str]:
        """Its settings, for people."""
        words = {
            "the transformation": self.transform.name,
            "the range": self.transform.span(self.box),
            "the attacker's interpolation": self.interpolation,
            "the attacker's 8-bit rounding": "on" if self.quantized else "off",
        }
        words |= {} if self.tolerance is None else {"the attacker's tolerance": f"{self.tolerance:g}"}
        return words | ({"the ℓ2 norm added": f"{self.l2:g}"} if self.l2 else {})

    def to_dict(self) -> dict[str, Any]:
        d = asdict(self) | {"transform": self.transform.name}
        if self.tolerance is None:
            del d["tolerance"]
        if not self.l2:
            del d["l2"]
        return d

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Threat:
        if unknown := set(d) - {f.name for f in fields(cls)}:
            raise ValueError(f"a threat has no {', '.join(sorted(unknown))}: was it written by a later version?")
        box = Box(tuple(d["box"]["lower"]), tuple(d["box"]["upper"]))
        if "l2" in d and not d["l2"]:
            raise ValueError("a threat without an ℓ2 part does not name its norm")
        transform, told = transforms.get(d["transform"]), (d.get("tolerance"), d.get("l2", 0.0))
        return cls(transform, box, d["interpolation"], d["quantized"], *told)


def _spread(given: Range) -> tuple[float, ...]:
    return tuple(given) if isinstance(given, tuple | list) else (given,)
