"""`warpcert invert`: the originals that can have led to an attacked picture, drawn between their bounds."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from matplotlib.figure import Figure
from rich.console import Console
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from warpcert import transforms
from warpcert.app.cli.individual import add_inverse, inverse_of
from warpcert.app.cli.options import add_device, device_of
from warpcert.app.pictures import read_picture
from warpcert.learn import data
from warpcert.originals.interval import interval_inverse
from warpcert.originals.protocol import Originals
from warpcert.threat import Threat
from warpcert.transforms import Box, SpatialTransform

__all__ = ["Range", "add_arguments", "draw", "estimate", "ranges", "run"]

DENSE = 64 * 64  # pixels up to which the estimate is solved for


@final
@dataclass(frozen=True, eq=False)
class Range:
    """If γ lies in the box, plain[0] ≤ x ≤ plain[1] and refined[0] ≤ x ≤ refined[1]; the estimate proves nothing."""

    box: Box
    plain: tuple[Tensor, Tensor]
    refined: tuple[Tensor, Tensor]
    estimate: Tensor | None


def add_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("image", type=Path, nargs="?", help="the attacked picture; none: --index of --data is attacked")
    p.add_argument("--transform", choices=("rotation", "translation", "scaling"), default="rotation")
    p.add_argument("--gamma", type=float, nargs="+", default=[10.0], help="Γ in °, px or %% (default: ±10)")
    p.add_argument("--original", type=Path, help="the original picture, if known, to draw beside")
    p.add_argument("--data", default="mnist500", help=f"{', '.join(data.NAMES)}, an .npz file or an image folder")
    p.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${data.ROOT_VARIABLE})")
    p.add_argument("--split", default="test", choices=("train", "test"))
    p.add_argument("--index", type=int, default=0, help="the image of --data to attack (default: %(default)s)")
    p.add_argument("--angle", "--at", type=float, nargs="+", dest="at", help="γ of that attack (default: half of Γ)")
    p.add_argument("--rows", type=int, default=8, help="draw at most so many ranges of γ (default: %(default)s)")
    p.add_argument("--out", type=Path, default=Path("runs/invert.png"), help="default: %(default)s")
    add_inverse(p, "interval")
    add_device(p)


def run(args: argparse.Namespace, console: Console) -> int:
    device = device_of(args.device)
    transform = transforms.get(args.transform)
    threat = Threat(transform, transform.box(*args.gamma))
    x_attacked, original = _pictures(args, threat)
    x_attacked = x_attacked.to(device)
    found = inverse_of(args).survivors(x_attacked, threat)
    rows = ranges(x_attacked, threat, found)
    share = len(found.low) / max(1, found.examined)
    print(f"{found.examined} cells of Γ = {transform.span(threat.box)} examined in {found.seconds:.2f} s, ", end="")
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
    if args.image is not None:
        x_attacked = read_picture(args.image)
        original = read_picture(args.original, tuple(x_attacked.shape)) if args.original else None
        return x_attacked, original
    dataset = data.load(args.data, args.split, args.data_root)
    if not 0 <= args.index < len(dataset):
        raise ValueError(f"index must lie in 0 … {len(dataset) - 1}; got {args.index}")
    t, box = threat.transform, threat.box
    at = [t.internal(a) for a in args.at] if args.at else [u / 2 for u in box.upper]
    if not box.contains(at):
        raise ValueError(f"--angle must lie in Γ = {t.span(box)} and have {box.dim} number(s); got {args.at}")
    original = dataset.image(args.index)
    return threat.attacked(original, torch.tensor([at], dtype=torch.float64))[0], original


def ranges(x_attacked: Tensor, threat: Threat, found: Originals) -> list[Range]:
    """Surviving cells that touch are one range: its boxes are joined, its estimate is taken at its middle."""
    if not len(found.low):
        return []
    gap = (found.low[:, None] - found.high[None]).clamp_min(0).amax(2)
    touching = (torch.maximum(gap, gap.T) <= 1e-12).cpu().numpy()
    count, which = connected_components(touching, directed=False)
    first = interval_inverse(x_attacked, threat, found.low, found.high, refinements=0)
    made = []
    for number in range(count):
        cells = torch.from_numpy(which == number).to(found.low.device)
        low, high = found.low[cells].amin(0).tolist(), found.high[cells].amax(0).tolist()
        box = Box(tuple(low), tuple(high))
        plain = first.low[cells].amin(0), first.high[cells].amax(0)
        refined = found.lower[cells].amin(0), found.upper[cells].amax(0)
        made.append(Range(box, plain, refined, estimate(x_attacked, threat, box.center)))
    return made


def estimate(x_attacked: Tensor, threat: Threat, gamma: tuple[float, ...], spread: float = 0.3) -> Tensor | None:
    """K x' with K = s²Aᵀ(diag(noise²) + s²AAᵀ)⁻¹: the likeliest original if pixels were normal with deviation s and
    rounding were noise. HEURISTIC, for the eye. None for pictures that are too large.
    """
    transform, (channels, height, width) = threat.transform, x_attacked.shape
    if height * width > DENSE or not isinstance(transform, SpatialTransform):
        return None
    A = transform.matrix(gamma, height, width, threat.interpolation).to(x_attacked.device).to_dense()
    noise = transform.step / 12**0.5
    gram = spread**2 * (A @ A.T)
    gram.diagonal().add_(noise**2)
    solved = torch.cholesky_solve(x_attacked.double().flatten(1).T, torch.linalg.cholesky(gram))
    return (spread**2 * (A.T @ solved)).T.reshape(channels, height, width).clamp(0, 1)


def _describe(row: Range, transform: transforms.Transform, original: Tensor | None) -> str:
    (a, b), (c, d) = row.plain, row.refined
    text = (
        f"{transform.place(row.box)}: mean width {float((b - a).mean()):.4f} plain, {float((d - c).mean()):.4f} refined"
    )
    if original is not None:
        x = original.to(c)
        inside = bool(((c <= x) & (x <= d)).all())
        text += ", holds the original" if inside else ", does not hold the original"
    return text


def draw(
    x_attacked: Tensor, rows: list[Range], original: Tensor | None, transform: transforms.Transform, path: Path
) -> None:
    """One row of pictures per range, as a PNG."""
    columns: list[str] = ["attacked", "lower, plain", "upper, plain", "lower, refined", "upper, refined"]
    columns += ["estimate"] + (["original"] if original is not None else [])
    figure = Figure(figsize=(1.6 * len(columns), 1.75 * len(rows) + 0.3), layout="constrained")
    for line, row in enumerate(rows):
        pictures = [x_attacked, *row.plain, *row.refined, row.estimate, original]
        for place, (name, picture) in enumerate(zip(columns, pictures, strict=False)):
            axes = figure.add_subplot(len(rows), len(columns), line * len(columns) + place + 1)
            axes.set_xticks([])
            axes.set_yticks([])
            if line == 0:
                axes.set_title(name, fontsize=9)
            if place == 0:
                axes.set_ylabel(transform.place(row.box), fontsize=7)
            if picture is not None:
                colour = picture.permute(1, 2, 0).expand(-1, -1, 3 if picture.shape[0] == 1 else -1)
                axes.imshow(colour.clamp(0, 1).cpu().numpy())
            else:
                axes.axis("off")
    figure.savefig(path, dpi=150)
