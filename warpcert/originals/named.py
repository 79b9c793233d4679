"""The inverses under the names that people choose them by."""

from __future__ import annotations

from collections.abc import Callable

from warpcert.originals.functional import Functional
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import IntervalInverse, InverseBound

__all__ = ["INVERSES", "named"]

INVERSES: dict[str, Callable[..., InverseBound]] = {
    "lagrangian": Lagrangian,
    "functional": Functional,
    "interval": IntervalInverse,
}


def named(inverse: str | InverseBound, refinements: int | None = None) -> InverseBound:
    """The inverse of that name, or the one that is given."""
    if isinstance(inverse, InverseBound):
        return inverse
    if inverse not in INVERSES:
        raise ValueError(f"there is no inverse {inverse!r}; choose one of {', '.join(INVERSES)}")
    return INVERSES[inverse](**{} if refinements is None else {"refinements": refinements})
