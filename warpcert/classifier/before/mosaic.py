"""One colour per pixel: a classifier that sees a mosaic, as the sensor of a camera does, inside a circle.

The picture is read at some places only: of each pixel one colour (or all of them), and of pixels outside the largest
circle that fits none. What is read is rounded to levels of w, as by `Levels`; all else is unknown to the classifier. So
every number that it sees is made of one value of the picture, and everything that holds for levels of pixels holds for
these: it does not see whether the attacker rounds, and one proof serves both. There are 3.8 times fewer numbers than
values, and those that a turn moves farthest, in the corners, are not among them.

The network is shown a colour picture again, of the first size: what was read where it was read, elsewhere the mean of
what was read of that colour in the 3×3 pixels around, with weights (1 2 1)ᵀ(1 2 1), and 0 outside the circle. It
depends on the levels alone, so no proof asks how it is made.

Arithmetic. Sums of at most sixteen times 255 are exact in int16, and one division in float32 makes each value: the
picture is the same on every machine. Where a value was read, it is that of `Levels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from warpcert.classifier.before.rounding import check_step, level, shown

__all__ = ["Mosaic", "Mosaicked"]

_COLOURS = ("bayer", "all")
_BAYER = ((0, 1), (1, 2))  # red and green, green and blue


@final
@dataclass(frozen=True)
class Mosaic:
    """Which values of a picture a classifier reads.

    colours  bayer: of each pixel one, red, green or blue as in squares of 2×2 of most cameras; all: all of them. Grey
             pictures have only one
    circle   nothing outside the largest circle around the middle
    """

    colours: str = "bayer"
    circle: bool = True

    def __post_init__(self) -> None:
        if self.colours not in _COLOURS:
            raise ValueError(f"a mosaic reads the colours {' or '.join(_COLOURS)}; got {self.colours!r}")

    def in_words(self, step: int) -> str:
        """What the classifier sees, with levels of `step`, in words that follow "behind"."""
        read = "one colour per pixel" if self.colours == "bayer" else "all pixels"
        return f"levels of {step} of {read}{' inside a circle' if self.circle else ''}"

    def read(self, shape: tuple[int, ...]) -> Tensor:
        """Where a picture of this shape [C,H,W] is read, bool [C,H,W]."""
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise ValueError(f"a mosaic is for grey or colour pictures [1 or 3,H,W]; got {list(shape)}")
        _, height, width = shape
        y, x = torch.arange(height)[:, None], torch.arange(width)
        inside = torch.ones(height, width, dtype=torch.bool)
        if self.circle:  # twice the distances from the middle: whole numbers
            inside = (2 * y - height + 1) ** 2 + (2 * x - width + 1) ** 2 <= min(height, width) ** 2
        if shape[0] == 1 or self.colours == "all":
            return inside.expand(shape).clone()
        colour = torch.tensor(_BAYER)[y % 2, x % 2]
        return inside & (colour == torch.arange(3)[:, None, None])


class _Places(NamedTuple):
    """For pictures of one shape on one device."""

    read: Tensor  # int64 [L]: index into x.flatten()
    known: Tensor  # bool [C,H,W]
    share: Tensor  # float32 [C,H,W]: 255 times the weights in a mean; 255 where it was read


_USUAL = Mosaic()


@lru_cache(maxsize=16)
def _places(mosaic: Mosaic, shape: tuple[int, ...], device: torch.device) -> _Places:
    known = mosaic.read(shape)
    read = known.flatten().nonzero()[:, 0]
    weights = _around(known[None].short())[0] * known.any(0)
    share = torch.where(known, 255, 255 * weights.clamp_min(1)).float()
    return _Places(*(t.to(device) for t in (read, known, share)))


def _around(z: Tensor) -> Tensor:
    """Sums over 3×3 with weights (1 2 1)ᵀ(1 2 1), int16 [B,C,H,W]."""
    wide = pad(z, (1, 1, 1, 1))
    tall = wide[..., :-2] + wide[..., 2:] + 2 * wide[..., 1:-1]
    return tall[..., :-2, :] + tall[..., 2:, :] + 2 * tall[..., 1:-1, :]


@final
class Mosaicked(nn.Module):
    """Pictures [B,C,H,W] in [0, 1] → what a network behind `Mosaic` sees of them, float32; without gradient."""

    def __init__(self, step: int = 32, mosaic: Mosaic = _USUAL) -> None:
        super().__init__()
        self.step, self.mosaic = check_step(step), mosaic

    def places(self, like: Tensor, shape: tuple[int, ...]) -> _Places:
        return _places(self.mosaic, shape, like.device)

    def levels(self, z: Tensor) -> Tensor:
        """Of all that is read of [B,C,H,W], uint8 [B,L]."""
        return level(z.flatten(1)[:, self.places(z, tuple(z.shape[1:])).read], self.step)

    def picture(self, levels: Tensor, shape: tuple[int, ...]) -> Tensor:
        """[B,L] → [B,C,H,W] in [0, 1], float32, for pictures of this shape [C,H,W]."""
        places = self.places(levels, shape)
        value = levels.new_zeros(len(levels), places.known.numel(), dtype=torch.int16)
        value[:, places.read] = shown(levels, self.step).short()
        value = value.view(-1, *shape)
        near = _around(value) * places.known.any(0)
        return torch.where(places.known, value, near).float().div_(places.share)

    @torch.no_grad()
    def forward(self, batch: Tensor) -> Tensor:
        return self.picture(self.levels(batch), tuple(batch.shape[1:]))
