"""What a certificate rests on: kinds of trust, error bounds, votes, enumerations, shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import final

from warpcert import stats
from warpcert.transforms import Box

__all__ = ["NO_ERROR", "ErrorBound", "Exhausted", "Kind", "Share", "Window"]


class Kind(StrEnum):
    """How far a statement can be trusted, strongest first."""

    PROVED = "proved"  # holds, no probability involved
    WITH_CONFIDENCE = "with confidence"  # holds with probability ≥ 1 − α over the certifier's own randomness
    HEURISTIC = "heuristic"  # may be false

    @staticmethod
    def weakest(*kinds: Kind) -> Kind:
        return max(kinds, key=list(Kind).index)


@final
@dataclass(frozen=True)
class ErrorBound:
    """P_β( sup_γ ‖ε(β,γ,x)‖ > E ) ≤ rho, with the stated kind and at the price alpha.

    `exceeded` of the `betas` values drawn were allowed above E: a rank fixed beforehand, or counted on a fresh sample.
    """

    E: float
    alpha: float
    kind: Kind
    bound: str  # which analysis: none, sampled, curve, interval …
    betas: int = 0
    exceeded: int = 0
    cells: int = 0
    seconds: float = 0.0
    stated_rho: float | None = None  # ρ that a calibration tested for

    def __post_init__(self) -> None:
        if not self.E >= 0:
            raise ValueError(f"an error bound must be ≥ 0; got {self.E}")

    @property
    def rho(self) -> float:
        if self.stated_rho is not None:
            return self.stated_rho
        return stats.upper_bound(self.exceeded, self.betas, self.alpha) if self.betas else 0.0


NO_ERROR = ErrorBound(0.0, 0.0, Kind.HEURISTIC, "none")  # "T composes": what BaseSPT assumes


@final
@dataclass(frozen=True)
class Window:
    """k of n samples with parameters around `center` voted for the label.

    runner_up   votes of the second class (two-class law)
    cell, E     of a cover: the window is this box, and E bounds how far its images are from the sampled one
    """

    center: tuple[float, ...]
    k: int
    n: int
    alpha: float
    runner_up: int | None = None
    cell: Box | None = None
    E: float = 0.0


@final
@dataclass(frozen=True)
class Exhausted:
    """All images that the attacker can hand over were classified, each with a lead of at least `margin` > `slack`."""

    images: int
    crossings: int
    margin: float
    slack: float
    scope: str  # which arithmetic of the attacker is covered


@final
@dataclass(frozen=True)
class Share:
    """The error bound holds for at least `share` of the pictures that the calibration stands for, with confidence 1 −
    alpha.
    """

    share: float
    alpha: float
    calibration: str  # its digest
