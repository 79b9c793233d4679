"""What the windows of a cover will cost."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import Margins
from warpcert.classifier import Classifier
from warpcert.classifier.votes.voting import Draws, leads, logits_of, votes
from warpcert.methods.outlook.forecast import Forecast, network_pace, photographs
from warpcert.methods.outlook.remedies import against_error, against_margin, against_votes
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.windows.cover import Windows

__all__ = ["by_margins", "by_votes"]

TRIED = 256  # votes that are looked at
FIRST = 16  # of a window, and twice as many in every further round
NEARER = 2  # windows that are asked about for each of the first cut


def by_votes(
    classifier: Classifier, x: Tensor, threat: Threat, windows: Windows, sample: tuple[int, int], alpha: float
) -> Forecast:
    """Tests of `windows` with at most n votes each and n0 to guess the label, if all windows vote as x does."""
    (n, n0), sigma, start = sample, classifier.noise, time.perf_counter()
    defence = classifier.defence(threat.transform)
    draws = Draws(torch.Generator(device=x.device).manual_seed(0))
    share = float(votes(classifier.logits, defence, x, TRIED, draws).max()) / TRIED
    passes, each = n0, alpha / len(windows)
    errors, counts = torch.unique(windows.E.cpu(), return_counts=True)
    for E, count in zip(errors.tolist(), counts.tolist(), strict=True):
        p0 = radius.needed_probability(E, sigma)
        passes += count * (n if p0 is None else _needed(share, n, p0, each))
    if not (advice := against_error(classifier, threat, float(errors.max()) / sigma)):
        needed = radius.needed_probability(float(windows.E.median()), sigma) or 1.0
        if share + 1 / math.sqrt(TRIED) < needed:
            advice = against_votes(share, needed, False)
    seconds = windows.seconds + passes * network_pace(classifier, x) + time.perf_counter() - start
    return Forecast(passes, seconds, photographs(x, None), advice).advised(
        "take a smaller range, or a larger target with more noise"
    )


def _needed(share: float, n: int, p0: float, alpha: float) -> int:
    """Votes until a test accepts, of which that share is for the label; n if it never does."""
    asked, step = 0, FIRST
    while asked < n:
        asked = min(n, asked + step)
        k = math.floor(share * asked)
        if stats.accepts(k, asked - k, p0, alpha):
            return asked
        step *= 2
    return n


def by_margins(classifier: Classifier, x: Tensor, margins: Margins, windows: Windows) -> Forecast:
    """One pass for each of the windows, and for those that they are cut into."""
    logits = logits_of(classifier, x[None])
    lead = float(leads(logits, int(logits.argmax()), margins.slack))
    passes = 1 + NEARER * len(windows)
    seconds = windows.seconds * NEARER + passes * network_pace(classifier, x)
    least = margins.needed(float(windows.E.min()))
    advice = "" if lead > least else against_margin(lead, least)
    return Forecast(passes, seconds, photographs(x, None), advice).advised("take a smaller range")
