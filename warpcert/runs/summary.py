"""What a run says: certified accuracy as a table and as pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from numpy.typing import NDArray
from torch import Tensor

from warpcert import certificates
from warpcert.certificates import Certificate, Kind
from warpcert.errors.base import interpolation_error
from warpcert.transforms import Box, Rotation, Transform

__all__ = [
    "Row",
    "Summary",
    "accuracy_curve",
    "error_curves",
    "held",
    "parse",
    "plot_accuracy",
    "plot_error",
    "plot_gallery",
    "summarise",
]

_ROTATION_ROWS = (0.0, 10.0, 20.0, 30.0, 50.0)
_COLOURS = {Kind.PROVED: "#1a7f37", Kind.WITH_CONFIDENCE: "#1f6feb", Kind.HEURISTIC: "#bf8700"}


@final
@dataclass(frozen=True)
class Summary:
    """Certified accuracy: the share of images that are answered correctly and certified on a whole box around γ = 0."""

    count: int
    kind: Kind
    rows: tuple[tuple[str, float], ...]  # (range, certified accuracy)
    abstained: float
    median_E: float
    seconds: float  # per image
    passes: float  # forward passes per image

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "kind": str(self.kind),
            "certified_accuracy": dict(self.rows),
            "abstained": self.abstained,
            "median_E": self.median_E,
            "seconds_per_image": self.seconds,
            "passes_per_image": self.passes,
        }


@final
@dataclass(frozen=True)
class Row:
    """One image of a run."""

    index: int
    label: int  # the true one
    certificate: Certificate


def parse(records: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of a run by index, each certificate with its arithmetic redone; raises if there are none."""
    if not records:
        raise ValueError("there are no certificates to sum up yet")
    rows = (Row(r["index"], r["true_label"], certificates.read(r["certificate"])) for r in records)
    return sorted(rows, key=lambda row: row.index)


def _certified(rows: Sequence[Row], box: Box) -> float:
    return sum(r.certificate.label == r.label and r.certificate.covers(box) for r in rows) / len(rows)


def _levels(transform: Transform, gamma: Box) -> list[tuple[str, Box]]:
    """The boxes of the table: fixed angles for a symmetric rotation, quarters of Γ otherwise."""
    if isinstance(transform, Rotation) and gamma.lower[0] == -gamma.upper[0]:
        top = transform.surface(gamma.upper[0])
        angles = sorted({*(a for a in _ROTATION_ROWS if a <= top + 1e-9), round(top, 9)})
        return [(f"±{a:g}°", gamma.scaled(min(1.0, a / top) if top else 0.0)) for a in angles]
    return [(transform.span(box), box) for box in map(gamma.scaled, (0.0, 0.25, 0.5, 0.75, 1.0))]


def summarise(rows: Sequence[Row]) -> Summary:
    """The table of a run."""
    threat = rows[0].certificate.threat
    levels = [(text, _certified(rows, box)) for text, box in _levels(threat.transform, threat.box)]
    certificates = [r.certificate for r in rows]
    errors = sorted(c.error.E for c in certificates)
    return Summary(
        len(rows),
        Kind.weakest(*(c.kind for c in certificates)),
        tuple(levels),
        sum(c.abstains for c in certificates) / len(rows),
        errors[len(errors) // 2],
        math.fsum(c.seconds for c in certificates) / len(rows),
        sum(c.passes for c in certificates) / len(rows),
    )


def held(row: Row) -> float | None:
    """The largest t ≤ 1 for which the right label is certified on t·Γ; None if not even at γ = 0."""
    reach, box = row.certificate.reach, row.certificate.threat.box
    if row.certificate.label != row.label or reach is None:
        return None
    pairs = zip((*reach.lower, *reach.upper), (*box.lower, *box.upper), strict=True)
    return min((abs(part / end) for part, end in pairs if end), default=1.0)


def accuracy_curve(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Certified accuracy as a function of t, the multiple of Γ: its steps from 0 to 1, and the value up to each."""
    ends = [t for t in map(held, rows) if t is not None]
    steps = sorted({0.0, 1.0, *ends})
    return steps, [sum(t >= s for t in ends) / len(rows) for s in steps]


def plot_accuracy(rows: Sequence[Row], path: Path) -> None:
    """Certified accuracy against the range of the transformation, as a PNG."""
    first = rows[0].certificate
    t, box = first.threat.transform, first.threat.box
    steps, shares = accuracy_curve(rows)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.step([t.surface(box.upper[0] * s) for s in steps], shares, where="pre", color=_COLOURS[first.kind], lw=2)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, t.surface(box.upper[0]) or 1)
    axes.set_xlabel(f"every {t.noun} up to … {t.unit}")
    axes.set_ylabel("certified accuracy")
    axes.set_title(f"{first.method}, {len(rows)} images, kind: {first.kind}", fontsize=11)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def error_curves(
    x: Tensor, certificate: Certificate, betas: int = 12, gammas: int = 301
) -> tuple[list[float], NDArray[Any]]:
    """γ along the first axis in surface units, and ‖ε(β,γ,x)‖ at each for some β's, [betas, gammas]."""
    t, box, defence = certificate.threat.transform, certificate.threat.box, certificate.bounded
    if defence is None:
        raise ValueError(f"the E of a {certificate.method} certificate bounds no error of the known picture")
    beta = defence.draw_beta(betas, torch.Generator().manual_seed(0))
    gamma = torch.zeros(gammas, box.dim, dtype=torch.float64)
    gamma[:, 0] = torch.linspace(box.lower[0], box.upper[0], gammas, dtype=torch.float64)
    z = x.cpu().double()
    errors = [interpolation_error(z, defence, certificate.threat, b.expand(gammas, -1), gamma).numpy() for b in beta]
    return [t.surface(v) for v in gamma[:, 0].tolist()], np.stack(errors)


def plot_error(x: Tensor, certificate: Certificate, path: Path, betas: int = 12, gammas: int = 301) -> None:
    """‖ε(β,γ,x)‖ against γ along the first axis for some β's, and the certificate's E above them, as a PNG."""
    at, errors = error_curves(x, certificate, betas, gammas)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(at, errors.T, lw=0.8, alpha=0.8)
    kind = certificate.error.kind
    axes.axhline(certificate.error.E, color=_COLOURS[kind], lw=2, label=f"E = {certificate.error.E:.4f} ({kind})")
    axes.set_xlabel(f"γ in {certificate.threat.transform.unit}")
    axes.set_ylabel("‖ε(β, γ, x)‖₂ for some β")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def plot_gallery(rows: Sequence[Row], images: Callable[[int], Tensor], path: Path, most: int = 40) -> None:
    """The images of a run with what is certified about each: a dial for rotations, the range in words, as a PNG."""
    chosen = rows[:most]
    columns = min(10, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = Figure(figsize=(1.25 * columns, 1.6 * lines), layout="constrained")
    for place, row in enumerate(chosen, 1):
        axes = figure.add_subplot(lines, columns, place)
        axes.axis("off")
        image = images(row.index)
        if image.dim() == 3:
            _draw(axes, image, row.certificate)
        axes.set_title(_caption(row.certificate, row.label), fontsize=7)
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, image: Tensor, certificate: Certificate) -> None:
    height, width = image.shape[-2:]
    axes.imshow(image.permute(1, 2, 0).expand(-1, -1, 3 if image.shape[0] == 1 else -1).clamp(0, 1).numpy()[..., :3])
    ring = 0.62 * max(height, width)
    centre = ((width - 1) / 2, (height - 1) / 2)
    axes.set_xlim(centre[0] - 1.05 * ring, centre[0] + 1.05 * ring)
    axes.set_ylim(centre[1] + 1.05 * ring, centre[1] - 1.05 * ring)
    reach = certificate.reach
    if reach is None or not isinstance(certificate.threat.transform, Rotation):
        return
    # The dial: 0° is up; y points down on the screen, so a counter-clockwise turn runs towards smaller angles.
    low, high = (certificate.threat.transform.surface(v[0]) for v in (reach.lower, reach.upper))
    axes.add_patch(Wedge(centre, ring, -90 - high, -90 - low, width=1.4, color=_COLOURS[certificate.kind]))


def _caption(certificate: Certificate, true_label: int) -> str:
    reach = certificate.reach
    if certificate.abstains or reach is None:
        return "abstains"
    mark = "" if certificate.label == true_label else f" ✗ (is {true_label})"
    return f"{certificate.label}: ±{certificate.threat.transform.to_text(reach.upper[0])}{mark}"
