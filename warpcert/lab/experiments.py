"""The experiments by name: every table of the paper's evaluation, in its order."""

from __future__ import annotations

from warpcert.lab.experiment import Experiment
from warpcert.lab.experiments_distribution import DISTRIBUTION_D, DISTRIBUTION_X
from warpcert.lab.experiments_error import BICUBIC
from warpcert.lab.experiments_heuristic import HEURISTIC, VIOLATIONS

__all__ = ["EXPERIMENTS", "get"]

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e for e in (HEURISTIC, VIOLATIONS, DISTRIBUTION_D, DISTRIBUTION_X, BICUBIC)
}


def get(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is not known; choose one of {', '.join(EXPERIMENTS)}, or all")
    return EXPERIMENTS[name]
