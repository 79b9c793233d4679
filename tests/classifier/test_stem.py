"""The stem in front of a network: what it sees of a picture, by hand and by brute force."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from warpcert.classifier.before.rounding import coarsened
from warpcert.classifier.before.stem import Stem, Stemmed


def picture(seed: int, shape: tuple[int, ...] = (2, 3, 16, 16)) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))


def by_hand(v: Tensor, step: int, stem: Stem) -> list[int]:
    """The levels of one 8-bit picture, in fractions: the mean's nearest multiple of the step, ties upwards."""
    red, green, blue = v.tolist()
    colours = [(stem.luma, step, 0, lambda r, g, b: Fraction(r + 2 * g + b, 4))]
    other = stem.chroma_step or step
    for mix in (lambda r, g, b: Fraction(r - b), lambda r, g, b: g - Fraction(r + b, 2)):
        colours.append((stem.chroma, other, (255 + other // 2) // other, mix))
    out = []
    for side, w, zero, mix in colours:
        for y in range(0, v.shape[1], side):
            for x in range(0, v.shape[2], side):
                places = [(i, j) for i in range(y, y + side) for j in range(x, x + side)]
                mean = sum(mix(red[i][j], green[i][j], blue[i][j]) for i, j in places) / side**2
                out.append((mean + Fraction(w, 2)) // w + zero)
    return out


@pytest.mark.parametrize("stem", [Stem(), Stem(1, 4, 16), Stem(4, 8, 64, rounds=False), Stem(2, 2, 4)])
@pytest.mark.parametrize("step", [2, 16, 32])
def test_levels_of_8_bit_pictures_are_exact(stem: Stem, step: int) -> None:
    if stem.chroma_step is None and step < 4:
        stem = Stem(stem.luma, stem.chroma, 8)
    v = picture(step)
    v[1] = v[1] // 16 * 16  # means on thresholds, which are half a lattice step away in truth
    wanted = [by_hand(each, step, stem) for each in v]
    for dtype in (torch.float32, torch.float64):
        assert Stemmed(step, stem).levels(v.to(dtype) / 255).tolist() == wanted


@pytest.mark.parametrize("enlarge", ["bilinear", "nearest"])
def test_grey_and_constant_pictures_are_shown_as_they_are(enlarge: str) -> None:
    front = Stemmed(32, Stem(2, 4, 16, enlarge))
    for colour in ((0, 0, 0), (64, 64, 64), (255, 255, 255), (96, 64, 96), (160, 128, 128)):
        flat = torch.tensor(colour).view(1, 3, 1, 1).expand(1, 3, 8, 8) / 255
        near = 255 * front(flat)
        assert near.shape == flat.shape and (near - near.mean((2, 3), keepdim=True)).abs().max() < 1e-4
        assert (near - 255 * flat).abs().max() <= 16 + 8 + 4
    assert (255 * front(torch.full((1, 3, 8, 8), 96 / 255))).unique().tolist() == [96]


def test_one_pixel_is_the_usual_level() -> None:
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Stemmed(16, Stem(1, 1))(x), coarsened(x, 16))


def test_what_the_network_sees_is_exact_in_float32() -> None:
    """The same in float64, rounded once."""
    front, shape = Stemmed(16, Stem(2, 16, 4)), (3, 32, 32)
    levels = front.levels(picture(3, (1, *shape)) / 255)
    parts = zip(front.stem.planes(16, shape), levels.split([256, 4, 4], 1), strict=True)
    small = [(plane, plane.shown(k).double().view(1, 1, 32 // plane.side, -1)) for plane, k in parts]
    luma, red_blue, green = (interpolate(t, scale_factor=plane.side, mode="bilinear") for plane, t in small)
    colours = luma - green / 2 + red_blue / 2, luma + green / 2, luma - green / 2 - red_blue / 2
    assert torch.equal(front.picture(levels, shape), (torch.cat(colours, 1).clamp(0, 255) / 255).float())


def test_rounding_first_hides_the_attackers_arithmetic() -> None:
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rounded = (255 * x + 0.5).floor() / 255
    assert torch.equal(Stemmed(8, Stem()).levels(x), Stemmed(8, Stem()).levels(rounded))
    free = Stemmed(8, Stem(rounds=False))
    assert not torch.equal(free.levels(x), free.levels(rounded)), "without it rounding is seen"
    assert torch.equal(free.levels(rounded), Stemmed(8, Stem()).levels(rounded))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Stem(luma=3), "squares of 1, 2, 4, 8 or 16"),
        (lambda: Stem(chroma=5), "squares of 1, 2, 4, 8 or 16"),
        (lambda: Stem(chroma_step=2), "4, 8, 16, 32 or 64"),
        (lambda: Stem(enlarge="cubic"), "bilinear or nearest"),
        (lambda: Stemmed(3), "power of two"),
        (lambda: Stemmed()(torch.zeros(1, 3, 30, 32)), "do not fill"),
        (lambda: Stemmed()(torch.zeros(1, 2, 32, 32)), "grey or colour"),
    ],
)
def test_what_does_not_fit_is_said(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
