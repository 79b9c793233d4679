"""ε(β,γ,x) = P( T_β(q(T_γ x)) − T^R_{β+γ} x ), the error that keeps T from composing, and how a bound of it becomes
(E, ρ). T^R turns the known original: R is the defence's reference, by default the defender's own interpolation.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.certificates import ErrorBound, Kind
from warpcert.classifier.defence import Defence
from warpcert.threat import Threat

__all__ = ["SupBound", "Suprema", "bound_error", "guess_and_test", "interpolation_error"]


@final
@dataclass(frozen=True)
class Suprema:
    """One value per β: an upper bound of sup_{γ∈Γ}‖ε(β,γ,x)‖₂ if the kind is proved, an estimate if heuristic."""

    values: Tensor  # [B], float64, CPU
    cells: int
    seconds: float


class SupBound(ABC):
    """A way to bound sup_{γ∈Γ}‖ε(β,γ,x)‖₂ for each of a batch of β. T_{β+γ} is that of `defence.known`."""

    name: ClassVar[str]
    kind: ClassVar[Kind]

    @abstractmethod
    def __call__(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> Suprema:
        """For β [B,d]."""

    def within(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, E: float) -> Tensor:
        """Values [B] as above, of which only it matters whether they exceed E."""
        return self(x, defence, threat, beta).values


def interpolation_error(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, gamma: Tensor) -> Tensor:
    """‖ε(β_i, γ_i, x)‖₂ for pairs beta, gamma [B,d] → [B]."""
    moved = defence.transform(threat.attacked(x, gamma), beta, defence.interpolation)
    difference = moved - defence.transform(x, beta + gamma, defence.known.interpolation)
    norms: Tensor = torch.linalg.vector_norm(defence.preprocess(difference).flatten(1), dim=1)
    return norms


def bound_error(
    sup: SupBound,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    *,
    betas: int,
    alpha: float,
    generator: torch.Generator,
    rank: int = 0,
) -> ErrorBound:
    """E is the (rank+1)-th largest of n values V_i = sup_γ‖ε(β_i,γ,x)‖: then P(V > E) ≤ ρ with confidence 1 − alpha,
    without a second sample.

    The rank is fixed beforehand; `sup` may only raise the V_i (each by its own β), which keeps the statement.
    """
    if not 0 <= rank < betas:
        raise ValueError(f"the rank must lie in 0 … betas − 1 = {betas - 1}; got {rank}")
    result = sup(x, defence, threat, defence.draw_beta(betas, generator))
    E = float(result.values.sort(descending=True).values[rank])
    if math.isnan(E):
        raise ValueError("the error analysis returned NaN")
    return ErrorBound(E, alpha, sup.kind, sup.name, betas, rank, result.cells, result.seconds)


def guess_and_test(
    sup: SupBound,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    *,
    betas: int,
    alpha: float,
    generator: torch.Generator,
    factor: float = 1.02,
) -> ErrorBound:
    """The paper's procedure: E is `factor` times the largest of betas/10 values, ρ is tested on the other β's."""
    first = max(1, betas // 10)
    guess = sup(x, defence, threat, defence.draw_beta(first, generator))
    E = factor * float(guess.values.max())
    if math.isnan(E):
        raise ValueError("the error analysis returned NaN")
    start = time.perf_counter()
    values = sup.within(x, defence, threat, defence.draw_beta(betas - first, generator), E)
    exceeded = int((~(values <= E)).sum())
    seconds = guess.seconds + time.perf_counter() - start
    return ErrorBound(E, alpha, sup.kind, sup.name, betas - first, exceeded, guess.cells, seconds)
