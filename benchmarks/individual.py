"""What refining the inverse buys: `python -m benchmarks.individual [--device cuda] [--transform translation]`.

Attacks images with a random γ, leads back from x', and prints for every number of refinements how many cells survive,
how wide the boxes of the original are, the bound E (the largest of the β's, over all surviving cells), that over the
true error, and the seconds of both parts; medians over the images, and the worst bound over true error of one β. The
paper's evaluation of §6.4 itself is `warpcert certify --method indiv`.

What a translation pushes out of the frame is lost: any original may have anything there, so E is small only if the
vignette hides as many pixels as γ and β move (--margin).
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from warpcert.classifier.defence import Defence
from warpcert.learn import data
from warpcert.originals.named import INVERSES
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

SIGMA = {"rotation": 10.0, "translation": 1.0, "scaling": 10.0}
COLUMNS = (
    ("refinements", "{:d}"),
    ("cells", "{:.0f}"),
    ("left", "{:.0f}"),
    ("of Γ", "{:.4f}"),
    ("width of boxes", "{:.4f}"),
    ("E", "{:.4f}"),
    ("E / true", "{:.2f}"),
    ("worst", "{:.2f}"),
    ("boxes s", "{:.2f}"),
    ("errors s", "{:.2f}"),
)


def measure(options: argparse.Namespace, refinements: int, threat: Threat, defence: Defence) -> dict[str, list[float]]:
    """One value per image of every column."""
    inverse = INVERSES[options.inverse](refinements=refinements)
    images = data.load(options.data)
    rows: dict[str, list[float]] = {name: [] for name, _ in COLUMNS[1:]}
    for index in range(options.count):
        g = torch.Generator().manual_seed(index)
        x = images.image(index).to(options.device)
        gamma = threat.box.uniform(1, g).to(x.device)
        x_attacked = threat.attacked(x, gamma)[0]
        found = inverse.survivors(x_attacked, threat)
        beta = defence.draw_beta(options.betas, g).to(x.device) - gamma
        start = time.perf_counter()
        bound = inverse.errors(found, defence, beta).amax(1)
        E, seconds = float(bound.max()), time.perf_counter() - start
        true = defence.view(x_attacked.double(), beta) - defence.view(x.double(), beta + gamma)
        errors = torch.linalg.vector_norm(true.flatten(1), dim=1)
        volume = float((found.high - found.low).prod(1).sum())
        for lo, hi in zip(threat.box.lower, threat.box.upper, strict=True):
            volume /= hi - lo
        values = (found.examined, len(found.low), volume, float((found.upper - found.lower).mean()), E)
        values += (E / float(errors.max()), float((bound / errors).max()), found.seconds, seconds)
        for name, value in zip(rows, values, strict=True):
            rows[name].append(value)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="mnist500", help="others are read from $WARPCERT_DATA")
    parser.add_argument("--transform", choices=tuple(SIGMA), default="rotation")
    parser.add_argument("--gamma", type=float, nargs="+", help="default: 10, translation: 1")
    parser.add_argument("--margin", type=float, help="of the vignette (default: 1, translation: 5)")
    parser.add_argument("--interpolation", default="bicubic", help="the defender's")
    parser.add_argument("--inverse", choices=tuple(INVERSES), default="interval")
    parser.add_argument("--refinements", type=int, nargs="+", default=[0, 1, 2, 3, 5, 10, 20])
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--betas", type=int, default=50)
    options = parser.parse_args()
    shifts = options.transform == "translation"
    gamma, margin = options.gamma or [1.0 if shifts else 10.0], options.margin or (5 if shifts else 1)
    vignette = Preprocess("rectangle" if shifts else "circle", margin, 1.5, 7)
    sigma, kernel = SIGMA[options.transform], options.interpolation
    defence = Defence.surface(options.transform, sigma, noise=0.15, interpolation=kernel, preprocess=vignette)
    threat = Threat.of(options.transform, *gamma)
    span = threat.transform.span(threat.box)
    print(f"{options.data}, {options.transform} {span}, {options.inverse}, {options.betas} β's, {options.count} images")
    print("".join(f"{name:>16}" for name, _ in COLUMNS))
    for refinements in options.refinements:
        rows = measure(options, refinements, threat, defence)
        values = (refinements, *(max(v) if name == "worst" else median(v) for name, v in rows.items()))
        print("".join(f"{form.format(v):>16}" for (_, form), v in zip(COLUMNS, values, strict=True)), flush=True)


if __name__ == "__main__":
    main()
