"""Linear flows: the closed form is the matrix exponential, and every number that a proof takes from A holds."""

from __future__ import annotations

import math
from typing import ClassVar, final

import pytest
import torch
from torch import Tensor

from warpcert.numerics.interval import Interval
from warpcert.transforms import Flow, Rotation, Scaling
from warpcert.transforms.families.flow import Matrix

GENERATORS: list[Matrix] = [
    ((0, 1), (-1, 0)),
    ((-1, 0), (0, -1)),
    ((0, 0), (-1, 0)),  # shear
    ((0, 0.7), (0, 0)),
    ((1, 0), (0, -1)),  # squeeze
    ((0.5, 0), (0, 0)),  # along one axis
    ((-0.3, 1), (-1, -0.3)),  # spiral
    ((0, 2), (-0.5, 0)),  # ellipses: |s| is largest inside a cell
    ((0.4, 1.1), (0.9, -0.2)),  # hyperbolic, every entry
    ((-1, 1), (0, -1)),  # one eigenvector
    ((0.1, 3), (-1.3, 0.6)),
]


def flow(matrix: Matrix) -> Flow:
    @final
    class Some(Flow):
        name: ClassVar[str] = "some"
        unit: ClassVar[str] = ""
        generator: ClassVar[Matrix] = matrix

    return Some()


FLOWS = [flow(m) for m in GENERATORS]
each = pytest.mark.parametrize("t", FLOWS, ids=lambda t: str(t.generator))


def along(t: Flow, p: Tensor, gamma: Tensor) -> Tensor:
    """e^{γA} p by the library: [G, N, 2] for p [N, 2]."""
    a = torch.tensor(t.generator, dtype=torch.float64)
    return p @ torch.linalg.matrix_exp(gamma[:, None, None] * a).mT


def some_points(count: int = 40, seed: int = 0) -> Tensor:
    p = torch.randn(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 5
    p[:4] = torch.tensor([[0, 0], [3, 0], [0, -3], [2, 2]])
    return p


@each
def test_the_source_is_the_matrix_exponential(t: Flow) -> None:
    p, gamma = some_points(), torch.linspace(-1.5, 1.5, 31, dtype=torch.float64)
    y, x = t.source([gamma[:, None]], p[:, 0], p[:, 1])
    torch.testing.assert_close(torch.stack((y, x), -1), along(t, p, gamma), atol=1e-12, rtol=1e-12)


@each
def test_derivatives(t: Flow) -> None:
    p, gamma, step = some_points(), torch.linspace(-1, 1, 9, dtype=torch.float64), 1e-4
    before, now, after = (along(t, p, gamma + d) for d in (-step, 0, step))
    velocity, acceleration = (torch.stack(f(now[..., 0], now[..., 1]), -1) for f in (t.velocity, t.acceleration))
    torch.testing.assert_close((after - before) / (2 * step), velocity, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close((after - 2 * now + before) / step**2, acceleration, atol=1e-4, rtol=1e-4)
    assert bool((velocity.norm(dim=-1) <= t.speed * now.norm(dim=-1) * (1 + 1e-12)).all())
    box = Interval(now[..., 0] - 0.1, now[..., 0] + 0.1), Interval(now[..., 1] - 0.2, now[..., 1] + 0.2)
    for found, exact in zip(t.velocity(*box), t.velocity(now[..., 0] + 0.1, now[..., 1] - 0.2), strict=True):
        assert bool(found.contains(exact).all())


@each
def test_intervals_contain(t: Flow) -> None:
    g = torch.Generator().manual_seed(1)
    low = torch.rand(20, 1, dtype=torch.float64, generator=g) - 0.5
    high = low + 0.3 * torch.rand(20, 1, dtype=torch.float64, generator=g)
    y, x = t.enclosed(low, high, 6, 5)
    assert y.low.shape == (20, 6, 5)
    for share in torch.rand(30, 20, 1, dtype=torch.float64, generator=g).round(decimals=1):
        exact = t.coordinates(low + share * (high - low), 6, 5)
        assert bool(y.contains(exact[0]).all() and x.contains(exact[1]).all())


@each
def test_stretch_and_distances(t: Flow) -> None:
    p = some_points()[1:]
    for low, high in ((-0.7, 0.4), (0.2, 0.9), (-1.0, -0.5), (0.0, 0.0)):
        grown = along(t, p, torch.linspace(low, high, 101, dtype=torch.float64)).norm(dim=-1) / p.norm(dim=-1)
        assert float(grown.max()) <= t.stretch(low, high) * (1 + 1e-12)
    gamma = torch.linspace(-0.8, 0.8, 41, dtype=torch.float64)
    assert float((p.norm(dim=-1) / along(t, p, gamma).norm(dim=-1)).max()) <= t.crowding(0.8) * (1 + 1e-12)
    assert bool((along(t, p, gamma).norm(dim=-1) <= t.reach(p.norm(dim=-1), 0.8) * (1 + 1e-12)).all())


@each
def test_the_farthest_point_of_a_cell(t: Flow) -> None:
    p = some_points()
    for low, width in ((-0.6, 0.3), (0.1, 0.8), (-0.2, 1.0)):
        size = along(t, p, torch.linspace(low, low + width, 201, dtype=torch.float64)).norm(dim=-1)
        bound = t.farthest(torch.maximum(size[0], size[-1]), torch.tensor(width, dtype=torch.float64))
        assert bool((size <= bound * (1 + 1e-12)).all())


def test_where_ends_do_not_decide() -> None:
    """An ellipse is farther out in the middle of a cell than at its ends: `farthest` says so, and must."""
    t, p = flow(((0, 2), (-0.5, 0))), torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    size = along(t, p, torch.linspace(-0.5, 0.5, 101, dtype=torch.float64)).norm(dim=-1)[:, 0]
    ends = torch.maximum(size[0], size[-1])
    assert float(size.max()) > 1.05 * float(ends)
    assert float(t.farthest(ends, torch.tensor(1.0))) >= float(size.max())
    for exact in (Rotation(), Scaling(), flow(((0, 0), (-1, 0)))):
        assert float(exact.farthest(ends, torch.tensor(1.0))) == float(ends)


@each
def test_what_a_component_reaches_nearby(t: Flow) -> None:
    p, half = some_points(), 0.35
    tops = t.around(p[:, 0], p[:, 1], torch.full((len(p),), half, dtype=torch.float64))
    seen = along(t, p, torch.linspace(-half, half, 201, dtype=torch.float64)).abs().amax(0)
    for axis, top in enumerate(tops):
        assert bool((seen[:, axis] <= top * (1 + 1e-12)).all())


@each
def test_half_turn(t: Flow) -> None:
    """A component of the velocity has at most one zero in any interval shorter than `half_turn`."""
    gamma = torch.linspace(-6, 6, 24001, dtype=torch.float64)
    s = along(t, some_points()[1:], gamma)
    for v in t.velocity(s[..., 0], s[..., 1]):
        for track in v.T:
            if float(track.abs().max()) < 1e-9:
                continue
            zeros = gamma[1:][(track[1:] > 0) != (track[:-1] > 0)]
            assert not len(zeros) > 1 or float(zeros.diff().min()) >= t.half_turn - 2e-3


@each
@pytest.mark.parametrize("extent", [0.3, 2.0])
def test_float32_stays_within_the_allowance(t: Flow, extent: float) -> None:
    """Pixels of a frame and parameters that float32 has to round: the worst error is within the allowance."""
    gamma = (torch.rand(3000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 2 - 1) * extent
    gamma[:2, 0] = torch.tensor([-extent, extent])
    exact, rough = t.coordinates(gamma, 17, 20), t.coordinates(gamma.float(), 17, 20)
    y, x = torch.arange(17.0)[:, None] - 8, torch.arange(20.0)[None] - 9.5
    allowed = t.rounding(y.double().hypot(x.double()), extent) * 2.0**-24 * 1.01
    share = torch.stack([((a - b).abs() / allowed.clamp_min(1e-30)).amax(0) for a, b in zip(exact, rough, strict=True)])
    assert float(share.max()) <= 1
    assert float(share.max()) > 0.05  # and not beyond all measure


def test_rotation_and_scaling_as_known() -> None:
    """Their allowances as derived by hand: r(|θ| + 3√2 + 1) and r e^{|θ|}(|θ| + 5)."""
    r = torch.tensor([1.0, 7.5], dtype=torch.float64)
    torch.testing.assert_close(Rotation().rounding(r, 2.0), r * (2 + 3 * math.sqrt(2) + 1))
    torch.testing.assert_close(Scaling().rounding(r, 0.5), r * math.exp(0.5) * 5.5)
    assert Rotation().stretch(-9, 9) == Rotation().speed == Scaling().speed == 1
    assert Scaling().stretch(-0.3, 0.2) == math.exp(0.3)


def test_generators_that_are_none() -> None:
    with pytest.raises(ValueError, match="finite"):
        flow(((0, math.nan), (0, 0)))
    with pytest.raises(ValueError, match="double eigenvalue"):
        flow(((1, 1), (1e-6, 1)))
