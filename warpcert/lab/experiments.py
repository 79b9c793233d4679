"""The experiments by name: every table of the paper's evaluation, in its order."""

from __future__ import annotations

from warpcert.lab.experiment import Experiment
from warpcert.lab.experiments_ablation import ABLATION
from warpcert.lab.experiments_audio import AUDIO
from warpcert.lab.experiments_distribution import DISTRIBUTION_D, DISTRIBUTION_X
from warpcert.lab.experiments_efficiency import EFFICIENCY
from warpcert.lab.experiments_error import BICUBIC
from warpcert.lab.experiments_heuristic import HEURISTIC
from warpcert.lab.experiments_individual import INDIVIDUAL
from warpcert.lab.experiments_inverse import INVERSE, REFINEMENT
from warpcert.lab.experiments_violations import VIOLATIONS

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
