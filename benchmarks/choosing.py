"""The figures of docs/choosing.md: `python -m benchmarks.choosing`. One core, about a minute, nothing random but seeds.

blur      E (largest error found over β and γ: sampled, a lower bound), the distance between classes after P, and their
          ratio: what pixel noise can tell apart against what interpolation does
windows   the share of votes that a certificate needs, by windows and by E/σ_δ: arithmetic, no picture
samples   votes needed if all of them agree
"""

from __future__ import annotations

import math

import torch

import warpcert as wc
from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.errors.base import interpolation_error
from warpcert.learn import data
from warpcert.statistics import radius

MET = ("bicubic-0.5", "mitchell")
BLURS = ((0.0, 1), (1.0, 5), (1.5, 7), (2.0, 9))
DIGITS, BETAS, GAMMAS, LOOK = 6, 10, 61, 300


def worst_error(defence: Defence, threat: wc.Threat, images: list[torch.Tensor]) -> float:
    """The mean over the images of the largest error found on a grid of γ for some β's."""
    beta = defence.draw_beta(BETAS, torch.Generator().manual_seed(0))
    gamma = threat.box.grid(GAMMAS)
    found = [
        max(float(interpolation_error(x.double(), defence, threat, b.expand(GAMMAS, -1), gamma).max()) for b in beta)
        for x in images
    ]
    return sum(found) / len(found)


def class_distance(preprocess: wc.Preprocess, digits: data.Dataset) -> float:
    """The median over digits of the distance of P x to the nearest P x' of another class."""
    seen = torch.stack([preprocess(digits.image(i)[None])[0] for i in range(LOOK)]).flatten(1)
    labels = digits.labels[:LOOK]
    distance = torch.cdist(seen, seen).masked_fill(labels[:, None] == labels, math.inf)
    return float(distance.amin(1).median())


def blur() -> None:
    digits, threat = data.load("mnist500"), wc.Threat.rotation(degrees=50)
    images = [digits.image(i) for i in range(DIGITS)]
    print(
        "| blur σ, size | defender | E (sampled) | distance between classes | distance/E |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for sigma, size in BLURS:
        preprocess = wc.Preprocess("circle", 1, sigma, size)
        between = class_distance(preprocess, digits)
        for interpolation, reference in (*((k, None) for k in ("bilinear", "bicubic", "bicubic-0.5")), MET):
            defence = Defence.surface(
                "rotation", 30, noise=0.15, interpolation=interpolation, preprocess=preprocess, reference=reference
            )
            E = worst_error(defence, threat, images)
            name = interpolation + (f", reference {reference}" if reference else "")
            print(f"| {sigma:g}, {size} | {name} | {E:.2f} | {between:.1f} | {between / E:.1f} |")


def needed(ratio: float, away: float, rho: float) -> float:
    """The p that certifies γ at `away` standard deviations from a window's centre: κ(p) ≥ √(away² + (E/σ_δ)²)."""
    low, high = 0.5, 1.0
    for _ in range(60):
        p = (low + high) / 2
        kappa = radius.kappa_one(p, rho)
        low, high = (p, high) if kappa is None or kappa <= math.hypot(away, ratio) else (low, p)
    return high


def windows(gamma: float = 50, sigma: float = 30, betas: int = 500, alpha: float = 0.01) -> None:
    rho = stats.exceedance_bound(betas, alpha / 2)
    print(f"\nΓ = ±{gamma:g}°, σ_γ = {sigma:g}°, {betas} β's (ρ = {rho:.4f})")
    print("| E/σ_δ | 1 window | 3 windows | 5 windows |\n| --- | --- | --- | --- |")
    for ratio in (0.5, 1.0, 1.5, 2.0, 2.5):
        cells = [f"{needed(ratio, gamma / sigma / count, rho):.4f}" for count in (1, 3, 5)]
        print(f"| {ratio:g} | {' | '.join(cells)} |")


def samples(alpha: float = 0.005) -> None:
    print(f"\n| p to show (α = {alpha:g}) | 1 window | 3 windows share α |\n| --- | --- | --- |")
    for p in (0.9, 0.95, 0.99, 0.995, 0.999):
        print(f"| {p} | {stats.samples_needed(p, alpha)} | {3 * stats.samples_needed(p, alpha / 3)} |")


if __name__ == "__main__":
    blur()
    windows()
    samples()
