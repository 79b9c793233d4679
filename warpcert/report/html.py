"""The report: everything that has run as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from jinja2 import Environment, PackageLoader, StrictUndefined

from warpcert.certificates import Kind
from warpcert.report import figures, words
from warpcert.report.cards import STATUS, Card, card, image
from warpcert.report.figures import CSS, Figure
from warpcert.report.results import Paper, Results, RunFolder, find
from warpcert.report.svg import data_uri
from warpcert.report.table import Cell, Cited, Table, signed
from warpcert.report.words import Setting
from warpcert.version import __version__

__all__ = ["LARGEST", "compared", "render", "write"]

DEEP = 4  # pictures of a run whose possible originals are shown
LARGEST = 10 * 2**20  # bytes that a report may have
Commands = Callable[[RunFolder], dict[str, str]]
COUNTS = ("images", "attacked images", "sounds", "γ tried")  # columns that say how much was measured, not what


@final
@dataclass(frozen=True)
class View:
    """A run as the page shows it."""

    run: RunFolder
    words: str
    deploy: str
    settings: list[Setting]
    commands: dict[str, str]
    figures: list[Figure]
    cards: list[Card]

    @property
    def strength(self) -> int:
        """Strongest kind first."""
        return list(Kind).index(self.run.summary.kind)


def write(folders: Iterable[Path], path: Path) -> Path:
    """Writes the page about everything that is in and below the folders."""
    page = render(find(folders))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def render(found: Results, most: int = 60, order: Sequence[str] = (), commands: Commands = lambda run: {}) -> str:
    """The page, at most LARGEST bytes.

    most       pictures of each run in the galleries, or as many as fit
    order      names of experiments as they are shown; others follow
    commands   what a reader may do with a run folder: its name and the command
    """
    environment = Environment(
        loader=PackageLoader("warpcert.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    filters = (words.cell, words.percent, words.duration, words.between, words.lowered, compared, signed)
    environment.filters |= {f.__name__: f for f in filters}
    views = [_view(run, most, commands) for run in found.all_runs]
    papers = sorted(found.papers, key=lambda p: _place(p, order))
    content = {
        "papers": [(p, _pictures(p), [v for v in views if v.run in p.runs], _figures(p.runs)) for p in papers],
        "runs": views[: len(found.runs)],
        "views": views,
        "unread": found.unread,
        "figures": _figures(found.runs),
        "together": _together(found),
        "css": CSS,
        "status": STATUS,
        "version": __version__,
        "time": datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    }
    template = environment.get_template("report.html")
    page = template.render(content)
    while len(page.encode()) > LARGEST and max(len(v.cards) for v in views) > 1:
        for view in views:
            del view.cards[max(1, len(view.cards) // 2) :]
        page = template.render(content)
    if len(page.encode()) > LARGEST:
        raise ValueError(f"the report would have {len(page.encode()) >> 20} MiB; report fewer folders at once")
    return page


def _view(run: RunFolder, most: int, commands: Commands) -> View:
    first = run.rows[0]
    x = image(run, first.index)
    drawn = [figures.error(x, first.certificate)] if x is not None else []
    drawn += [] if first.certificate.unseen or len(run.rows) < 2 else [figures.ranges(run.rows)]
    return View(
        run=run,
        words=words.plain_words(run),
        deploy=words.deploy(run),
        settings=words.settings(run),
        commands=commands(run),
        figures=[figure for figure in drawn if figure],
        cards=[card(run, row, deep=place < DEEP) for place, row in enumerate(run.rows[:most])],
    )


def _place(paper: Paper, order: Sequence[str]) -> int:
    return order.index(paper.table.name) if paper.table.name in order else len(order)


def compared(table: Table) -> dict[int, list[tuple[str, Cited, Cell]]]:
    """By the place of a row, what is published of it: (quantity, published, ours). Rows of which only counts are
    published are left out.
    """
    pairs = {
        place: [(column, known, ours) for column, known, ours in zip(table.columns, cited, row, strict=True) if known]
        for place, (cited, row) in enumerate(zip(table.published, table.rows, strict=True))
    }
    return {place: lines for place, lines in pairs.items() if any(column not in COUNTS for column, _, _ in lines)}


def _groups(runs: Iterable[tuple[str, RunFolder]]) -> dict[str, list[figures.Series]]:
    """Named runs by dataset and transformation."""
    groups: dict[str, list[figures.Series]] = {}
    for name, run in runs:
        noun = run.rows[0].certificate.threat.transform.noun
        data = run.data if run.data_is_named else f"the {len(run.rows)} pictures of {run.name}"
        groups.setdefault(f"{data}, {noun}", []).append((name, run.rows))
    return groups


def _together(found: Results) -> list[Figure]:
    """Certified accuracy by all that has run, experiments of the paper and others: a plot for each dataset and
    transformation that more than one of them is about.
    """
    if not found.papers:
        return []
    named = [(run.name, run) for run in found.runs]
    named += [(f"{paper.table.name}: {run.name}", run) for paper in found.papers for run in paper.runs]
    several = {title: series for title, series in _groups(named).items() if len(series) > 1}
    return [figures.accuracy(f"All methods: {title}", series) for title, series in several.items()]


def _figures(runs: Sequence[RunFolder]) -> list[Figure]:
    """For each dataset and transformation all runs in one plot: certified accuracy, and the errors behind it."""
    groups = _groups((run.name, run) for run in runs)
    found: list[Figure] = []
    for title, series in groups.items():
        found.append(figures.accuracy(f"Certified accuracy: {title}", series))
        found += [drawn] if (drawn := figures.errors(f"Errors against the range: {title}", series)) else []
    return found


def _pictures(paper: Paper) -> list[tuple[str, str]]:
    """(data URI, caption) of its picture files; as images, so that nothing in them can run."""
    kinds = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg"}
    found = []
    for figure in paper.table.figures:
        path = paper.folder / figure.file
        if path.suffix not in kinds or not path.is_file():
            raise ValueError(f"{path} is named as a figure: it must be there, as .svg, .png or .jpg")
        found.append((data_uri(path.read_bytes(), kinds[path.suffix]), figure.caption))
    return found
