"""Trains a recipe for as many steps as fit into a given time on this machine, its schedule stretched to just that.

    python -m benchmarks.tuning recipes/NAME/recipe.toml --data-root DATA --seconds 240 --out OUT [--set KEY=VALUE …]

The result names the number of steps, so that `warpcert train` with steps=THAT repeats the run.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from warpcert.learn import data
from warpcert.learn.checkpoint import forget
from warpcert.learn.train import Recipe, pace, train


def main() -> None:
    parser = argparse.ArgumentParser(description="train a recipe within a given time")
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="+", default=[])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    recipe, start = Recipe.read(args.recipe).override(args.set), time.perf_counter()
    pictures = data.load(recipe.dataset, "train", args.data_root)
    print(f"{len(pictures)} pictures read in {time.perf_counter() - start:.1f} s", flush=True)
    each = pace(recipe, pictures, args.device)
    left = args.seconds - (time.perf_counter() - start)
    recipe = replace(recipe, steps=max(1, int(0.92 * left / each)))  # the rest is for looking at held-out pictures
    print(f"{each:.4f} s a step, {recipe.batch / each:.0f} pictures/s, {recipe.steps} steps", flush=True)
    forget(args.out)
    rows = {"on_step": lambda row: print({k: row[k] for k in ("step", "loss", "accuracy", "seconds")}, flush=True)}
    result = train(recipe, pictures, args.device, args.out, **rows)
    print(json.dumps({k: v for k, v in result.items() if k != "recipe"}), flush=True)


if __name__ == "__main__":
    main()
