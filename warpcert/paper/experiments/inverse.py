"""The interval inverse by itself: what refinements buy, and pictures of the possible originals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.originals.protocol import IntervalInverse, Originals
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import measured, read_journal
from warpcert.paper.photographs import IMAGENET, source_of
from warpcert.paper.row import NONE, Measured, Size, Work
from warpcert.paper.sampling import PAPER_P
from warpcert.report.chart import Axis, Chart
from warpcert.report.sheet import Shown, animation, plot, sheet
from warpcert.report.table import Figure
from warpcert.runs.job import seed_for
from warpcert.threat import Threat

__all__ = ["INVERSE", "REFINEMENT"]

BOUNDED = ("original", "attacked", "lower", "upper")
SHOWN = 3  # items in a figure
FRAMES = 6  # of the animation: no refinement, one, two …


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


def _refined(desk: Desk, folder: Path) -> list[Figure]:
    """E and time against the refinements, as they were measured; and the bounds of one digit as they close in."""
    found = [(r.refinements, _mean(folder / r.name)) for r in MNIST_REFINED if (folder / r.name).is_dir()]
    figures = []
    for key, label, caption in CURVES:
        points = [(float(k), mean[key]) for k, mean in found]
        chart = Chart(
            Axis(0, points[-1][0], "refinements", whole=True), Axis(0, 1.15 * max(y for _, y in points), label)
        )
        chart.curve(points, "confidence")
        for point in points:
            chart.dot(point, "confidence")
        plot(chart, f"{label} against the number of refinements", folder / f"{key}.svg")
        figures.append(Figure(f"{key}.svg", caption))
    x, threat = desk.image(desk.dataset("mnist500"), 0), Threat.of("rotation", 10)
    gamma, attacked = _attacked(x, threat, 0)
    frames: list[list[Shown]] = []
    for k in range(FRAMES):
        low, high = _hull(IntervalInverse(refinements=k).survivors(attacked, threat))
        frames.append([(f"darkest after {k}", low), ("brightest", high), ("what is open", high - low)])
    animation(frames, "Bounds of the original as they are refined", folder / "animation.svg")
    turned = f"{threat.transform.surface(float(gamma)):.3g}".replace("-", "−")
    words = (
        f"A digit was turned by {turned}°, but all that is known is that it was at "
        "most 10°. Left and middle: the darkest and the brightest original that fits. Right: their difference, black "
        "where the original is known. Each refinement uses the last bounds of the neighbours."
    )
    return [*figures, Figure("animation.svg", words)]


def _mean(folder: Path) -> dict[str, float]:
    """Of what was measured: the median of E, as in the table, and the mean time."""
    values = [record["value"] for record in read_journal(folder)]
    return {"E": median(v["E"] for v in values), "time": fmean(v["inverse"] for v in values)}


CURVES = (
    ("E", "E", "E bounds how far any original that fits is from what the classifier sees. The smaller, the more can be "
     "certified: the first refinements pay most. (Median over the digits.)"),
    ("time", "seconds", "What the refinements cost: seconds for one digit, from the attacked picture to the bounds."),
)  # fmt: skip
MNIST_REFINED = tuple(Refinement(f"mnist-{k}", f"MNIST, refinements: {k}", "mnist500", k) for k in (0, 1, 2, 5, 10))

REFINEMENT = Experiment(
    name="refinement",
    title="Refinements of the interval inverse",
    what="E over every original that can have led to an attacked image (rotation ±10°), and time, against the number "
    "of refinements.",
    minutes=0.2,
    columns=("images", "E", "mean width of boxes", "share of Γ left", "inverse, s", "errors, s"),
    rows=(
        *MNIST_REFINED,
        Refinement(
            "imagenet-10", "ImageNet 224×224, refinements: 10", IMAGENET, 10, full=Size(3, betas=10), quick=NONE
        ),
    ),
    notes=(
        "E: median over the images of the largest bound over β and surviving cells. Seconds per image.",
        "The paper draws E and time against the number of refinements, without numbers.",
    ),
    figures=_refined,
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
        _draw(values, threat, folder.with_suffix(".svg"))
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
    """Two rows for each item: the original and the plain bounds, what is seen and the refined bounds."""
    rows: list[list[Shown]] = []
    for value in values[:SHOWN]:
        turned = ", ".join(f"{g:.3g}" for g in value["gamma"]).replace("-", "−") + threat.transform.unit
        pictures = {k: torch.tensor(v) / 255 for k, v in value.items() if k.split()[-1] in BOUNDED}
        for first, words, kind in (("original", "original", "plain"), ("attacked", f"by {turned}", "refined")):
            rows.append(
                [
                    (words, pictures[first]),
                    (f"darkest, {kind}", pictures[f"{kind} lower"]),
                    (f"brightest, {kind}", pictures[f"{kind} upper"]),
                ]
            )
    sheet(rows, "Attacked pictures and bounds of their originals", path)


def _figures(desk: Desk, folder: Path) -> list[Figure]:
    caption = (
        "From the attacked picture alone we know, for every pixel, how dark and how bright it can have been in the "
        "original. Upper row: after one pass over the pixels; lower row: after 10 more, each using the last. Where "
        "darkest and brightest look alike, hardly anything is left to guess."
    )
    rows = (row for row in INVERSE.rows if (folder / f"{row.name}.svg").is_file())
    return [Figure(f"{row.name}.svg", f"{row.case}. {caption}") for row in rows]


INVERSE = Experiment(
    name="inverse",
    title="Pictures of the possible originals",
    what="From attacked images alone: the darkest and the brightest original that can have led to each.",
    minutes=0.3,
    columns=("images", "width, plain", "width, refined", "original inside"),
    rows=(
        Inverted("mnist-rotation", "MNIST, rotation ±10°", "mnist500", "rotation", 10),
        Inverted("mnist-translation", "MNIST, translation ±1 px", "mnist500", "translation", 1, quick=Size(2)),
        Inverted("cifar10-rotation", "CIFAR-10, rotation ±10°", "cifar10", "rotation", 10, quick=Size(2)),
        Inverted("imagenet-rotation", "ImageNet 224×224, rotation ±10°", IMAGENET, "rotation", 10, full=Size(2),
                 quick=NONE),
    ),
    notes=("Width: mean over pixels of upper minus lower bound, all surviving γ together; 1 means nothing is known.",),
    figures=_figures,
)  # fmt: skip
