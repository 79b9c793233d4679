"""Anytime-valid tests of P_δ(f(v + δ) = label) > p₀ for many images at once: most need few samples, each may stop when
it likes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpcert import statistics as stats
from warpcert.classifier.votes.voting import Logits, add_noise, batch_size, logits_of
from warpcert.numerics.deadline import TimeOverError, limited

__all__ = ["Rules", "Tests", "run_tests"]

FIRST = 16  # samples in the first round


@final
@dataclass(frozen=True)
class Tests:
    """Of image i, k[i] of n[i] noisy copies were answered `label`; accepted[i] only if the test rejects P ≤ p₀[i]."""

    k: NDArray[np.int64]
    n: NDArray[np.int64]
    accepted: NDArray[np.bool_]

    @property
    def passes(self) -> int:
        return int(self.n.sum())


@final
@dataclass(frozen=True)
class Rules:
    """Noise of deviation `sigma`, level `alpha` for each image, at most `cap` samples of each, none after `until`."""

    sigma: float
    alpha: float
    cap: int
    stop_at_rejection: bool = False
    until: float = math.inf  # by time.perf_counter()


@torch.no_grad()
def run_tests(
    classifier: Logits,
    images: Tensor,
    label: int,
    p0: NDArray[np.float64],
    rules: Rules,
    generator: torch.Generator,
) -> Tests:
    """Tests every image of the batch [B,C,...], in rounds of growing size.

    A test may look after every round (stats.accepts is anytime-valid). It ends without acceptance when none is possible
    within `cap` samples, or when four standard deviations speak against it: giving up is always sound. With
    `stop_at_rejection` such an end also stops the images behind it, whose acceptance is then of no use. The clock may
    end all tests: each is judged by what was counted of it.
    """
    count, alpha, cap = len(images), rules.alpha, rules.cap
    k, n = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    accepted = np.zeros(count, dtype=np.bool_)
    open_ = np.flatnonzero(p0 < 1 - 1e-9)
    if rules.stop_at_rejection and len(open_) < count:
        open_ = open_[open_ < np.flatnonzero(p0 >= 1 - 1e-9)[0]]
    step = FIRST
    while len(open_) and n[open_[0]] < cap:
        step = min(step, cap - int(n[open_[0]]))
        size = max(1, batch_size(images[0], None) * 4 // step)
        over = False
        try:
            for start in range(0, len(open_), size):
                rows = open_[start : start + size]
                with limited(rules.until):
                    chosen = images[torch.from_numpy(rows).to(images.device)]
                    noisy = add_noise(chosen.repeat_interleave(step, 0), rules.sigma, generator)
                    hit = logits_of(classifier, noisy).argmax(1) == label
                    counted = hit.reshape(-1, step).sum(1).cpu().numpy()
                k[rows] += counted
                n[rows] += step
        except TimeOverError:
            over = True
        won = stats.accepts(k[open_], n[open_] - k[open_], p0[open_], alpha)
        accepted[open_[won]] = True
        if over:
            break
        open_ = open_[~won]
        unlikely = k[open_] / n[open_] < p0[open_] - 4 * np.sqrt(p0[open_] * (1 - p0[open_]) / n[open_])
        lost = unlikely | stats.futile(k[open_], n[open_] - k[open_], p0[open_], alpha, cap) | (n[open_] >= cap)
        if rules.stop_at_rejection and lost.any():
            open_, lost = open_[: int(lost.argmax())], lost[: int(lost.argmax())]
        open_ = open_[~lost]
        step *= 2
    return Tests(k, n, accepted)
