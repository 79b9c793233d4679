"""The linear inverses: chords contain, exclusion never loses the truth, λ holds, and no original exceeds the bound."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from warpcert.bounds.chords import Ranges, affine, corner_taps, corners, remainder
from warpcert.bounds.farkas import excluded
from warpcert.bounds.inverse import interval_inverse
from warpcert.bounds.inverse_cell import boxed, cells, viewed
from warpcert.bounds.lagrangian import Lagrangian
from warpcert.bounds.originals import Originals
from warpcert.learn.data import load
from warpcert.threat import Defence, Threat
from warpcert.transforms import Preprocess, SpatialTransform, get
from warpcert.transforms.kernels import kernel

DIGITS = load("mnist500")
KINDS = ["noise", "binary", "saturated", "checkerboard", "white", "smooth"]
SHAPES = [(1, 7, 7), (1, 8, 6), (3, 5, 8), (1, 9, 8)]


def picture(kind: str, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Pictures that fill the frame, so that content leaves it."""
    x = torch.rand(shape, dtype=torch.float64, generator=generator)
    if kind == "binary":
        return x.round()
    if kind == "saturated":
        return (3 * x - 1).clamp(0, 1)
    if kind == "checkerboard":
        return (torch.arange(shape[1])[:, None] + torch.arange(shape[2])).remainder(2).expand(shape).double()
    if kind == "white":
        return torch.ones(shape, dtype=torch.float64)
    if kind == "smooth":
        y = torch.linspace(0, 2, shape[1], dtype=torch.float64)[:, None]
        return ((y + torch.linspace(0, 3, shape[2], dtype=torch.float64) + x[:, :1, :1]).sin() + 1) / 2
    return x


def defence(name: str, interpolation: str = "bicubic", margin: float = 0) -> Defence:
    vignette = get(name).natural_vignette
    sigma = 30 if name == "rotation" else 0.5
    return Defence.surface(
        name, sigma, noise=0.1, interpolation=interpolation, preprocess=Preprocess(vignette, margin, 1.0, 5)
    )


def one_cell(x: Tensor, threat: Threat, gamma: Tensor, width: float, place: float) -> tuple[Tensor, Originals]:
    """x' and a cell around γ [1,d] that does not cross 0, with its boxes by the interval inverse."""
    x_attacked = threat.attacked(x, gamma)[0]
    low, high = gamma - place * width, gamma + (1 - place) * width
    low = torch.where((low < 0) & (gamma >= 0), 0.0, low)
    high = torch.where((high > 0) & (gamma < 0), 0.0, high)
    found = interval_inverse(x_attacked, threat, low, high, refinements=3)
    assert bool(found.possible)
    return x_attacked, Originals(low, high, found.low, found.high, 1, 0.0)


def true_error(x: Tensor, x_attacked: Tensor, d: Defence, beta: Tensor, gamma: Tensor) -> Tensor:
    """‖P T_β x' − P T_{β+γ} x‖ [n] for β [n,d], γ [1,d]."""
    difference = d.view(x_attacked.double(), beta) - d.view(x.double(), beta + gamma)
    return torch.linalg.vector_norm(difference.flatten(1), dim=1)


@settings(max_examples=60)
@given(
    name=st.sampled_from(["rotation", "translation"]),
    interpolation=st.sampled_from(["bilinear", "bicubic", "bicubic-0.5"]),
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(SHAPES),
    width=st.sampled_from([1e-6, 1e-3, 0.01, 0.05, 0.3]),
    seed=st.integers(0, 2**31),
)
def test_the_chord_and_its_remainder_contain(
    name: str, interpolation: str, kind: str, shape: tuple[int, int, int], width: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    transform = get(name)
    assert isinstance(transform, SpatialTransform)
    k, x = kernel(interpolation), picture(kind, shape, generator)
    low = 4 * torch.rand(3, transform.dim, dtype=torch.float64, generator=generator) - 2
    low[0] = low[0].round() * (math.pi / 2 if name == "rotation" else 1)  # where every pixel kinks
    high = low + width * torch.rand(low.shape, dtype=torch.float64, generator=generator)
    wobble = 0.05 * torch.rand(3, *shape, dtype=torch.float64, generator=generator)
    ranges = Ranges.of((x - wobble).clamp_min(0), (x + wobble).clamp_max(1), k)
    rest = remainder(transform, k, low, high, ranges, torch.arange(3))  # [3,C,N]
    index, weight = corner_taps(transform, corners(low, high), shape[1], shape[2], k)
    at_corners = (x.flatten(1)[:, index] * weight).sum(-1).permute(1, 2, 0, 3)  # [3, 2^d, C, N]
    chord = affine(at_corners, transform.dim)
    for _ in range(12):
        t = 2 * torch.rand(low.shape, dtype=torch.float64, generator=generator) - 1
        gamma = (low + high) / 2 + t * (high - low) / 2
        value = transform(x, gamma, interpolation).flatten(2)
        line = chord[:, 0] + (t[:, :, None, None] * chord[:, 1:]).sum(1)
        assert bool(((value - line).abs() <= rest).all())


@settings(max_examples=40)
@given(
    name=st.sampled_from(["rotation", "translation"]),
    interpolation=st.sampled_from(["bilinear", "bicubic", "bicubic-0.5"]),
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(SHAPES),
    width=st.sampled_from([1e-4, 2e-3, 0.02]),
    place=st.floats(0, 1),
    reach=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    quantized=st.booleans(),
    single=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_no_original_exceeds_the_bound(
    name: str, interpolation: str, kind: str, shape: tuple[int, int, int], width: float, place: float, reach: float,
    quantized: bool, single: bool, seed: int,
) -> None:  # fmt: skip
    """Boxes, exclusion and U(β) of a cell that holds the true γ, with zero tolerance."""
    generator = torch.Generator().manual_seed(seed)
    threat = Threat.surface(name, 40 if name == "rotation" else 2, quantized=quantized)
    d = defence(name, interpolation)
    x = picture(kind, shape, generator)
    gamma = reach * threat.box.uniform(1, generator)
    if single:
        x, gamma = x.float(), gamma.float()
    x_attacked, originals = one_cell(x.to(gamma), threat, gamma, width, place)
    originals = Originals(*(t.double() for t in vars(originals).values() if isinstance(t, Tensor)), 1, 0.0)
    batch = cells(x_attacked, originals, threat)
    assert not bool(excluded(batch))
    beta = torch.cat((d.draw_beta(3, generator), -gamma.double()))  # the last: T_{β+γ} = identity
    bound = Lagrangian(steps=4).errors(x_attacked, originals, threat, d, beta)
    truth = true_error(x, x_attacked, d, beta, gamma.double())
    assert bool((truth <= bound[:, 0]).all())
    xa, b, seen, _ = viewed(x_attacked, threat, d, beta)
    assert bool((truth <= boxed(batch.pick(0), xa.shape, d, b, seen)).all())
