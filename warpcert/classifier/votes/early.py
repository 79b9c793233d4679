"""Prediction that stops as soon as the answer is settled: most pictures need a few dozen samples, not a thousand."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import (
    ABSTAIN,
    Draws,
    Logits,
    Prediction,
    as_float32,
    fresh_generator,
    validate_classifier,
    validate_image,
    votes,
)

__all__ = ["predict_early", "settled"]

FIRST = 24  # samples before the first look


def predict_early(
    classifier: Logits,
    defence: Defence,
    z: Tensor,
    *,
    n: int = 1000,
    alpha: float = 0.001,
    draws: Draws | None = None,
) -> Prediction:
    """g(z) or ABSTAIN, from at most n samples: another answer has probability ≤ alpha, however early it stops.

    A class with more than half of the probability is g(z). After FIRST samples, and whenever they have doubled, the
    leading class is answered if the anytime-valid test of P(class) > ½ accepts it at level α/K: that any of the K
    classes with P ≤ ½ is ever accepted has probability ≤ α. ABSTAIN when n samples settle nothing. Where no class has
    half of the votes, `predict`, which compares two classes, can answer and this cannot.
    """
    stats.Ledger(alpha)  # refuses an α outside (0, 1)
    validate_image(z, defence.transform, free=defence.front != "none")
    validate_classifier(classifier)
    if n < FIRST:
        raise ValueError(f"n = {n} is less than the {FIRST} samples of the first round: raise n")
    draws, z = draws or Draws(fresh_generator(z.device)), as_float32(z)
    counts = votes(classifier, defence, z, FIRST, draws)
    while not settled(counts.tolist(), int(counts.argmax()), alpha):
        drawn = int(counts.sum())
        if drawn == n:
            return Prediction(ABSTAIN, tuple(counts.tolist()), alpha)
        counts += votes(classifier, defence, z, min(drawn, n - drawn), draws)
    return Prediction(int(counts.argmax()), tuple(counts.tolist()), alpha)


def settled(counts: Sequence[int], label: int, alpha: float) -> bool:
    """Whether the anytime-valid test at level α/K accepts P(label) > ½."""
    k = counts[label]
    return bool(stats.accepts(k, sum(counts) - k, 0.5, alpha / len(counts)))
