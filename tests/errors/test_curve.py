"""The curve bound: every primitive contains what it claims, no attack beats the bound, and each piece of it is
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import curve_plain
import pytest
import torch
from flows import Ellipse, Skew, Spiral
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors import float32 as curve_float
from warpcert.errors.base import interpolation_error
from warpcert.errors.curve import bound as curve
from warpcert.errors.curve import cells as curve_cells
from warpcert.errors.curve import direction as curve_direction
from warpcert.errors.curve import path as curve_path
from warpcert.errors.curve import rounding as curve_rounding
from warpcert.errors.curve.bound import Curve, inference_slack
from warpcert.errors.curve.model import Model, absolute_norm, model, operator_norm
from warpcert.learn import data
from warpcert.threat import Threat
from warpcert.transforms import Flow, Preprocess, Rotation, Scaling, Shear, grid, kernels
from warpcert.transforms.kernels import kernel

torch.set_num_threads(1)
FLOWS = [Rotation(), Scaling(), Shear(), Spiral(), Ellipse(), Skew()]
SIZES = ((9, 12), (8, 8), (7, 7))


def pictures(kind: str, channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width + channels)
    noise = torch.rand(channels, height, width, dtype=torch.float64, generator=generator)
    if kind == "noise":
        return noise
    if kind == "checkerboard":
        board = (torch.arange(height)[:, None] + torch.arange(width)[None, :]) % 2
        return board.double().expand(channels, -1, -1).contiguous()
    if kind == "pixel":
        image = torch.zeros_like(noise)
        image[:, height // 2 - 1, width // 2 + 1] = 1
        return image
    if kind == "constant":
        return torch.full_like(noise, 0.4)
    if kind == "stroke":
        y, x = torch.meshgrid(torch.arange(height) - height / 2, torch.arange(width) - width / 2, indexing="ij")
        return (1.5 - (y + 0.3 * x).abs()).clamp(0, 1).double().expand(channels, -1, -1).contiguous()
    blur = torch.nn.functional.avg_pool2d(noise, 3, 1, 1)
    return (blur - blur.min()) / (blur.max() - blur.min())


def cells(transform: Flow, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    span = 3.2 if transform.dial else 0.4
    low = (torch.rand(count, dtype=torch.float64, generator=generator) - 0.5) * span
    low[:4] = (
        torch.tensor([0.0, -0.01, math.pi / 2, -math.pi / 2]) if span > 1 else torch.tensor([0.0, -0.01, 0.1, -0.1])
    )
    return low, low + 0.08 * torch.rand(count, dtype=torch.float64, generator=generator)


def plane(height: int, width: int) -> tuple[Tensor, Tensor]:
    return grid.points(height, width, torch.zeros(0, dtype=torch.float64))


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "bicubic-0.5"])
@pytest.mark.parametrize("transform", FLOWS)
def test_chord_remainder_contains(name: str, transform: Flow) -> None:
    generator = torch.Generator().manual_seed(0)
    share = torch.linspace(0, 1, 65, dtype=torch.float64)
    for kind, (height, width) in zip(("noise", "checkerboard", "pixel"), SIZES, strict=True):
        x = pictures(kind, 2, height, width)
        table = curve_path.tables(x, kernel(name))
        low, high = cells(transform, 30, generator)
        bound = curve_path.chord_remainder(table, transform, low, high, *plane(height, width))
        for c in range(30):
            value = transform(x, (low[c] + share * (high[c] - low[c]))[:, None], name).flatten(2)
            chord = torch.lerp(value[:1], value[-1:], share[:, None, None])
            assert bool(((value - chord).abs() <= bound[c] + 1e-13).all())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func's own imports
@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize("transform", FLOWS)
def test_second_derivative_and_jumps_contain(name: str, transform: Flow) -> None:
    generator = torch.Generator().manual_seed(1)
    height, width = SIZES[0]
    x = pictures("noise", 2, height, width)
    y, x_ = plane(height, width)
    table = curve_path.tables(x, kernel(name))

    def value(gamma: Tensor) -> Tensor:
        source = transform.source([gamma], y, x_)
        return kernels.gather(x, source[0][None, None], source[1][None, None], kernel(name))[0, :, 0].T

    def slope(gamma: Tensor) -> Tensor:
        return torch.func.jvp(value, (gamma,), (torch.ones_like(gamma),))[1]

    low, high = cells(transform, 20, generator)
    low, high = low + 1e-4, high + 1e-4  # off the angles where one-sided derivatives differ
    span = curve_path.span(table, transform, low, high, y, x_)
    second = curve_path.second_derivative(table, transform, span)
    jump = curve_path.jumps(table, transform, span)
    for c in range(20):
        nodes = low[c] + (high[c] - low[c]) * torch.rand(5, dtype=torch.float64, generator=generator)
        for gamma in nodes:
            curvature = torch.func.jvp(slope, (gamma,), (torch.ones_like(gamma),))[1]
            assert bool((curvature.abs() <= second[c] + 1e-10).all())
        change = (slope(high[c]) - slope(low[c])).abs()
        assert bool((change <= (high[c] - low[c]) * second[c] + jump[c] + 1e-10).all())
    assert (name == "bilinear") == bool((jump > 0).any())


def small_model(interpolation: str = "bicubic", attacker: str = "bilinear", quantized: bool = True) -> Model:
    defence = Defence.surface(
        "rotation", 30, noise=0.1, interpolation=interpolation, preprocess=Preprocess("circle", 0, 1, 5)
    )
    threat = Threat.of("rotation", 40, interpolation=attacker, quantized=quantized)
    beta = defence.draw_beta(5, torch.Generator().manual_seed(0))
    return model(pictures("smooth", 2, 10, 11), defence, threat, beta)


def test_the_model_is_the_definition() -> None:
    m = small_model()
    z = torch.rand(3, 2, 110, dtype=torch.float64)
    every = torch.arange(5)
    which = torch.tensor([4, 0, 2])
    pulled = m.pull(which, z, torch.arange(3))
    expected = m.defence.transform(z.reshape(3, 2, 10, 11), m.beta[which, None], "bicubic").flatten(2)[..., m.kept]
    assert torch.allclose(pulled, expected, atol=1e-13)
    p = torch.rand_like(pulled)
    assert torch.allclose((p * pulled).sum((1, 2)), (m.push(which, p) * z).sum((1, 2)), atol=1e-12)
    full = torch.zeros(5, 2, 110, dtype=torch.float64)
    full[..., m.kept] = m.defend(m.beta)
    seen = m.defence.preprocess(full.reshape(5, 2, 10, 11)).flatten(2)[..., m.kept]
    assert torch.allclose(m.blur(m.defend(m.beta)), seen, atol=1e-13)
    assert torch.allclose(seen, m.defence.view(m.x, m.beta[:, None]).flatten(2)[..., m.kept], atol=1e-13)
    assert every.numel() == m.beta.numel()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_operator_norm(interpolation: str) -> None:
    m = small_model(interpolation)
    for b in range(5):
        t = torch.zeros(m.kept.numel(), m.pixels, dtype=torch.float64).scatter_add_(1, m.index[b], m.weight[b])
        exact = torch.linalg.matrix_norm(m.blur(t.T).T, 2)
        assert exact <= operator_norm(m)[b] and exact <= absolute_norm(m)[b]


@pytest.mark.parametrize(("attacker", "quantized"), [("bilinear", True), ("bilinear", False), ("bicubic", True)])
def test_handed_contains(attacker: str, quantized: bool) -> None:
    m = small_model(attacker=attacker, quantized=quantized)
    low, high = cells(m.transform, 6, torch.Generator().manual_seed(2))
    table = curve_rounding.handed(m, low, high, 4, 3.0)
    for c in range(6):
        for s in range(4):
            share = torch.linspace(0, 1, 17, dtype=torch.float64)
            gamma = low[c] + (s + share) / 4 * (high[c] - low[c])
            clean = m.attack(gamma)
            given = m.quantize(clean)
            chord = torch.lerp(table.start[c, s], table.end[c, s], share[:, None, None])
            assert bool(((given - chord).abs() <= table.radius[c, s] + 1e-15).all())
            ends = m.attack(torch.stack((low[c], high[c])))
            whole = torch.lerp(ends[:1], ends[1:], ((s + share) / 4)[:, None, None])
            assert bool((((given - whole) * m.used).flatten(1).norm(dim=1) <= table.off[c, s] + 1e-12).all())
            assert float((table.radius[c, s] * m.used).norm()) <= float(table.spread[c, s]) + 1e-12
            if quantized:
                box = curve_rounding.rounding_box(m, clean.amin(0), clean.amax(0))
                assert bool(((given - clean).abs() <= box + 1e-15).all())


def test_absolute_weights_bound_every_rounding() -> None:
    """|P T_β N| ≤ P|T_β| box per pixel for the worst signs of N; signed weights would not do."""
    m = small_model()
    box = torch.full((1, m.pixels), 0.5 / 255, dtype=torch.float64)
    bound = curve_plain.absolute_pull(m, torch.arange(5), box)[:, 0]
    signed = m.pull(torch.arange(5), box[None], torch.zeros(5, dtype=torch.long))[:, 0]
    worst = torch.stack(
        [
            torch.zeros(m.kept.numel(), m.pixels, dtype=torch.float64).scatter_add_(1, m.index[b], m.weight[b])
            for b in range(5)
        ]
    )
    reached = worst.abs().sum(-1) * 0.5 / 255
    assert bool((reached <= bound + 1e-15).all())
    assert bool((reached > signed + 1e-5).any())


@pytest.mark.parametrize("name", ["rotation", "scaling", "translation"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "bicubic-0.5", "mitchell"])
def test_float32_stays_within_the_slack(name: str, interpolation: str) -> None:
    defence = Defence.surface(
        name, 2, noise=0.1, interpolation=interpolation, preprocess=Preprocess("circle", 1, 1.5, 5)
    )
    extent = {"rotation": 4.0, "scaling": 0.5, "translation": 3.0}[name]
    x = pictures("noise", 3, 21, 24).round()
    theta = (torch.rand(200, defence.transform.dim, dtype=torch.float64) * 2 - 1) * extent
    exact = defence.view(x, theta)
    rough = defence.view(x.float(), theta.float())
    error = (exact - rough).flatten(1).norm(dim=1).max()
    assert float(error) <= inference_slack(defence, 21, 24, 3, extent)
    value = curve_float.value_error(defence.transform, kernel(interpolation), 21, 24, extent)
    moved = defence.transform(x, theta, interpolation) - defence.transform(x.float(), theta.float(), interpolation)
    assert bool((moved.abs().amax((0, 1)) <= value).all())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func's own imports
@pytest.mark.parametrize("name", ["bilinear", "bicubic", "bicubic-0.5", "mitchell"])
def test_steepness_bounds_the_slopes_at_the_source_points(name: str) -> None:
    for kind, transform, extent in (
        ("noise", Rotation(), 9.0),
        ("checkerboard", Scaling(), 0.3),
        ("pixel", Rotation(), 9.0),
        ("noise", Shear(), 1.5),
        ("checkerboard", Skew(), 0.6),
    ):
        x = pictures(kind, 2, 9, 11)
        y, x_ = plane(9, 11)
        padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
        steps = float(padded.diff(dim=-1).norm() + padded.diff(dim=-2).norm())
        own = curve_float.steepness_of(curve_path.tables(x, kernel(name)), transform, extent)
        by_steps = steps * curve_float.steepness_by_steps(kernel(name), transform, extent)

        def at(source_y: Tensor, source_x: Tensor, x: Tensor = x) -> Tensor:
            return kernels.gather(x, source_y[None, None], source_x[None, None], kernel(name))[0, :, 0]

        for gamma in torch.linspace(-extent, extent, 41, dtype=torch.float64) * 0.999:
            source_y, source_x = transform.source([gamma], y, x_)
            one, nil = torch.ones_like(y), torch.zeros_like(y)
            slope_y = torch.func.jvp(at, (source_y, source_x), (one, nil))[1]
            slope_x = torch.func.jvp(at, (source_y, source_x), (nil, one))[1]
            size = float((slope_y.abs() + slope_x.abs()).norm())
            assert size <= own + 1e-9 and size <= by_steps + 1e-9


def attack(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, count: int = 160) -> Tensor:
    """The largest ‖ε‖ that a dense grid, the angles where pixels kink together, and local ascent find: [B]."""
    low, high = threat.box.lower[0], threat.box.upper[0]
    best = torch.zeros(beta.shape[0], dtype=torch.float64)
    for b in range(beta.shape[0]):
        special = [-float(beta[b]) + k * math.pi / 2 for k in range(-4, 5)] + [0.0]
        gamma = torch.cat(
            (threat.box.grid(count)[:, 0], torch.tensor([g for g in special if low <= g <= high]).double())
        )
        width = (high - low) / count
        for _ in range(3):
            parameter = gamma[:, None]
            given = threat.attacked(x, parameter)
            shift = beta[b].expand(len(gamma), 1)
            size = (defence.view(given, shift) - defence.view(x, shift + parameter)).flatten(1).norm(dim=1)
            best[b] = torch.maximum(best[b], size.max())
            top = gamma[size.topk(min(6, len(gamma))).indices]
            gamma = (top[:, None] + width * torch.linspace(-1, 1, 9, dtype=torch.float64)).flatten().clamp(low, high)
            width /= 8
    return best


CASES = [
    ("rotation", "bicubic", "smooth", (12, 12), Preprocess("circle", 1, 1.5, 7), True),
    ("rotation", "bicubic", "stroke", (13, 13), Preprocess("circle", 1, 1, 5), True),
    ("rotation", "bicubic", "noise", (9, 12), Preprocess("circle", 0, 1, 5), False),
    ("rotation", "bilinear", "checkerboard", (10, 10), Preprocess("circle", 1, 1, 3), True),
    ("rotation", "bilinear", "smooth", (11, 11), Preprocess("none", 0, 1, 5), True),
    ("rotation", "bilinear", "pixel", (8, 11), Preprocess(), True),
    ("rotation", "bicubic-0.5", "constant", (9, 9), Preprocess("circle", 1), True),
    ("rotation", "bicubic", "noise", (8, 8), Preprocess(), True),
    ("scaling", "bicubic", "smooth", (12, 11), Preprocess("circle", 2, 1, 5), True),
    ("scaling", "bilinear", "noise", (9, 9), Preprocess("rectangle", 1, 1, 3), True),
    ("scaling", "bilinear", "stroke", (10, 10), Preprocess(), False),
]


def case(
    name: str, interpolation: str, kind: str, size: tuple[int, int], preprocess: Preprocess, quantized: bool
) -> tuple[Tensor, Defence, Threat, Tensor]:
    sigma, gamma = (30, 25) if name == "rotation" else (12, 15)
    defence = Defence.surface(name, sigma, noise=0.1, interpolation=interpolation, preprocess=preprocess)
    threat = Threat.of(name, gamma, quantized=quantized)
    beta = defence.draw_beta(6, torch.Generator().manual_seed(3))
    return pictures(kind, 1 + (kind == "smooth") * 2, *size), defence, threat, beta


@pytest.mark.parametrize("tightness", [1.03, 2.0])
@pytest.mark.parametrize("which", range(len(CASES)))
def test_no_attack_beats_the_bound(which: int, tightness: float) -> None:
    x, defence, threat, beta = case(*CASES[which])
    result = Curve(tightness, 20)(x, defence, threat, beta)
    found = attack(x, defence, threat, beta, 160 if tightness < 2 else 60)
    assert bool((found <= result.values).all()), (found / result.values).max()
    assert bool((result.lower <= result.values).all())
    if (
        not result.converged
    ):  # all pixels of a constant image cross a threshold together, at a γ that float32 cannot tell
        assert CASES[which][2] == "constant"
        return
    slack = 2 * inference_slack(defence, *x.shape[1:], x.shape[0], 2.0)
    assert float(result.values.max()) <= tightness * float(result.lower.max()) * 1.001 + slack + 1e-8


def test_the_plain_form_agrees() -> None:
    for which in (1, 3, 9):
        x, defence, threat, beta = case(*CASES[which])
        plain = curve_plain.plain_bound(x, defence, threat, beta)
        found = attack(x, defence, threat, beta, 60)
        assert bool((found <= plain).all())
        assert float(Curve(1.03)(x, defence, threat, beta).values.max()) <= float(plain.max()) * 1.001


def test_a_bicubic_attacker_may_overshoot() -> None:
    x, defence, _, beta = case(*CASES[3])
    for quantized in (True, False):
        threat = Threat.of("rotation", 12, interpolation="bicubic", quantized=quantized)
        result = Curve(1.1, 10)(x, defence, threat, beta[:2])
        assert bool((attack(x, defence, threat, beta[:2]) <= result.values).all())


def test_the_deadline_keeps_the_bound_sound() -> None:
    x, defence, threat, beta = case(*CASES[3])
    for limit in (0.0, 0.05):
        result = Curve(1.0001, limit)(x, defence, threat, beta)
        assert not result.converged
        assert bool((attack(x, defence, threat, beta, 40) <= result.values).all())


def test_a_target_settles_early() -> None:
    x, defence, threat, beta = case(*CASES[0])
    full = Curve(1.03)(x, defence, threat, beta)
    high = 2 * float(full.lower.max())
    quick = Curve(1.03)(x, defence, threat, beta, high)
    assert quick.cells <= full.cells and float(quick.values.max()) <= high
    middle = 1.02 * float(full.lower.median())
    decided = Curve(1.001)(x, defence, threat, beta, middle)
    assert decided.converged
    assert bool(((decided.values <= middle) | (1.03 * decided.lower > middle)).all())
    assert bool((attack(x, defence, threat, beta) <= decided.values).all())


def test_a_point_as_threat() -> None:
    x, defence, _, beta = case(*CASES[0])
    threat = Threat.of("rotation", 0)
    result = Curve(1.03)(x, defence, threat, beta)
    assert bool((attack(x, defence, threat, beta, 1) <= result.values).all())


def spread_attack(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, count: int = 300) -> Tensor:
    """The largest ‖ε‖ over random γ, corners, grid crossings and three rounds of local search: [B]."""
    generator = torch.Generator().manual_seed(5)
    best = torch.zeros(beta.shape[0], dtype=torch.float64)
    low, high = (torch.tensor(v, dtype=torch.float64) for v in (threat.box.lower, threat.box.upper))
    for b in range(beta.shape[0]):
        crossing = torch.cat((threat.box.grid(5), (threat.box.grid(5).round() - beta[b]).clamp(low, high)))
        gamma, width = torch.cat((threat.box.uniform(count, generator), crossing)), high - low
        for _ in range(4):
            error = interpolation_error(x, defence, threat, beta[b].expand_as(gamma), gamma)
            best[b] = torch.maximum(best[b], error.max())
            top = gamma[error.topk(8).indices]
            width = width / 6
            step = torch.randn(8, 20, gamma.shape[1], dtype=torch.float64, generator=generator) * width
            gamma = (top[:, None] + step).flatten(0, 1).clamp(low, high)
    return best


SPREAD = [
    ("translation", 1.5, "bilinear", "noise", Preprocess("rectangle", 2, 1, 3), True),
    ("translation", 1.5, "bilinear", "pixel", Preprocess(), False),
    ("translation", 2, "bicubic", "smooth", Preprocess("rectangle", 2, 1, 5), True),
    ("translation", 1, "bicubic", "checkerboard", Preprocess("circle", 1), False),
    ("brightness", 0.2, "bilinear", "smooth", Preprocess("none", 0, 1, 5), True),
    ("brightness", 0.01, "bilinear", "constant", Preprocess(), True),
    ("contrast", 0.23, "bilinear", "noise", Preprocess("circle", 1, 1, 3), True),
    ("contrast", 0.05, "bilinear", "stroke", Preprocess(), False),
]


def test_digits() -> None:
    """Two of the digits that come with the package, ±50°: no attack beats the bound, and it is tight."""
    defence = Defence.surface("rotation", 30, noise=0.15, preprocess=Preprocess("circle", 1, 1.5, 7))
    threat = Threat.of("rotation", 50)
    for x in data.load("mnist500").images[:2].double() / 255:
        beta = defence.draw_beta(3, torch.Generator().manual_seed(9))
        result = Curve(1.03)(x, defence, threat, beta)
        found = attack(x, defence, threat, beta, 120)
        assert bool((found <= result.values).all())
        assert float(result.values.max()) <= 1.06 * float(found.max())


@pytest.mark.parametrize("which", range(len(SPREAD)))
def test_no_attack_beats_translation_and_values(which: int) -> None:
    name, gamma, interpolation, kind, preprocess, quantized = SPREAD[which]
    sigma = {"translation": 1.0, "brightness": 0.1, "contrast": 0.1}[name]
    defence = Defence.surface(name, sigma, noise=0.1, interpolation=interpolation, preprocess=preprocess)
    threat = Threat.of(name, gamma, quantized=quantized)
    x = pictures(kind, 1 + (kind == "smooth") * 2, 9, 10)
    beta = defence.draw_beta(3, torch.Generator().manual_seed(6))
    beta[0] = beta[0].round()
    result = Curve(1.03, 20)(x, defence, threat, beta)
    found = spread_attack(x, defence, threat, beta)
    assert bool((found <= result.values).all()), (found / result.values).max()
    assert bool((result.lower <= result.values).all())
    if name != "translation" or (interpolation == "bilinear" and not quantized):
        times = 2 if quantized else 3  # an attacker who does not round errs in float32, too
        slack = times * inference_slack(defence, 9, 10, x.shape[0], float(beta.abs().max()) + max(threat.box.upper))
        assert float(result.values.max()) <= 1.05 * float(torch.maximum(found, result.lower).max()) + slack + 1e-6


def test_volume() -> None:
    defence = Defence.surface("volume", 2, noise=0.01)
    threat = Threat.of("volume", 3)
    x = torch.rand(1, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(7)) * 1.6 - 0.8
    beta = defence.draw_beta(3, torch.Generator().manual_seed(8))
    result = Curve(1.03)(x, defence, threat, beta)
    assert bool((spread_attack(x, defence, threat, beta) <= result.values).all())
    assert result.converged


def _no_rounding(m: Model, low: Tensor, high: Tensor, doubt: float) -> tuple[Tensor, Tensor]:
    return (low + high) / 2, (low + high) / 2


def _nothing(t: curve_path.Tables, transform: Flow, s: curve_path.Span) -> Tensor:
    return torch.zeros(*s.y.low.shape, t.jump_y.shape[1], dtype=torch.float64)


@pytest.mark.parametrize(
    ("place", "name", "weaker", "interpolation", "kind", "vignette"),
    [
        (curve_rounding, "quantized_range", _no_rounding, "bicubic", "constant", Preprocess("circle", 4)),
        (curve_direction, "jumps", _nothing, "bilinear", "checkerboard", Preprocess("circle", 1)),
        (curve_direction, "second_derivative", _nothing, "bicubic", "checkerboard", Preprocess("circle", 1)),
    ],
)
def test_every_piece_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    name: str,
    weaker: Callable[..., object],
    interpolation: str,
    kind: str,
    vignette: Preprocess,
) -> None:
    """Cells of the first level, all bounded sharply: without this piece an attack beats the bound."""
    monkeypatch.setattr(curve_cells, "DEPTH", 0)
    monkeypatch.setattr(curve_cells, "MOTION", 0.4)
    defence = Defence.surface("rotation", 30, noise=0.1, interpolation=interpolation, preprocess=vignette)
    threat = Threat.of("rotation", 20, quantized=kind == "constant")
    beta = defence.draw_beta(12, torch.Generator().manual_seed(3))
    x = pictures(kind, 1, 13, 13) * 0.995
    found = attack(x, defence, threat, beta)
    monkeypatch.setattr(curve, "inference_slack", lambda *_: 0.0)
    assert bool((found <= Curve(1.0001)(x, defence, threat, beta).values).all())
    monkeypatch.setattr(place, name, weaker)
    assert bool((found > Curve(1.0001)(x, defence, threat, beta).values).any())


@pytest.mark.parametrize("name", ["jumps", "second_derivative"])
def test_the_attackers_remainder_is_needed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    m = small_model(quantized=False)
    low, high = cells(m.transform, 30, torch.Generator().manual_seed(4))
    share = torch.linspace(0, 1, 33, dtype=torch.float64)
    value = m.attack(low[:, None] + (high - low)[:, None] * share)[:, :, None]

    def violated() -> bool:
        table = curve_rounding.handed(m, low, high, 1, 3.0)
        chord = torch.lerp(table.start[:, None], table.end[:, None], share[:, None, None, None])
        return bool(((value - chord).abs() > table.radius[:, None]).any())

    assert not violated()
    monkeypatch.setattr(curve_path, name, _nothing)
    assert violated()


def test_user_errors_are_explained() -> None:
    x, defence, threat, beta = case(*CASES[0])
    with pytest.raises(ValueError, match="share"):
        Curve()(x, defence, Threat.of("scaling", 10), beta)
    with pytest.raises(ValueError, match=r"\[B, 1\]"):
        Curve(1.03)(x, defence, threat, beta[:, 0])
    with pytest.raises(ValueError, match=r"\[0,1\]"):
        Curve(1.03)(2 * x, defence, threat, beta)
    nearest = Defence.surface("rotation", 30, noise=0.1, interpolation="nearest")
    with pytest.raises(ValueError, match="jumps"):
        Curve(1.03)(x, nearest, threat, beta)
