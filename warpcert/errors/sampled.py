"""The sampled error: the largest ‖ε‖ over some γ. It misses the true supremum from below, so whatever rests on it is
heuristic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.certificates import Kind
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound, Suprema
from warpcert.threat import Threat

__all__ = ["Sampled"]


@final
@dataclass(frozen=True)
class Sampled(SupBound):
    """max over a grid of `gammas` parameters per axis, ends included, times `factor`. HEURISTIC: a lower bound of the
    supremum if factor = 1.
    """

    gammas: int = 33
    factor: float = 1.0
    batch: int = 2048
    progress: Callable[[int, int], None] | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "sampled"
    kind: ClassVar[Kind] = Kind.HEURISTIC

    def __call__(
        self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, target: float | None = None
    ) -> Suprema:
        start = time.perf_counter()
        per_axis = max(2, round(self.gammas ** (1 / threat.box.dim)))
        gamma = threat.box.grid(per_axis).to(x.device)
        attacked = threat.attacked(x, gamma)
        pairs = torch.cartesian_prod(torch.arange(len(beta)), torch.arange(len(gamma))).to(x.device)
        beta = beta.to(x.device)
        norms = []
        with torch.no_grad():
            for first in range(0, len(pairs), self.batch):
                if self.progress is not None:
                    self.progress(first // len(gamma), len(beta))
                b, g = pairs[first : first + self.batch].unbind(1)
                moved = defence.transform(attacked[g], beta[b], defence.interpolation)
                once = defence.transform(x, beta[b] + gamma[g], defence.known.interpolation)
                error = defence.preprocess.difference(moved, once)
                norms.append(torch.linalg.vector_norm(error.flatten(1), dim=1))
        found = torch.cat(norms).reshape(len(beta), len(gamma)).amax(1).double().cpu()
        return Suprema(self.factor * found, found, len(pairs), time.perf_counter() - start)
