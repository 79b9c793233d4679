"""What has run: the run folders and paper results below some folders, read and checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from warpcert.learn import data
from warpcert.learn.collect import UNNAMED
from warpcert.report.table import TABLE, Table
from warpcert.runs import album
from warpcert.runs.album import Pictures
from warpcert.runs.run import CLASSIFIER
from warpcert.runs.store import CERTIFICATES, CONFIG, PACKED, missing, read_config, read_records, verify
from warpcert.runs.summary import Row, Summary, UnderAttack, parse, summarise, under_attack

__all__ = ["Paper", "Results", "RunFolder", "find"]


@final
@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run as its folder holds it: `rows` are the records whose arithmetic holds, `problems` says what is wrong with
    the rest, and `lacking` pictures are not done yet.
    """

    name: str
    folder: Path
    config: dict[str, Any]
    rows: list[Row]
    summary: Summary
    problems: list[str]
    lacking: int
    pictures: Pictures | None

    @property
    def model(self) -> str:
        """The classifier by its name, or as it was asked for; by its fingerprint if it has neither."""
        told, subject = self.config.get("classifier", {}), self.rows[0].certificate.classifier
        name = told.get("name") or subject.name or Path(self.config.get("model", "")).name
        return name or subject.fingerprint[:12] or "a classifier without a name"

    @property
    def reopens(self) -> bool:
        """Whether the classifier can be opened from the folder again."""
        return bool(self.config.get("model")) or (self.folder / CLASSIFIER).is_file()

    @property
    def data(self) -> str:
        """The dataset, by its name; pictures handed over in Python have none, and are known by a digest."""
        return str(self.config.get("data", "?"))

    @property
    def data_is_named(self) -> bool:
        return not self.data.startswith(UNNAMED)

    @property
    def attacked(self) -> UnderAttack | None:
        """What happened under attack, if its pictures were attacked."""
        return under_attack(self.rows)


@final
@dataclass(frozen=True, eq=False)
class Paper:
    """An experiment of the paper: its table as `warpcert paper` wrote it, the runs behind it, and a sentence for each
    run that could not be read.
    """

    name: str
    folder: Path
    table: Table
    runs: list[RunFolder]
    unread: list[str]


@final
@dataclass(frozen=True, eq=False)
class Results:
    """What was found; `unread` says in a sentence each what could not be read."""

    papers: list[Paper]
    runs: list[RunFolder]
    unread: list[str]

    @property
    def all_runs(self) -> list[RunFolder]:
        return [*self.runs, *(run for paper in self.papers for run in paper.runs)]


def find(folders: Iterable[Path], root: Path | None = None) -> Results:
    """All results in and below the folders, in the order of their paths; runs inside a paper result belong to it.

    `root` is the folder with the datasets, for runs that kept no pictures.
    """
    papers: dict[Path, Paper] = {}
    runs: dict[Path, RunFolder] = {}
    unread: dict[Path, str] = {}
    for top in folders:
        if not top.is_dir():
            raise ValueError(f"{top} is not a folder; give run folders, paper results, or a folder that holds them")
        for path in sorted((*top.rglob(TABLE), *top.rglob(CONFIG)), key=lambda p: (p.name != TABLE, p)):
            place = path.parent.resolve()
            if (
                place in unread
                or place in papers
                or place in runs
                or any(p in papers or p in unread for p in place.parents)
            ):
                continue
            try:
                if path.name == TABLE:
                    papers[place] = _read_paper(path.parent, top, root)
                elif run := _read_run(path.parent, _name(path.parent, top), root):
                    runs[place] = run
            except ValueError as error:
                unread[place] = str(error)
    if not papers and not runs:
        none = f"no results in {', '.join(map(str, folders))}: certify some pictures into a folder first"
        raise ValueError("; ".join(unread.values()) or none)
    sentences = [*unread.values(), *(sentence for paper in papers.values() for sentence in paper.unread)]
    return Results(list(papers.values()), list(runs.values()), sentences)


def _name(folder: Path, top: Path) -> str:
    inside = folder.relative_to(top)
    return inside.as_posix() if inside.parts else folder.resolve().name


def _read_run(folder: Path, name: str, root: Path | None) -> RunFolder | None:
    """None if it holds no certificates, or none yet."""
    certifies = any((folder / name).is_file() for name in (CERTIFICATES, PACKED))
    records = list(read_records(folder)) if certifies else []
    if not records:
        return None
    config = read_config(folder)
    lacking = missing(config, (r["index"] for r in records))
    problems = verify(folder)
    problems = problems[:-1] if lacking else problems  # what is not done yet is not wrong
    rows: list[Row] = []
    for record in records:
        try:
            rows += parse([record])
        except (ValueError, TypeError, KeyError):
            continue  # verify has named it
    if not rows:
        raise ValueError(f"no certificate in {folder} holds: {problems[0]}")
    rows.sort(key=lambda row: row.index)
    kept = _pictures(folder, config, rows, root)
    return RunFolder(name, folder, config, rows, summarise(rows), problems, len(lacking), kept)


def _pictures(folder: Path, config: dict[str, Any], rows: list[Row], root: Path | None) -> Pictures | None:
    """What the run kept; otherwise those of a dataset of that name, if it is found and all labels agree."""
    kept = album.read(folder)
    if kept is not None or config.get("data") not in data.NAMES:
        return kept
    try:
        dataset = data.load(config["data"], "test", root)
    except ValueError:
        return None
    dataset = dataset.shuffled() if config.get("order") == "shuffled" else dataset
    index = [row.index for row in rows]
    told = len(rows) >= 8 or config["data"] == "mnist500"  # fewer labels may agree by chance with another split's
    if not told or max(index) >= len(dataset) or dataset.labels[index].tolist() != [row.label for row in rows]:
        return None
    return Pictures(np.array(index), dataset.images[index].numpy(), dataset.classes)


def _read_paper(folder: Path, top: Path, root: Path | None) -> Paper:
    table = Table.read(folder)
    for name in (*table.runs, *(figure.file for figure in table.figures)):
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{folder / TABLE} names {name}, which is not in its folder")
    runs: list[RunFolder] = []
    unread: list[str] = []
    for name in table.runs:
        try:
            run = _read_run(folder / name, name.removesuffix("/run"), root)
            runs += [run] if run else []
        except ValueError as error:
            unread.append(str(error))
    return Paper(_name(folder, top), folder, table, runs, unread)
