"""The experiments by name: every table and figure of the paper's evaluation, in its order."""

from __future__ import annotations

from warpcert.paper.experiment import Experiment
from warpcert.paper.experiments.ablation import ABLATION
from warpcert.paper.experiments.accuracy import ACCURACY
from warpcert.paper.experiments.audio import AUDIO
from warpcert.paper.experiments.bicubic import BICUBIC
from warpcert.paper.experiments.distribution import DISTRIBUTION_D, DISTRIBUTION_X
from warpcert.paper.experiments.efficiency import EFFICIENCY
from warpcert.paper.experiments.heuristic import HEURISTIC
from warpcert.paper.experiments.individual import INDIVIDUAL
from warpcert.paper.experiments.inverse import INVERSE, REFINEMENT
from warpcert.paper.experiments.verified import VERIFIED
from warpcert.paper.experiments.violations import VIOLATIONS

__all__ = ["EXPERIMENTS", "get"]

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        HEURISTIC,
        VIOLATIONS,
        DISTRIBUTION_D,
        DISTRIBUTION_X,
        INDIVIDUAL,
        BICUBIC,
        AUDIO,
        ABLATION,
        ACCURACY,
        REFINEMENT,
        INVERSE,
        VERIFIED,
        EFFICIENCY,
    )
}


def get(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is not known; choose one of {', '.join(EXPERIMENTS)}, or all")
    return EXPERIMENTS[name]
