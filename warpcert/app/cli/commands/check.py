"""`warpcert check`: the arithmetic of what was written, redone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

__all__ = ["add", "run"]

SHOWN = 10  # problems that are printed


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("folder", type=Path, help="a run folder, or a JSON file that a server sent")
    p.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(args: argparse.Namespace, console: Console) -> int:
    from warpcert.runs.answers import verify_file
    from warpcert.runs.store import read_records, verify

    if args.folder.is_file():
        problems, count = verify_file(args.folder), 1
    else:
        problems, count = verify(args.folder), sum(1 for _ in read_records(args.folder))
    if args.json:
        print(json.dumps({"certificates": count, "problems": problems}))
    for problem in problems[:SHOWN]:
        console.print(f"FAILED {problem}", style="red", markup=False, soft_wrap=True)
    if len(problems) > SHOWN:
        console.print(f"and {len(problems) - SHOWN} more; --json lists all", style="red")
    if not args.json:
        print(f"{count} certificates checked, {len(problems)} problems")
    return 1 if problems else 0
