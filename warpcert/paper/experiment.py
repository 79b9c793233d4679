"""What an experiment is: rows with frozen configurations, each measured item by item, resumable, into one table."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.learn.data import Dataset
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.journal import RECORDS, Journal, read_journal
from warpcert.paper.published import PUBLISHED, REMARKS
from warpcert.paper.table import Cell, Figure, Table
from warpcert.runs import album
from warpcert.runs import summary as report
from warpcert.runs.runner import seed_for
from warpcert.runs.store import CERTIFICATES, Store, read_records

__all__ = ["Experiment", "Row", "Size", "Work", "certified", "measured", "run"]

Step = tuple[str, int, int]  # what is being done, items done, items in all
Work = Generator[Step, None, dict[str, Cell]]  # yields after every item, returns the cells by column


@final
@dataclass(frozen=True)
class Size:
    """How much is measured: images (or sounds), samples n of g, β's of the error bound, candidate γ's.

    Of a calibration: E is chosen on `estimate` other images and tested at `rho` on `test` further ones.
    """

    images: int
    n: int = 0
    betas: int = 0
    gammas: int = 0
    estimate: int = 0
    test: int = 0
    rho: float = 0.01


class Row(ABC):
    """One line of a table: a frozen configuration that knows how to measure itself.

    Leaves are frozen dataclasses; every field goes into the row's config.json.
    """

    name: str  # also its folder's
    case: str  # the row's first cell
    full: Size
    quick: Size

    @abstractmethod
    def work(self, desk: Desk, folder: Path) -> Work:
        """Measures what is missing and returns the cells; raises Missing before anything is measured."""

    @final
    def size(self, desk: Desk) -> Size:
        return self.quick if desk.quick else self.full

    @final
    def config(self, desk: Desk, **more: Any) -> dict[str, Any]:
        """What decides the outcome, as JSON types."""
        own = asdict(self)  # type: ignore[call-overload]
        return {"row": own, "quick": desk.quick, "device": desk.device.type, **more}


@final
@dataclass(frozen=True)
class Experiment:
    """A table of the paper: its rows, its columns (after `case`), what must be said about it, and its figures."""

    name: str
    title: str
    what: str
    minutes: float  # of the quick run on two cores with all data at hand
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    figures: Callable[[Desk, Path], list[Figure]] | None = None


def measured(
    folder: Path,
    config: dict[str, Any],
    keys: Sequence[str | int],
    measure: Callable[[Any], Any],
    what: str = "measure",
) -> Generator[Step, None, list[Any]]:
    """measure(key) for every key that the folder's journal lacks, each on disk before the next; returns all values."""
    with Journal(folder, config) as journal:
        for place, key in enumerate(keys):
            if key not in journal.values:
                start = time.perf_counter()
                value = measure(key)
                journal.append(key, value, time.perf_counter() - start)
            yield what, place + 1, len(keys)
        return [journal.values[key] for key in keys]


def certified(
    folder: Path,
    config: dict[str, Any],
    dataset: Dataset,
    indices: range,
    certify: Callable[[Tensor, int], Certificate],
    image: Callable[[int], Tensor],
    *,
    what: str = "certify",
) -> Generator[Step, None, list[report.Row]]:
    """certify(image(i), seed) for every image that the run folder lacks; returns the rows of all."""
    config = config | {"data": dataset.name, "indices": [indices.start, indices.stop]}
    with Store(folder, config) as store:
        for place, index in enumerate(indices):
            if index not in store.done:
                store.append(index, int(dataset.labels[index]), certify(image(index), seed_for(0, index)))
            yield what, place + 1, len(indices)
        rows = report.parse([r for r in store.records if r["index"] in indices])
    album.keep(folder, dataset, [row.index for row in rows], image)
    return rows


def run(experiment: Experiment, desk: Desk, command: str) -> Iterator[tuple[str, Step]]:
    """Measures every row of the experiment and writes its table; yields (row, step) after every item."""
    folder = desk.out / experiment.name
    _refuse_mixture(folder, desk.quick)
    columns = ("case", *experiment.columns)
    rows, published, remarks = [], [], []
    for row in experiment.rows:
        cells: dict[str, Cell] = {}
        remark, cited = REMARKS.get((experiment.name, row.name), ""), PUBLISHED.get((experiment.name, row.name), {})
        work = row.work(desk, folder / row.name)
        try:
            while True:
                try:
                    yield row.case, next(work)
                except StopIteration as done:
                    cells = done.value
                    break
        except Missing as missing:
            remark = f"needs {missing}."
        remark = " ".join(filter(None, (remark, str(cells.pop("remark", "")))))
        unknown = sorted(cells.keys() - set(columns))
        if unknown:
            raise ValueError(f"the row {row.name} measured {', '.join(unknown)}, which the table has no column for")
        rows.append((row.case, *(_plain(cells.get(c)) for c in experiment.columns)))
        published.append(tuple(cited.get(c) for c in columns))
        remarks.append(remark)
    figures = experiment.figures(desk, folder) if experiment.figures else []
    folder.mkdir(parents=True, exist_ok=True)
    runs = [str(p.parent.relative_to(folder)) for r in experiment.rows for p in _runs(folder / r.name)]
    table = Table(
        name=experiment.name,
        title=experiment.title,
        what=experiment.what,
        quick=desk.quick,
        command=command,
        seconds=round(spent(folder), 2),
        columns=columns,
        rows=tuple(rows),
        published=tuple(published),
        remarks=tuple(remarks),
        notes=(*([QUICK] if desk.quick else []), *experiment.notes),
        figures=tuple(figures),
        runs=tuple(runs),
    )
    table.write(folder)


QUICK = (
    "QUICK: fewer images and fewer samples than the full run; shares move by several per cent from sample to sample."
)


def _runs(folder: Path) -> list[Path]:
    """The files of certificates below a row's folder."""
    return sorted(folder.rglob(CERTIFICATES))


def spent(folder: Path) -> float:
    """Seconds of work behind everything measured in this folder, all starts together."""
    journals = (r["seconds"] for p in folder.rglob(RECORDS) for r in read_journal(p.parent))
    runs = (r["certificate"]["seconds"] for p in folder.rglob(CERTIFICATES) for r in read_records(p.parent))
    return math.fsum((*journals, *runs))


def _refuse_mixture(folder: Path, quick: bool) -> None:
    """A ValueError if the folder holds rows of the other thoroughness: their numbers do not belong in one table."""
    for path in folder.glob("*/config.json"):
        other = json.loads(path.read_text(encoding="utf-8")).get("quick")
        if other is not quick:
            said = "a quick run" if other else "a full run"
            raise ValueError(f"{folder} holds {said}; choose another --out, or remove it")


def _plain(cell: Cell) -> Cell:
    """Floats with four digits: what is printed is what is stored."""
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell
