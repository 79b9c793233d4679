"""The originals that can have led to an attacked picture, range by range, and their picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from matplotlib.figure import Figure
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from warpcert import transforms
from warpcert.originals.interval import interval_inverse
from warpcert.originals.protocol import Originals
from warpcert.threat import Threat
from warpcert.transforms import Box, SpatialTransform

__all__ = ["DENSE", "Range", "draw", "estimate", "ranges"]

DENSE = 64 * 64  # pixels up to which the estimate is solved for


@final
@dataclass(frozen=True, eq=False)
class Range:
    """If γ lies in the box, plain[0] ≤ x ≤ plain[1] and refined[0] ≤ x ≤ refined[1]; the estimate proves nothing."""

    box: Box
    plain: tuple[Tensor, Tensor]
    refined: tuple[Tensor, Tensor]
    estimate: Tensor | None


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
