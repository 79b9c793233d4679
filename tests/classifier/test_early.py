"""Prediction that stops early: never more often wrong than it says, and cheap where the answer is clear."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.early import predict_early
from warpcert.classifier.votes.voting import Draws

DEFENCE = Defence.surface("rotation", 10, noise=0.5)
X = torch.zeros(1, 3, 3)


def coin(p: float) -> torch.nn.Module:
    """Answers 1 with probability p: the noise at the first pixel is its coin."""
    threshold = 0.5 * torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(1 - p))

    class Coin(torch.nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            one = (z[:, 0, 0, 0] > threshold).float()
            return torch.stack((1 - one, one), 1)

    return Coin().eval()


def ask(p: float, seed: int, **more: float) -> wc.Prediction:
    generator = torch.Generator().manual_seed(seed)
    return predict_early(coin(p), DEFENCE, X, draws=Draws(generator), **more)  # type: ignore[arg-type]


def test_clear_answers_are_cheap_and_right() -> None:
    sure = ask(0.999, 0)
    assert sure.label == 1 and sum(sure.counts) == 24
    assert ask(0.02, 0).label == 0
    close = ask(0.62, 0, n=5000)
    assert close.label == 1 and 64 < sum(close.counts) < 5000


def test_wrong_answers_are_as_rare_as_it_says() -> None:
    """At p = ½ either answer is wrong; looking after every round must not help it."""
    alpha, runs = 0.1, 300
    answered = sum(ask(0.5, seed, n=600, alpha=alpha).label != wc.ABSTAIN for seed in range(runs))
    assert answered <= alpha * runs  # measured: about a third of that, the test is conservative
    assert answered > 0  # and it is a test, not a constant


def test_it_abstains_within_n() -> None:
    undecided = ask(0.5, 1, n=200)
    assert undecided.label == wc.ABSTAIN and sum(undecided.counts) == 200


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="n = 16 is less than the 24 samples"):
        ask(0.9, 0, n=16)
    with pytest.raises(ValueError, match="alpha"):
        ask(0.9, 0, alpha=0.0)
