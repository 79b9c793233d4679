"""`warpcert invert`: the originals that can have led to an attacked picture, drawn between their bounds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from warpcert.app.cli.options import DATA_VARIABLE, DATASETS, INVERSES, add_device, natural, positive

if TYPE_CHECKING:
    from torch import Tensor

    from warpcert.app.cli.ranges import Range
    from warpcert.threat import Threat
    from warpcert.transforms import Transform

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("image", type=Path, nargs="?", help="the attacked picture (default: --index of --data, attacked)")
    p.add_argument("--transform", choices=("rotation", "translation", "scaling", "shear"), default="rotation")
    p.add_argument(
        "--gamma", type=float, nargs="+", default=[10.0], help="the range in degrees, pixels or per cent (default: ±10)"
    )
    p.add_argument("--original", type=Path, help="the original picture, if known, to draw beside")
    p.add_argument("--data", default="mnist500", help=f"{', '.join(DATASETS)}, an .npz file or an image folder")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${DATA_VARIABLE})")
    p.add_argument("--split", default="test", choices=("train", "test"))
    p.add_argument("--index", type=natural, default=0, help="the picture of --data to attack (default: %(default)s)")
    p.add_argument(
        "--angle", "--at", type=float, nargs="+", dest="at", help="parameter of that attack (default: half the range)"
    )
    p.add_argument("--rows", type=positive, default=8, help="draw at most so many ranges (default: %(default)s)")
    p.add_argument("--out", type=Path, default=Path("runs/invert.png"), help="default: %(default)s")
    p.add_argument("--inverse", choices=INVERSES, default="interval", help="default: %(default)s")
    p.add_argument("--refinements", type=natural, help="of the original's bounds (default: 5, interval: 10)")
    add_device(p)


def run(args: argparse.Namespace, console: Console) -> int:
    from warpcert import transforms
    from warpcert.app.cli.ranges import DENSE, draw, ranges
    from warpcert.originals.named import named
    from warpcert.runs.job import device_of
    from warpcert.threat import Threat

    device = device_of(args.device)
    transform = transforms.get(args.transform)
    threat = Threat(transform, transform.box(*args.gamma))
    x_attacked, original = _pictures(args, threat)
    x_attacked = x_attacked.to(device)
    found = named(args.inverse, args.refinements).survivors(x_attacked, threat)
    rows = ranges(x_attacked, threat, found)
    share = len(found.low) / max(1, found.examined)
    print(f"{found.examined} cells of {transform.span(threat.box)} examined in {found.seconds:.2f} s, ", end="")
    print(f"{len(found.low)} survive ({share:.0%}), in {len(rows)} range(s)")
    if not rows:
        print("outside the threat model: no original leads here")
        return 0
    for row in rows:
        print("    " + _describe(row, transform, original))
    if len(rows) > args.rows:
        console.print(f"drawing the first {args.rows} of {len(rows)} ranges")
    if x_attacked[0].numel() > DENSE:
        console.print("no linear estimate: it is solved for up to 64×64 pixels")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw(x_attacked, rows[: args.rows], original, transform, args.out)
    console.print(f"drawn in {args.out}")
    return 0


def _pictures(args: argparse.Namespace, threat: Threat) -> tuple[Tensor, Tensor | None]:
    """x' and, if known, x."""
    import torch

    from warpcert.learn import data
    from warpcert.learn.pictures import read_picture

    if args.image is not None:
        x_attacked = read_picture(args.image)
        original = read_picture(args.original, tuple(x_attacked.shape)) if args.original else None
        return x_attacked, original
    dataset = data.load(args.data, args.split, args.data_root)
    if args.index >= len(dataset):
        raise ValueError(f"index must lie in 0 … {len(dataset) - 1}; got {args.index}")
    t, box = threat.transform, threat.box
    at = [t.internal(a) for a in args.at] if args.at else [u / 2 for u in box.upper]
    if not box.contains(at):
        raise ValueError(f"--angle must lie within {t.span(box)} and have {box.dim} number(s); got {args.at}")
    original = dataset.image(args.index)
    return threat.attacked(original, torch.tensor([at], dtype=torch.float64))[0], original


def _describe(row: Range, transform: Transform, original: Tensor | None) -> str:
    (a, b), (c, d) = row.plain, row.refined
    text = (
        f"{transform.place(row.box)}: mean width {float((b - a).mean()):.4f} plain, {float((d - c).mean()):.4f} refined"
    )
    if original is not None:
        x = original.to(c)
        inside = bool(((c <= x) & (x <= d)).all())
        text += ", holds the original" if inside else ", does not hold the original"
    return text
