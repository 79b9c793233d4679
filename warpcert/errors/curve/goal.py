"""When a search for the largest error may stop, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from torch import Tensor

__all__ = ["Found", "Goal"]


@final
@dataclass(frozen=True)
class Goal:
    """When to stop: at max(upper) ≤ tightness · max(lower); or, with a target, when it is known for every β whether it
    is exceeded, or upper ≤ tightness · lower; or at the deadline (of time.perf_counter). extent ≥ |β+γ|. `progress` is
    told how far the search is.
    """

    target: float | None
    tightness: float
    deadline: float
    extent: float
    floor: float = 0.0  # an error that was found for another β of the same batch
    progress: Callable[[int, int], None] | None = None

    def tell(self, share: float) -> None:
        """So much of the search is done, in thousandths."""
        if self.progress is not None:
            self.progress(int(1000 * share), 1000)


@final
@dataclass(frozen=True)
class Found:
    """upper [B] ≥ sup_γ‖ε‖ ≥ lower [B]; cells: nodes evaluated; converged: nothing was left open."""

    upper: Tensor
    lower: Tensor
    cells: int
    converged: bool
    steps: float = 0.0  # ≥ ‖D_y z‖ + ‖D_x z‖ of everything that the attacker can hand over, D neighbours' differences
