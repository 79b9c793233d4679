"""The report: everything that has run as one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from warpcert.certificates import Kind
from warpcert.certificates.words import attacker, thing
from warpcert.paper.experiments import EXPERIMENTS
from warpcert.paper.table import Cell, Cited, Table
from warpcert.report import svg
from warpcert.report.cards import STATUS, Card, card, cell, duration, grouped, image
from warpcert.report.results import Paper, Results, RunFolder
from warpcert.runs.summary import held
from warpcert.version import __version__

__all__ = ["LARGEST", "render"]

DEEP = 12  # images of a run whose possible originals are shown
LARGEST = 10 * 2**20  # bytes that a report may have
COUNTS = ("images", "attacked images", "sounds", "γ tried")  # columns that say how much was measured, not what
CSS = {Kind.PROVED: "proved", Kind.WITH_CONFIDENCE: "confidence", Kind.HEURISTIC: "heuristic"}


@final
@dataclass(frozen=True)
class View:
    """A run as the page shows it."""

    run: RunFolder
    words: str
    settings: list[tuple[str, str]]
    error: Markup | None
    cards: list[Card]

    @property
    def strength(self) -> int:
        """Strongest kind first."""
        return list(Kind).index(self.run.summary.kind)


def render(found: Results, most: int = 60) -> str:
    """The page, at most LARGEST bytes: with `most` images of each run in the galleries, or as many as fit."""
    environment = Environment(
        loader=PackageLoader("warpcert.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"cell": cell, "percent": percent, "duration": duration, "compared": compared}
    views = [
        View(
            run,
            plain_words(run),
            settings(run),
            _error(run, f"error{n}"),
            [card(run, row, deep=place < DEEP) for place, row in enumerate(run.rows[:most])],
        )
        for n, run in enumerate(found.all_runs)
    ]
    content = {
        "papers": [
            (p, _figures(p), [v for v in views if v.run in p.runs], _charts(p.runs, f"paper{n}-"))
            for n, p in enumerate(sorted(found.papers, key=_place))
        ],
        "runs": views[: len(found.runs)],
        "views": views,
        "unread": found.unread,
        "charts": _charts(found.runs, "accuracy"),
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


def _place(paper: Paper) -> int:
    """Experiments in the paper's order, others after them."""
    return list(EXPERIMENTS).index(paper.table.name) if paper.table.name in EXPERIMENTS else len(EXPERIMENTS)


def compared(table: Table) -> dict[int, list[tuple[str, Cited, Cell]]]:
    """By the place of a row, what is published of it: (quantity, published, ours). Rows of which only counts are
    published are left out.
    """
    pairs = {
        place: [(column, known, ours) for column, known, ours in zip(table.columns, cited, row, strict=True) if known]
        for place, (cited, row) in enumerate(zip(table.published, table.rows, strict=True))
    }
    return {place: lines for place, lines in pairs.items() if any(column not in COUNTS for column, _, _ in lines)}


def percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def plain_words(run: RunFolder) -> str:
    """What the run guarantees, for a reader who knows no theory."""
    first, s = run.rows[0].certificate, run.summary
    t = first.threat.transform
    kept, span = sum(held(r) == 1 for r in run.rows), t.span(first.threat.box)
    sure = "expected" if s.kind is Kind.HEURISTIC else "certified"
    what = thing(t)
    start = f"For {kept} of {s.count} {what}s from {run.config.get('data', '?')} the right answer is {sure}"
    if first.unseen:
        said = f"{start} to be the unseen original's too, whichever {t.noun} within {span} made the {what} of it."
    else:
        said = f"{start} to stay under every {t.noun} within {span}."
    return f"{said} {first.because()}"


def settings(run: RunFolder) -> list[tuple[str, str]]:
    """What decides the outcome of a run, in surface units."""
    c = run.rows[0].certificate
    t = c.threat.transform
    return [
        ("data", str(run.config.get("data", "?"))),
        (f"{thing(t)}s", str(run.summary.count)),
        ("attacker", f"{t.noun} within {t.span(c.threat.box)}, {attacker(c.threat)}"),
        ("deployed", c.deployed),
        *((name, cell(value)) for name, value in c.settings()),
        ("median E", cell(run.summary.median_E or None)),
        (f"time per {thing(t)}", duration(run.summary.seconds)),
        (f"forward passes per {thing(t)}", grouped(run.summary.passes)),
        ("classifier", c.classifier.name or c.classifier.fingerprint[:16] or "not named"),
        ("folder", run.folder.as_posix()),
    ]


def _charts(runs: Sequence[RunFolder], name: str) -> list[tuple[str, Markup]]:
    """One chart of certified accuracy for each transformation."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(run.rows[0].certificate.threat.transform.noun, []).append(run)
    return [
        (noun, svg.accuracy_figure([(r.name, r.rows) for r in group], f"{name}{n}"))
        for n, (noun, group) in enumerate(groups.items())
    ]


def _error(run: RunFolder, name: str) -> Markup | None:
    """The first image's error against γ, where its bound is of that error and the image is at hand."""
    row = run.rows[0]
    x = image(run, row.index)
    if x is None or row.certificate.bounded is None or not math.isfinite(row.certificate.error.E):
        return None
    return svg.error_figure(x, row.certificate, name)


def _figures(paper: Paper) -> list[tuple[str, str]]:
    """(data URI, caption); as images, so that nothing in them can run."""
    kinds = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg"}
    found = []
    for figure in paper.table.figures:
        path = paper.folder / figure.file
        if path.suffix not in kinds or not path.is_file():
            raise ValueError(f"{path} is named as a figure: it must be there, as .svg, .png or .jpg")
        found.append((svg.data_uri(path.read_bytes(), kinds[path.suffix]), figure.caption))
    return found
