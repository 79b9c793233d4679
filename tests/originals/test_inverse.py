"""Interval inverse: the true original is always inside, the true γ never excluded, and far ones mostly are."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from warpcert.learn.data import load
from warpcert.numerics.interval import Interval
from warpcert.originals import interval as inverse
from warpcert.originals.interval import interval_inverse, surviving
from warpcert.threat import Threat
from warpcert.transforms import Box, Rotation, Scaling, SpatialTransform, Translation

torch.set_num_threads(1)
DIGITS = load("mnist500")
EVERYWHERE = {
    "rotation": Box((-4.0,), (4.0,)),
    "scaling": Box((-0.7,), (0.7,)),
    "translation": Box((-12.0, -12.0), (12.0, 12.0)),
}


def picture(kind: str, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Pictures that fill the frame, so content leaves it; saturated and binary ones among them."""
    if kind == "digit":
        return DIGITS.image(int(torch.randint(len(DIGITS), (), generator=generator))).double()
    x = torch.rand(shape, dtype=torch.float64, generator=generator)
    if kind == "binary":
        return x.round()
    if kind == "saturated":
        return (3 * x - 1).clamp(0, 1)
    if kind == "checkerboard":
        return (torch.arange(shape[1])[:, None] + torch.arange(shape[2])).remainder(2).expand(shape).double()
    return torch.ones(shape, dtype=torch.float64) if kind == "white" else x


def holds(x: Tensor, x_attacked: Tensor, threat: Threat, low: Tensor, high: Tensor, refinements: int = 10) -> bool:
    """Whether no box is excluded and x lies in all intervals, without tolerance."""
    found = interval_inverse(x_attacked, threat, low, high, refinements=refinements)
    return bool(found.possible.all()) and bool(((found.low <= x) & (x <= found.high)).all())


@settings(max_examples=150)
@given(
    transform=st.sampled_from([Rotation(), Translation(), Scaling()]),
    kind=st.sampled_from(["noise", "binary", "saturated", "checkerboard", "white", "digit"]),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9)),
    width=st.sampled_from([0.0, 1e-9, 1e-4, 1e-3, 0.01, 0.1, 0.5]),
    place=st.floats(0, 1),
    reach=st.sampled_from([0.0, 1e-7, 0.02, 0.5, 1.0]),
    quantized=st.booleans(),
    single=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_the_original_is_inside(
    transform: SpatialTransform,
    kind: str,
    shape: tuple[int, int, int],
    width: float,
    place: float,
    reach: float,
    quantized: bool,
    single: bool,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    threat = Threat(transform, EVERYWHERE[transform.name], quantized=quantized)
    x = picture(kind, shape, generator)
    gamma = reach * threat.box.uniform(1, generator)
    if seed % 3 == 0 and transform != Scaling():  # on the grid: shifts by whole pixels, quarter turns
        unit = math.pi / 2 if transform.dim == 1 else 1.0
        gamma = (gamma / unit).round() * unit
    if single:
        x, gamma = x.float(), gamma.float()
    x_attacked = threat.attacked(x, gamma)[0]
    x, gamma = x.double(), gamma.double()
    low = torch.cat((gamma - place * width, gamma, gamma - width))
    high = torch.cat((gamma + (1 - place) * width, gamma, gamma + 0.01 * width))
    assert holds(x, x_attacked, threat, low, high)


def test_the_worked_example_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """γ ∈ [23°, 26°], pixel (5,1) on the paper's grid of spacing 2: half of that here. With three pixels in [0,1]."""
    low, high = (torch.tensor([[math.radians(a)]], dtype=torch.float64) for a in (23, 26))
    y, x = inverse.sources(Rotation(), low, high, 6, 6)
    pixel = 3 * 6 + 5  # (x, y) = (2.5, 0.5)
    ends = torch.stack([2 * (e[0, pixel] - 2.5) for e in (x.low, x.high, y.low, y.high)])
    assert torch.allclose(ends, torch.tensor([4.06, 4.21, 2.85, 3.11], dtype=torch.float64), atol=0.005)

    given_ = torch.zeros(1, 6, 6, dtype=torch.float64)
    given_[0, 3, 5] = 0.90 - 0.5 / 255  # the lower end of what p' ≈ 0.90 stands for
    threat = Threat(Rotation(), Box((-1.0,), (1.0,)), quantized=False)

    def lower_end() -> float:  # of pixel (3,3) of the paper, (1.5, 1.5) here
        return float(interval_inverse(given_, threat, low, high, refinements=0).low[0, 0, 4, 4])

    def line(s: Interval) -> Tensor:
        return torch.minimum(s.low.ceil(), s.high)

    furthest = 0.5 * (4.2118 - 3), 0.5 * (3 - 2.8524)  # the corner furthest from (3,3)
    assert lower_end() == pytest.approx(1 - (0.10 + 0.5 / 255) / ((1 - furthest[0]) * (1 - furthest[1])), abs=2e-4)
    assert round(lower_end(), 2) == 0.72  # the join
    monkeypatch.setattr(inverse, "_stops", lambda s: torch.stack((s.low, s.low, line(s)), 1))
    assert round(lower_end(), 2) == 0.72  # region (3,1)
    monkeypatch.setattr(inverse, "_stops", lambda s: torch.stack((line(s), line(s), s.high), 1))
    assert round(lower_end(), 2) == 0.73  # region (3,3)


def test_whole_pixels_are_read_back() -> None:
    """A shift by one pixel gives x back but for the rounding; the column that left the frame stays unknown."""
    x = torch.rand(3, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    threat = Threat.of("translation", 2)
    gamma = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = interval_inverse(threat.attacked(x, gamma)[0], threat, gamma, gamma, refinements=0)
    width = (found.high - found.low)[0]
    assert float(width[..., :-1].max()) <= 1 / 255 + 3e-5
    assert bool((width[..., -1] == 1).all())


@pytest.mark.parametrize("transform", [Rotation(), Translation()])
def test_refinement_only_shrinks(transform: SpatialTransform, generator: torch.Generator) -> None:
    x = picture("saturated", (3, 8, 7), generator)
    threat = Threat(transform, EVERYWHERE[transform.name])
    gamma = torch.full((1, transform.dim), 0.3, dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    steps = [interval_inverse(x_attacked, threat, gamma - 1e-3, gamma + 2e-3, refinements=k) for k in (0, 1, 2, 5)]
    for before, after in itertools.pairwise(steps):
        assert bool((before.low <= after.low).all()) and bool((after.high <= before.high).all())
    first, last = (float((s.high - s.low).mean()) for s in (steps[0], steps[-1]))
    assert last < 0.8 * first


@pytest.mark.parametrize("degrees", [-7.31, 0.0, 4.2])
def test_far_angles_are_excluded(degrees: float) -> None:
    threat = Threat.of("rotation", 10)
    gamma = torch.tensor([[math.radians(degrees)]], dtype=torch.float64)
    for i in range(4):
        x = DIGITS.image(i)
        low, high, found = surviving(threat.attacked(x, gamma)[0], threat, 100)
        inside = ((low <= gamma) & (gamma <= high)).all(1)
        assert bool(inside.any()) and bool(found.possible.all()) and found.low.shape[0] == len(low)
        assert bool(((found.low <= x) & (x <= found.high)).flatten(1).all(1)[inside].all())
        assert float((found.high - found.low)[inside].mean()) < 0.05
        middle = (low + high) / 2
        far = torch.minimum((middle - gamma).abs(), middle.abs()) > math.radians(1)
        assert int(far.sum()) <= 2 and len(low) <= 12


def test_far_shifts_are_excluded() -> None:
    threat = Threat.of("translation", 1)
    x = DIGITS.image(3)
    gamma = torch.tensor([[0.63, -0.41]], dtype=torch.float64)
    low, high, found = surviving(threat.attacked(x, gamma)[0], threat, 20)
    inside = ((low <= gamma) & (gamma <= high)).all(1)
    assert int(inside.sum()) == 1 and len(low) < 100  # of 400; shifts by about whole pixels are hard to tell
    assert bool(((found.low <= x) & (x <= found.high))[inside].all())


def test_light_from_outside_the_frame_is_impossible() -> None:
    """All source points lie outside, where x is 0; one bright pixel of x' cannot have come from there."""
    threat = Threat.of("translation", 9)
    gamma = torch.tensor([[8.5, 0.0]], dtype=torch.float64)
    x_attacked = torch.zeros(1, 5, 5, dtype=torch.float64)
    assert bool(interval_inverse(x_attacked, threat, gamma, gamma + 0.2).possible)
    x_attacked[0, 2, 2] = 1 / 255
    assert not bool(interval_inverse(x_attacked, threat, gamma, gamma + 0.2).possible)


def attacked_noise() -> tuple[Tensor, Tensor, Threat, Tensor]:
    x = torch.rand(1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    threat = Threat.of("rotation", 30)
    gamma = torch.tensor([[0.2]], dtype=torch.float64)
    return x, threat.attacked(x, gamma)[0], threat, gamma


def test_without_the_rounding_the_original_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    x, x_attacked, threat, gamma = attacked_noise()
    exact = inverse.values
    assert holds(x, x_attacked, threat, gamma, gamma)
    monkeypatch.setattr(inverse, "values", lambda x, t, *rest: exact(x, replace(t, quantized=False), *rest))
    assert not holds(x, x_attacked, threat, gamma, gamma)


@pytest.mark.parametrize("kept", ["first", "last"])
def test_without_one_region_the_original_is_lost(monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    """Source points from 0.2 px on one side of a grid line, where the true ones lie, to 0.05 px on the other."""
    x = torch.rand(1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    threat = Threat.of("translation", 1)
    low, high = torch.tensor([[[-0.05, 0.0]], [[0.2, 0.0]]], dtype=torch.float64)
    if kept == "first":
        low, high = -high, -low
    x_attacked = threat.attacked(x, high if kept == "last" else low)[0]
    assert holds(x, x_attacked, threat, low, high)

    def stops(s: Interval) -> Tensor:
        line = torch.minimum(s.low.ceil(), s.high)
        first, last = (s.low, line) if kept == "first" else (line, s.high)
        return torch.stack((first, last, last), 1)

    monkeypatch.setattr(inverse, "_stops", stops)
    assert not holds(x, x_attacked, threat, low, high)


def test_without_a_corner_the_original_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solving at the middle of the enclosure only."""
    x, x_attacked, threat, gamma = attacked_noise()
    monkeypatch.setattr(inverse, "_stops", lambda s: torch.stack([(s.low + s.high) / 2] * 3, 1))
    assert not holds(x, x_attacked, threat, gamma - 0.02, gamma + 0.001)


@pytest.mark.parametrize(
    ("lower", "upper", "cells", "edges"),
    [
        (-1.0, 1.0, 4, [-1, -0.5, 0, 0.5, 1]),
        (-1.0, 3.0, 3, [-1, 0, 1.5, 3]),
        (-1.0, 100.0, 2, [-1, 0, 100]),
        (0.0, 1.0, 2, [0, 0.5, 1]),
        (-1.0, 0.0, 1, [-1, 0]),
        (0.0, 0.0, 5, [0, 0]),
    ],
)
def test_zero_is_a_boundary(lower: float, upper: float, cells: int, edges: list[float]) -> None:
    assert inverse._edges(lower, upper, cells).tolist() == edges


def test_no_boxes_and_impossible_pictures() -> None:
    threat = Threat.of("rotation", 10)
    x_attacked = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(0)).round()
    none = torch.zeros(0, 1)
    assert interval_inverse(x_attacked, threat, none, none).low.shape == (0, 1, 12, 12)
    far = Threat(Rotation(), Box((0.0,), (0.0,)))
    assert len(surviving(x_attacked, far, 3)[0]) == 1  # x' itself, untouched
    angles = torch.linspace(0.3, 0.4, 11, dtype=torch.float64)[:, None]
    assert not bool(interval_inverse(x_attacked, threat, angles[:-1], angles[1:]).possible.any())


def test_what_it_cannot_invert_is_refused() -> None:
    x, box = torch.zeros(1, 4, 4), torch.zeros(1, 1)
    with pytest.raises(ValueError, match="bilinear attacker"):
        interval_inverse(x, Threat.of("rotation", 5, interpolation="bicubic"), box, box)
    with pytest.raises(ValueError, match="moves pixels"):
        interval_inverse(x, Threat.of("brightness", 5), box, box)
    threat = Threat.of("rotation", 5)
    with pytest.raises(ValueError, match="k/255"):
        interval_inverse(x + 0.1234, threat, box, box)
    with pytest.raises(ValueError, match=r"\[C, H, W\]"):
        interval_inverse(x[0], threat, box, box)
    with pytest.raises(ValueError, match="shape"):
        interval_inverse(x, threat, torch.zeros(1, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="lower ≤ upper"):
        interval_inverse(x, threat, box + 1, box)
    with pytest.raises(ValueError, match="refinements"):
        interval_inverse(x, threat, box, box, refinements=-1)
    with pytest.raises(ValueError, match="2 cells"):
        surviving(x, threat, 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_agrees() -> None:
    x, x_attacked, threat, gamma = attacked_noise()
    here = interval_inverse(x_attacked, threat, gamma - 1e-3, gamma + 1e-3)
    there = interval_inverse(x_attacked.cuda(), threat, gamma - 1e-3, gamma + 1e-3)
    assert (
        there.low.is_cuda and torch.allclose(here.low, there.low.cpu()) and torch.allclose(here.high, there.high.cpu())
    )
    assert holds(x.cuda(), x_attacked.cuda(), threat, gamma, gamma)
    assert len(surviving(x_attacked.cuda(), threat, 20)[0]) == len(surviving(x_attacked, threat, 20)[0])
