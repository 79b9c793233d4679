"""ε(β,γ,x) = P( T_β(q(T_γ x)) − T^R_{β+γ} x ), the error that keeps T from composing, and how a bound of it becomes
(E, ρ). T^R turns the known original: R is the defence's reference, by default the defender's own interpolation.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor

from warpcert.certificates import ErrorBound, Kind
from warpcert.classifier.defence import Defence
from warpcert.threat import Threat

__all__ = ["Rule", "SupBound", "Suprema", "bound_error", "interpolation_error"]


@final
@dataclass(frozen=True)
class Suprema:
    """sup_{γ∈Γ}‖ε(β,γ,x)‖₂ for each of a batch of β, float64.

    values     [B] upper bounds if the kind is proved, estimates if heuristic
    lower      [B] the largest errors found
    cells      evaluations of the error, or of its bound
    converged  whether nothing was left open when time ran out
    """

    values: Tensor
    lower: Tensor
    cells: int
    seconds: float
    converged: bool = True


class SupBound(ABC):
    """A way to bound sup_{γ∈Γ}‖ε(β,γ,x)‖₂ for each of a batch of β. T_{β+γ} is that of `defence.known`."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    progress: Callable[[int, int], None] | None = None  # is told (done, of) from time to time

    @abstractmethod
    def __call__(
        self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, target: float | None = None
    ) -> Suprema:
        """For β [B,d]. With a target it only matters which values exceed it: work may stop once that is known."""

    def watched(self, progress: Callable[[int, int], None] | None) -> Self:
        """The same analysis, which tells how far it is, if it can."""
        analysis: Any = self
        return replace(analysis, progress=progress) if "progress" in getattr(self, "__dataclass_fields__", {}) else self

    @final
    def within(self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, E: float) -> Tensor:
        """Values [B] as above, of which only it matters whether they exceed E."""
        return self(x, defence, threat, beta, E).values


@final
@dataclass(frozen=True)
class Rule:
    """How (E, ρ) is read off `betas` draws at confidence 1 − alpha. `rank` is fixed beforehand.

    By default E is the (rank+1)-th largest value of all draws. With a `factor`, as in the paper, E is guessed: so many
    times the largest value of a tenth of the draws; the others are fresh, and count how often E is exceeded.
    """

    betas: int
    alpha: float
    rank: int = 0
    factor: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.betas:
            raise ValueError(f"the rank must lie in 0 … betas − 1 = {self.betas - 1}; got {self.rank}")


def interpolation_error(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, gamma: Tensor) -> Tensor:
    """‖ε(β_i, γ_i, x)‖₂ for pairs beta, gamma [B,d] → [B]."""
    moved = defence.transform(threat.attacked(x, gamma), beta, defence.interpolation)
    once = defence.transform(x, beta + gamma, defence.known.interpolation)
    norms: Tensor = torch.linalg.vector_norm(defence.preprocess.difference(moved, once).flatten(1), dim=1)
    return norms


def bound_error(
    sup: SupBound, x: Tensor, defence: Defence, threat: Threat, rule: Rule, generator: torch.Generator
) -> ErrorBound:
    """(E, ρ) with P_β( sup_γ‖ε(β,γ,x)‖ > E ) ≤ ρ, at confidence 1 − alpha.

    The order statistic needs no second sample: see `ErrorBound.rho`. Either way `sup` may only raise the values, each
    by its own β, which keeps the statement.
    """
    first = rule.betas if rule.factor is None else max(1, rule.betas // 10)
    found = sup(x, defence, threat, defence.draw_beta(first, generator))
    E = float(found.values.sort(descending=True).values[rule.rank if rule.factor is None else 0])
    if math.isnan(E):
        raise ValueError("the error analysis returned NaN")
    if rule.factor is None:
        return ErrorBound(E, rule.alpha, sup.kind, sup.name, first, rule.rank, found.cells, found.seconds)
    start, E, fresh = time.perf_counter(), rule.factor * E, rule.betas - first
    exceeded = int((~(sup.within(x, defence, threat, defence.draw_beta(fresh, generator), E) <= E)).sum())
    seconds = found.seconds + time.perf_counter() - start
    return ErrorBound(E, rule.alpha, sup.kind, sup.name, fresh, exceeded, found.cells, seconds)
