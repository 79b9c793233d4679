"""What is refused at once: names and paths that lead nowhere are told before torch is loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

from warpcert.app.cli.options import DATASETS, EXPERIMENTS

__all__ = ["refuse"]

PATHS = ("folder", "folders", "image", "pictures", "recipe", "calibration", "token_file")  # that must exist


def refuse(args: argparse.Namespace) -> None:
    """A ValueError about the first argument that names nothing."""
    for name in PATHS:
        given = getattr(args, name, None) or []
        for path in given if isinstance(given, list) else [given]:
            if not path.exists():
                raise ValueError(f"there is no file or folder {path}")
    if (model := getattr(args, "model", None)) is not None:
        _model(model)
    data = getattr(args, "data", None)
    if data is not None and data not in DATASETS and not Path(data).exists():
        raise ValueError(
            f"dataset {data!r} is not known: give one of {', '.join(DATASETS)}, an .npz file or a folder that exists"
        )
    if args.command == "paper" and args.name not in (None, "all", *EXPERIMENTS):
        raise ValueError(f"experiment {args.name!r} is not known; choose one of {', '.join(EXPERIMENTS)}, or all")


def _model(name: str) -> None:
    """Of a name of the zoo, whether there is such a model; other names are looked at when they are opened."""
    from warpcert.learn import zoo

    if not Path(name).suffix and ":" not in name and not Path(name).exists():
        zoo.find(name)
