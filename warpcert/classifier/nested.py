"""The nested form: g(z) = argmax_c P_β(h(P T_β z) = c) with an inner classifier h that never abstains."""

from __future__ import annotations

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import Inner
from warpcert.classifier.voting import ABSTAIN, Prediction, as_float32, validate_classifier, validate_image, views

__all__ = ["guess", "predict_nested", "robust_votes"]


def guess(inner: Inner, defence: Defence, x: Tensor, n0: int, generator: torch.Generator, batch: int | None) -> Tensor:
    """Counts per class of n0 inner guesses, to choose the label before the test."""
    return torch.stack([inner.votes(chunk, generator) for chunk in views(defence, x, n0, generator, batch=batch)]).sum(
        0
    )


def robust_votes(
    inner: Inner,
    defence: Defence,
    x: Tensor,
    label: int,
    E: float,
    n: int,
    generator: torch.Generator,
    center: tuple[float, ...] | None = None,
    batch: int | None = None,
) -> tuple[int, int]:
    """(k, passes): for how many of n draws β the inner classifier was accepted as `label` on the whole ball B(P T_β x,
    E).

    `label` and E must be fixed before; each β has its own δ's. With p the probability that h is `label` on the ball,
    P(acceptance) ≤ p + (1 − p)·inner.alpha, which stats.acceptance_bound inverts.
    """
    k = passes = 0
    for chunk in views(defence, x, n, generator, center, batch):
        accepted, used = inner.accepts(chunk, label, E, generator)
        k += int(accepted.sum())
        passes += used
    return k, passes


def predict_nested(
    inner: Inner,
    defence: Defence,
    z: Tensor,
    *,
    n: int = 1000,
    n0: int = 100,
    alpha: float = 0.001,
    generator: torch.Generator,
    batch: int | None = None,
) -> Prediction:
    """g(z) or ABSTAIN; wrong with probability ≤ alpha. Inner answers count only when tested (E = 0), so their errors
    are in the bound.
    """
    stats.Ledger(alpha)
    validate_image(z, defence.transform)
    validate_classifier(inner.classifier)
    z = as_float32(z)
    counts = guess(inner, defence, z, n0, generator, batch)
    label = int(counts.argmax())
    k, _ = robust_votes(inner, defence, z, label, 0.0, n, generator, batch=batch)
    sure = stats.acceptance_bound(k, n, alpha, inner.alpha) > 0.5
    tally = [0] * len(counts)
    tally[label] = k
    return Prediction(label if sure else ABSTAIN, tuple(tally), alpha)
