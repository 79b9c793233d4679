"""The linear inverses: chords contain, exclusion never loses the truth, λ holds, and no original exceeds the bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_crossings import OWN
from torch import Tensor

from benchmarks.inverse import worst_consistent
from warpcert.classifier.defence import Defence
from warpcert.learn.data import load
from warpcert.originals.chords import Ranges, affine, corner_taps, corners, remainder
from warpcert.originals.functional import Functional
from warpcert.originals.interval import interval_inverse
from warpcert.originals.lagrangian import metric as inverse_metric
from warpcert.originals.lagrangian import spectral as inverse_lambda
from warpcert.originals.lagrangian.bound import estimate, lagrangian_bound
from warpcert.originals.lagrangian.cell import Cell, cells
from warpcert.originals.lagrangian.farkas import excluded
from warpcert.originals.lagrangian.inverse import Lagrangian, _groups
from warpcert.originals.lagrangian.lens import lens
from warpcert.originals.lagrangian.metric import Metric, shared_corners, tuned
from warpcert.originals.lagrangian.spectral import proved_lambda
from warpcert.originals.lagrangian.view import boxed, view, viewed
from warpcert.originals.protocol import InverseBound, Originals
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess, SpatialTransform, get
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
    return x_attacked, Originals(x_attacked, threat, low, high, found.low, found.high, 1, 0.0)


def true_error(x: Tensor, x_attacked: Tensor, d: Defence, beta: Tensor, gamma: Tensor) -> Tensor:
    """‖P T_β x' − P T_{β+γ} x‖ [n] for β [n,d], γ [1,d]."""
    difference = d.view(x_attacked.double(), beta) - d.view(x.double(), beta + gamma)
    return torch.linalg.vector_norm(difference.flatten(1), dim=1)


@settings(max_examples=120)
@given(
    name=st.sampled_from(["rotation", "translation", "scaling", *OWN]),
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
    transform = OWN[name] if name in OWN else get(name)
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
    threat = Threat.of(name, 40 if name == "rotation" else 2, quantized=quantized)
    d = defence(name, interpolation)
    x = picture(kind, shape, generator)
    gamma = reach * threat.box.uniform(1, generator)
    if single:
        x, gamma = x.float(), gamma.float()
    x_attacked, originals = one_cell(x.to(gamma), threat, gamma, width, place)
    wide = {name: t.double() for name, t in vars(originals).items() if isinstance(t, Tensor) and name != "x_attacked"}
    originals = replace(originals, **wide)
    batch = cells(originals)
    assert not bool(excluded(batch))
    beta = torch.cat((d.draw_beta(3, generator), -gamma.double()))  # the last: T_{β+γ} = identity
    bound = Lagrangian(steps=4).errors(originals, d, beta)
    truth = true_error(x, x_attacked, d, beta, gamma.double())
    assert bool((truth <= bound[:, 0]).all())
    xa, b, seen, _ = viewed(originals, d, beta)
    assert bool((truth <= boxed(batch.pick(0), xa.shape, d, b, seen)).all())


@pytest.mark.parametrize("name", ["rotation", "translation"])
def test_where_all_pixels_were_rounded_by_half_a_level_the_bound_is_tight(name: str) -> None:
    """No P and no turn: ‖e‖² = Σ doubt² for such an original, which is λτ but for 3 %."""
    g, threat = torch.Generator().manual_seed(1), Threat.of(name, 2)
    d = Defence.surface(name, 30, noise=0.1, interpolation="bilinear", preprocess=Preprocess())
    x_attacked = (255 * (0.2 + 0.6 * torch.rand(1, 7, 7, generator=g, dtype=torch.float64))).round() / 255
    x = x_attacked + (2 * torch.randint(0, 2, x_attacked.shape, generator=g) - 1) * 0.4999 / 255
    gamma = torch.zeros(1, threat.transform.dim, dtype=torch.float64)
    handed, originals = one_cell(x, threat, gamma, 1e-6, 0.0)
    assert torch.equal(handed, x_attacked)
    truth, bound = true_error(x, handed, d, gamma, gamma), Lagrangian(steps=8).errors(originals, d, gamma)[:, 0]
    assert bool((truth <= bound).all()) and bool((bound <= 1.03 * truth).all())


def a_cell(
    seed: int, name: str = "rotation", width: float = 0.01, size: int = 8
) -> tuple[Tensor, Tensor, Threat, Originals]:
    """x, γ, threat and a cell around γ, of a saturated picture."""
    generator = torch.Generator().manual_seed(seed)
    threat = Threat.of(name, 40 if name == "rotation" else 2)
    x = picture("saturated", (1, size, size), generator)
    gamma = threat.box.uniform(1, generator)
    _, originals = one_cell(x, threat, gamma, width, 0.4)
    return x, gamma, threat, originals


def at(parts: Tensor, t: Tensor) -> Tensor:
    """The affine family at t, from [1+d, ...]."""
    return parts[0] + sum(s * p for s, p in zip(t, parts[1:], strict=True))


@pytest.mark.parametrize("name", ["rotation", "translation"])
@pytest.mark.parametrize("seed", range(4))
def test_the_data_hold_the_truth(name: str, seed: int) -> None:
    """lower ≤ x ≤ upper and |data − A_t x| ≤ doubt at the true t, for wide cells too."""
    for width in (0.003, 0.05, 0.2):
        x, gamma, _, originals = a_cell(seed, name, width)
        c = cells(originals).pick(0)
        t = 2 * (gamma[0] - c.low) / (c.high - c.low) - 1
        z = x.flatten(1)
        assert bool(((c.lower <= z) & (z <= c.upper)).all())
        assert bool(((c.data - z @ at(c.dense(), t).mT).abs() <= c.doubt).all())


@pytest.mark.parametrize("name", ["rotation", "translation"])
@pytest.mark.parametrize("seed", range(4))
def test_lambda_holds_on_the_whole_cell(name: str, seed: int) -> None:
    """λ_max(C_t H_t⁻¹ C_tᵀ) ≤ λ at random t, by an eigenvalue solver; and λ is not wasteful."""
    generator = torch.Generator().manual_seed(seed)
    for width in (0.01, 0.1, 0.4):
        x, _, _, originals = a_cell(seed, name, width, 7)
        c = cells(originals).pick(0)
        d = defence(name, "bilinear")
        beta = d.draw_beta(3, generator)
        v = view(c, x.shape, d, beta)
        metric = tuned([c], v, 3)
        proved = proved_lambda([c], metric, lens(d, 7, 7, beta.device), beta)[:, 0]
        assert bool(proved.isfinite().all())
        matrices, seen = c.dense(), v.dense()
        largest = torch.zeros_like(proved)
        for _ in range(40):
            t = (2 * torch.rand(c.dim, dtype=torch.float64, generator=generator) - 1).mul(1.5).clamp(-1, 1)
            a = at(matrices, t)
            h = torch.diag(metric.d1) + a.mT @ (metric.d2[:, None] * a)
            for b in range(3):
                s = at(seen[b], t)
                value = torch.linalg.eigvalsh(s @ torch.linalg.solve(h, s.mT))[-1]
                assert float(value) <= float(proved[b])
                largest[b] = torch.maximum(largest[b], value)
        if width < 0.05:
            assert float(proved.max()) <= 1.1 * float(largest.max())


@pytest.mark.parametrize("name", ["rotation", "translation"])
def test_the_family_is_the_mean_of_its_corners(name: str) -> None:
    """A_t = Σ w_c A_c for all t: what λ and the exclusion rest on. Of two parameters the matrices of the corners
    themselves would not do; |C_t| z ≤ `spread` allows for that."""
    g = torch.Generator().manual_seed(0)
    threat = Threat.of(name, 10 if name == "rotation" else 1)
    x = picture("noise", (1, 6, 7), g)
    gamma = torch.tensor([[0.1] * threat.box.dim], dtype=torch.float64)
    _, originals = one_cell(x, threat, gamma, 0.15, 0.4)
    c = cells(originals).pick(0)
    v = view(c, x.shape, defence(name), torch.full((2, c.dim), 0.3, dtype=torch.float64))
    sign = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=c.dim)), dtype=torch.float64)
    z = torch.rand(1, c.pixels, generator=g, dtype=torch.float64)
    for _ in range(5):
        t = 2 * torch.rand(c.dim, generator=g, dtype=torch.float64) - 1
        weight = ((1 + sign * t) / 2).prod(1)
        mean = torch.einsum("c,cnk->nk", weight, c.at_corners)
        assert mean.allclose(c.weights[0] + torch.einsum("a,ank->nk", t, c.weights[1:]), atol=1e-12)
        dense = v.dense()
        along = dense[:, 0] + torch.einsum("a,bavn->bvn", t, dense[:, 1:])
        assert bool((along.abs() @ z[0] <= v.spread(z)[:, 0] + 1e-12).all())


def test_views_stay_below_their_spread() -> None:
    """|C_t| z for z that leave out one pixel, on a wide cell: s + t − st of a bilinear view is less at the corner than
    C_t has there, as C_t leaves out st."""
    threat = Threat.of("translation", 1)
    d = Defence.surface("translation", 0.5, noise=0.1, interpolation="bilinear")  # no blur
    x = picture("noise", (1, 6, 7), torch.Generator().manual_seed(0))
    _, originals = one_cell(x, threat, torch.full((1, 2), 0.1, dtype=torch.float64), 0.3, 0.2)
    v = view(cells(originals).pick(0), x.shape, d, torch.tensor([[0.3, -0.3]]).double())
    z, dense = 1 - torch.eye(42, dtype=torch.float64), v.dense()[0]  # [F,N], [1+d,v,N]
    seen = torch.stack([z @ at(dense, torch.tensor(t)).abs().mT for t in itertools.product((-1, 0, 1), repeat=2)])
    assert bool((seen <= v.spread(z)[0] + 1e-12).all())
    assert bool((seen > replace(v, mixed=0.0).spread(z)[0] + 1e-6).any())


def test_neighbours_in_the_plane_share_multipliers_only() -> None:
    """λ holds in both of two cells, each proved at its own corners: the families differ at the corner they share."""
    threat, d = Threat.of("translation", 1), defence("translation")
    x = picture("smooth", (1, 7, 7), torch.Generator().manual_seed(1))
    low = torch.tensor([[0.3, 0.2], [0.38, 0.2]], dtype=torch.float64)
    low[1, 0] = low[0, 0] + 0.08
    high = torch.stack((torch.stack((low[1, 0], low[0, 1] + 0.08)), low[1] + 0.08))
    x_attacked = threat.attacked(x, low[:1])[0]
    originals = Originals(
        x_attacked, threat, low, high, torch.zeros(2, 1, 7, 7).double(), torch.ones(2, 1, 7, 7).double(), 2, 0.0
    )
    batch = cells(originals)
    group = [batch.pick(k) for k in range(2)]
    assert _groups(group) == [[0, 1]]
    assert [len(each) for each in shared_corners(group)] == [1] * 8
    beta = d.draw_beta(3, torch.Generator().manual_seed(2))
    metric = tuned(group, view(group[1], x.shape, d, beta), 3)
    proved = proved_lambda(group, metric, lens(d, 7, 7, beta.device), beta)
    for k, c in enumerate(group):
        seen, matrices = view(c, x.shape, d, beta).dense(), c.dense()
        for t in itertools.product((-1.0, 0.0, 1.0), repeat=2):
            a = at(matrices, torch.tensor(t))
            h = torch.diag(metric.d1) + a.mT @ (metric.d2[:, None] * a)
            for b in range(3):
                s = at(seen[b], torch.tensor(t))
                assert float(torch.linalg.eigvalsh(s @ torch.linalg.solve(h, s.mT))[-1]) <= float(proved[b, k])


def test_groups_end_at_grid_lines() -> None:
    def cell(low: tuple[float, float], high: tuple[float, float]) -> Cell:
        none = torch.zeros(0)
        return Cell(torch.tensor(low), torch.tensor(high), *(none for _ in range(7)))

    quarter = [cell((a, b), (a + 0.25, b + 0.25)) for a in (-0.25, 0.0, 0.25) for b in (0.25, 0.5)]
    assert _groups(quarter) == [[0, 1], [2, 3, 4, 5]]
    assert _groups([cell((0.25, 0.25), (0.5, 0.5)), cell((0.5, 0.5), (0.75, 0.75))]) == [[0], [1]]  # a corner only


def test_lambda_needs_every_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the first corner in place of all, λ is too small: without blur, T_{β+γ} is the identity at the last."""
    x, _, _, originals = a_cell(0, width=0.3, size=7)
    c = cells(originals).pick(0)
    d = Defence.surface("rotation", 30, noise=0.1, interpolation="bilinear")
    v = view(c, x.shape, d, -c.high[None])
    d2 = 1 / c.doubt.square().mean(0)
    spread = c.square(c.weights[1:], d2).abs().sums()
    d1 = 1.01 * spread + 1e-3 * spread.max()  # H̃ ⪰ 0 by diagonal dominance
    s, a = at(v.dense()[0], torch.ones(1)), at(c.dense(), torch.ones(1))
    truth = torch.linalg.eigvalsh(s @ torch.linalg.solve(torch.diag(d1) + a.mT @ (d2[:, None] * a), s.mT))[-1]
    metric, eye = Metric(d1, d2), lens(d, 7, 7, d1.device)
    assert float(truth) <= float(proved_lambda([c], metric, eye, -c.high[None])) < torch.inf
    monkeypatch.setattr(inverse_lambda, "shared_corners", lambda group: shared_corners(group)[:1])
    assert float(proved_lambda([c], metric, eye, -c.high[None])) < float(truth)


def test_lambda_needs_the_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pixel, A_t = t: the data say nothing at t = 0, where λ must be 1/d₁; both corners alone say 1/(d₁ + d₂)."""
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    index = torch.zeros(1, 1, dtype=torch.long)
    turned = torch.stack((-one, one))
    c = Cell(-one[0], one[0], index, torch.stack((zero, one)), turned, one, one, zero, one)
    eye = lens(Defence.surface("rotation", 30, noise=0.1), 1, 1, one.device)  # the identity
    metric = Metric(2 * one[0], 6 * one[0])
    assert 0.5 <= float(proved_lambda([c], metric, eye, zero)) < 0.6
    monkeypatch.setattr(Metric, "variance", lambda self, c, strip=0: c.square(0 * c.weights[1:], self.d2, strip))
    assert float(proved_lambda([c], metric, eye, zero)) < 0.15


def test_the_sum_of_the_constraints_counts_in_full() -> None:
    """One pixel, known to lie in [0.3, 0.7] and seen as it is: 0.5 can be off by 0.2, which the bound attains."""
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    low, high = torch.tensor([0.1], dtype=torch.float64), torch.tensor([0.101], dtype=torch.float64)
    index = torch.zeros(1, 1, dtype=torch.long)
    still, same = torch.stack((one, zero)), torch.stack((one, one))
    c = Cell(low, high, index, still, same, 0.5 * one, 0.3 * one, 0.3 * one, 0.7 * one)
    d = Defence.surface("rotation", 30, noise=0.1)
    metric = Metric(one[0] / 0.04, 1e-6 * one[0])
    v = view(c, torch.Size((1, 1, 1)), d, zero)
    proved = proved_lambda([c], metric, v.eye, zero)[:, 0]
    bound = lagrangian_bound(c, metric, estimate(c, metric), v, 0.5 * one[None], proved)
    assert 0.2 <= float(bound) < 0.201


@pytest.mark.parametrize("quantized", [True, False])
def test_neighbours_share_their_proof(quantized: bool) -> None:
    """Three cells around γ, bounded as one group: λ holds in all, and the truth is below the bound of its own."""
    generator = torch.Generator().manual_seed(3)
    threat = Threat.of("rotation", 20, quantized=quantized)
    x, gamma = picture("smooth", (1, 8, 8), generator), torch.tensor([[0.2]], dtype=torch.float64)
    edges = gamma + torch.tensor([[-0.006], [-0.002], [0.002], [0.006]], dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    found = interval_inverse(x_attacked, threat, edges[:-1], edges[1:], refinements=1)
    wide = torch.where(found.possible[:, None, None, None], found.low, 0.0)
    high = torch.where(found.possible[:, None, None, None], found.high, 1.0)
    originals = Originals(x_attacked, threat, edges[:-1], edges[1:], wide, high, 3, 0.0)
    batch = cells(originals)
    group = [batch.pick(k) for k in range(3)]
    assert [len(at) for at in shared_corners(group)] == [1, 2, 2, 1]
    d = defence("rotation")
    beta = d.draw_beta(4, generator)
    views = [view(c, x.shape, d, beta) for c in group]
    metric = tuned(group, views[1], 4)
    proved = proved_lambda(group, metric, lens(d, 8, 8, beta.device), beta)
    for k, (c, v) in enumerate(zip(group, views, strict=True)):
        for t in torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]:
            a = at(c.dense(), t)
            h = torch.diag(metric.d1) + a.mT @ (metric.d2[:, None] * a)
            for b in range(4):
                s = at(v.dense()[b], t)
                assert float(torch.linalg.eigvalsh(s @ torch.linalg.solve(h, s.mT))[-1]) <= float(proved[b, k])
    bound = Lagrangian(steps=4).errors(originals, d, beta)
    assert bool((true_error(x, x_attacked, d, beta, gamma) <= bound[:, 1]).all())


def test_views_apply_their_matrices() -> None:
    x, _, _, originals = a_cell(1, "translation")
    c = cells(originals).pick(0)
    d = defence("translation")
    v = view(c, x.shape, d, d.draw_beta(3, torch.Generator().manual_seed(1)))
    z = torch.randn(3, 2, v.seen, dtype=torch.float64)
    assert torch.allclose(v.adjoint(z), (z[:, None] @ v.dense()), atol=1e-13)
    image = torch.randn(2, v.pixels, dtype=torch.float64)
    assert torch.allclose(v.apply(image), (v.dense() @ image.mT).mT, atol=1e-13)


@pytest.mark.parametrize("inverse", [Lagrangian(), Functional()], ids=lambda i: i.name)
@pytest.mark.parametrize(("number", "degrees"), [(0, 7.3), (3, -4.1), (5, 0.02)])
def test_no_consistent_original_found_by_linear_programs_exceeds_it(
    inverse: InverseBound, number: int, degrees: float
) -> None:
    """Digits of 14×14: the worst original that leads to the same x' stays below U, and U is near it (Lagrangian)."""
    x = torch.nn.functional.avg_pool2d(DIGITS.image(number).double()[None], 2)[0]
    threat = Threat.of("rotation", 10)
    gamma = torch.tensor([[math.radians(degrees)]], dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    originals = inverse.survivors(x_attacked, threat)
    inside = ((originals.low <= gamma) & (gamma <= originals.high)).all(1)
    assert bool(inside.any()) and len(originals.low) <= 40
    for k in inside.nonzero()[:, 0].tolist():
        assert bool(((originals.lower[k] <= x) & (x <= originals.upper[k])).all())
    d = defence("rotation")
    beta = torch.tensor([[0.3], [-1.1]], dtype=torch.float64)
    bound = inverse.errors(originals, d, beta)
    assert bound.shape == (2, len(originals.low))
    for b in range(2):
        found, other = worst_consistent(x_attacked, x, threat, d, beta[b : b + 1], gamma)
        assert torch.equal(threat.attacked(other, gamma)[0], x_attacked)
        own = float(bound[b, inside].max())
        assert float(true_error(x, x_attacked, d, beta[b : b + 1], gamma)) <= found <= own
        if inverse.name == "lagrangian":
            assert own <= 1.35 * found


def test_shifts_are_found_and_bounded() -> None:
    x = torch.nn.functional.avg_pool2d(DIGITS.image(3).double()[None], 3)[0]
    threat = Threat.of("translation", 0.7)
    gamma = torch.tensor([[0.63, -0.41]], dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    inverse = Lagrangian(motion=0.05, steps=4)
    originals = inverse.survivors(x_attacked, threat)
    inside = ((originals.low <= gamma) & (gamma <= originals.high)).all(1)
    assert int(inside.sum()) == 1 and len(originals.low) <= 60
    d = defence("translation", margin=1)
    beta = torch.tensor([[0.3, 0.2], [-1.1, 0.4]], dtype=torch.float64)
    bound = inverse.errors(originals, d, beta)
    truth = true_error(x, x_attacked, d, beta, gamma)
    assert bool((truth <= bound[:, inside][:, 0]).all())
    assert float(bound.max()) <= 3 * float(truth.max())


def test_far_cells_are_excluded_and_the_rest_is_left() -> None:
    """Farkas finds cells that boxes miss; nothing survives for a picture that no rotation makes."""
    x = picture("smooth", (3, 12, 12), torch.Generator().manual_seed(0))
    threat = Threat.of("rotation", 10)
    gamma = torch.tensor([[math.radians(5.0)]], dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    edges = torch.linspace(math.radians(4), math.radians(6), 41, dtype=torch.float64)[:, None]
    found = interval_inverse(x_attacked, threat, edges[:-1], edges[1:], refinements=3)
    originals = Originals(x_attacked, threat, edges[:-1], edges[1:], found.low, found.high, 40, 0.0)
    out = excluded(cells(originals))
    inside = ((edges[:-1] <= gamma) & (gamma <= edges[1:]))[:, 0]
    assert not bool(out[inside].any())
    assert int((out & found.possible).sum()) >= 1
    noise = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(0)).round()
    turned = Threat(threat.transform, threat.box)
    left = Lagrangian().survivors(turned.transform.quantize(noise), turned)
    assert bool((left.low.abs() < math.radians(1)).all())  # only near 0, where x' is its own original
    none = replace(left, low=left.low[:0], high=left.high[:0], lower=left.lower[:0], upper=left.upper[:0])
    d = defence("rotation")
    for inverse in (Lagrangian(), Functional()):
        assert inverse.errors(none, d, torch.zeros(2, 1)).shape == (2, 0)


def test_what_it_cannot_invert_is_refused() -> None:
    x, beta = torch.zeros(1, 8, 8), torch.zeros(2, 1)
    threat = Threat.of("rotation", 5)
    d = defence("rotation")
    with pytest.raises(ValueError, match="rotation and translation"):
        Lagrangian().survivors(x, Threat.of("scaling", 5))
    with pytest.raises(ValueError, match="keep distances"):
        Lagrangian().survivors(x, Threat(OWN["shear"], Box((-0.1,), (0.1,))))
    with pytest.raises(ValueError, match="bilinear attacker"):
        Lagrangian().survivors(x, Threat.of("rotation", 5, interpolation="bicubic"))
    with pytest.raises(ValueError, match="motion"):
        Lagrangian(motion=0).survivors(x, threat)
    originals = Functional().survivors(x, threat)
    with pytest.raises(ValueError, match="share a transformation"):
        Lagrangian().errors(originals, defence("translation"), beta)
    with pytest.raises(ValueError, match="parameter noise"):
        Lagrangian().errors(originals, d.without_parameter_noise(0.1), beta)
    with pytest.raises(ValueError, match=r"beta \[n,1\]"):
        Lagrangian().errors(originals, d, torch.zeros(2, 2))
    with pytest.raises(ValueError, match="vignette"):
        Lagrangian().errors(originals, defence("rotation", margin=9), beta)
    with pytest.raises(ValueError, match="nearest jumps"):
        Lagrangian().errors(originals, defence("rotation", "nearest"), beta)


def test_what_is_enough_is_not_sharpened() -> None:
    """Bounds stay above the truth; those above `enough` are sharpened, and only those."""
    x = torch.nn.functional.avg_pool2d(DIGITS.image(3).double()[None], 3)[0]
    threat, d = Threat.of("translation", 0.7), defence("translation", margin=1)
    gamma = torch.tensor([[0.63, -0.41]], dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    inverse = Lagrangian(steps=4)
    originals = inverse.survivors(x_attacked, threat)
    inside = ((originals.low <= gamma) & (gamma <= originals.high)).all(1)
    assert int(inside.sum()) == 1
    beta = torch.tensor([[0.3, 0.2], [-1.1, 0.4], [0.0, 0.0]], dtype=torch.float64)
    loose = inverse.errors(originals, d, beta, enough=math.inf)
    sharp = inverse.errors(originals, d, beta)
    assert float(sharp.max()) < 0.9 * float(loose.max())
    half = (float(sharp.max()) + float(loose.max())) / 2
    between = inverse.errors(originals, d, beta, enough=half)
    assert float(between.max()) <= half
    changed = between != loose
    assert bool(changed.any()) and bool((loose.amax(1)[changed.any(1)] > half).all())
    truth = true_error(x, x_attacked, d, beta, gamma)
    for bound in (loose, sharp, between):
        assert bool((truth <= bound[:, inside][:, 0]).all())


def test_directions_are_followed_also_where_nothing_is_seen() -> None:
    """Views of zero, one and many directions: the eigenvalues found are those of C H⁻¹ Cᵀ, and no number is lost."""
    g = torch.Generator().manual_seed(5)
    seen = torch.randn(3, 6, 9, dtype=torch.float64, generator=g)
    seen[0], seen[1, 1:] = 0, 0
    some = torch.randn(3, 6, 6, dtype=torch.float64, generator=g)
    value, pulled, after = inverse_metric._ritz(lambda z: seen @ z, lambda z: seen.mT @ z, some, 4)
    assert torch.allclose(value, torch.linalg.eigvalsh(seen @ seen.mT), atol=1e-9)
    assert bool(pulled.isfinite().all()) and bool(after.isfinite().all())


def test_where_float64_does_not_suffice_the_boxes_bound_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.nn.functional.avg_pool2d(DIGITS.image(3).double()[None], 4)[0]
    threat, d = Threat.of("rotation", 5), defence("rotation", margin=1)
    gamma, beta = torch.tensor([[0.03]], dtype=torch.float64), torch.tensor([[0.2], [-0.4]], dtype=torch.float64)
    x_attacked, originals = one_cell(x, threat, gamma, 0.005, 0.5)
    loose = Lagrangian(steps=2).errors(originals, d, beta, enough=math.inf)
    monkeypatch.setattr("warpcert.originals.lagrangian.metric.Metric.center", uneven)
    monkeypatch.setattr("warpcert.originals.lagrangian.inverse.tuned", lambda *_: inverse_metric.Metric(*[None] * 2))
    found = Lagrangian(steps=2).errors(originals, d, beta)
    assert torch.equal(found, loose) and bool((true_error(x, x_attacked, d, beta, gamma) <= found[:, 0]).all())


def uneven(*_: Any) -> Any:
    """A matrix that has no factors."""
    return type("", (), {"factor": lambda self: None})()


@pytest.mark.parametrize("shape", [(1, 5, 4), (1, 1, 7), (3, 9, 1), (1, 1, 1)])
@pytest.mark.parametrize("threat", [Threat.rotation(20), Threat.translation(1)])
def test_narrow_pictures_have_originals_too(shape: tuple[int, int, int], threat: Threat) -> None:
    generator = torch.Generator().manual_seed(1)
    x, name = torch.rand(shape, generator=generator, dtype=torch.float64), threat.transform.name
    d = Defence.surface(name, *(15.0,) * threat.transform.dim, noise=0.1, preprocess=Preprocess("none", 0, 1.0, 5))
    gamma = torch.full((1, threat.transform.dim), 0.11, dtype=torch.float64)
    x_attacked, originals = one_cell(x, threat, gamma, 0.02, 0.5)
    beta = d.draw_beta(3, generator).double()
    found = Lagrangian(steps=3).errors(originals, d, beta)
    assert bool((true_error(x, x_attacked, d, beta, gamma) <= found[:, 0]).all()) and bool(found.isfinite().all())
