"""What votes over parameters will cost, and whether they look like being enough."""

from __future__ import annotations

import math

import torch
from scipy.special import ndtr
from torch import Tensor

from warpcert.classifier import Classifier
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.nested import Ball, guess, robust_votes
from warpcert.classifier.votes.voting import Draws, batch_size, votes
from warpcert.methods.outlook.forecast import Forecast, network_pace, pace, photographs
from warpcert.methods.outlook.remedies import LARGE, against_error, against_votes
from warpcert.threat import Threat

__all__ = ["Sample", "foreseen"]

TRIED = 64  # votes that are looked at
FEW = 2  # of nested ones

Sample = tuple[int, int, int | None]  # n, n0 and batch of a method


def foreseen(
    classifier: Classifier, x: Tensor, threat: Threat, defence: Defence, sample: Sample, error: float = 0.0
) -> Forecast:
    """n + n0 votes, timed on some; `error` is E in units of the noise, as far as it is known. The draws are of no use
    to a certificate, which makes its own.
    """
    n, n0, batch = sample
    draws = Draws(torch.Generator(device=x.device).manual_seed(0), batch=batch)
    memory = photographs(x, batch)
    advice = against_error(classifier, threat, error) if error > LARGE else ""
    if classifier.inner is not None:
        label = int(guess(classifier.inner, defence, x, 1, draws).argmax())
        E = min(error * classifier.noise, 1e9)
        _, used = robust_votes(classifier.inner, defence, x, Ball(label, E), FEW, draws)
        passes = (n + n0) * used // FEW
        return Forecast(passes, passes * network_pace(classifier, x, batch), memory, advice)
    each = pace(lambda m: votes(classifier.logits, defence, x, m, draws), batch_size(x, batch))
    share = float(votes(classifier.logits, defence, x, TRIED, draws).max()) / TRIED
    needed = float(ndtr(error))
    if not advice and share + 1 / math.sqrt(TRIED) < needed:  # two standard deviations
        advice = against_votes(share, needed, False)
    return Forecast(n + n0, (n + n0) * each, memory, advice)
