"""DistSPT^x: the original is known, and its own interpolation error is bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import Certificate, ErrorBound
from warpcert.classifier import Classifier
from warpcert.classifier.defence import Defence
from warpcert.errors.base import Rule, SupBound, bound_error
from warpcert.errors.proved import named
from warpcert.methods.base import Progress, Sampling, needs_noise, smooths_over
from warpcert.methods.outlook import errors, votes
from warpcert.methods.outlook.forecast import Forecast
from warpcert.methods.run import Votes
from warpcert.threat import Threat

__all__ = ["DistX"]

VOTES = 1.3  # times what the votes are foreseen to take is kept for them


@final
@dataclass(frozen=True, kw_only=True)
class DistX(Sampling):
    """The label of g at q(T_γ x) for every γ in the certified set, with confidence 1 − α if the bound is proved, else
    heuristic.

    Half of α buys (E, ρ) from `betas` draws: by the order-statistic rule (E is the largest value but `rank`), or, if
    `guessed`, the paper's way: guess E on a tenth of the draws and count on fresh ones how often it is exceeded. The
    other half buys the votes.

    bound       which analysis of the error: curve, interval (both proved) or sampled (heuristic)
    time_limit  seconds for one picture. The analysis gets what the votes will not need, at least half; what it has
                reached then is a bound too. It abstains if the votes do not end in time
    reference   the kernel that turns the original at certification, by default the classifier's own
    """

    bound: str | SupBound = "curve"
    betas: int = 500
    rank: int = 0
    guessed: bool = False
    reference: str | None = None
    name: ClassVar[str] = "dist-x"
    summary: ClassVar[str] = "the smoothed classifier keeps its label on the range, with confidence 1 − α"

    def __post_init__(self) -> None:
        super().__post_init__()
        named(self.bound, self.time_limit)

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        if why := smooths_over(classifier, threat, self.name) or needs_noise(classifier, self.name):
            return why
        why = threat.transform.no_error_bound
        return (
            f"dist-x has no proved bound for {threat.transform.name}: {why}" if why and self.bound != "sampled" else ""
        )

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        betas, rank = self.betas, self.rank
        defence = replace(classifier.defence(threat.transform), reference=self.reference)
        run = Votes(self, "joint", classifier, x, threat, defence)
        alpha = run.ledger.spend("error bound", self.alpha / 2)
        if (rho := stats.exceedance_bound(betas, alpha, rank)) >= 0.5:
            raise ValueError(f"{betas} β's can never bound ρ below ½ at α = {alpha:g} and rank {rank}; 500 is usual")
        run.check_n(self.alpha / 2, 0.0 if self.guessed else rho)
        sup = named(self.bound, self._for_analysis(classifier, x, threat, defence)).watched(progress)
        run.error = ErrorBound(0.0, 0.0, sup.kind, sup.name)  # of no β yet
        rule = Rule(betas, alpha, rank, 1.02 if self.guessed else None)
        return run.certify(self.alpha / 2, progress, lambda: bound_error(sup, x, defence, threat, rule, run.generator))

    def _for_analysis(self, classifier: Classifier, x: Tensor, threat: Threat, defence: Defence) -> float | None:
        """Seconds for each of its passes over β's."""
        if self.time_limit is None:
            return None
        voted = votes.foreseen(classifier, x, threat, defence, (self.n, self.n0, self.batch)).seconds
        return max(self.time_limit / 2, self.time_limit - VOTES * voted) / (2 if self.guessed else 1)

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        defence = replace(classifier.defence(threat.transform), reference=self.reference)
        sup = named(self.bound, errors.QUICK if self.time_limit is None else min(self.time_limit, errors.QUICK))
        E, seconds = errors.foreseen(lambda beta: sup(x, defence, threat, beta).values, defence, x, self.betas)
        error = E / classifier.noise if classifier.noise else 0.0
        voted = votes.foreseen(classifier, x, threat, defence, (self.n, self.n0, self.batch), error)
        whole = replace(voted, seconds=voted.seconds + seconds).within(self.time_limit)
        return whole.advised("limit the time of the error analysis, draw fewer β's or take a smaller range")

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"bound": named(self.bound, self.time_limit).name}
