"""`warpcert check`: the arithmetic of what was written, redone; and with the model at hand, a sample of the work."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from warpcert.app.cli.options import DATA_VARIABLE, add_device, natural, positive

__all__ = ["add", "run"]

SHOWN = 10  # problems that are printed


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("folder", type=Path, help="a run folder, one that holds many, or a JSON file that a server sent")
    p.add_argument(
        "--against",
        nargs="?",
        const="",
        metavar="MODEL",
        help="repeat a sample of the certificates with this model (default: the run's)",
    )
    p.add_argument("--sample", type=positive, default=3, help="how many to repeat (default: %(default)s)")
    p.add_argument("--data", help="the run's dataset, if its name is not enough to find it")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${DATA_VARIABLE})")
    p.add_argument("--split", default="test", choices=("train", "test"))
    p.add_argument("--seed", type=natural, help="of the sample (default: fresh)")
    add_device(p)
    p.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(args: argparse.Namespace, console: Console) -> int:
    from warpcert.runs.answers import verify_file
    from warpcert.runs.store import read_records, run_folders, verify

    if args.folder.is_file():
        problems, count = verify_file(args.folder), 1
    else:
        folders = run_folders(args.folder) or [args.folder]
        if folders != [args.folder] and args.against is not None:
            raise ValueError(f"{args.folder} holds runs in folders of their own; name the one that is to be repeated")
        named = {f: "" if f == args.folder else f"{f.relative_to(args.folder)}: " for f in folders}
        problems = [f"{name}{problem}" for folder, name in named.items() for problem in verify(folder)]
        count = sum(1 for folder in folders for _ in read_records(folder))
        if args.against is not None and not problems:
            problems = _again(args, console)
    if args.json:
        print(json.dumps({"certificates": count, "problems": problems}))
    for problem in problems[:SHOWN]:
        console.print(f"FAILED {problem}", style="red", markup=False, soft_wrap=True)
    if len(problems) > SHOWN:
        console.print(f"and {len(problems) - SHOWN} more; --json lists all", style="red")
    if not args.json:
        print(f"{count} certificates checked, {len(problems)} problems")
    return 1 if problems else 0


def _again(args: argparse.Namespace, console: Console) -> list[str]:
    """What does not come out when a sample is done again."""
    import secrets

    from warpcert.app.cli.case import in_groups
    from warpcert.learn import data
    from warpcert.learn.photos.archive import CUT
    from warpcert.runs.again import Again
    from warpcert.runs.progress import Watch
    from warpcert.runs.run import Run

    run = Run(args.folder)
    side = run.config.get("shape", (CUT,))[-1]
    dataset = data.load(args.data or run.config["data"], args.split, args.data_root, side)
    dataset = dataset.shuffled() if run.config.get("order") == "shuffled" else dataset
    classifier = run.classifier(args.device, args.against or None)
    again = Again(run, classifier, in_groups(dataset, classifier))
    problems = list(again.pictures())
    chosen = again.sample(args.sample, secrets.randbits(32) if args.seed is None else args.seed)
    with Watch(console) as watch:
        for done, row in enumerate(chosen):
            watch.show("done again", done, len(chosen))
            problems += again.redone(row)
    console.print(f"done again: pictures {', '.join(str(row.index) for row in chosen)}", soft_wrap=True)
    return problems
