"""`warpcert paper`: experiments of the paper, listed, run and printed beside the published numbers."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

from warpcert.app.cli.commands.paper import FILES, OUT
from warpcert.paper import experiments
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.experiment import run as results_of
from warpcert.paper.jobs import side_by_side
from warpcert.report.table import TABLE, Cell, Table, signed
from warpcert.runs.job import device_of
from warpcert.runs.progress import Watch

__all__ = ["run"]


def run(args: argparse.Namespace, console: Console) -> int:
    out = args.out
    if args.name is None:
        _list(out)
        return 0
    chosen = list(experiments.EXPERIMENTS.values()) if args.name == "all" else [experiments.get(args.name)]
    files = {name: path for name in FILES if (path := getattr(args, name)) is not None}
    desk = Desk(out, args.quick, device_of(args.device), args.data_root, files, args.limit)
    if args.jobs > 1:
        with Watch(console) as watch:
            for case, done, total in side_by_side(chosen, desk, args.jobs):
                watch.show("rows", done, total, case)
    measured = args.jobs > 1 and args.limit < math.inf  # time is up for all but what had to wait
    for experiment in chosen:
        own = replace(desk, limit=0.0) if measured and not experiment.alone else desk
        _run(experiment, own, console, _command(args, experiment.name))
        _print(Table.read(out / experiment.name), out / experiment.name)
    return 0


def _run(experiment: Experiment, desk: Desk, console: Console, command: str) -> None:
    with Watch(console) as watch:
        for case, (what, done, total) in results_of(experiment, desk, command):
            watch.show(f"{experiment.name}: {case}, {what}", done, total)


def _command(args: argparse.Namespace, name: str) -> str:
    """What to type to get this table again."""
    words = ["warpcert paper", name, *(["--quick"] if args.quick else [])]
    for option in ("out", "data_root", *FILES):
        if (value := getattr(args, option)) not in (None, OUT):
            words.append(f"--{option.replace('_', '-')} {value}")
    words += [f"--limit {args.limit:g}"] if args.limit < math.inf else []
    words += [f"--jobs {args.jobs}"] if args.jobs > 1 else []
    return " ".join([*words, *([f"--device {args.device}"] if args.device != "cpu" else [])])


def _list(out: Path) -> None:
    listing = Printed("name", "what", "quick, two cores", "has run", title="warpcert paper NAME [--quick]")
    for name, experiment in experiments.EXPERIMENTS.items():
        done = out / name / TABLE
        state = "no"
        if done.is_file():
            table = Table.read(done.parent)
            state = f"{'quick' if table.quick else 'full'}, {table.seconds:.0f} s"
        listing.add_row(name, experiment.title, f"{experiment.minutes:g} min", state)
    Console(highlight=False).print(listing)


def _print(table: Table, folder: Path) -> None:
    """The table with a line per quantity: published, ours, their difference, and the number of the remark below it."""
    out = Console(highlight=False)
    title = f"{table.title} (QUICK)" if table.quick else table.title
    printed = Printed("case", "quantity", "published", "ours", "difference", "remark", title=title)
    remarks = list(dict.fromkeys(filter(None, table.remarks)))
    for row, cited, remark in zip(table.rows, table.published, table.remarks, strict=True):
        lines = [
            (name, _text(known and known.value), _text(cell), signed(cell, known and known.value))
            for name, known, cell in zip(table.columns[1:], cited[1:], row[1:], strict=True)
            if known is not None or cell is not None
        ]
        mark = f"({remarks.index(remark) + 1})" if remark else ""
        for place, line in enumerate(lines or [("", "–", "–", "")]):
            first = place == 0
            printed.add_row(str(row[0]) if first else "", *line, mark if first else "")
        printed.add_section()
    out.print(printed, markup=False)
    out.print(table.command, markup=False, soft_wrap=True)
    for number, remark in enumerate(remarks, 1):
        out.print(f"({number}) {remark}", markup=False, soft_wrap=True)
    for note in table.notes:
        out.print(note, markup=False, soft_wrap=True)
    where = ", ".join(filter(None, (table.device, table.date)))
    out.print(
        f"{table.seconds:.0f} s of work{f' ({where})' if where else ''}; {folder / TABLE}", markup=False, soft_wrap=True
    )


def _text(cell: Cell) -> str:
    return "–" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)
