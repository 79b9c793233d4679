"""A new linear flow, written as one class, is certified at once: every bound knows its matrix, none its name."""

from __future__ import annotations

import math

import pytest
import torch
from curve_plain import plain_bound
from flows import Ellipse, Skew, Spiral
from torch import Tensor

import warpcert as wc
from warpcert import transforms
from warpcert.classifier.defence import Defence
from warpcert.errors.base import interpolation_error
from warpcert.errors.curve import bound, path
from warpcert.errors.curve.bound import Curve, inference_slack
from warpcert.threat import Threat
from warpcert.transforms import Box, Flow, Preprocess, Shear
from warpcert.windows.cover import Windows, cover_windows

torch.set_num_threads(1)
NEW = {t.name: t for t in (Shear(), Spiral(), Ellipse(), Skew())}
BLUR = Preprocess("circle", 1, 1, 5)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, transform in NEW.items():
        monkeypatch.setitem(transforms.TRANSFORMS, name, transform)


def picture(kind: str, height: int = 11, width: int = 10) -> Tensor:
    g = torch.Generator().manual_seed(height * width)
    noise = torch.rand(1, height, width, dtype=torch.float64, generator=g)
    if kind == "checkerboard":
        return ((torch.arange(height)[:, None] + torch.arange(width)) % 2).double()[None]
    if kind == "smooth":
        noise = torch.nn.functional.avg_pool2d(noise, 3, 1, 1)
        return noise / noise.max()
    return noise


def attack(x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> Tensor:
    """The largest ‖ε‖ that a grid, γ = 0 and −β, and four rounds of local search find, in the arithmetic of x: [B]."""
    g = torch.Generator().manual_seed(5)
    low, high = threat.box.lower[0], threat.box.upper[0]
    best = torch.zeros(len(beta), dtype=torch.float64)
    for b in range(len(beta)):
        special = torch.tensor([[0.0], [-float(beta[b])]], dtype=torch.float64).clamp(low, high)
        gamma, width = torch.cat((threat.box.grid(120), special)), (high - low) / 120
        for _ in range(5):
            size = interpolation_error(x, defence, threat, beta[b].expand_as(gamma).to(x), gamma.to(x)).double()
            best[b] = torch.maximum(best[b], size.max())
            step = torch.randn(8, 12, 1, dtype=torch.float64, generator=g) * width
            gamma, width = (gamma[size.topk(8).indices][:, None] + step).flatten(0, 1).clamp(low, high), width / 5
    return best


@pytest.mark.parametrize("kind", ["noise", "checkerboard", "smooth"])
@pytest.mark.parametrize(
    ("interpolation", "attacker", "quantized"), [("bicubic", "bilinear", True), ("bilinear", "bicubic", False)]
)
@pytest.mark.parametrize("name", NEW)
def test_no_attack_beats_the_curve_bound(
    name: str, interpolation: str, attacker: str, quantized: bool, kind: str
) -> None:
    defence = Defence(NEW[name], (0.2,), 0.1, interpolation=interpolation, preprocess=BLUR)
    threat = Threat(NEW[name], Box((-0.15,), (0.15,)), attacker, quantized)
    x, beta = picture(kind), defence.draw_beta(4, torch.Generator().manual_seed(3))
    result = Curve(1.05, 20)(x, defence, threat, beta)
    found = torch.maximum(attack(x, defence, threat, beta), attack(x.float(), defence, threat, beta))
    assert bool((found <= result.values).all()), (found / result.values).max()
    assert bool((result.lower <= result.values).all()) and result.converged
    slack = 3 * inference_slack(defence, 11, 10, 1, float(beta.abs().max()) + 0.15)
    assert float(result.values.max()) <= 1.1 * float(found.max()) + slack  # and it is tight
    if quantized:
        assert bool((found <= plain_bound(x, defence, threat, beta)).all())


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic", "mitchell"])
def test_float32_stays_within_the_slack(name: str, kernel: str) -> None:
    defence = Defence(NEW[name], (0.2,), 0.1, interpolation=kernel, preprocess=BLUR)
    x, theta = picture("noise", 21, 24).round(), (torch.rand(200, 1, dtype=torch.float64) * 2 - 1) * 1.5
    error = (defence.view(x, theta) - defence.view(x.float(), theta.float())).flatten(1).norm(dim=1).max()
    assert float(error) <= inference_slack(defence, 21, 24, 1, 1.5)


def out_of_ball(x: Tensor, threat: Threat, p: Preprocess, windows: Windows) -> float:
    """The largest ‖P x' − P z_j‖ − E_j over parameters of some windows, by attackers in float32 and float64."""
    g, worst = torch.Generator().manual_seed(0), -math.inf
    chosen = torch.randperm(len(windows), generator=g)[:12]
    for j, z in zip(chosen, windows.images(x, threat, chosen), strict=True):
        share = torch.rand(60, 1, dtype=torch.float64, generator=g)
        share[:20] = share[:20].round()
        gamma = windows.lower[j] + (windows.upper[j] - windows.lower[j]) * share
        for dtype in (torch.float32, torch.float64):
            away = p(threat.attacked(x.to(dtype), gamma)).double() - p(z.double())
            worst = max(worst, float(away.flatten(1).norm(dim=1).max() - windows.E[j]))
    return worst


@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("p", [Preprocess(), BLUR], ids=["plain", "blur"])
@pytest.mark.parametrize("name", NEW)
def test_no_attack_leaves_its_window(name: str, p: Preprocess, quantized: bool) -> None:
    for kind in ("noise", "checkerboard"):
        x, threat = picture(kind).float(), Threat(NEW[name], Box((-0.2,), (0.2,)), quantized=quantized)
        windows = cover_windows(x, threat, p, target=0.4)
        assert float(windows.lower[0]) == -0.2 and float(windows.upper[-1]) == 0.2
        assert torch.equal(windows.upper[:-1], windows.lower[1:])
        assert out_of_ball(x, threat, p, windows) <= 0


@pytest.mark.parametrize("term", ["jumps", "second_derivative"])
@pytest.mark.parametrize("name", NEW)
def test_each_derivative_is_needed(name: str, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bound of the jumps, or of the second derivative, a chord's remainder is too small."""
    transform, kernel = NEW[name], "bilinear" if term == "jumps" else "bicubic"
    x, places = picture("noise"), transforms.grid.points(11, 10, torch.zeros(0, dtype=torch.float64))
    table = path.tables(x, transforms.kernels.kernel(kernel))
    low = torch.linspace(-0.3, 0.28, 40, dtype=torch.float64)
    share = torch.linspace(0, 1, 33, dtype=torch.float64)
    value = transform(x, (low[:, None] + 0.02 * share).reshape(-1, 1), kernel).reshape(40, 33, 1, -1)
    chord = torch.lerp(value[:, :1], value[:, -1:], share[:, None, None])

    def excess() -> float:
        rest = path.chord_remainder(table, transform, low, low + 0.02, *places)
        return float(((value - chord).abs() - rest[:, None]).max())

    assert excess() <= 1e-13
    monkeypatch.setattr(path, term, lambda t, flow, s: torch.zeros(*s.y.low.shape, 1, dtype=torch.float64))
    assert excess() > 1e-6


class Bright(torch.nn.Module):
    """Class 0 where the upper half is brighter than the lower."""

    def forward(self, z: Tensor) -> Tensor:
        half = z.shape[2] // 2
        lead = 30 * (z[:, :, :half].mean((1, 2, 3)) - z[:, :, half:].mean((1, 2, 3)))
        return torch.stack((lead, -lead), 1)


def test_votes_and_covers_certify_a_spiral() -> None:
    """End to end, in the threat's own unit; attacked pictures keep the label."""
    x = torch.cat((torch.full((1, 6, 12), 0.9), torch.full((1, 6, 12), 0.1)), 1)
    threat = Threat.of("spiral", 0.1)
    smooth = wc.Smoothed(Bright().eval(), noise=0.3, over={"spiral": 0.3}, preprocess=BLUR)
    voted = smooth.certify(x, threat, method="dist-x", n=2000, betas=60, seed=1)
    covered = wc.Smoothed(Bright().eval(), noise=0.3).certify(x, threat, method="cover", n=2000, seed=1)
    for certificate in (voted, covered):
        assert certificate.label == 0 and certificate.kind is wc.Kind.WITH_CONFIDENCE
        assert certificate.reach == threat.box and "every change within" in str(certificate)
    given = threat.attacked(x, Box((-0.1,), (0.1,)).grid(9).float())
    assert bool((Bright()(given).argmax(1) == 0).all())


@pytest.mark.parametrize("name", NEW)
def test_every_picture_of_a_new_flow_is_enumerated(name: str) -> None:
    """`exact` behind levels: proved on all of Γ, and dense attacks inside and at the ends keep the label."""
    x = (picture("smooth", 8, 9) * 255).round().div(255).float()
    x[:, :4] = 1 - 0.2 * x[:, :4]
    threat = Threat(NEW[name], Box((-0.08,), (0.08,)))
    net = wc.Levels(Bright().eval(), step=16)
    certificate = net.certify(x, threat, method="exact")
    assert certificate.kind is wc.Kind.PROVED and certificate.label == 0 and certificate.reach == threat.box
    given = threat.attacked(x.double(), threat.box.grid(801))
    assert set(net(given.float()).argmax(1).tolist()) == {0}


def test_a_path_of_ones_own_is_refused() -> None:
    """A transformation of no family is sampled and attacked; a proof is refused in a sentence that helps."""

    class Wave(transforms.SpatialTransform):
        name, unit, noun, composition = "wave", "", "wave", "none"

        def source(self, gamma: object, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return y, x + gamma[0] * y.sin()  # type: ignore[index]

    defence, threat = Defence(Wave(), (0.1,), 0.1), Threat(Wave(), Box((-0.1,), (0.1,)))
    x = picture("noise")
    assert float(interpolation_error(x, defence, threat, torch.ones(1, 1), torch.ones(1, 1) / 10)) > 0
    with pytest.raises(ValueError, match="declare it as a Flow"):
        Curve()(x, defence, threat, torch.zeros(1, 1))
    with pytest.raises(ValueError, match="declare it as a Flow"):
        cover_windows(x.float(), threat, BLUR, target=0.3)
    assert not isinstance(Wave(), Flow)


def test_what_float32_adds_is_in_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the picture as it is known, and once for what was handed over."""
    x, threat = torch.rand(1, 9, 9, generator=torch.Generator().manual_seed(1)), Threat.rotation(2)
    defence = Defence.surface("rotation", 10, noise=0.2)
    beta = defence.draw_beta(3, torch.Generator().manual_seed(2))
    found = []
    for each in (0.0, 1.0):
        monkeypatch.setattr(bound, "inference_slack", lambda *_, each=each: each)
        found.append(Curve(1.5)(x, defence, threat, beta).values)
    assert bool((found[1] > found[0] + 1.9).all())
