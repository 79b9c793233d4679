"""`warpcert attack`: transformations that change the network's answer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from warpcert.app.cli.options import ATTACKS, add_classifier, add_data, add_threat, natural, positive

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("--method", choices=ATTACKS, default="worst-of-k", help="default: %(default)s")
    p.add_argument(
        "--k", type=positive, default=100, help="candidates of worst-of-k, points per axis of grid, starts of gradient"
    )
    p.add_argument("--out", type=Path, help="folder for the attacked pictures and attacks.jsonl")
    p.add_argument("--seed", type=natural, default=0, help="default: %(default)s")
    p.add_argument("--json", action="store_true", help="print one JSON line per picture")
    add_data(p)
    add_classifier(p)
    add_threat(p)


def run(args: argparse.Namespace, console: Console) -> int:
    import torch

    from warpcert import attacks
    from warpcert.app.cli.case import open_case
    from warpcert.classifier import Smoothed
    from warpcert.runs.job import seed_for
    from warpcert.runs.progress import Watch

    case = open_case(args)
    f, t = case.classifier, case.threat.transform
    if args.method == "gradient" and f.step > 1:
        raise ValueError("a classifier behind levels has no gradient: attack it by worst-of-k or grid")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "attacks.jsonl").write_text("")

    def attacked(z: Tensor) -> Tensor:
        """What can be attacked without votes: the classifier itself, or the network that a smoothed one asks."""
        return f.logits(f.shown(z)) if isinstance(f, Smoothed) else f(z)

    clean = robust = 0
    with Watch(console) as watch:
        for done, index in enumerate(case.indices):
            watch.show(args.method, done, len(case.indices))
            x, label = case.image(index), case.labels[index]
            generator = torch.Generator().manual_seed(seed_for(args.seed, index))
            found = attacks.ATTACKS[args.method](attacked, x, label, case.threat, args.k, generator)
            with torch.no_grad():
                clean += int(attacked(x[None]).argmax()) == label
            robust += not found.succeeded
            record = {
                "index": index,
                "true_label": label,
                "label": found.label,
                "gamma": t.to_surface(found.gamma),
                "unit": t.unit,
                "loss": found.loss,
            }
            if args.json:
                print(json.dumps(record))
            if args.out:
                _save(args.out, index, found.x_attacked, record)
    shares = f"accuracy {clean / len(case.indices):.3f}, under attack {robust / len(case.indices):.3f}"
    whom = "the network alone, without votes" if isinstance(f, Smoothed) else "the classifier"
    out = console if args.json else Console(highlight=False)
    out.print(f"{shares} ({len(case.indices)} pictures, {args.method}, {whom})")
    return 0


def _save(folder: Path, index: int, picture: Tensor, record: dict[str, Any]) -> None:
    from warpcert.learn.pictures import write_picture

    if picture.dim() == 3 and picture.shape[0] in (1, 3):
        write_picture(picture, folder / f"{index}.png")
    with (folder / "attacks.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
