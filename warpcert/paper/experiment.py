"""What an experiment is: rows, each measured item by item and resumable, that end in one table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from warpcert.paper.desk import Desk, Missing
from warpcert.paper.journal import RECORDS, Step, limited, read_journal
from warpcert.paper.published import PUBLISHED
from warpcert.paper.reasons import REASONS, below
from warpcert.paper.row import Row
from warpcert.report.table import Cell, Cited, Figure, Table
from warpcert.runs.lines import devices
from warpcert.runs.store import CERTIFICATES, CONFIG, read_records

__all__ = ["Experiment", "run"]

QUICK = (
    "QUICK: fewer images and fewer samples than the full run; shares move by several per cent from sample to sample."
)


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
    alone: bool = False  # it compares times, and nothing else may run meanwhile


@final
@dataclass(frozen=True)
class _Line:
    """What a row became: its cells in the order of the columns, what is published, and a remark."""

    cells: tuple[Cell, ...]
    published: tuple[Cited | None, ...]
    remark: str


def run(experiment: Experiment, desk: Desk, command: str) -> Iterator[tuple[str, Step]]:
    """Measures every row of the experiment and writes its table; yields (row, step) after every item."""
    folder = desk.out / experiment.name
    _refuse_mixture(folder, desk.quick)
    lines = []
    for row in experiment.rows:
        lines.append((yield from _line(experiment, row, desk)))
    figures = experiment.figures(desk, folder) if experiment.figures else []
    folder.mkdir(parents=True, exist_ok=True)
    runs = (p.parent.relative_to(folder) for r in experiment.rows for p in _runs(folder / r.name))
    table = Table(
        name=experiment.name,
        title=experiment.title,
        what=experiment.what,
        quick=desk.quick,
        command=command,
        seconds=round(spent(folder), 2),
        columns=("case", *experiment.columns),
        rows=tuple(line.cells for line in lines),
        published=tuple(line.published for line in lines),
        remarks=tuple(line.remark for line in lines),
        notes=(*([QUICK] if desk.quick else []), *experiment.notes),
        figures=tuple(figures),
        runs=tuple(map(str, runs)),
        device=devices(
            *(json.loads(p.read_text(encoding="utf-8")).get("device") for p in sorted(folder.rglob(CONFIG)))
        ),
        date=datetime.now(UTC).date().isoformat(),
    )
    table.write(folder)


def _line(experiment: Experiment, row: Row, desk: Desk) -> Generator[tuple[str, Step], None, _Line]:
    """Measures one row. A row that needs something says so first in its remark."""
    cells: dict[str, Cell] = {}
    key, said = (experiment.name, row.name), []
    work = limited(row.work(desk, desk.out / experiment.name / row.name), desk.limit)
    try:
        while True:
            try:
                yield row.case, next(work)
            except StopIteration as done:
                cells = dict(done.value)
                break
    except Missing as missing:
        said.append(f"needs {missing}.")
    said.append(str(cells.pop("remark", "")))
    columns = experiment.columns
    if unknown := sorted(cells.keys() - set(columns)):
        raise ValueError(f"the row {row.name} measured {', '.join(unknown)}, which the table has no column for")
    cited: tuple[Cited | None, ...] = (None,) * len(columns)
    if (printed := PUBLISHED.get(key)) is not None:
        said += [printed.setting, REASONS.get(key, ""), below(cells, printed.numbers)]
        cited = tuple(printed.cited(c) for c in columns)
    else:
        said.append(REASONS.get(key, ""))
    measured = (_plain(cells.get(c)) for c in columns)
    return _Line((row.case, *measured), (None, *cited), " ".join(filter(None, said)))


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
            raise ValueError(f"{folder} holds {said}; choose another folder, or remove it")


def _plain(cell: Cell) -> Cell:
    """Floats with four digits: what is printed is what is stored."""
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell
