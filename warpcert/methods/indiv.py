"""IndivSPT: shown only the attacked picture, for every original that can have led to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, final

from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import Certificate
from warpcert.classifier import Classifier
from warpcert.methods.base import Progress, Sampling, needs_noise, smooths_over
from warpcert.methods.individual import Unseen
from warpcert.methods.outlook import errors, votes
from warpcert.methods.outlook.forecast import Forecast
from warpcert.methods.survivors import possible_windows
from warpcert.originals.named import named
from warpcert.originals.protocol import InverseBound
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.transforms import kernels

__all__ = ["Indiv"]

CELLS = 1  # of a window, whose errors are timed for an estimate


@final
@dataclass(frozen=True, kw_only=True)
class Indiv(Sampling):
    """g(x) = g(x') = label with confidence 1 − α, for the unseen x with x' = q(T_γ x), γ ∈ Γ: all of Γ or nothing.

    The inverse rules out what γ it can; in each window of the rest, β ~ N(−γ_j, σ_γ²) measure errors and votes. A tenth
    of α buys g(x') = label; the rest buys (E, ρ) and votes of the one window that holds γ. The draws are secret unless
    a seed is given.

    betas, rank   E is the largest but `rank` of `betas` errors in a window, with ρ by order statistics
    merged        E is fixed on a tenth as many β first, and of `betas` fresh ones only those within it may vote: no ρ,
                  and no α for it
    inverse       lagrangian (tight), functional or interval, and the `refinements` of its boxes
    time_limit    seconds for one picture, after which it abstains, which is always sound: it is all of Γ or nothing
    """

    betas: int = 500
    rank: int = 0
    merged: bool = False
    inverse: str | InverseBound = "lagrangian"
    refinements: int | None = None
    name: ClassVar[str] = "indiv"
    summary: ClassVar[str] = "shown only the attacked picture: the original has the same label, with confidence 1 − α"
    attacked: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rank < self.betas:
            raise ValueError(f"the rank must lie in 0 … betas − 1 = {self.betas - 1}; got {self.rank}")
        if self.merged and self.rank:
            raise ValueError(f"the merged test has no rank: leave it 0; got {self.rank}")
        named(self.inverse, self.refinements)

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        if self.two_class:
            return "indiv bounds one class against all others: leave two_class off"
        if why := smooths_over(classifier, threat, self.name) or needs_noise(classifier, self.name):
            return why
        own = kernels.kernel(classifier.defence(threat.transform).interpolation)
        return "" if own.interpolates else f"{own.name} smooths pictures even at γ = 0: here it can only be a reference"

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        return Unseen(self, classifier, x, threat, progress).certify()

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        """x is the attacked picture. The errors of some cells stand for those of all."""
        defence, inverse = classifier.defence(threat.transform), named(self.inverse, self.refinements)
        found = inverse.survivors(x, threat)
        groups = possible_windows(found, threat.box, self.windows)
        if not groups:
            return Forecast(self.n0, found.seconds, 0, "no original leads to this picture: take a larger range")
        part, hull = groups[len(groups) // 2]
        few = {name: getattr(part, name)[:CELLS] for name in ("low", "high", "lower", "upper")}
        some = replace(part, **few)
        center = tuple(-c for c in hull.center)
        enough = classifier.noise * self._forgiven(len(groups)) if classifier.inner is None else 0.0
        analysed = partial(inverse.errors, some, defence, enough=enough)
        E, seconds = errors.foreseen(analysed, defence, x, self.betas, center)
        seconds *= len(found.low) / len(some.low)
        ratio = E / classifier.noise if classifier.noise else 0.0
        voted = votes.foreseen(classifier, x, threat, defence, (self.n, self.n0, self.batch), ratio)
        whole = replace(voted, seconds=voted.seconds + found.seconds + seconds).within(self.time_limit)
        return whole.advised("take the interval inverse, fewer β's or a smaller range")

    def _forgiven(self, windows: int) -> float:
        """About the error, in units of the noise, that unanimous votes forgive; 0: they come after the error."""
        if self.merged:
            return 0.0
        rho = stats.exceedance_bound(self.betas, self.alpha / 2, self.rank)
        p = stats.lower_bound(self.n // windows, self.n // windows, self.alpha / 2)
        return 0.9 * (radius.kappa_attacked(p, rho) or 0.0)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"inverse": named(self.inverse, self.refinements).name}
