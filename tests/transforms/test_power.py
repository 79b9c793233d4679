"""Power: every bound holds with zero tolerance and is needed, and what has no proof says so."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates
from warpcert.classifier.before.rounding import level
from warpcert.exhaustive.enumeration import images, plan
from warpcert.exhaustive.events.crossings import find_crossings
from warpcert.exhaustive.events.paths import Graded
from warpcert.threat import Threat
from warpcert.transforms import Power, Preprocess
from warpcert.windows import pieces
from warpcert.windows.cover import cover_windows

T = Power()
X = torch.cat((torch.arange(256) / 255, torch.rand(300, generator=torch.Generator().manual_seed(0)) ** 8)).double()
THREAT = Threat.power(g=(-0.3, 0.5))


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def noise(seed: int, shape: tuple[int, ...] = (1, 5, 4)) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed)).double() / 255


def test_powers_multiply_and_keep_black_and_white() -> None:
    x = torch.tensor([[[0.0, 0.25, 1.0, -0.5, 1.5]]], dtype=torch.float64)
    moved = T(x, column(math.log(2), -math.log(2)))
    expected = torch.tensor([[0.0, 0.0625, 1, 0, 1], [0, 0.5, 1, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(moved[:, 0, 0], expected)
    assert THREAT.box == wc.transforms.Box((-0.3,), (0.5,)) and Threat.from_dict(THREAT.to_dict()) == THREAT
    assert T.span(THREAT.box) == "-0.3 in g … +0.5 in g"


def test_slopes_and_their_bounds() -> None:
    step = 1e-6
    for low, high in ((-1.0, -0.7), (-0.2, 0.3), (0.0, 0.0), (0.5, 1.5)):
        steep, bend = T.bends(column(low), column(high), X)
        for gamma in torch.linspace(low, high, 21, dtype=torch.float64).tolist():
            g = column(gamma)
            slope, before, after = (T.slope(g + d, X) for d in (0, -step, step))
            by_difference = (T.value(g + step, X) - T.value(g - step, X)) / (2 * step)
            torch.testing.assert_close(slope, by_difference, atol=1e-9, rtol=1e-6)
            assert bool((slope.abs() <= steep).all())
            assert bool((((after - before) / (2 * step)).abs() <= bend + 1e-9).all())
    assert bool(T.slope(column(0.3), X)[:, [0, 255]].eq(0).all())


def test_growth() -> None:
    for low, high in ((-1.0, 0.5), (-0.2, 0.0), (0.0, 1.0)):
        x = torch.linspace(0.99 / 255, 1, 20_000, dtype=torch.float64)
        for gamma in torch.linspace(low, high, 21, dtype=torch.float64):
            steps = T.value(gamma, x).diff() / x.diff()
            assert float(steps.max()) <= T.growth(low, high, 0.99 / 255) * (1 + 1e-9)


@pytest.mark.parametrize("extent", [0.3, 2.0])
def test_float32_stays_within_the_allowance(extent: float) -> None:
    gamma = (torch.rand(2000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 - 1) * extent
    error = (T.value(gamma, X) - T.value(gamma.float(), X.float())).abs() * 2.0**24
    assert 0.02 * T.allowance(extent) < float(error.max()) <= T.allowance(extent)


def missed(x: Tensor, threat: Threat, step: int = 1) -> int:
    """How many attacked pictures, at random and around every event, are not among those enumerated."""
    crossings = find_crossings(x, threat, threat.off_by, step)
    known = {row.numpy().tobytes() for found, _ in images(plan(crossings), 4096) for row in found.flatten(1)}
    ends = torch.cat((crossings.lower, crossings.upper))
    near = torch.cat([ends + s * 10.0**-k for k in (2, 4, 6, 8) for s in (-1, 1)])
    gamma = torch.cat((threat.box.uniform(3000, torch.Generator().manual_seed(4))[:, 0], near, ends))
    gamma = gamma[(gamma >= threat.box.lower[0]) & (gamma <= threat.box.upper[0])]
    seen = level(threat.attacked(x, gamma[:, None]).float(), step)
    return sum(row.numpy().tobytes() not in known for row in seen.flatten(1))


@pytest.mark.parametrize(("step", "quantized"), [(1, True), (8, True), (8, False)])
@pytest.mark.parametrize("seed", range(3))
def test_every_picture_is_enumerated(seed: int, step: int, quantized: bool) -> None:
    assert missed(noise(seed), Threat.power((-0.3, 0.5), quantized=quantized), step) == 0


def test_floats_that_are_nearly_black() -> None:
    """x ↦ √x makes 4·10⁻⁷ a sixth of a level: such a pixel is taken as it is, not as black."""
    x = noise(3)
    x[0, 0, :2] = torch.tensor([3.9e-7, 0.0])
    assert missed(x, Threat.power((-1.5, 0.2))) == 0
    crossings = find_crossings(x, Threat.power((-1.5, 0.2)))
    assert 0 in crossings.pixel and 1 not in crossings.pixel


def test_equal_pixels_cross_together() -> None:
    x = torch.full((1, 6, 6), 100 / 255, dtype=torch.float64)
    x[0, :3] = 180 / 255
    crossings = find_crossings(x, THREAT)
    assert plan(crossings).total < 4 * (len(crossings) // 18 + 2) and missed(x, THREAT) == 0


@pytest.mark.parametrize("name", ["look", "on"])
def test_each_bound_of_exact_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bends, or with values that are off by a hundredth of a level, pictures are missed or refused."""
    look, on = Graded.look, Graded.on

    def still(self: Graded, *args: Tensor) -> object:
        return look(self, *args)._replace(steep=args[1] * 0, bend=args[1] * 0, slope=args[1] * 0)

    def off(self: Graded, *args: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = on(self, *args)
        return value + 0.01, slope

    monkeypatch.setattr(Graded, name, still if name == "look" else off)
    try:
        assert sum(missed(noise(seed), THREAT) for seed in range(3)) > 0
    except RuntimeError as e:
        assert "contradicts" in str(e)


def beyond(x: Tensor, threat: Threat, p: Preprocess) -> float:
    """The largest ‖P x' − P z_j‖ − E_j that attackers in float32 and float64 find."""
    windows, worst = cover_windows(x.float(), threat, p, target=0.3), -math.inf
    assert float(windows.lower[0]) == threat.box.lower[0] and float(windows.upper[-1]) == threat.box.upper[0]
    for j, z in enumerate(windows.images(x.float(), threat)):
        gamma = torch.lerp(windows.lower[j], windows.upper[j], torch.linspace(0, 1, 101, dtype=torch.float64)[:, None])
        for dtype in (torch.float32, torch.float64):
            away = p(threat.attacked(x.float().to(dtype), gamma)).double() - p(z.double())
            worst = max(worst, float(away.flatten(1).norm(dim=1).max() - windows.E[j]))
    return worst


@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("p", [Preprocess(), Preprocess("circle", 1, 1, 5)], ids=["plain", "blur"])
def test_no_attack_leaves_its_window(p: Preprocess, quantized: bool) -> None:
    for x in (noise(1, (1, 9, 8)), noise(2, (3, 6, 6)) ** 4):
        assert beyond(x, Threat.power((-0.6, 0.8), quantized=quantized), p) <= 0


def test_the_remainder_of_the_chord_is_needed() -> None:
    """The tangent of an arc: halfway through a window a picture is off the chord by as much as the remainder says."""
    x, low, high = X.reshape(1, 1, -1), column(-0.6), column(0.8)
    scene = pieces.Scene(x, Threat.power((-0.6, 0.8), quantized=False), Preprocess(), rounded=False)
    nodes = torch.stack((low, high), 1)
    rest = pieces._remainder(scene, nodes)[0, 0]
    share = torch.linspace(0, 1, 65, dtype=torch.float64)[:, None, None, None]
    first, last = T(x, low), T(x, high)
    off = (T(x, torch.lerp(low, high, share[:, :, 0, 0])) - torch.lerp(first, last, share)).abs().amax(0)
    assert bool((off <= rest + 1e-15).all()) and bool((off > rest / 8 + 1e-15).any())


class Bright(torch.nn.Module):
    """Class 0 where the mean is above a third."""

    def forward(self, z: Tensor) -> Tensor:
        lead = 30 * (z.mean((1, 2, 3)) - 1 / 3)
        return torch.stack((lead, -lead), 1)


@pytest.mark.parametrize("method", ["exact", "cover", "base"])
def test_certified_end_to_end(method: str) -> None:
    x = torch.linspace(0.3, 0.9, 64).mul(255).round().div(255).reshape(1, 8, 8)
    nets = {
        "exact": wc.Levels(Bright().eval(), 8),
        "cover": wc.Smoothed(Bright().eval(), noise=0.2),
        "base": wc.Smoothed(Bright().eval(), noise=0.2, over={"power": 0.5}),
    }
    settings = {} if method == "exact" else {"n": 2000, "seed": 1}
    made = nets[method].certify(x, THREAT, method=method, **settings)
    kinds = {"exact": wc.Kind.PROVED, "cover": wc.Kind.WITH_CONFIDENCE, "base": wc.Kind.HEURISTIC}
    assert made.label == 0 and made.kind is kinds[method] and "in g" in str(made)
    assert certificates.read(made.to_dict()) == made and made.reach is not None
    given = THREAT.attacked(x.double(), made.reach.grid(401)).float()
    assert set(nets[method].network(given).argmax(1).tolist()) == {0}
    wide = Threat.power(g=1.5)
    g = torch.Generator().manual_seed(0)
    assert wc.grid(Bright(), x, 0, wide).succeeded and wc.gradient(Bright(), x, 0, wide, generator=g).succeeded
    assert wc.worst_of_k(Bright(), x, 0, wide, k=100, generator=g).succeeded


def test_what_has_no_proof_says_so() -> None:
    net, x = wc.Smoothed(Bright().eval(), noise=0.2, over={"power": 0.5}), torch.full((1, 8, 8), 0.6)
    with pytest.raises(ValueError, match=r"dist-x has no proved bound for power.*use exact or cover"):
        net.certify(x, THREAT, method="dist-x", n=2000)
    with pytest.raises(ValueError, match="power"):
        net.certify(x, THREAT, method="indiv", n=2000, windows=1)
    heuristic = net.certify(x, THREAT, method="dist-x", n=2000, betas=60, bound="sampled", seed=1)
    assert heuristic.kind is wc.Kind.HEURISTIC
