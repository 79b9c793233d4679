"""The error analyses under the names that people choose them by."""

from __future__ import annotations

from warpcert.errors.base import SupBound
from warpcert.errors.boxes import Boxes
from warpcert.errors.curve.bound import Curve
from warpcert.errors.sampled import Sampled

__all__ = ["BOUNDS", "Boxes", "Curve", "named"]


BOUNDS = ("curve", "interval", "sampled")


def named(bound: str | SupBound, time_limit: float | None = None) -> SupBound:
    """The analysis of that name, or the one that is given."""
    if isinstance(bound, SupBound):
        return bound
    if bound not in BOUNDS:
        raise ValueError(f"there is no error analysis {bound!r}; choose one of {', '.join(BOUNDS)}")
    if bound == "sampled":
        return Sampled()
    return (Boxes if bound == "interval" else Curve)(time_limit=time_limit)
