"""The nested form: g(z) = argmax_c P_β(h(P T_β z) = c) with an inner classifier h that never abstains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import Inner
from warpcert.classifier.votes.voting import (
    ABSTAIN,
    Draws,
    Prediction,
    as_float32,
    fresh_generator,
    validate_classifier,
    validate_image,
    views,
)

__all__ = ["Ball", "guess", "predict_nested", "robust_votes"]


GUESSES = 100


@final
@dataclass(frozen=True)
class Ball:
    """That the inner classifier is `label` within E of a view."""

    label: int
    E: float = 0.0


def guess(inner: Inner, defence: Defence, x: Tensor, n0: int, draws: Draws) -> Tensor:
    """Counts per class of n0 inner guesses, to choose the label before the test."""
    return torch.stack([inner.votes(chunk, draws.generator) for chunk in views(defence, x, n0, draws)]).sum(0)


def robust_votes(inner: Inner, defence: Defence, x: Tensor, ball: Ball, n: int, draws: Draws) -> tuple[int, int]:
    """(k, passes): for how many of n draws β the inner classifier was accepted as the label on the whole ball B(P T_β
    x, E).

    Label and E must be fixed before; each β has its own δ's. With p the probability that h is `label` on the ball,
    P(acceptance) ≤ p + (1 − p)·inner.alpha, which stats.acceptance_bound inverts.
    """
    k = passes = 0
    for chunk in views(defence, x, n, draws):
        accepted, used = inner.accepts(chunk, ball.label, ball.E, draws.generator)
        k += int(accepted.sum())
        passes += used
    return k, passes


def predict_nested(
    inner: Inner,
    defence: Defence,
    z: Tensor,
    *,
    n: int = 1000,
    alpha: float = 0.001,
    draws: Draws | None = None,
) -> Prediction:
    """g(z) or ABSTAIN; wrong with probability ≤ alpha. Inner answers count only when tested (E = 0), so their errors
    are in the bound.
    """
    stats.Ledger(alpha)
    validate_image(z, defence.transform)
    validate_classifier(inner.classifier)
    z, draws = as_float32(z), draws or Draws(fresh_generator(z.device))
    counts = guess(inner, defence, z, GUESSES, draws)
    label = int(counts.argmax())
    k, _ = robust_votes(inner, defence, z, Ball(label), n, draws)
    sure = stats.acceptance_bound(k, n, alpha, inner.alpha) > 0.5
    tally = [0] * len(counts)
    tally[label] = k
    return Prediction(label if sure else ABSTAIN, tuple(tally), alpha)
