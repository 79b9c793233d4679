"""`warpcert data`: the datasets and where they are looked for."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from warpcert.app.cli.options import DATA_VARIABLE, DATASETS

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${DATA_VARIABLE})")


def run(args: argparse.Namespace, console: Console) -> int:
    from rich.table import Table

    from warpcert.learn import data

    table = Table("name", "pictures", "shape", "classes", "where")
    for name in DATASETS:
        try:
            found = data.load(name, "test", args.data_root)
            shape = "×".join(map(str, found.shape))
            table.add_row(name, str(len(found)), shape, str(len(found.classes)), "found")
        except ValueError as error:
            table.add_row(name, "–", "–", "–", str(error))
    Console(highlight=False).print(table)
    return 0
