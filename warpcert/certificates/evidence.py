"""What a certificate rests on: kinds of trust, error bounds, votes, margins, enumerations, shares."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, final

from warpcert import statistics as stats
from warpcert.certificates.words import program
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.transforms import Box

__all__ = ["NO_ERROR", "Enumeration", "ErrorBound", "Kind", "Margins", "Share", "Window"]


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
    margin      of a cover by margins: the label's lead at that one image, less what float32 may have added
    """

    center: tuple[float, ...]
    k: int = 0
    n: int = 0
    alpha: float = 0.0
    runner_up: int | None = None
    cell: Box | None = None
    E: float = 0.0
    margin: float = 0.0


@final
@dataclass(frozen=True)
class Margins:
    """The logit vector is `lipschitz`-Lipschitz in ℓ2 on P-images. Margins are reduced by `slack` times the largest
    logit (at least 1), which allows for the rounding of logits.
    """

    lipschitz: float
    slack: float

    def needed(self, E: float) -> float:
        """A larger margin cannot be lost within E."""
        return radius.needed_margin(E, self.lipschitz)


@final
@dataclass(frozen=True)
class Enumeration:
    """The network answered the same on every input that γ ∈ held·Γ can lead to, each time with a lead of at least
    `margin` > `slack`.
    """

    images: int
    crossings: int
    margin: float
    slack: float
    scope: str  # the attacker's arithmetic: any within "tolerance", the "program" of the threat, or "exact"
    held: float = 1.0
    tolerance: float | None = None  # how far the attacker's pixels may be from T's; None if not told
    eight_bit: bool = False  # x is the 8-bit picture, v/255, whatever floats the classifier was given of it

    def to_dict(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "eight_bit" or v}

    def after(self, first: Enumeration) -> Enumeration:
        """Both together, if this one went on from the end of the first."""
        scope = max(self.scope, first.scope, key=("tolerance", "program", "exact").index)
        images, margin = self.images + first.images, min(self.margin, first.margin)
        return replace(self, images=images, margin=margin, scope=scope)

    def proviso(self, threat: Threat) -> str:
        """For which attackers, in words that follow "attacker"; "" if the record does not say."""
        if threat.after_shifts is None:
            return ""  # he copies pixels
        if self.scope == "exact":
            return (
                " who computes exactly from the 8-bit picture; one who computes in floating point is not covered where "
                "many pixels change at one parameter"
            )
        origin = " from the 8-bit picture" if self.eight_bit else ""
        if self.scope == "program":
            return f" who {program(threat, origin)}"
        return "" if self.tolerance is None else f", accurate to {self.tolerance:g} per pixel{origin and ',' + origin}"


@final
@dataclass(frozen=True)
class Share:
    """The error bound holds for at least `share` of the pictures that the calibration stands for, with confidence 1 −
    alpha: of `images` fresh ones, `accepted` had at most `allowed` of `betas` values above E.
    """

    calibration: str  # its digest
    alpha: float
    alpha_inner: float
    images: int
    accepted: int
    betas: int
    allowed: int

    @property
    def share(self) -> float:
        return stats.acceptance_bound(self.accepted, self.images, self.alpha, self.alpha_inner)

    @property
    def rho(self) -> float:
        """The least ρ that so many β's can show."""
        return stats.upper_bound(self.allowed, self.betas, self.alpha_inner)
