"""Certificates by margins: cells of Γ, and a network that cannot change its mind within one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from warpcert.certificates import words
from warpcert.certificates.cells import Cells
from warpcert.certificates.evidence import Kind, Margins
from warpcert.transforms import Preprocess

__all__ = ["ByMargins"]


@final
@dataclass(frozen=True, kw_only=True)
class ByMargins(Cells):
    """Proved: the plain classifier answers `label` at q(T_γ x) for every γ in the accepted cells: those at whose centre
    image the label leads by more than √2·L·E_j.
    """

    statement: ClassVar[str] = "margins"
    strongest: ClassVar[Kind] = Kind.PROVED

    preprocess: Preprocess
    margins: Margins

    @property
    def deployed(self) -> str:
        return "plain classifier"

    def _accepted(self) -> NDArray[np.bool_]:
        return np.asarray(self.cells.margin > self.margins.needed(1.0) * self.cells.E)

    def _claim(self) -> str:
        return f"{self._who} answers {self.label} under {self._every}"

    def _more(self) -> list[str]:
        constant = f"Its logits are {self.margins.lipschitz:.6g}-Lipschitz"
        return [f"{constant}, and this answer leads by enough over the whole range.", *super()._more()]

    def settings(self) -> list[words.Fact]:
        before = words.preparation(self.preprocess)
        return [("defender's noise", "none"), ("before the network", before), ("error bound", self.error.bound)]

    def facts(self) -> list[words.Fact]:
        return [("Lipschitz constant", f"{self.margins.lipschitz:.6g}"), ("largest E", self.error.E)]

    def because(self) -> str:
        thing = words.thing(self.threat.transform)
        return f"Proved: the plain classifier's answers change so slowly that asking about some {thing}s suffices."
