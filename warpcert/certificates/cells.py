"""Cells of Γ, each accepted on its own at one image."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from warpcert.certificates.base import Certificate, Table
from warpcert.certificates.evidence import Window
from warpcert.numerics.region import Region

__all__ = ["Cells"]


@dataclass(frozen=True, kw_only=True)
class Cells(Certificate):
    """The certified set is made of the cells that are accepted."""

    windows: tuple[Window, ...]

    @cached_property
    def accepted(self) -> tuple[bool, ...]:
        """Which windows are accepted."""
        return (False,) * len(self.windows) if self.abstains else self._accepted()

    @abstractmethod
    def _accepted(self) -> tuple[bool, ...]:
        """Which windows are, if a label is given."""

    def _regions(self) -> tuple[Region, ...]:
        chosen = zip(self.windows, self.accepted, strict=True)
        return tuple(Region.cell(w.cell) for w, good in chosen if w.cell and good)

    def table(self, most: int = 12) -> tuple[Table, str]:
        return [], f"{len(self.windows)} windows, {sum(self.accepted)} accepted."

    def _derived(self) -> dict[str, Any]:
        return {"rejected": [j for j, good in enumerate(self.accepted) if not good]}
