"""`warpcert paper`: the experiments of the paper, listed, run and printed beside the published numbers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Printed

from warpcert.app.cli.options import add_device, device_of
from warpcert.learn import data
from warpcert.paper import experiments
from warpcert.paper.desk import FILES, Desk
from warpcert.paper.experiment import Experiment, run
from warpcert.paper.table import TABLE, Cell, Table

__all__ = ["add_paper", "paper"]

OUT = Path("runs/paper")


def add_paper(verbs: Any) -> None:
    """The command's arguments."""
    p = verbs.add_parser("paper", help="list the paper's experiments, or run one (or all) and show its table")
    p.add_argument("name", nargs="?", help="an experiment, or all; none: list them")
    p.add_argument("--quick", action="store_true", help="minutes on two cores: fewer images and samples")
    p.add_argument("--out", type=Path, default=OUT, help="folder of results, resumed (default: %(default)s)")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${data.ROOT_VARIABLE})")
    for name, usual in FILES.items():
        p.add_argument(f"--{name}", type=Path, help=f"the {name} data (default: {usual} in the data folder)")
    add_device(p)
    p.set_defaults(run=paper)


def paper(args: argparse.Namespace, console: Console) -> int:
    out = args.out
    if args.name is None:
        _list(out)
        return 0
    chosen = list(experiments.EXPERIMENTS.values()) if args.name == "all" else [experiments.get(args.name)]
    files = {name: path for name in FILES if (path := getattr(args, name)) is not None}
    desk = Desk(out, args.quick, device_of(args.device), args.data_root, files)
    for experiment in chosen:
        _run(experiment, desk, console, _command(args, experiment.name))
        _print(Table.read(out / experiment.name), out / experiment.name)
    return 0


def _run(experiment: Experiment, desk: Desk, console: Console, command: str) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, Any] = {}
        for case, (what, done, total) in run(experiment, desk, command):
            text = f"{experiment.name}: {case}, {what}"
            if text not in tasks:
                tasks[text] = progress.add_task(text, total=total)
            progress.update(tasks[text], completed=done, total=total)


def _command(args: argparse.Namespace, name: str) -> str:
    """What to type to get this table again."""
    words = ["warpcert paper", name, *(["--quick"] if args.quick else [])]
    for option in ("out", "data_root", *FILES):
        if (value := getattr(args, option)) not in (None, OUT):
            words.append(f"--{option.replace('_', '-')} {value}")
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
    """The table with a line per quantity: published, ours, and the number of the remark below it."""
    out = Console(highlight=False)
    title = f"{table.title} (QUICK)" if table.quick else table.title
    printed = Printed("case", "quantity", "published", "ours", "remark", title=title)
    remarks = list(dict.fromkeys(filter(None, table.remarks)))
    for row, cited, remark in zip(table.rows, table.published, table.remarks, strict=True):
        lines = [
            (name, "–" if known is None else f"{known.value} ({known.source})", _text(cell))
            for name, known, cell in zip(table.columns[1:], cited[1:], row[1:], strict=True)
            if known is not None or cell is not None
        ]
        mark = f"({remarks.index(remark) + 1})" if remark else ""
        for place, line in enumerate(lines or [("", "–", "–")]):
            first = place == 0
            printed.add_row(str(row[0]) if first else "", *line, mark if first else "")
        printed.add_section()
    out.print(printed, markup=False)
    out.print(table.command, markup=False, soft_wrap=True)
    for number, remark in enumerate(remarks, 1):
        out.print(f"({number}) {remark}", markup=False, soft_wrap=True)
    for note in table.notes:
        out.print(note, markup=False, soft_wrap=True)
    out.print(f"{table.seconds:.0f} s of work; {folder / TABLE}", markup=False, soft_wrap=True)


def _text(cell: Cell) -> str:
    return "–" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)
