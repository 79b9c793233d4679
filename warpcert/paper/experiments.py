"""The experiments by name: every table of the paper's evaluation, in its order."""

from __future__ import annotations

from warpcert.paper.ablation import ABLATION
from warpcert.paper.audio import AUDIO
from warpcert.paper.distribution import DISTRIBUTION_D, DISTRIBUTION_X
from warpcert.paper.efficiency import EFFICIENCY
from warpcert.paper.error import BICUBIC
from warpcert.paper.experiment import Experiment
from warpcert.paper.heuristic import HEURISTIC
from warpcert.paper.individual import INDIVIDUAL
from warpcert.paper.inverse import INVERSE, REFINEMENT
from warpcert.paper.violations import VIOLATIONS

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
        REFINEMENT,
        INVERSE,
        EFFICIENCY,
    )
}


def get(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is not known; choose one of {', '.join(EXPERIMENTS)}, or all")
    return EXPERIMENTS[name]
