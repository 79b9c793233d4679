"""What a certificate will cost, from a quick probe; and the speed of the network, which all estimates share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from warpcert.classifier import Classifier
from warpcert.classifier.votes.voting import batch_size

__all__ = ["HOPELESS", "Forecast", "duration", "network_pace", "pace", "photographs"]

HOPELESS = 3600.0  # seconds for one picture, beyond which advice is given
PROBE = 0.1  # seconds after which a timed batch is large enough


@final
@dataclass(frozen=True)
class Forecast:
    """For one picture whose label holds all the way: others end earlier.

    passes  forward passes of the network
    memory  bytes, besides what the network itself takes
    advice  what to try if it takes too long or is not going to be certified; "" if it looks well
    """

    passes: int
    seconds: float
    memory: int = 0
    advice: str = ""

    def within(self, limit: float | None) -> Forecast:
        """With a time limit."""
        return self if limit is None else replace(self, seconds=min(self.seconds, limit))

    def advised(self, way_out: str) -> Forecast:
        """With a way out, if it takes too long and none is named yet."""
        if self.advice or self.seconds < HOPELESS:
            return self
        return replace(self, advice=f"this takes {duration(self.seconds)} for one picture: {way_out}")

    def __str__(self) -> str:
        passes = f"{self.passes:,}".replace(",", "\u202f")
        memory = f", {self.memory / 2**30:.1f} GiB" if self.memory > 2**27 else ""
        return f"about {duration(self.seconds)} and {passes} passes{memory}"


def duration(seconds: float) -> str:
    """In the unit that people would choose."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 99.5 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def pace(work: Callable[[int], object], most: int) -> float:
    """Seconds per item of work(n), which ends only when its answer is there; in batches of at most so many."""

    def timed(n: int) -> float:
        start = time.perf_counter()
        work(n)
        return time.perf_counter() - start

    work(1)
    count = min(most, 4)
    while True:
        if (took := timed(count)) >= PROBE:  # a GPU prepares for every size that it meets
            took = min(took, timed(count))
        if took >= PROBE or count >= most:
            return took / count
        count = min(most, 4 * count)


def network_pace(classifier: Classifier, x: Tensor, batch: int | None = None) -> float:
    """Seconds per forward pass on copies of x."""
    prepared = classifier.preprocess(x[None])

    @torch.no_grad()
    def ask(n: int) -> float:
        return float(classifier.logits(prepared.repeat(n, *[1] * (prepared.dim() - 1))).sum())

    return pace(ask, batch_size(x, batch))


def photographs(x: Tensor, batch: int | None) -> int:
    """Bytes that a batch of pictures takes, with its noise and its views."""
    return 3 * batch_size(x, batch) * x.numel() * x.element_size()
