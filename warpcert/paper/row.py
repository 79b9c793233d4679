"""One line of a table: a frozen configuration that knows how to measure itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from warpcert.paper.desk import Desk, Missing
from warpcert.paper.journal import Step
from warpcert.report.table import Cell

__all__ = ["NONE", "TIMES", "Beside", "Measured", "Row", "Size", "Unmeasured", "Versus", "Work"]

Work = Generator[Step, None, dict[str, Cell]]  # yields after every item, returns the cells by column


@final
@dataclass(frozen=True)
class Size:
    """How much is measured: images (or sounds), samples n of g, β's of the error bound, candidate γ's, attacks on each.

    Of a calibration: E is chosen on `estimate` other images and tested at `rho` on `test` further ones.
    """

    images: int = 0
    n: int = 0
    betas: int = 0
    gammas: int = 0
    attacks: int = 1
    estimate: int = 0
    test: int = 0
    rho: float = 0.01


NONE = Size()  # of a quick run: the row is left to the full one


class Row(ABC):
    """Leaves are frozen dataclasses."""

    name: str  # also its folder's
    case: str  # the row's first cell

    @abstractmethod
    def work(self, desk: Desk, folder: Path) -> Work:
        """Measures what is missing and returns the cells; raises Missing before anything is measured."""


class Measured(Row):
    """A row with a full and a quick size; every field goes into the row's config.json."""

    full: Size
    quick: Size

    @final
    def size(self, desk: Desk) -> Size:
        found = self.quick if desk.quick else self.full
        if found == NONE:
            raise Missing("the full run: this takes too long for a quick one")
        return found

    @final
    def config(self, desk: Desk, **more: Any) -> dict[str, Any]:
        """What decides the outcome, as JSON types, and the device."""
        unread = ("name", "case", "full", "quick", "kept")
        own = {k: v for k, v in asdict(self).items() if k not in unread}  # type: ignore[call-overload]
        size = asdict(self.size(desk))
        return {"row": own, "size": size, "quick": desk.quick, "device": desk.machine, **more}


@final
@dataclass(frozen=True)
class Beside(Row):
    """The cells of another row once more, beside other published numbers: nothing is measured twice."""

    name: str
    case: str
    of: Row

    def work(self, desk: Desk, folder: Path) -> Work:
        return self.of.work(desk, folder.parent / self.of.name)


TIMES = "× {}"  # column of a quotient


@final
@dataclass(frozen=True)
class Versus(Row):
    """A row with quotients: how many times as much of each of the `columns` it has as the row `than`, which the same
    table has measured before.
    """

    name: str
    case: str
    of: Row
    than: Row
    columns: tuple[str, ...]

    def work(self, desk: Desk, folder: Path) -> Work:
        than = yield from self.than.work(desk, folder.parent / self.than.name)
        own = yield from self.of.work(desk, folder)
        pairs = {c: (_amount(own[c]), _amount(than[c])) for c in self.columns}
        return own | {TIMES.format(c): a / b for c, (a, b) in pairs.items() if b}


def _amount(cell: Cell) -> float:
    """Of a text like "123 passes" or "34°" the number counts."""
    return float(str(cell).rstrip("°").split()[0])


@final
@dataclass(frozen=True)
class Unmeasured(Row):
    """Published numbers that ours have no counterpart for yet: what it `needs`."""

    name: str
    case: str
    needs: str

    def work(self, desk: Desk, folder: Path) -> Work:
        raise Missing(self.needs)
        yield  # a generator, as the others
