"""The interval inverse by itself: what refinements buy, and pictures of the possible originals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.originals.protocol import IntervalInverse, Originals
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import measured
from warpcert.paper.photographs import IMAGENET, source_of
from warpcert.paper.row import NONE, Measured, Size, Work
from warpcert.paper.sampling import PAPER_P
from warpcert.report.table import Figure
from warpcert.runs.job import seed_for
from warpcert.threat import Threat

__all__ = ["INVERSE", "REFINEMENT"]

GREY = "#868e96"  # of titles: to be read on a light page and on a dark one


def _attacked(x: Tensor, threat: Threat, index: int) -> tuple[Tensor, Tensor]:
    """A uniform γ [1,d] and x' = q(T_γ x)."""
    gamma = threat.box.uniform(1, torch.Generator().manual_seed(seed_for(6, index)))
    return gamma, threat.attacked(x, gamma.to(x.device))[0]


@final
@dataclass(frozen=True)
class Refinement(Measured):
    """E over all surviving cells, the width of the boxes, and time, with k refinements."""

    name: str
    case: str
    data: str
    refinements: int
    gamma: float = 10
    sigma: float = 10
    full: Size = Size(20, betas=100)
    quick: Size = Size(6, betas=50)

    def work(self, desk: Desk, folder: Path) -> Work:
        size = self.size(desk)
        source, p = source_of(desk, self.data), PAPER_P[self.data]
        defence = Defence.surface("rotation", self.sigma, noise=0.3, interpolation="bilinear", preprocess=p)
        threat, inverse = Threat.of("rotation", self.gamma), IntervalInverse(refinements=self.refinements)

        def one(index: int) -> dict[str, Any]:
            _, x = _attacked(source.image(index), threat, index)
            start = time.perf_counter()
            found = inverse.survivors(x, threat)
            middle = time.perf_counter()
            beta = defence.draw_beta(size.betas, torch.Generator().manual_seed(seed_for(7, index)))
            errors = inverse.errors(found, defence, beta)
            width = float((found.upper - found.lower).mean()) if len(found.low) else 0.0
            return {
                "E": max(0.0, float(errors.max())),
                "width": width,
                "left": float((found.high - found.low).prod(1).sum()) / (threat.box.upper[0] - threat.box.lower[0]),
                "inverse": middle - start,
                "errors": time.perf_counter() - middle,
            }

        keys = range(min(size.images, source.count))
        values = yield from measured(folder, self.config(desk), keys, one)
        return {
            "images": len(values),
            "E": median(v["E"] for v in values),
            "mean width of boxes": fmean(v["width"] for v in values),
            "share of Γ left": fmean(v["left"] for v in values),
            "inverse, s": fmean(v["inverse"] for v in values),
            "errors, s": fmean(v["errors"] for v in values),
        }


REFINEMENT = Experiment(
    name="refinement",
    title="Refinements of the interval inverse",
    what="E over every original that can have led to an attacked image (rotation ±10°), and time, against the number "
    "of refinements.",
    minutes=0.2,
    columns=("images", "E", "mean width of boxes", "share of Γ left", "inverse, s", "errors, s"),
    rows=(
        *(Refinement(f"mnist-{k}", f"MNIST, refinements: {k}", "mnist500", k) for k in (0, 1, 2, 5, 10)),
        Refinement(
            "imagenet-10", "ImageNet 224×224, refinements: 10", IMAGENET, 10, full=Size(3, betas=10), quick=NONE
        ),
    ),
    notes=(
        "E: median over the images of the largest bound over β and surviving cells. Seconds per image.",
        "The paper draws E and time against the number of refinements, without numbers.",
    ),
)


@final
@dataclass(frozen=True)
class Inverted(Measured):
    """Pictures: original, attacked, and the bounds of the possible originals, plain and refined."""

    name: str
    case: str
    data: str
    transform: str
    gamma: float
    refinements: int = 10
    full: Size = Size(8)
    quick: Size = Size(3)

    def work(self, desk: Desk, folder: Path) -> Work:
        size = self.size(desk)
        source, threat = source_of(desk, self.data), Threat.of(self.transform, self.gamma)

        def one(index: int) -> dict[str, Any]:
            x = source.image(index)
            gamma, attacked = _attacked(x, threat, index)
            shown: dict[str, Any] = {"original": _bytes(x), "attacked": _bytes(attacked)}
            for words, k in (("plain", 0), ("refined", self.refinements)):
                found = IntervalInverse(refinements=k).survivors(attacked, threat)
                low, high = _hull(found)
                shown |= {f"{words} lower": _bytes(low), f"{words} upper": _bytes(high)}
                shown[f"{words} width"] = float((high - low).mean())
                shown[f"{words} contains"] = bool(((x >= low) & (x <= high)).all())
                shown[f"{words} cells"] = len(found.low)
            return shown | {"gamma": [threat.transform.surface(float(g)) for g in gamma[0]]}

        keys = range(min(size.images, source.count))
        values = yield from measured(folder, self.config(desk), keys, one)
        _draw(values, threat, folder.with_suffix(".png"))
        return {
            "images": len(values),
            "width, plain": fmean(v["plain width"] for v in values),
            "width, refined": fmean(v["refined width"] for v in values),
            "original inside": f"{sum(v['refined contains'] for v in values)} of {len(values)}",
        }


def _hull(found: Originals) -> tuple[Tensor, Tensor]:
    """The smallest box that holds the boxes of all surviving cells; empty ones would say "outside the threat model"."""
    if not len(found.low):
        raise ValueError("no cell survived, although the image was attacked within Γ: please report this")
    return found.lower.amin(0), found.upper.amax(0)


def _bytes(x: Tensor) -> list[Any]:
    """[C,H,W] in [0,1] as nested lists of 0 … 255."""
    return (x.clamp(0, 1) * 255).round().int().cpu().tolist()


def _draw(values: list[dict[str, Any]], threat: Threat, path: Path) -> None:
    shown = ("original", "attacked", "plain lower", "plain upper", "refined lower", "refined upper")
    drawing = Drawing(figsize=(1.5 * len(shown), 1.6 * len(values)), layout="constrained")
    for line, value in enumerate(values):
        for place, name in enumerate(shown):
            axes = drawing.add_subplot(len(values), len(shown), line * len(shown) + place + 1)
            picture = torch.tensor(value[name]).permute(1, 2, 0).expand(-1, -1, 3).numpy()
            axes.imshow(picture, interpolation="nearest", vmin=0, vmax=255)
            axes.axis("off")
            turned = ", ".join(f"{g:.3g}" for g in value["gamma"])
            axes.set_title(
                f"γ = {turned}{threat.transform.unit}" if name == "attacked" else name, fontsize=7, color=GREY
            )
    drawing.savefig(path, dpi=110, transparent=True)


def _figures(desk: Desk, folder: Path) -> list[Figure]:
    caption = "original, attacked, lower and upper bounds of the possible originals: plain, and after 10 refinements"
    rows = (row for row in INVERSE.rows if (folder / f"{row.name}.png").is_file())
    return [Figure(f"{row.name}.png", f"{row.case}: {caption}") for row in rows]


INVERSE = Experiment(
    name="inverse",
    title="Pictures of the possible originals",
    what="From attacked images alone: the darkest and the brightest original that can have led to each.",
    minutes=0.3,
    columns=("images", "width, plain", "width, refined", "original inside"),
    rows=(
        Inverted("mnist-rotation", "MNIST, rotation ±10°", "mnist500", "rotation", 10),
        Inverted("mnist-translation", "MNIST, translation ±1 px", "mnist500", "translation", 1, quick=Size(2)),
        Inverted("cifar10-rotation", "CIFAR-10, rotation ±10°", "cifar10", "rotation", 10),
        Inverted("imagenet-rotation", "ImageNet 224×224, rotation ±10°", IMAGENET, "rotation", 10, full=Size(2),
                 quick=NONE),
    ),
    notes=("Width: mean over pixels of upper minus lower bound, all surviving γ together; 1 means nothing is known.",),
    figures=_figures,
)  # fmt: skip
