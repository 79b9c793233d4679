"""Cells of Γ, each accepted on its own at one image."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warpcert.certificates.base import Certificate, Table
from warpcert.certificates.columns import CellWindows
from warpcert.certificates.evidence import Window
from warpcert.numerics import region
from warpcert.numerics.region import Region
from warpcert.transforms import Box

__all__ = ["Cells"]


@dataclass(frozen=True, kw_only=True)
class Cells(Certificate):
    """The certified set is made of the cells that are accepted."""

    windows: Sequence[Window]

    def __post_init__(self) -> None:
        object.__setattr__(self, "windows", CellWindows.of(self.windows, self.threat.box.dim))

    @property
    def cells(self) -> CellWindows:
        assert isinstance(self.windows, CellWindows)
        return self.windows

    @cached_property
    def accepted(self) -> NDArray[np.bool_]:
        """Which windows are accepted."""
        return np.zeros(len(self.windows), dtype=np.bool_) if self.abstains else self._accepted()

    @abstractmethod
    def _accepted(self) -> NDArray[np.bool_]:
        """Which windows are, if a label is given."""

    @cached_property
    def reach(self) -> Box | None:
        lower, upper = (torch.from_numpy(end[self.accepted]) for end in (self.cells.lower, self.cells.upper))
        return region.reach_of_cells(self.threat.box, lower, upper)

    def _regions(self) -> tuple[Region, ...]:
        chosen = zip(self.windows, self.accepted, strict=True)
        return tuple(Region.cell(w.cell) for w, good in chosen if w.cell and good)

    def _more(self) -> list[str]:
        return [f"Why the range ends there: {self.reason}."] if self.reason else []

    def table(self, most: int = 12) -> tuple[Table, str]:
        return [], f"{len(self.windows)} windows, {self.accepted.sum()} accepted."

    def _derived(self) -> dict[str, Any]:
        return {
            "rejected": np.flatnonzero(~self.accepted).tolist(),
            "totals": {**self.cells.totals(), "largest E": self.error.E},
        }
