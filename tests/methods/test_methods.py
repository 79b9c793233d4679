"""The methods end to end: a half-space whose true radius is known, the embedded model, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates
from warpcert.classifier.voting import votes
from warpcert.errors.base import interpolation_error
from warpcert.errors.sampled import Sampled
from warpcert.methods.run import window_centers

SIDE = 4
DEFENCE = wc.Defence(wc.Brightness(), (0.1,), 0.2)
THREAT = wc.Threat(wc.Brightness(), wc.Box((-0.4,), (0.4,)), quantized=False)


def brighter(z: Tensor) -> Tensor:
    mean = z.flatten(1).mean(1)
    return torch.stack((0.5 - mean, mean - 0.5), 1)


def grey(value: float) -> Tensor:
    return torch.full((1, SIDE, SIDE), value)


@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("two_class", [False, True])
def test_the_certified_range_ends_before_the_true_one(windows: int, two_class: bool) -> None:
    """g flips exactly at γ = ½ − value. The certificate must stop before, and not much before."""
    value = 0.62
    for seed in range(5):
        sampling = wc.Sampling(n=6000, windows=windows, two_class=two_class, seed=seed)
        c = wc.dist_spt_x(brighter, grey(value), DEFENCE, THREAT, sampling)
        reach = c.reach
        assert c.label == 1 and reach is not None
        assert -reach.lower[0] <= value - 0.5
        assert -reach.lower[0] > 0.7 * (value - 0.5)


def test_base_and_nested_agree_with_the_truth() -> None:
    value = 0.62
    base = wc.base_spt(brighter, grey(value), DEFENCE, THREAT, wc.Sampling(seed=1))
    assert base.kind is wc.Kind.HEURISTIC and base.reach is not None
    assert 0.09 < -base.reach.lower[0] <= 0.12  # T composes here, so it happens to be right
    inner = wc.GaussianInner(brighter, 0.2)
    nested = wc.dist_spt_x(brighter, grey(value), DEFENCE, THREAT, wc.Sampling(n=1000, seed=1), inner=inner, betas=50)
    assert nested.form == "nested" and nested.reach is not None
    assert 0.05 < -nested.reach.lower[0] <= 0.12
    assert nested.passes > 1000


def test_false_certificates_are_rarer_than_alpha() -> None:
    """Claims about a γ beyond the true range must be rarer than α (0.2 here, to see some)."""
    value, wrong = 0.55, 0
    beyond = wc.Box((-0.0501,), (-0.0501,))
    for seed in range(300):
        c = wc.base_spt(brighter, grey(value), DEFENCE, THREAT, wc.Sampling(n=200, alpha=0.2, seed=seed))
        wrong += c.covers(beyond)
    assert 0 < wrong <= 300 * 0.2 + 3 * math.sqrt(300 * 0.2)


def test_alpha_is_spent_once() -> None:
    c = wc.dist_spt_x(brighter, grey(0.62), DEFENCE, THREAT, wc.Sampling(n=3000, windows=3, seed=0), betas=50)
    assert math.fsum(amount for _, amount in c.ledger) == pytest.approx(c.alpha)
    assert len(c.windows) == 3 and sum(w.n for w in c.windows) == 3000
    assert certificates.read(c.to_dict()) == c


def test_the_seed_decides() -> None:
    def run(seed: int | None) -> tuple[int, ...]:
        c = wc.base_spt(brighter, grey(0.55), DEFENCE, THREAT, wc.Sampling(n=2000, seed=seed))
        return tuple(w.k for w in c.windows)

    assert run(1) == run(1)
    assert len({run(None) for _ in range(6)}) > 1


def test_windows_tile_gamma() -> None:
    assert window_centers(wc.Box((-1.0,), (3.0,)), 1) == [(0.0,)]
    assert window_centers(wc.Box((-3.0,), (3.0,)), 3) == [(-2.0,), (0.0,), (2.0,)]
    assert len(window_centers(wc.Box((-1.0, -2.0), (1.0, 2.0)), 2)) == 4


def test_sampled_error_is_the_error_at_its_worst_sample(generator: torch.Generator) -> None:
    x = torch.rand(3, 9, 8, generator=generator, dtype=torch.float64)
    defence = wc.Defence.surface("rotation", 20, noise=0.1, preprocess=wc.Preprocess("circle", 1, 1, 5))
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

    defence = wc.Defence.surface("translation", 0.5, noise=1.0, preprocess=wc.Preprocess("rectangle", 1))
    threat = wc.Threat.of("translation", 0.5)
    c = wc.dist_spt_x(
        bright_centre, x, defence, threat, wc.Sampling(n=4000, windows=2, seed=0), sup=Sampled(), betas=100
    )
    assert len(c.windows) == 4 and c.label == 1 and c.reach is not None
    assert "px × ±" in str(c)


def test_certified_digits_keep_their_label(generator: torch.Generator) -> None:
    """The embedded model: no attack inside a certified range may change the smoothed answer."""
    from warpcert.learn import data
    from warpcert.networks import resnet as models

    with_extra = models.load_weights(models_path())
    model, extra = with_extra[0], with_extra[2]
    defence, digits = wc.Defence.from_dict(extra["defence"]), data.load("mnist500")
    for index in (0, 1):
        x = digits.image(index)
        threat = wc.Threat.of("rotation", 50)
        c = wc.dist_spt_x(model, x, defence, threat, wc.Sampling(n=2000, windows=3, seed=index), betas=60)
        assert c.label == int(digits.labels[index]) and c.reach is not None
        inside = replace(threat, box=c.reach)

        def plain(z: Tensor) -> Tensor:
            return model(defence.preprocess(z))

        for found in (
            wc.worst_of_k(plain, x, c.label, inside, k=50, generator=generator),
            wc.grid(plain, x, c.label, inside, per_axis=41),
            wc.gradient(plain, x, c.label, inside, starts=3, steps=8, generator=generator),
        ):
            counts = votes(model, defence, found.x_attacked, 400, generator)
            assert int(counts.argmax()) == c.label


def models_path() -> str:
    return str(next(p for p in wc.__path__)) + "/assets/mnist-rotation.safetensors"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 5}, "n = "),
        ({"n": 0}, "at least 1"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"windows": 0}, "windows"),
    ],
    ids=str,
)
def test_bad_sampling_is_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wc.base_spt(brighter, grey(0.6), DEFENCE, THREAT, wc.Sampling(**change))  # type: ignore[arg-type]


def test_n_too_small_says_which_would_do() -> None:
    with pytest.raises(ValueError, match="at least n = 7") as error:
        wc.base_spt(brighter, grey(0.9), DEFENCE, THREAT, wc.Sampling(n=5))
    assert "too small" in str(error.value)
    wc.base_spt(brighter, grey(0.9), DEFENCE, THREAT, wc.Sampling(n=7))


def test_threat_and_defence_must_fit() -> None:
    with pytest.raises(ValueError, match="rotation"):
        wc.base_spt(brighter, grey(0.6), DEFENCE, wc.Threat.of("rotation", 10))
    with pytest.raises(ValueError, match="σ"):
        wc.Defence.surface("rotation", -1, noise=0.1)
    with pytest.raises(ValueError, match="sigma_param > 0"):
        wc.base_spt(brighter, grey(0.6), DEFENCE.without_parameter_noise(0.2), THREAT)
    with pytest.raises(ValueError, match="sigma_noise"):
        wc.dist_spt_x(brighter, grey(0.6), replace(DEFENCE, sigma_noise=0.0), THREAT)
    with pytest.raises(ValueError, match="γ = 0"):
        wc.Threat(wc.Brightness(), wc.Box((0.1,), (0.2,)))
    with pytest.raises(ValueError, match="dimension"):
        wc.Threat(wc.Brightness(), wc.Box((0.0, 0.0), (0.2, 0.2)))
    with pytest.raises(ValueError, match="ρ below"):
        wc.dist_spt_x(brighter, grey(0.6), DEFENCE, THREAT, betas=5)
