"""`warpcert bound`: the calibration that dist-d needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from warpcert.app.cli.options import BOUNDS, add_classifier, add_data, add_threat, natural, positive

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("--out", type=Path, required=True, help="the calibration.json to write")
    p.add_argument(
        "--estimate", type=positive, default=100, help="pictures before --start on which E is chosen (default: 100)"
    )
    p.add_argument("--factor", type=float, default=1.02, help="largest error seen × this is E (default: %(default)s)")
    p.add_argument("--E", type=float, dest="fixed_E", help="use this E and skip the estimate")
    p.add_argument("--rho", type=float, default=0.01, help="ρ of every picture in the share (default: %(default)s)")
    p.add_argument("--allowed", type=natural, default=0, help="errors above E allowed per picture (default: 0)")
    p.add_argument("--alpha", type=float, default=0.001, help="failure probability of q_E (default: %(default)s)")
    p.add_argument("--bound", choices=BOUNDS, default="curve", help="error analysis (default: %(default)s)")
    p.add_argument("--time-limit", type=float, help="seconds of error analysis per picture")
    p.add_argument("--reference", help="the kernel that turns known originals, e.g. mitchell")
    p.add_argument("--seed", type=natural, default=0, help="default: %(default)s")
    add_data(p, split="train", count=500)
    add_classifier(p)
    add_threat(p)


def run(args: argparse.Namespace, console: Console) -> int:
    from dataclasses import replace

    from warpcert.app.cli.case import open_case
    from warpcert.app.cli.estimates import Timed
    from warpcert.errors import calibration
    from warpcert.errors.proved import named
    from warpcert.runs.progress import Watch

    case = open_case(args)
    defence = replace(case.classifier.defence(case.threat.transform), reference=args.reference)
    before = range(max(0, case.indices.start - args.estimate), case.indices.start)
    if args.fixed_E is None and not before:
        raise ValueError("E is chosen on pictures before --start: raise --start, or give --E")
    plan = calibration.Plan(
        bound=named(args.bound, args.time_limit),
        rho=args.rho,
        alpha=args.alpha,
        alpha_inner=args.alpha,
        allowed=args.allowed,
        factor=args.factor,
        E=args.fixed_E,
        seed=args.seed,
    )
    with Watch(console) as watch:
        made = calibration.calibrated(
            plan,
            (defence, case.threat),
            [case.image(i) for i in before],
            [case.image(i) for i in case.indices],
            f"{case.dataset.name} {args.split}",
            Timed(watch.show, console),
        )
    made.write(args.out)
    print(
        f"E = {made.E:.4f} ({made.kind}), ρ = {made.rho:g}: {made.accepted} of {made.images} pictures, "
        f"so q_E ≥ {made.q_E:.4f} with confidence {1 - made.alpha:g}"
    )
    console.print(f"written to {args.out}")
    return 0
