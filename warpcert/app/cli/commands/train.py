"""`warpcert train`: a recipe, trained."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from warpcert.app.cli.options import DATA_VARIABLE, add_device

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("recipe", type=Path, help="a recipe.toml")
    p.add_argument("--out", type=Path, required=True, help="folder for checkpoint, log, weights and result")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${DATA_VARIABLE})")
    p.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="fields of the recipe to change")
    p.add_argument("--fresh", action="store_true", help="start over, even if there is a checkpoint")
    p.add_argument("--seconds", type=float, help="stop after this many seconds; the next call continues")
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    add_device(p)


def run(args: argparse.Namespace, console: Console) -> int:
    from rich.table import Table

    from warpcert.learn import data
    from warpcert.learn.checkpoint import forget
    from warpcert.learn.train import Recipe, train
    from warpcert.runs.job import device_of

    recipe = Recipe.read(args.recipe).override(args.set)
    pictures = data.load(recipe.dataset, "train", args.data_root)
    if args.fresh:
        forget(args.out)
    show: Callable[[dict[str, Any]], None] = lambda row: console.print(_line(row))  # noqa: E731
    result = train(recipe, pictures, device_of(args.device), args.out, seconds_limit=args.seconds, on_step=show)
    if args.json:
        print(json.dumps(result))
    else:
        table = Table("quantity", "value", title=recipe.name)
        for name, value in result.items():
            table.add_row(str(name), f"{value:.4g}" if isinstance(value, float) else str(value))
        Console(highlight=False).print(table)
    console.print(f"weights, log and result are in {args.out}")
    return 0


def _line(row: dict[str, Any]) -> str:
    right = "" if row["accuracy"] is None else f", accuracy {row['accuracy']:.3f}"
    return f"step {row['step']} of {row['of']}: loss {row['loss']:.4f}{right}"
