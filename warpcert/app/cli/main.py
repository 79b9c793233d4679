"""The command line: certify, bound, predict, invert, attack, serve, train, check, report, data, models, paper."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from warpcert import attacks
from warpcert.app.cli import commands, individual, invert
from warpcert.app.cli.options import add_bound, add_case, add_device, add_sampling
from warpcert.app.cli.paper import add_paper
from warpcert.app.cli.report import add_report
from warpcert.app.cli.serve import add_serve
from warpcert.learn import data
from warpcert.version import __version__

__all__ = ["build_parser", "main"]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warpcert", description="Proves how far a classifier's answer survives image transformations."
    )
    parser.add_argument("--version", action="version", version=f"warpcert {__version__}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    p = verbs.add_parser("certify", help="certify images and append the certificates to a run folder")
    p.add_argument("--method", choices=commands.METHODS, default="dist-x", help="default: %(default)s")
    p.add_argument("--out", type=Path, default=Path("runs/certify"), help="run folder, resumed (default: %(default)s)")
    add_case(p)
    add_sampling(p, n=10_000, alpha=0.01)
    p.add_argument("--n0", type=int, default=100, help="samples that guess the label first (default: %(default)s)")
    p.add_argument("--windows", type=int, default=3, help="windows per axis that share n and α (default: %(default)s)")
    p.add_argument("--two-class", action="store_true", help="bound the runner-up class too")
    p.add_argument("--nested", action="store_true", help="two levels of sampling (the paper's construction)")
    add_bound(p)
    p.add_argument(
        "--guess-then-test", action="store_true", help="the paper's procedure for E instead of order statistics"
    )
    p.add_argument("--calibration", type=Path, help="calibration.json for dist-d, written by `warpcert bound`")
    p.add_argument("--target", type=float, default=0.5, help="cover: E/σ_δ aimed at per window (default: %(default)s)")
    p.add_argument("--plain-centers", action="store_true", help="cover: unrounded centre images")
    p.add_argument("--betas", type=int, default=500, help="parameters drawn for the error bound (default: %(default)s)")
    individual.add_inverse(p)
    individual.add_attack(p)
    p.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    p.add_argument("--json", action="store_true", help="print the summary as JSON")
    g = p.add_argument_group("engine (the certificates are the same with every one)")
    g.add_argument("--engine", choices=("local", "ray"), default="local", help="default: %(default)s")
    g.add_argument("--workers", type=int, help="images at a time (default: local 1, ray as many as the cluster holds)")
    g.add_argument("--address", help="of the ray cluster (default: the one of this machine, or a new one)")
    p.set_defaults(run=commands.certify)

    p = verbs.add_parser(
        "bound", help="calibrate dist-d: find E on one part of the data, test the share q_E on fresh images"
    )
    add_case(p)
    add_bound(p)
    p.set_defaults(split="train", count=500)
    p.add_argument(
        "--estimate", type=int, default=100, help="images that E is chosen on, before --start (default: %(default)s)"
    )
    p.add_argument("--factor", type=float, default=1.02, help="E is this times the largest seen (default: %(default)s)")
    p.add_argument("--E", type=float, dest="fixed_E", help="use this E and skip the estimate")
    p.add_argument("--rho", type=float, default=0.01, help="ρ of every image in the share (default: %(default)s)")
    p.add_argument("--allowed", type=int, default=0, help="values above E allowed per image (default: %(default)s)")
    p.add_argument("--alpha", type=float, default=0.001, help="failure probability of q_E (default: %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    p.add_argument("--out", type=Path, required=True, help="the calibration.json to write")
    p.set_defaults(run=commands.bound)

    p = verbs.add_parser("predict", help="answer with the smoothed classifier, or abstain")
    p.add_argument("images", type=Path, nargs="*", help="picture files; none: images of --data")
    add_case(p)
    add_sampling(p, n=1000, alpha=0.001)
    p.add_argument("--seed", type=int, help="default: fresh and secret")
    online = p.add_mutually_exclusive_group()
    online.add_argument(
        "--calibration", type=Path, help="also certify online by this calibration.json (dist-d): g(x) = g(x')"
    )
    online.add_argument("--indiv", action="store_true", help="also certify g(x) = g(x') for every possible original")
    p.add_argument("--betas", type=int, default=500, help="indiv: parameters drawn per window (default: %(default)s)")
    p.add_argument("--windows", type=int, default=3, help="indiv: windows per axis at most (default: %(default)s)")
    individual.add_inverse(p)
    p.add_argument("--json", action="store_true", help="print one JSON line per image")
    p.set_defaults(run=commands.predict)

    p = verbs.add_parser("invert", help="draw which originals can have led to an attacked picture")
    invert.add_arguments(p)
    p.set_defaults(run=invert.run)

    p = verbs.add_parser("attack", help="look for transformations that change the base classifier's answer")
    p.add_argument("--method", choices=tuple(attacks.ATTACKS), default="worst-of-k", help="default: %(default)s")
    p.add_argument(
        "--k", type=int, default=100, help="candidates of worst-of-k, points per axis of grid, starts of gradient"
    )
    p.add_argument("--out", type=Path, help="folder for the attacked pictures and attacks.jsonl")
    add_case(p)
    p.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    p.add_argument("--json", action="store_true", help="print one JSON line per image")
    p.set_defaults(run=commands.attack)

    p = verbs.add_parser("train", help="train a recipe (resumes by itself)")
    p.add_argument("recipe", type=Path, help="a recipe.toml")
    p.add_argument("--out", type=Path, required=True, help="folder for checkpoint, log, weights and result")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${data.ROOT_VARIABLE})")
    p.add_argument("--seconds", type=float, help="stop after so many seconds; the next call goes on")
    add_device(p)
    p.set_defaults(run=commands.train)

    add_serve(verbs.add_parser("serve", help="answer over HTTP, with a page to try it (extra: serve)"))

    p = verbs.add_parser("check", help="redo the arithmetic of every certificate in a run folder, or of one answer")
    p.add_argument("folder", type=Path, help="a run folder, or a JSON file that a server sent")
    p.add_argument("--json", action="store_true", help="print the outcome as JSON")
    p.set_defaults(run=commands.check)

    add_report(verbs)

    p = verbs.add_parser("data", help="list the datasets and where they are looked for")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${data.ROOT_VARIABLE})")
    p.set_defaults(run=commands.list_data)

    p = verbs.add_parser("models", help="list the models by name: task, certified figures, size, licence, SHA-256")
    p.add_argument("--json", action="store_true", help="print the list as JSON")
    p.set_defaults(run=commands.list_models)

    add_paper(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a check failed, 2 bad input (one sentence on stderr), 130 interrupted."""
    args = build_parser().parse_args(argv)
    console = Console(stderr=True, highlight=False)
    try:
        return int(args.run(args, console))
    except KeyboardInterrupt:
        console.print("\nInterrupted. What was finished is kept; the same command goes on from there.")
        return 130
    except (ValueError, OSError) as error:
        console.print(f"warpcert {args.command}: {error}", style="red", markup=False, soft_wrap=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
