"""The methods end to end: a half-space whose true radius is known, the embedded model, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates, methods
from warpcert.certificates import Voted
from warpcert.classifier import Classifier
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import Draws, votes
from warpcert.errors.base import interpolation_error
from warpcert.errors.sampled import Sampled
from warpcert.methods.run import window_centers
from warpcert.transforms import Box, Brightness

SIDE = 4
THREAT = wc.Threat.brightness(0.4, quantized=False)


def brighter(z: Tensor) -> Tensor:
    mean = z.flatten(1).mean(1)
    return torch.stack((0.5 - mean, mean - 0.5), 1)


NET = wc.Smoothed(brighter, 0.2, {"brightness": 0.1})


def grey(value: float) -> Tensor:
    return torch.full((1, SIDE, SIDE), value)


def made(classifier: Classifier, x: Tensor, threat: wc.Threat = THREAT, **settings: Any) -> Voted:
    found = classifier.certify(x, threat, **settings)
    assert isinstance(found, Voted) and certificates.read(found.to_dict()) == found
    return found


@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("two_class", [False, True])
def test_the_certified_range_ends_before_the_true_one(windows: int, two_class: bool) -> None:
    """g flips exactly at γ = ½ − value. The certificate must stop before, and not much before."""
    value = 0.62
    for seed in range(5):
        c = made(NET, grey(value), n=6000, windows=windows, two_class=two_class, seed=seed)
        reach = c.reach
        assert c.label == 1 and reach is not None
        assert -reach.lower[0] <= value - 0.5
        assert -reach.lower[0] > 0.7 * (value - 0.5)


def test_base_and_nested_agree_with_the_truth() -> None:
    value = 0.62
    base = made(NET, grey(value), method="base", seed=1)
    assert base.kind is wc.Kind.HEURISTIC and base.reach is not None
    assert 0.09 < -base.reach.lower[0] <= 0.12  # T composes here, so it happens to be right
    two_levels = wc.Smoothed(brighter, 0.2, {"brightness": 0.1}, nested=True)
    nested = made(two_levels, grey(value), n=1000, seed=1, betas=50)
    assert nested.form == "nested" and nested.alpha_inner > 0 and nested.reach is not None
    assert 0.05 < -nested.reach.lower[0] <= 0.12
    assert nested.passes > 1000


def test_false_certificates_are_rarer_than_alpha() -> None:
    """Claims about a γ beyond the true range must be rarer than α (0.2 here, to see some)."""
    value, wrong = 0.55, 0
    beyond = Box((-0.0501,), (-0.0501,))
    for seed in range(300):
        c = NET.certify(grey(value), THREAT, method="base", n=200, alpha=0.2, seed=seed)
        wrong += c.covers(beyond)
    assert 0 < wrong <= 300 * 0.2 + 3 * math.sqrt(300 * 0.2)


def test_alpha_is_spent_once() -> None:
    c = made(NET, grey(0.62), n=3000, windows=3, seed=0, betas=50)
    assert math.fsum(amount for _, amount in c.ledger) == pytest.approx(c.alpha)
    assert len(c.windows) == 3 and sum(w.n for w in c.windows) == 3000


def test_the_seed_decides() -> None:
    def run(seed: int | None) -> tuple[int, ...]:
        c = made(NET, grey(0.55), method="base", n=2000, seed=seed)
        return tuple(w.k for w in c.windows)

    assert run(1) == run(1)
    assert len({run(None) for _ in range(6)}) > 1


def test_windows_tile_gamma() -> None:
    assert window_centers(Box((-1.0,), (3.0,)), 1) == [(0.0,)]
    assert window_centers(Box((-3.0,), (3.0,)), 3) == [(-2.0,), (0.0,), (2.0,)]
    assert len(window_centers(Box((-1.0, -2.0), (1.0, 2.0)), 2)) == 4


def test_sampled_error_is_the_error_at_its_worst_sample(generator: torch.Generator) -> None:
    x = torch.rand(3, 9, 8, generator=generator, dtype=torch.float64)
    defence = Defence.surface("rotation", 20, noise=0.1, preprocess=wc.Preprocess("circle", 1, 1, 5))
    threat = wc.Threat.of("rotation", 30)
    beta = defence.draw_beta(6, generator)
    values = Sampled(gammas=21)(x, defence, threat, beta).values
    by_hand = torch.stack(
        [interpolation_error(x, defence, threat, beta, g.expand(6, 1)) for g in threat.box.grid(21)]
    ).amax(0)
    torch.testing.assert_close(values, by_hand, atol=1e-12, rtol=0)
    assert values.min() > 0.1


def test_translation_has_windows_in_the_plane() -> None:
    x = torch.zeros(1, 10, 10)
    x[:, 3:7, 3:7] = 1

    def bright_centre(z: Tensor) -> Tensor:
        s = z[:, 0, 3:7, 3:7].mean((1, 2)) - 0.2
        return torch.stack((-s, s), 1)

    net = wc.Smoothed(bright_centre, 1.0, {"translation": 0.5}, preprocess=wc.Preprocess("rectangle", 1))
    c = made(net, x, wc.Threat.translation(0.5), n=4000, windows=2, seed=0, bound="sampled", betas=100)
    assert len(c.windows) == 4 and c.label == 1 and c.reach is not None
    assert "px × ±" in str(c)


def test_certified_digits_keep_their_label(generator: torch.Generator) -> None:
    """The embedded model: no attack inside a certified range may change the smoothed answer."""
    from warpcert.learn import data

    net, digits = wc.load("mnist-rotation"), data.load("mnist500")
    defence = net.defence(wc.Threat.rotation(50).transform)
    for index in (0, 1):
        x, threat = digits.image(index), wc.Threat.rotation(50)
        c = made(net, x, threat, method="dist-x", n=2000, windows=3, seed=index, betas=60)
        assert c.label == int(digits.labels[index]) and c.reach is not None
        inside = replace(threat, box=c.reach)

        def plain(z: Tensor) -> Tensor:
            return net.logits(defence.preprocess(z))

        for found in (
            wc.worst_of_k(plain, x, c.label, inside, k=50, generator=generator),
            wc.grid(plain, x, c.label, inside, per_axis=41),
            wc.gradient(plain, x, c.label, inside, starts=3, generator=generator),
        ):
            counts = votes(net.logits, defence, found.x_attacked, 400, Draws(generator))
            assert int(counts.argmax()) == c.label


def test_a_certificate_names_its_classifier_and_its_picture() -> None:
    c = made(NET, grey(0.62), method="base", n=100)
    assert c.classifier.fingerprint == NET.fingerprint and c.classifier.facts == NET.facts
    assert c.picture == made(NET, grey(0.62).double().float(), method="base", n=100).picture
    assert c.picture != made(NET, grey(0.63), method="base", n=100).picture
    assert c.scores is not None and sum(c.scores) == 100


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 5}, "n = "),
        ({"n": 0}, "at least 1"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"windows": 0}, "windows"),
        ({"samples": 3}, "no setting samples"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NET.certify(grey(0.6), THREAT, method="base", **change)


def test_n_too_small_says_which_would_do() -> None:
    with pytest.raises(ValueError, match="at least n = 7") as error:
        NET.certify(grey(0.9), THREAT, method="base", n=5, windows=1)
    assert "too small" in str(error.value)
    NET.certify(grey(0.9), THREAT, method="base", n=7, windows=1)


METHODS: dict[str, Classifier] = {
    "base": NET,
    "dist-x": NET,
    "indiv": NET,
    "cover": wc.Smoothed(brighter, 0.2),
    "exact": wc.Levels(brighter, 32),
}


@pytest.mark.parametrize("name", METHODS)
def test_pictures_that_float32_would_change_are_refused_by_every_method(name: str) -> None:
    """A proof about x.float() says nothing about x: at γ = 0 a pixel of 64.4999… levels would have become 64.5."""
    x = torch.full((1, SIDE, SIDE), 64.49999999974 / 255, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"float32 cannot represent.*x\.float\(\)"):
        METHODS[name].certify(x, THREAT, method=name)


@pytest.mark.parametrize("name", sorted(set(methods.METHODS) - set(METHODS)))
def test_so_do_those_with_a_calibration(name: str) -> None:
    plan = {"bound": "sampled", "E": 1.0, "rho": 0.4, "alpha": 0.5, "alpha_inner": 0.5}
    settings = {"calibration": wc.calibrate(NET, [grey(0.6)], THREAT, **plan), "windows": 1, "n": 300}
    assert NET.certify(grey(0.6), THREAT, method=name, **settings).method == name
    with pytest.raises(ValueError, match="float32 cannot represent"):
        NET.certify(grey(0.6).double() * (1 - 1e-12), THREAT, method=name, **settings)


def test_threat_and_classifier_must_fit() -> None:
    noisy = wc.Smoothed(brighter, 0.2)
    for classifier, threat, method, words in (
        (NET, wc.Threat.rotation(10), "base", "smooths over brightness"),
        (noisy, THREAT, "base", "smooth over parameters"),
        (wc.Smoothed(brighter, 0.0, {"brightness": 0.1}), THREAT, "dist-x", "noise > 0"),
        (NET, THREAT, "cover", "noise alone"),
        (wc.Levels(brighter, 8), THREAT, "cover", "exact"),
        (wc.Plain(brighter), THREAT, "cover", "Lipschitz constant"),
        (NET, THREAT, "exact", "without noise"),
        (wc.Plain(brighter), THREAT, "exact", "levels"),
        (NET, THREAT, "dist-d", "calibration"),
        (NET, replace(THREAT, tolerance=1e-6), "dist-x", "tolerance"),
        (NET, THREAT, "magic", "not known"),
    ):
        with pytest.raises(ValueError, match=words):
            classifier.certify(grey(0.6), threat, method=method)
    with pytest.raises(ValueError, match="a threat is missing"):
        NET.certify(grey(0.6))
    with pytest.raises(ValueError, match="ρ below"):
        NET.certify(grey(0.6), THREAT, betas=5)


def test_a_threat_prints_itself_in_surface_units() -> None:
    assert repr(wc.Threat.rotation(degrees=30)) == "Threat(rotation within ±30°, bilinear, rounded)"
    told = repr(wc.Threat.brightness(shift=0.1, quantized=False, tolerance=1e-6))
    assert told == "Threat(brightness change within ±0.1 of full scale, not rounded, tolerance 1e-06)"


def test_defences_and_threats_are_checked() -> None:
    with pytest.raises(ValueError, match="σ"):
        Defence.surface("rotation", -1, noise=0.1)
    with pytest.raises(ValueError, match="must contain 0"):
        wc.Threat(Brightness(), Box((0.1,), (0.2,)))
    with pytest.raises(ValueError, match="dimension"):
        wc.Threat(Brightness(), Box((0.0, 0.0), (0.2, 0.2)))


def test_suitable_methods() -> None:
    assert methods.suitable(NET, THREAT) == ["dist-x", "indiv", "base"]
    assert methods.suitable(wc.Smoothed(brighter, 0.2), THREAT) == ["cover"]
    assert methods.suitable(wc.Levels(brighter, 8), THREAT) == ["exact"]
    assert methods.suitable(wc.Plain(brighter), THREAT) == []


def test_online_certificates_do_not_know_nested_votes() -> None:
    """Votes at x' that are counted as if x' were the original would be another statement."""
    nested = wc.Smoothed(brighter, 0.2, {"brightness": 0.1}, nested=True)
    with pytest.raises(ValueError, match="nested"):
        nested.certify(grey(0.6), THREAT, method="dist-d-online")
