"""Experiments for a GPU, each a recipe that is trained and then certified: `python -m benchmarks.experiments [NAME …]`.

    python -m benchmarks.experiments --data-root DATA --out runs/experiments --device cuda

Both steps go on where they were interrupted. --quick trains a tiny network for two steps and certifies one picture with
few samples, to see that an experiment would run; what it says about accuracy means nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from warpcert.app.cli import main as warpcert

ROOT = Path(__file__).resolve().parents[1]
TINY = ("width=8", "steps=2", "batch=32", "validation=64")


@final
@dataclass(frozen=True)
class Experiment:
    """What is certified once the recipe of that name is trained: so many test pictures."""

    name: str
    data: str
    count: int
    few: tuple[str, ...]  # options of a quick trial
    more: tuple[str, ...] = ()  # options besides, quick or not

    def run(self, out: Path, root: Path, device: str, *, quick: bool) -> None:
        data = str(root / self.data) if self.data.endswith(".npz") else self.data
        folder, common = out / self.name, ["--data-root", str(root), "--device", device]
        changed = [f"dataset={data}", *(TINY if quick else ())]
        recipe = ROOT / "recipes" / self.name / "recipe.toml"
        _step(["train", str(recipe), "--out", str(folder), "--set", *changed, *common])
        certify = ["certify", "--model", str(folder / "model.safetensors"), "--data", data, "--shuffled"]
        count, few = (1, self.few) if quick else (self.count, ())
        _step([*certify, "--count", str(count), "--out", str(folder / "run"), *self.more, *few, *common])
        _step(["check", str(folder / "run")])


UNSEEN = ("--n", "1000", "--betas", "20", "--windows", "1", "--gamma", "0.5")
KNOWN = ("--n", "1000", "--betas", "20", "--windows", "1", "--gamma", "0.5", "--bound", "sampled")
BRIEF = ("--time-limit", "20")
VOTES = ("--n", "1000", "--n0", "20", "--time-limit", "20")
L2 = "l2=0.05"
EXPERIMENTS = (  # the recipes of products, blur and shifts first, by what a minute of training is worth
    Experiment("cifar-shifts-reflected-exact", "cifar10", 500, BRIEF),
    Experiment("cifar-shifts-black-exact", "cifar10", 500, BRIEF),
    Experiment("mnist-blur-exact", "mnist", 500, BRIEF),
    Experiment("mnist-shifts-black-exact", "mnist", 500, BRIEF),
    Experiment("mnist-shifts-reflected-exact", "mnist", 500, BRIEF),
    Experiment("mnist-scaling-exact", "mnist", 500, BRIEF),
    Experiment("cifar-front-exact", "cifar10", 500, BRIEF),
    Experiment("cifar-blur-exact", "cifar10", 500, BRIEF),
    Experiment("cifar-scaling-brightness-exact", "cifar10", 500, BRIEF),
    Experiment("cifar-rotation-brightness-exact", "cifar10", 500, BRIEF),
    Experiment(
        "mnist-rotation-brightness-cover", "mnist", 500, VOTES, ("--threat", "rotation=50", "brightness=0.2", L2)
    ),
    Experiment("mnist-scaling-brightness-cover", "mnist", 500, VOTES, ("--threat", "scaling=50", "brightness=0.5", L2)),
    Experiment(
        "cifar-rotation-brightness-cover", "cifar10", 500, VOTES, ("--threat", "rotation=30", "brightness=0.2", L2)
    ),
    Experiment(
        "cifar-scaling-brightness-cover", "cifar10", 500, VOTES, ("--threat", "scaling=30", "brightness=0.3", L2)
    ),
    Experiment("cifar-rotation-individual-wide", "cifar10", 200, UNSEEN),
    Experiment("gtsrb-rotation-individual", "gtsrb32.npz", 200, UNSEEN),
    Experiment("cifar-rotation-dist-x-10", "cifar10", 500, KNOWN),
    Experiment("cifar-rotation-dist-x-30", "cifar10", 500, KNOWN),
    Experiment("mnist-rotation-mitchell", "mnist", 500, KNOWN),
)


def _step(arguments: Sequence[str]) -> None:
    print("warpcert", *arguments, flush=True)
    if code := warpcert(list(arguments)):
        raise SystemExit(code)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="train and certify what a GPU is needed for")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(e.name for e in EXPERIMENTS)}")
    parser.add_argument("--data-root", type=Path, required=True, help="folder with the datasets, .npz files among them")
    parser.add_argument("--out", type=Path, default=Path("runs/experiments"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="a trial of everything in a minute or two")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {e.name for e in EXPERIMENTS}:
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}")
    for experiment in EXPERIMENTS:
        if not options.names or experiment.name in options.names:
            experiment.run(options.out, options.data_root, options.device, quick=options.quick)


if __name__ == "__main__":
    main(sys.argv[1:])
