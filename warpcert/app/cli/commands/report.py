"""`warpcert report`: runs and paper results as one HTML page."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from warpcert.app.cli.options import DATA_VARIABLE, positive

if TYPE_CHECKING:
    from warpcert.report.results import RunFolder

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "folders", type=Path, nargs="*", default=[Path("runs")], help="where results are looked for (default: runs)"
    )
    p.add_argument("--out", type=Path, default=Path("report.html"), help="the page to write (default: %(default)s)")
    p.add_argument("--most", type=positive, default=60, help="pictures shown of each run (default: %(default)s)")
    p.add_argument("--data-root", type=Path, help=f"datasets of runs without pictures (default: ${DATA_VARIABLE})")


def run(args: argparse.Namespace, console: Console) -> int:
    from warpcert.paper.experiments import EXPERIMENTS
    from warpcert.report.html import render
    from warpcert.report.results import find

    found = find(args.folders, args.data_root)
    page = render(found, args.most, tuple(EXPERIMENTS), _commands)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(page, encoding="utf-8")
    size = len(page.encode()) / 2**20
    print(f"{args.out}: {_count(found.runs, 'run')} and {_count(found.papers, 'experiment')}, {size:.1f} MiB")
    for sentence in found.unread:
        console.print(f"FAILED {sentence}", style="red", markup=False, soft_wrap=True)
    wrong = sum(bool(run.problems) for run in found.all_runs)
    if wrong:
        console.print(f"FAILED {wrong} run(s) have records that do not hold; the page says which", style="red")
    return 1 if wrong or found.unread else 0


def _count(found: Sequence[object], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


def _commands(run: RunFolder) -> dict[str, str]:
    """What a reader may do with a run folder."""
    folder = shlex.quote(run.folder.as_posix())
    deploy = {"deploy it": f"warpcert predict --from {folder} PICTURE"} if run.reopens else {}
    return deploy | {"check it": f"warpcert check {folder}"}
