"""Prediction and the nested form on classifiers whose smoothed answer is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

import warpcert as wc
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import GaussianInner, MarginInner
from warpcert.classifier.votes.early import predict_early
from warpcert.classifier.votes.nested import Ball, predict_nested, robust_votes
from warpcert.classifier.votes.sequential import Rules, run_tests
from warpcert.classifier.votes.voting import Draws, Logits, add_noise, batch_size, leads, predict, views, votes
from warpcert.statistics import radius
from warpcert.transforms import Brightness

SIGMA, NOISE, SIDE = 0.1, 0.2, 4
DEFENCE = Defence(Brightness(), (SIGMA,), NOISE)
CENTRE = 0.5


def brighter(z: Tensor) -> Tensor:
    """Class 1 iff the mean exceeds ½: a half-space, for which every bound of the theory is attained."""
    mean = z.flatten(1).mean(1)
    return torch.stack((CENTRE - mean, mean - CENTRE), 1)


def grey(value: float) -> Tensor:
    return torch.full((1, SIDE, SIDE), value)


def probability(value: float) -> float:
    """P(class 1) at a grey image: the mean is normal."""
    return float(norm.cdf((value - CENTRE) / math.hypot(SIGMA, NOISE / SIDE)))


def test_votes_have_the_right_law(generator: torch.Generator) -> None:
    n = 20_000
    for value in (0.45, 0.5, 0.62):
        k = int(votes(brighter, DEFENCE, grey(value), n, Draws(generator))[1])
        p = probability(value)
        assert abs(k / n - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_votes_around_a_center_are_those_of_the_moved_image(generator: torch.Generator) -> None:
    n = 20_000
    k = int(votes(brighter, DEFENCE, grey(0.5), n, Draws(generator, (0.08,)))[1])
    p = probability(0.58)
    assert abs(k / n - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_predict_answers_or_abstains(generator: torch.Generator) -> None:
    sure = predict(brighter, DEFENCE, grey(0.7), n=500, draws=Draws(generator))
    assert sure.label == 1 and sum(sure.counts) == 500
    answers = [
        predict(brighter, DEFENCE, grey(0.5), n=200, alpha=0.05, draws=Draws(generator)).label for _ in range(200)
    ]
    assert answers.count(wc.ABSTAIN) > 180  # the coin is fair: an answer is an error, allowed once in twenty


def test_samples_come_in_chunks(generator: torch.Generator) -> None:
    sizes = [len(chunk) for chunk in views(DEFENCE, grey(0.5), 1000, Draws(generator, batch=300))]
    assert sizes == [300, 300, 300, 100]
    assert batch_size(torch.zeros(3, 224, 224), None) * 3 * 224 * 224 <= 2**22
    with pytest.raises(ValueError, match="batch"):
        batch_size(grey(0.5), 0)


def test_same_seed_same_votes() -> None:
    a, b = (votes(brighter, DEFENCE, grey(0.52), 999, Draws(torch.Generator().manual_seed(5))) for _ in range(2))
    assert torch.equal(a, b)


def test_gaussian_inner_is_right_about_balls(generator: torch.Generator) -> None:
    """h(v) = [mean v > ½] is constant on B(v, E) iff |mean − ½|·√pixels > E."""
    inner = GaussianInner(brighter, NOISE, alpha=0.001)
    E = 0.3
    edge = E / SIDE
    values = torch.tensor([CENTRE + edge * t for t in (0.0, 0.5, 0.9, 1.6, 2.0, 3.0)])
    batch = values.reshape(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE)
    accepted, passes = inner.accepts(batch, 1, E, generator)
    assert accepted.tolist() == [False, False, False, True, True, True]
    assert passes < 6 * inner.cap / 3


def test_gaussian_inner_rarely_accepts_what_is_false(generator: torch.Generator) -> None:
    """At the edge of the null hypothesis, with many looks: false acceptances stay below α."""
    inner = GaussianInner(brighter, NOISE, alpha=0.05, cap=400)
    E = 0.2
    batch = torch.full((2000, 1, SIDE, SIDE), CENTRE + E / SIDE - 1e-6)
    accepted, _ = inner.accepts(batch, 1, E, generator)
    assert 0 < int(accepted.sum()) <= 2000 * 0.05 + 3 * math.sqrt(2000 * 0.05)


def test_margin_inner_needs_the_right_margin(generator: torch.Generator) -> None:
    """mean/√… scaled to Lipschitz constant 1: each logit is ±(mean − ½)·√pixels/√2·√2."""

    def lipschitz(z: Tensor) -> Tensor:  # the logit vector has Lipschitz constant 1: (s, −s)/√2 with ‖∇s‖ = 1
        s = (z.flatten(1).mean(1) - CENTRE) * SIDE
        return torch.stack((-s, s), 1) / math.sqrt(2)

    inner = MarginInner(lipschitz, slack=1e-6)
    E = 0.3
    batch = torch.tensor([0.99, 1.01]).mul(E / SIDE).add(CENTRE).reshape(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE)
    accepted, passes = inner.accepts(batch, 1, E, generator)
    assert accepted.tolist() == [False, True] and passes == 2  # exactly at the boundary of the ball
    looser = MarginInner(lipschitz, 1.02, slack=1e-6)
    assert looser.accepts(batch, 1, E, generator)[0].tolist() == [False, False]


def test_nested_votes_estimate_the_probability_of_robust_views(generator: torch.Generator) -> None:
    inner = GaussianInner(brighter, NOISE)
    E, value, n = 0.2, 0.6, 600
    k, _ = robust_votes(inner, DEFENCE, grey(value), Ball(1, E), n, Draws(generator))
    truth = float(norm.cdf((value - CENTRE - E / SIDE) / SIGMA))
    assert k / n <= truth + 4 * math.sqrt(truth / n)
    assert k / n > truth - 0.15  # the sequential test with a cap gives up close calls


def test_nested_prediction(generator: torch.Generator) -> None:
    inner = GaussianInner(brighter, NOISE)
    assert predict_nested(inner, DEFENCE, grey(0.7), n=200, draws=Draws(generator)).label == 1
    assert predict_nested(inner, DEFENCE, grey(0.5), n=200, draws=Draws(generator)).label == wc.ABSTAIN


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.full((1, 4, 4), math.nan), "NaN"),
        (torch.full((1, 4, 4), 2.0), r"\[0, 1\]"),
        (torch.full((1, 4, 4), -0.1), r"\[0, 1\]"),
        (torch.zeros(4, 4), r"\[C,H,W\]"),
        (torch.zeros(1, 4, 4, dtype=torch.uint8), "float"),
    ],
    ids=["nan", "high", "low", "rank", "dtype"],
)
def test_bad_images_are_refused(x: Tensor, words: str, generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match=words):
        predict(brighter, DEFENCE, x, draws=Draws(generator))


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda z: z.flatten(1).mean(1), "logits"),
        (lambda z: torch.zeros(3, 2), "logits"),
        (lambda z: torch.zeros(len(z), 1), "classes"),
        (lambda z: torch.full((len(z), 2), math.nan), "NaN"),
        (lambda z: None, "NoneType"),
    ],
    ids=["rank", "batch", "one class", "nan", "none"],
)
def test_bad_classifiers_are_refused(f: Logits, words: str, generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match=words):
        predict(f, DEFENCE, grey(0.5), draws=Draws(generator))


def test_the_slack_grows_with_the_logits(generator: torch.Generator) -> None:
    """One rule for all margins: of the lead, the slack times the largest logit (at least 1) is taken off."""

    def large(z: Tensor) -> Tensor:
        return torch.tensor([[100.0, 101.0]]).repeat(len(z), 1)

    batch = grey(0.5)[None]
    for slack, enough in ((0.009, True), (0.011, False)):
        inner = MarginInner(large, slack=slack)
        assert inner.accepts(batch, 1, 0.0, generator)[0].item() is enough
        assert (float(leads(large(batch), 1, slack)) > 0) is enough
    assert float(leads(large(batch) / 1000, 1, 0.5)) == pytest.approx(0.001 - 0.5)
    E = float(leads(large(batch), 1, 0.001)) / radius.needed_margin(1.0, 2.0)
    assert MarginInner(large, 2.0, slack=0.001).accepts(batch, 1, 0.999 * E, generator)[0].item()
    assert not MarginInner(large, 2.0, slack=0.001).accepts(batch, 1, 1.001 * E, generator)[0].item()


def test_training_mode_and_numpy_are_refused() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(SIDE * SIDE, 2))
    with pytest.raises(ValueError, match=r"eval\(\)"):
        predict(net.train(), DEFENCE, grey(0.5))
    with pytest.raises(ValueError, match=r"eval\(\)"):
        predict_nested(GaussianInner(net, NOISE), DEFENCE, grey(0.5))
    with pytest.raises(ValueError, match="torch tensor"):
        predict(brighter, DEFENCE, grey(0.5).numpy())  # type: ignore[arg-type]


def test_float64_pictures_are_taken_only_if_float32_holds_them() -> None:
    assert sum(predict(brighter, DEFENCE, grey(0.9).double(), n=50).counts) == 50
    for ask in (
        lambda z: predict(brighter, DEFENCE, z),
        lambda z: predict_early(brighter, DEFENCE, z),
        lambda z: predict_nested(GaussianInner(brighter, NOISE), DEFENCE, z),
    ):
        with pytest.raises(ValueError, match="float32 cannot represent"):
            ask(torch.full((1, SIDE, SIDE), 64.49999999974 / 255, dtype=torch.float64))


def test_a_rejection_spares_what_comes_before(generator: torch.Generator) -> None:
    """The first image sure, the second refuted: with stop_at_rejection the first is still decided."""
    batch = torch.tensor([0.56, 0.3, 0.9]).reshape(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE)
    tests = run_tests(
        brighter,
        batch,
        1,
        np.full(3, 0.8),
        Rules(NOISE, 1e-6, 10_000, stop_at_rejection=True),
        generator,
    )
    assert tests.accepted.tolist()[:2] == [True, False]


def test_no_noise_adds_nothing(generator: torch.Generator) -> None:
    x = torch.rand(2, 1, 3, 3)
    assert add_noise(x, 0.0, generator) is x
