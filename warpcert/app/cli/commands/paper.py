"""`warpcert paper`: the words. What they do is in tables.py."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rich.console import Console

from warpcert.app.cli.options import DATA_VARIABLE, add_device, positive

__all__ = ["FILES", "OUT", "add", "run"]

OUT = Path("runs/paper")
FILES = ("gtsrb", "speech", "imagenet", "rimagenet")  # data that is named by its file


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", help="an experiment, or all (default: list them)")
    p.add_argument("--quick", action="store_true", help="minutes on two cores: fewer pictures and samples")
    p.add_argument("--out", type=Path, default=OUT, help="folder of results, resumed (default: %(default)s)")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${DATA_VARIABLE})")
    for name in FILES:
        p.add_argument(f"--{name}", type=Path, help=f"the {name} data (default: in the data folder)")
    p.add_argument(
        "--limit",
        type=float,
        default=math.inf,
        help="seconds after which a row begins no further picture (default: none)",
    )
    p.add_argument("--jobs", type=positive, default=1, help="rows that are measured side by side (default: 1)")
    add_device(p)


def run(args: argparse.Namespace, console: Console) -> int:
    from warpcert.app.cli import tables

    return tables.run(args, console)
