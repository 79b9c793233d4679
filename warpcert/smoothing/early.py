"""Prediction that stops as soon as the answer is settled: most pictures need a few dozen samples, not a thousand."""

from __future__ import annotations

import torch
from torch import Tensor

from warpcert import stats
from warpcert.certificate import ABSTAIN
from warpcert.smoothing.joint import (
    Classifier,
    Prediction,
    fresh_generator,
    validate_classifier,
    validate_image,
    votes,
)
from warpcert.threat import Defence

__all__ = ["predict_early"]


def predict_early(
    classifier: Classifier,
    defence: Defence,
    z: Tensor,
    *,
    n: int = 1000,
    alpha: float = 0.001,
    first: int = 16,
    generator: torch.Generator | None = None,
    batch: int | None = None,
) -> Prediction:
    """g(z) or ABSTAIN, from at most n samples: another answer has probability ≤ alpha, however early it stops.

    `first` free samples guess a class. A class with more than half of the probability is g(z), so the guess is
    answered once the anytime-valid test of P(class) > ½ accepts; it may look after every round. ABSTAIN when no
    continuation within n can be accepted. `counts` are those of the test, without the guess. Where no class has half
    of the votes, `predict`, which compares two classes, can answer and this cannot.
    """
    stats.Ledger(alpha)  # refuses an α outside (0, 1)
    validate_image(z, defence.transform)
    validate_classifier(classifier)
    if not 1 <= first < n:
        raise ValueError(f"the guess takes {first} samples of n = {n}: expected 1 <= first < n")
    generator, z = generator or fresh_generator(z.device), z.float()
    guessed = votes(classifier, defence, z, first, generator, batch=batch)
    label, counts, cap, step = int(guessed.argmax()), torch.zeros_like(guessed), n - first, first
    while (left := cap - int(counts.sum())) > 0:
        counts += votes(classifier, defence, z, min(step, left), generator, batch=batch)
        k, others = int(counts[label]), int(counts.sum() - counts[label])
        if stats.accepts(k, others, 0.5, alpha):
            return Prediction(label, tuple(counts.tolist()), alpha)
        if stats.futile(k, others, 0.5, alpha, cap):
            break
        step *= 2
    return Prediction(ABSTAIN, tuple(counts.tolist()), alpha)
