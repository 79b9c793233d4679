"""Inner classifiers of the nested form: h on one P-image v, with a proof that h is constant on the ball B(v, E)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.classifier.votes.sequential import Rules, run_tests
from warpcert.classifier.votes.voting import Logits, add_noise, leads, logits_of
from warpcert.statistics import radius

__all__ = ["GaussianInner", "Inner", "MarginInner"]


class Inner(ABC):
    """Decides for each view whether h(v') = label for all ‖v' − v‖₂ ≤ E; wrong with probability ≤ alpha per view,
    independently.
    """

    classifier: Logits
    alpha: float

    @abstractmethod
    def accepts(self, views: Tensor, label: int, E: float | Tensor, generator: torch.Generator) -> tuple[Tensor, int]:
        """(bool [B], forward passes used); E for all views or one for each [B]."""

    @abstractmethod
    def votes(self, views: Tensor, generator: torch.Generator) -> Tensor:
        """A guess of h's answers, as counts per class [K]: costs nothing in the ledger."""


@final
@dataclass(frozen=True)
class GaussianInner(Inner):
    """h(v) = argmax_c P_δ(f(v + δ) = c). Accepts v by an anytime-valid test of P_δ(f(v+δ)=label) > p₀ = Φ(E/σ_δ).

    If that probability exceeds p₀ then h is `label` on the whole ball (Cohen, Rosenfeld, Kolter 2019). The test may
    look after every round and stops early both ways; views undecided after `cap` samples are rejected. Its false
    acceptances have probability ≤ alpha per view.
    """

    classifier: Logits
    sigma_noise: float
    alpha: float = 0.001
    cap: int = 10_000

    def __post_init__(self) -> None:
        stats.Ledger(self.alpha)
        if not self.sigma_noise > 0 or not math.isfinite(self.sigma_noise):
            raise ValueError(f"the Gaussian inner classifier needs sigma_noise > 0; got {self.sigma_noise}")

    def accepts(self, views: Tensor, label: int, E: float | Tensor, generator: torch.Generator) -> tuple[Tensor, int]:
        wanted = E.tolist() if isinstance(E, Tensor) else [E] * len(views)
        needed = [radius.needed_probability(e, self.sigma_noise) for e in wanted]
        tests = run_tests(
            self.classifier,
            views,
            label,
            np.array([1.0 if p0 is None else p0 for p0 in needed]),
            Rules(self.sigma_noise, self.alpha, self.cap),
            generator,
        )
        return torch.from_numpy(tests.accepted), tests.passes

    @torch.no_grad()
    def votes(self, views: Tensor, generator: torch.Generator) -> Tensor:
        logits = logits_of(self.classifier, add_noise(views, self.sigma_noise, generator))
        return torch.bincount(logits.argmax(1), minlength=logits.shape[1]).cpu()


@final
@dataclass(frozen=True)
class MarginInner(Inner):
    """h = argmax of logits with a known Lipschitz bound in ℓ2: no samples, alpha = 0.

    h is constant on the ball if the label leads by more than `needed_margin` asks for, once `slack` times the largest
    logit (at least 1) is taken off for the rounding of logits.
    """

    classifier: Logits
    lipschitz: float = 1.0
    slack: float = 1e-4
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not (self.lipschitz > 0 and math.isfinite(self.lipschitz) and self.slack >= 0 and self.alpha == 0):
            raise ValueError("a margin needs a positive Lipschitz bound and slack ≥ 0, and spends no α")

    @torch.no_grad()
    def accepts(self, views: Tensor, label: int, E: float | Tensor, generator: torch.Generator) -> tuple[Tensor, int]:
        lead = leads(logits_of(self.classifier, views), label, self.slack)
        needed = torch.as_tensor(E).to(lead) * radius.needed_margin(1.0, self.lipschitz)
        return (lead > needed).cpu(), views.shape[0]

    @torch.no_grad()
    def votes(self, views: Tensor, generator: torch.Generator) -> Tensor:
        logits = logits_of(self.classifier, views)
        return torch.bincount(logits.argmax(1), minlength=logits.shape[1]).cpu()
