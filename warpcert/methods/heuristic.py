"""BaseSPT: votes over parameters, as if transformed pictures could be transformed again without loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.classifier import Classifier
from warpcert.methods.base import Progress, Sampling, smooths_over
from warpcert.methods.outlook import votes
from warpcert.methods.outlook.forecast import Forecast
from warpcert.methods.run import Votes
from warpcert.threat import Threat

__all__ = ["Base"]


@final
@dataclass(frozen=True, kw_only=True)
class Base(Sampling):
    """HEURISTIC: the label of g within σ_γ κ of x, as if T_β(q(T_γ x)) were T_{β+γ} x. Violations exist; use it to
    compare.
    """

    name: ClassVar[str] = "base"
    summary: ClassVar[str] = "heuristic: the range that would hold if transformed pictures could be transformed again"

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        return smooths_over(classifier, threat, self.name)

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        run = Votes(self, "base", classifier, x, threat, classifier.defence(threat.transform))
        return run.certify(self.alpha, progress)

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        defence = classifier.defence(threat.transform)
        found = votes.foreseen(classifier, x, threat, defence, (self.n, self.n0, self.batch))
        return found.within(self.time_limit)
