"""`warpcert models`: the models by name."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace, console: Console) -> int:
    from dataclasses import asdict

    from warpcert.learn import zoo

    listings = zoo.manifest().values()
    here = {m.name: zoo.is_here(m.name) for m in listings}
    if args.json:
        print(json.dumps([asdict(m) | {"here": here[m.name]} for m in listings]))
        return 0
    for m in listings:
        where = "" if here[m.name] else "   weights not here"
        print(f"{m.name}   {m.task}   {m.bytes / 1e6:.1f} MB   {m.licence}{where}\n    SHA-256 {m.sha256}")
        for what, share in m.figures.items():
            print(f"    certified {share}: {what}")
        if d := m.deviation:
            what = f"of {d['images']:,.0f} pictures, between batches, devices and compilers"
            print(f"    logits differ by at most {d['largest']:.1e} (slack: {d['slack']:g}) {what}")
    if not all(here.values()):
        console.print(f"Weights that are not here are in the source tree: set {zoo.FOLDER_VARIABLE} to its recipes/.")
    return 0
