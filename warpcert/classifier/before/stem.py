"""Levels behind a linear stem: a classifier that sees means of pixels, rounded to few levels. There are far fewer of
them than pixels, and they vary less, so exhaustive verification has far fewer images to ask about.

A takes means: of a grey picture over luma × luma pixels; of a colour picture luma (R + 2G + B)/4 over luma × luma, and
R − B and G − (R + B)/2 over chroma × chroma. Q rounds each to multiples of its own step w. The network sees these as a
picture again, of the first size. With N the common denominator of a mean, S = N·255·mean is an integer for 8-bit
pictures. Its level is k = ⌊(⌊S + ½⌋ + Nw/2)/(Nw)⌋, so the thresholds S = N(wk + w/2) − ½ lie halfway between such
integers (Nw is even). For one pixel and N = 1 these are the levels of `Levels`.

Arithmetic. Q∘A of an 8-bit picture is computed exactly, also where it came as float32: S is off by less than 0.01 then.
What the network sees is exact in float32, before the last division by 255: multiples of 2⁻¹⁰ below 2⁹. So it is the
same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from warpcert.classifier.before.rounding import check_step, highest

__all__ = ["Plane", "Stem", "Stemmed"]

_SIDES = (1, 2, 4, 8, 16)
_ENLARGE = ("bilinear", "nearest")


class Plane(NamedTuple):
    """One kind of means: Σ weights·v / (whole·side²) of side × side pixels v = (R, G, B), levels of `step` apart."""

    weights: tuple[int, ...]
    whole: int
    side: int
    step: int
    zero: int  # the level of 0, so that none is negative

    @property
    def top(self) -> int:
        return self.zero + highest(self.step)

    @property
    def offset(self) -> float:
        """A threshold k + ½ is met by mean/step + zero + offset, in 8-bit values."""
        denominator = self.whole * self.side**2 * self.step
        return 0.5 / denominator if denominator > 1 else 0.0

    @property
    def gain(self) -> float:
        """By how much a mean changes, if no pixel changes by more than 1."""
        return sum(map(abs, self.weights)) / self.whole

    def cells(self, height: int, width: int) -> int:
        return (height // self.side) * (width // self.side)

    def means(self, value: Tensor) -> Tensor:
        """[B,C,H,W] → [B, H/side, W/side], in float64: sums of integers below 2⁵³ are exact."""
        mixed = torch.stack([w * value[:, c] for c, w in enumerate(self.weights) if w]).sum(0)
        height, width = (n // self.side for n in value.shape[2:])
        blocks = mixed.reshape(len(value), height, self.side, width, self.side)
        return blocks.sum((2, 4)) / (self.whole * self.side**2)  # powers of two

    def levels(self, value: Tensor) -> Tensor:
        k = (self.means(value) / self.step + (self.offset + 0.5)).floor_() + self.zero
        return k.clamp_(0, self.top).to(torch.uint8)

    def shown(self, level: Tensor) -> Tensor:
        """8-bit values of levels, float32."""
        return ((level.float() - self.zero) * self.step).clamp_(-255, 255)


@final
@dataclass(frozen=True)
class Stem:
    """Which means a classifier sees.

    luma         side of the squares over which brightness is averaged: 1, 2, 4, 8 or 16 pixels
    chroma       the same for colour
    chroma_step  between levels of colour; None: that of the brightness
    enlarge      how means become a picture again: bilinear or nearest
    rounds       pixels are rounded to 8 bits first. Then it does not matter whether the attacker rounds, and one proof
                 holds against both. Otherwise who does not round is a cheaper case, with a proof of its own
    """

    luma: int = 2
    chroma: int = 4
    chroma_step: int | None = None
    enlarge: str = "bilinear"
    rounds: bool = True

    def __post_init__(self) -> None:
        for name in ("luma", "chroma"):
            if (side := getattr(self, name)) not in _SIDES:
                raise ValueError(f"a stem averages over squares of 1, 2, 4, 8 or 16 pixels; got {name} = {side}")
            object.__setattr__(self, name, int(side))
        if self.chroma_step is not None and check_step(self.chroma_step) < 4:
            raise ValueError(f"levels of colour are 4, 8, 16, 32 or 64 apart; got {self.chroma_step}")
        if self.chroma_step is not None:
            object.__setattr__(self, "chroma_step", int(self.chroma_step))
        object.__setattr__(self, "rounds", bool(self.rounds))
        if self.enlarge not in _ENLARGE:
            raise ValueError(f"means are enlarged {' or '.join(_ENLARGE)}; got {self.enlarge!r}")

    def in_words(self, step: int) -> str:
        """What the classifier sees, with levels of `step`, in words that follow "behind"."""
        colour = max(4, self.chroma_step or step)
        shares = f"{self.luma}×{self.luma} means (colour {self.chroma}×{self.chroma})"
        first = " of pixels rounded to 8 bits" if self.rounds else ""
        return f"levels of {step} (colour {colour}) of {shares}{first}"

    def planes(self, step: int, shape: tuple[int, ...]) -> tuple[Plane, ...]:
        """Of pictures of this shape [C,H,W]."""
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise ValueError(f"a stem is for grey or colour pictures [1 or 3,H,W]; got {list(shape)}")
        sides = (self.luma, self.chroma) if shape[0] == 3 else (self.luma,)
        if any(n % side for n in shape[1:] for side in sides):
            raise ValueError(f"squares of {' and '.join(map(str, sides))} pixels do not fill {shape[1]}×{shape[2]}")
        if shape[0] == 1:
            return (Plane((1,), 1, self.luma, step, 0),)
        other = max(4, self.chroma_step or step)
        zero = highest(other)
        return (
            Plane((1, 2, 1), 4, self.luma, step, 0),
            Plane((1, 0, -1), 1, self.chroma, other, zero),
            Plane((-1, 2, -1), 2, self.chroma, other, zero),
        )


_USUAL = Stem()


@final
class Stemmed(nn.Module):
    """Pictures [B,C,H,W] in [0, 1] → what a network behind `Stem` sees of them, float32 [B,C,H,W]; without gradient."""

    def __init__(self, step: int = 32, stem: Stem = _USUAL) -> None:
        super().__init__()
        self.step, self.stem = check_step(step), stem

    def levels(self, z: Tensor) -> Tensor:
        """All levels of [B,C,H,W], uint8 [B,L]: plane after plane, row by row."""
        value = 255 * z.double()
        if self.stem.rounds:
            value = value.add_(0.5).floor_().clamp_(0, 255)
        planes = self.stem.planes(self.step, tuple(z.shape[1:]))
        return torch.cat([plane.levels(value).flatten(1) for plane in planes], 1)

    def picture(self, levels: Tensor, shape: tuple[int, ...]) -> Tensor:
        """[B,L] → [B,C,H,W] in [0, 1], float32, for pictures of this shape [C,H,W]."""
        planes = self.stem.planes(self.step, shape)
        ends = list(accumulate(plane.cells(*shape[1:]) for plane in planes))
        parts = [levels[:, a:b] for a, b in zip((0, *ends), ends, strict=False)]
        large = [self._enlarged(p, part, shape) for p, part in zip(planes, parts, strict=True)]
        full = levels.new_full((), 255, dtype=torch.float32)  # a tensor: a GPU multiplies by the reciprocal of a number
        if len(planes) == 1:
            return large[0] / full
        luma, red_blue, green = large[0], large[1] / 2, large[2] / 2
        rest = luma - green
        return torch.cat((rest + red_blue, luma + green, rest - red_blue), 1).clamp_(0, 255).div_(full)

    def _enlarged(self, plane: Plane, levels: Tensor, shape: tuple[int, ...]) -> Tensor:
        small = plane.shown(levels).view(-1, 1, shape[1] // plane.side, shape[2] // plane.side)
        if plane.side == 1:
            return small
        if self.stem.enlarge == "nearest":
            return interpolate(small, scale_factor=plane.side, mode="nearest")
        return interpolate(small, scale_factor=plane.side, mode="bilinear", align_corners=False)

    @torch.no_grad()
    def forward(self, batch: Tensor) -> Tensor:
        return self.picture(self.levels(batch), tuple(batch.shape[1:]))
