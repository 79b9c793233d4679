"""The reference: another kernel for the known original than for the defender. Its bound holds, and its votes are
counted there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import curve_plain
import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert.certificates import Kind
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.errors.base import interpolation_error
from warpcert.errors.boxes import Boxes
from warpcert.errors.calibration import Calibration
from warpcert.errors.curve.bound import Curve
from warpcert.errors.float32 import arithmetic_error
from warpcert.errors.sampled import Sampled
from warpcert.learn import data
from warpcert.learn.recipe import Recipe
from warpcert.learn.views import Views
from warpcert.threat import Threat
from warpcert.transforms import Preprocess
from warpcert.transforms.kernels import gather, kernel

BLUR = Preprocess("circle", 1, 1.5, 7)
MITCHELL = kernel("mitchell")


def test_the_kernel() -> None:
    """Weights of a point sum to 1, value and slope are continuous, and the constants of the table are not exceeded."""
    t = torch.linspace(0, 1, 4001, dtype=torch.float64)
    taps = t[:, None] - torch.arange(-1, 3)
    weight = MITCHELL.value(taps)
    assert float((weight.sum(1) - 1).abs().max()) < 1e-14
    spread = weight.abs().sum(1).max()
    assert float(spread) == pytest.approx(41 / 36) and (float(spread) ** 2 - 1) / 2 <= MITCHELL.overshoot
    assert MITCHELL.derivative is not None and MITCHELL.gradient is not None
    slope = MITCHELL.derivative(taps)
    assert float(slope.sum(1).abs().max()) < 1e-13
    assert float(slope.abs().sum(1).max() / 2 * spread) <= MITCHELL.gradient
    u = torch.linspace(-2.5, 2.5, 50_001, dtype=torch.float64)
    for f, steepest in ((MITCHELL.value, 1.2), (MITCHELL.derivative, 4.1)):
        assert float(f(u).diff().abs().max()) <= steepest * 1e-4
    numeric = MITCHELL.value(u).diff() / 1e-4
    assert float((numeric - MITCHELL.derivative(u[:-1] + 5e-5)).abs().max()) < 1e-3


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "bicubic-0.5", "mitchell"])
def test_float32_weights_err_as_little_as_derived(name: str) -> None:
    """At source points that float32 holds exactly: pictures that punish every weight's error, and a flat one."""
    draw, k = torch.Generator().manual_seed(0), kernel(name)
    place = torch.rand(2, 4000, 9, 9, generator=draw) * 4 - 2
    y, x = place.unbind()
    images = torch.cat((torch.ones(1, 1, 9, 9), torch.rand(5, 1, 9, 9, generator=draw).round()))
    for image in images:
        error = gather(image, y, x, k).double() - gather(image.double(), y.double(), x.double(), k)
        assert float(error.abs().max()) <= arithmetic_error(k)


def attack(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, count: int = 200) -> Tensor:
    """The largest ‖ε‖ that random γ, the ends, γ = 0, γ = −β and four rounds of local search find: [B]."""
    generator = torch.Generator().manual_seed(5)
    low, high = (torch.tensor(v, dtype=torch.float64) for v in (threat.box.lower, threat.box.upper))
    best = torch.zeros(len(beta), dtype=torch.float64)
    for b in range(len(beta)):
        special = torch.stack((low, high, 0 * low, (-beta[b]).clamp(low, high)))
        gamma, width = torch.cat((special, threat.box.uniform(count, generator))), high - low
        for _ in range(5):
            size = interpolation_error(x, defence, threat, beta[b].expand_as(gamma), gamma)
            best[b] = torch.maximum(best[b], size.max())
            width = width / 6
            step = torch.randn(8, 20, gamma.shape[1], dtype=torch.float64, generator=generator) * width
            gamma = (gamma[size.topk(min(8, len(gamma))).indices][:, None] + step[: len(gamma)]).flatten(0, 1)
            gamma = gamma.clamp(low, high)
    return best


CASES = [
    ("rotation", 25, 12, "bicubic-0.5", "mitchell", BLUR, True),
    ("rotation", 25, 30, "bicubic-0.5", "mitchell", Preprocess(), False),
    ("rotation", 10, 5, "bicubic", "bilinear", Preprocess("circle", 1, 1, 5), True),
    ("rotation", 10, 5, "bilinear", "mitchell", Preprocess("circle", 0, 1, 5), True),
    ("scaling", 15, 8, "bicubic-0.5", "mitchell", Preprocess("circle", 2, 1, 5), True),
    ("scaling", 10, 5, "mitchell", "bicubic", Preprocess("rectangle", 1, 1, 3), False),
    ("translation", 1.5, 1, "bicubic-0.5", "mitchell", Preprocess("rectangle", 2, 1, 5), True),
    ("translation", 1, 1, "bilinear", "mitchell", Preprocess(), False),
]


def picture(kind: str, size: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    if kind == "noise":
        return torch.rand(1, size, size, dtype=torch.float64, generator=draw)
    if kind == "stroke":
        x = torch.zeros(1, size, size, dtype=torch.float64)
        x[:, 2:-3, size // 2] = 1
        return x
    coarse = torch.rand(1, 3, 5, 5, dtype=torch.float64, generator=draw)
    return torch.nn.functional.interpolate(coarse, (size, size), mode="bilinear")[0]


@pytest.mark.parametrize("kind", ["noise", "stroke", "smooth"])
@pytest.mark.parametrize("which", range(len(CASES)))
def test_no_attack_beats_the_bound(which: int, kind: str) -> None:
    name, gamma, sigma, interpolation, reference, preprocess, quantized = CASES[which]
    defence = Defence.surface(
        name, sigma, noise=0.1, interpolation=interpolation, preprocess=preprocess, reference=reference
    )
    threat = Threat.of(name, gamma, quantized=quantized)
    x = picture(kind, 10)
    beta = defence.draw_beta(4, torch.Generator().manual_seed(6))
    beta[0] = 0
    result = Curve(1.05, 20)(x, defence, threat, beta)
    found = attack(x, defence, threat, beta)
    single = attack(x.float(), defence, threat, beta.float(), 60)  # what float32 computes is covered, too
    assert bool((torch.maximum(found, single) <= result.values).all()), (found / result.values).max()
    assert bool((result.lower <= result.values).all())
    assert float(result.lower.max()) <= float(found.max()) * 1.05 + 1e-9  # it is the same error that is searched
    if name != "translation":
        plain = curve_plain.plain_bound(x, defence, threat, beta)
        assert bool((found <= plain).all()) or not quantized


def test_mitchell_halves_the_error_of_digits() -> None:
    """Two digits, proved bounds: the smoothing of the bilinear attacker is met half-way."""
    plain = Defence.surface("rotation", 10, noise=0.2, interpolation="bicubic-0.5", preprocess=BLUR)
    threat = Threat.of("rotation", 30)
    for x in data.load("mnist500").images[:2].double() / 255:
        beta = plain.draw_beta(4, torch.Generator().manual_seed(1))
        sizes = [
            float(Curve(1.03)(x, defence, threat, beta).values.max())
            for defence in (plain, replace(plain, reference="mitchell"))
        ]
        assert sizes[1] < 0.7 * sizes[0]


def dot() -> Tensor:
    x = torch.zeros(1, 9, 9)
    x[0, 4, 4] = 1
    return x


def sharp(batch: Tensor) -> Tensor:
    """Class 0 if some pixel is brighter than 0.9."""
    bright = batch.flatten(1).amax(1) - 0.9
    return torch.stack((bright, -bright), 1)


def test_votes_are_counted_at_the_reference() -> None:
    """A dot that hardly turns stays bright; Mitchell's kernel leaves (8/9)² of it. No certificate rests on that: E is
    as large as the difference.
    """
    threat, asked = Threat.of("rotation", 0.001), []

    def remembering(batch: Tensor) -> Tensor:
        asked.append(sharp(batch).argmax(1))
        return sharp(batch)

    def smooth(network: object) -> wc.Smoothed:
        return wc.Smoothed(network, noise=0.001, over={"rotation": 0.01}, interpolation="bicubic-0.5")

    settings = {"method": "dist-x", "n": 500, "windows": 1, "seed": 1, "betas": 100}
    made = smooth(remembering).certify(dot(), threat, reference="mitchell", **settings)
    assert bool((torch.cat(asked) == 1).all()) and made.windows[0].k == 500
    assert made.defence == replace(smooth(sharp).defence(threat.transform), reference="mitchell")
    assert made.label == ABSTAIN and made.error.E > 0.2
    assert smooth(sharp).certify(dot(), threat, **settings).label == 0
    base = smooth(sharp).certify(dot(), threat, method="base", n=500, windows=1, seed=1)
    assert base.label == 0 and base.defence.reference is None  # deployed, the dot is bright
    assert smooth(sharp).predict(dot()) == 0


def test_sampled_and_proved_errors_agree() -> None:
    defence = Defence.surface("rotation", 10, noise=0.1, preprocess=BLUR, reference="mitchell")
    threat = Threat.of("rotation", 20)
    x, beta = picture("smooth", 12), defence.draw_beta(5, torch.Generator().manual_seed(3))
    sampled, proved = (sup(x, defence, threat, beta).values for sup in (Sampled(), Curve()))
    assert bool((sampled <= proved).all()) and float(sampled.max()) > 0.9 * float(proved.max()) / 1.05


def test_where_a_reference_does_not_belong(tmp_path: Path) -> None:
    smooth = wc.Smoothed(sharp, noise=0.1, over={"rotation": 10}, interpolation="bilinear")
    threat = Threat.of("rotation", 5)
    defence = replace(smooth.defence(threat.transform), reference="mitchell")
    x, beta = dot().double(), torch.zeros(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="γ = 0"):
        Threat.of("rotation", 5, interpolation="mitchell")
    with pytest.raises(ValueError, match="no reference kernel"):
        Boxes()(x, defence, threat, beta)
    with pytest.raises(ValueError, match="γ = 0"):
        wc.Smoothed(sharp, noise=0.1, over={"rotation": 10}, interpolation="mitchell").certify(
            dot(), threat, method="indiv"
        )
    with pytest.raises(ValueError, match="jumps"):
        Curve()(x, replace(defence, reference="nearest"), threat, beta)
    calibration = Calibration(
        defence, threat, (1, 9, 9), "dots", 0.1, 0.05, 0.01, 0.01, 100, 100, 200, 0, Kind.PROVED, "curve", 0
    )
    calibration.write(tmp_path / "c.json")
    assert Calibration.read(tmp_path / "c.json") == calibration
    with pytest.raises(ValueError, match="without a reference"):
        smooth.certify(dot(), threat, method="dist-d-online", calibration=calibration)
    assert calibration.mismatch(defence, threat) == ""
    assert "reference" in calibration.mismatch(replace(defence, reference=None), threat)


def test_the_record() -> None:
    """Read back as it was; a defence without a reference is written as it was before there were any."""
    defence = Defence.surface("rotation", 10, noise=0.1, reference="mitchell")
    assert Defence.from_dict(defence.to_dict()) == defence
    plain = replace(defence, reference=None)
    assert "reference" not in plain.to_dict() and Defence.from_dict(plain.to_dict()) == plain
    assert defence.known == replace(plain, interpolation="mitchell") and plain.known == plain
    assert replace(plain, reference="bicubic") == plain  # the defender's own kernel is no other
    assert defence.without_parameter_noise(0.1).reference is None


@pytest.mark.parametrize("attacked", [0.0, 0.5, 1.0])
def test_training_sees_both_kernels(attacked: float) -> None:
    """σ ≈ 0, Γ = 0: the attacked share passes the defender's kernel, which leaves the dot, the rest the reference."""
    settings = {"sigma": [1e-4], "gamma": [0.0], "attacked": attacked, "noise": 0.1, "rounded": False}
    recipe = Recipe.from_dict({"name": "a", "dataset": "mnist", "reference": "mitchell", **settings})
    seen = Views(recipe, torch.device("cpu"))(dot().expand(4, 1, 9, 9), torch.Generator().manual_seed(0))
    top = seen.flatten(1).amax(1)
    share = round(4 * attacked)
    assert bool((top[:share] > 0.99).all()) and bool((top[share:] < 0.8).all())
