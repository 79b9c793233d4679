"""A quick look at how well a model will certify: votes under the defence's noise, no bound of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch

from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import Logits
from warpcert.learn.data import Dataset
from warpcert.learn.views import generator
from warpcert.threat import Threat
from warpcert.transforms import Box

__all__ = ["centers_of", "plain_proxy", "proxy"]

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
QUANTILES = (0.02, 0.05, 0.1, 0.25, 0.5)
MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
SHARES = (1 / 3, 1.0)


def centers_of(box: Box) -> list[tuple[float, ...]]:
    """The centre of Γ, its corners (of one parameter: its ends), and the points half-way to them."""
    centers = [box.center]
    for share in (0.5, 1.0):
        ends = [(lo, hi) if lo < hi else (lo,) for lo, hi in zip(box.lower, box.upper, strict=True)]
        corners = product(*ends)
        centers += [tuple(c + share * (v - c) for c, v in zip(box.center, k, strict=True)) for k in corners]
    return sorted(set(centers))


@torch.inference_mode()
def proxy(
    f: Logits,
    defence: Defence,
    dataset: Dataset,
    device: torch.device,
    n: int = 200,
    centers: Sequence[tuple[float, ...]] | None = None,
) -> dict[str, Any]:
    """Heuristic: the share p of n votes f(P T_b x + δ), b ~ N(center, σ²), that are right, per item and center.

    Centers are in internal units (default: 0). Returns, per center, the mean and some quantiles of p over the items and
    the share of items where the right class has most votes ("voted"); and the share of items whose p at the worst
    center still reaches each of LEVELS, which is what windows ask for. f is on the device.
    """
    centers = list(centers or [(0.0,) * defence.transform.dim])
    draw = generator(device, "proxy", 0)
    group = max(1, _most(dataset, 20_000 if device.type == "cuda" else 500) // n)
    right = torch.zeros(len(centers), len(dataset), device=device)
    voted = torch.zeros_like(right)
    for start in range(0, len(dataset), group):
        part = dataset.part(start, start + group)
        z = (part.images.to(device).float() / dataset.levels).repeat_interleave(n, 0)
        labels = part.labels.to(device)
        for j, center in enumerate(centers):
            view = defence.known.view(z, defence.draw_beta(len(z), draw, center))
            noisy = view + torch.randn(view.shape, generator=draw, device=device) * defence.sigma_noise
            counts = _counts(f(noisy).argmax(1).reshape(len(part), n), len(dataset.classes))
            right[j, start : start + len(part)] = counts.gather(1, labels[:, None])[:, 0] / n
            voted[j, start : start + len(part)] = (counts.argmax(1) == labels).float()
    right, voted = right.cpu(), voted.cpu()
    worst = right.amin(0)
    levels = torch.tensor(QUANTILES)
    return {
        "n": n,
        "items": len(dataset),
        "centers": [
            {
                "center": [defence.transform.surface(v) for v in center],
                "mean": round(float(right[j].mean()), 5),
                "voted": round(float(voted[j].mean()), 5),
                "quantiles": dict(zip(map(str, QUANTILES), _rounded(right[j].quantile(levels)), strict=True)),
            }
            for j, center in enumerate(centers)
        ],
        "worst_reaches": {str(level): round(float((worst >= level).float().mean()), 5) for level in LEVELS},
    }


def _counts(votes: torch.Tensor, classes: int) -> torch.Tensor:
    """Votes [items, n] by class: [items, classes]."""
    counts = torch.zeros(len(votes), classes, device=votes.device)
    return counts.scatter_add_(1, votes, torch.ones_like(votes, dtype=counts.dtype))


@torch.inference_mode()
def plain_proxy(f: Logits, threat: Threat, dataset: Dataset, device: torch.device, points: int = 61) -> dict[str, Any]:
    """Heuristic: the smallest margin of the right class of f over a grid of γ's, per item, without any noise.

    Returns the share of items where it exceeds each of MARGINS ("0.0": right everywhere on the grid) at each share of Γ
    in SHARES. f is on the device.
    """
    dim = threat.box.dim
    grid = threat.legal(threat.box.grid(points if dim == 1 else max(3, round(points ** (1 / dim))))).to(device)
    size = _most(dataset, 4000 if device.type == "cuda" else 500)
    ends = torch.tensor([threat.box.lower, threat.box.upper], device=device).abs().amax(0).clamp_min(1e-12)
    inside = {share: (grid.abs() <= share * ends + 1e-9).all(1).tolist() for share in SHARES}
    worst = {share: torch.full((len(dataset),), torch.inf, device=device) for share in SHARES}
    for start in range(0, len(dataset), size):
        part = dataset.part(start, start + size)
        x, labels = part.images.to(device).float() / dataset.levels, part.labels.to(device)[:, None]
        for j in range(len(grid)):
            gamma = grid[j : j + 1].expand(len(part), -1)
            logits = f(threat.attacked(x, gamma))
            margin = (logits.gather(1, labels) - logits.scatter(1, labels, -torch.inf).amax(1, keepdim=True))[:, 0]
            for share in SHARES:
                if inside[share][j]:
                    worst[share][start : start + size].clamp_max_(margin)
    reached = {str(s): {str(m): round(float((w > m).float().mean()), 5) for m in MARGINS} for s, w in worst.items()}
    return {"points": len(grid), "items": len(dataset), "share of Γ, margin": reached}


def _most(dataset: Dataset, items: int) -> int:
    """So many items at once, or fewer of large ones: 2³⁰ values on the network's way are a few gigabytes."""
    return max(1, min(items, 2**30 // math.prod(dataset.shape)))


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(float(v), 5) for v in values]
