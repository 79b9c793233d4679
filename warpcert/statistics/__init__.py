"""Statistics have one home: confidence bounds, anytime-valid tests, the α ledger, and from probabilities to radii."""

from __future__ import annotations

from warpcert.statistics.confidence import *  # noqa: F403
