"""How many windows a cover needs: ours, and one that samples between its windows, as TSS does."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, final

import torch
from torch import Tensor

from warpcert.paper.desk import Desk
from warpcert.paper.journal import measured
from warpcert.paper.row import Measured, Size, Work
from warpcert.threat import Threat
from warpcert.transforms import Preprocess
from warpcert.windows.cover import cover_windows
from warpcert.windows.pieces import Scene

__all__ = ["Covers", "lipschitz_sampling"]


@final
@dataclass(frozen=True)
class Covers(Measured):
    """Windows whose pictures are all within `target` of the window's own: every rotation of a digit up to ±gamma, by an
    attacker who does not round.

    inner  pictures that are made inside each window to bound what lies between them; 0 is our own cover
    """

    name: str
    case: str
    inner: int = 0
    gamma: float = 30
    target: float = 0.1
    full: Size = Size(20)
    quick: Size = Size(1)

    def work(self, desk: Desk, folder: Path) -> Work:
        size, dataset, threat = self.size(desk), desk.dataset("mnist500"), Threat.of("rotation", self.gamma)
        threat = Threat(threat.transform, threat.box, quantized=False)

        def one(index: int) -> dict[str, Any]:
            x, start = desk.image(dataset, index), time.perf_counter()
            if self.inner:
                count, made = lipschitz_sampling(x, threat, self.target, self.inner)
            else:
                windows = cover_windows(x, threat, Preprocess(), target=self.target)
                pieces = len(Scene(x.double(), threat, Preprocess(), True).shares)
                count, made = len(windows), windows.cells * (pieces + 1)
            return {"windows": count, "pictures": made, "seconds": time.perf_counter() - start}

        values = yield from measured(folder, self.config(desk), range(size.images), one)
        return {
            "images": len(values),
            "seconds": fmean(v["seconds"] for v in values),
            "windows": round(fmean(v["windows"] for v in values), 1),
            "pictures made": round(fmean(v["pictures"] for v in values)),
        }


@torch.no_grad()
def lipschitz_sampling(x: Tensor, threat: Threat, target: float, inner: int) -> tuple[int, int]:
    """The fewest windows of one width, within 2 %, whose bounds meet the target; and the pictures made for them.

    The squared distance g of T_γ x from the window's middle picture is sampled at inner + 1 places, and is L-Lipschitz
    in γ, so between two places h apart it is at most the mean of theirs plus L·h/2. A pixel changes no faster than
    D = (radius) · (slope of the interpolant near it), so L = 2 Σ D·min(1, D·w/2) on a window of width w.
    """
    scene = Scene(x.double(), threat, Preprocess(), False)
    first, last = threat.box.lower[0], threat.box.upper[0]
    fewest = math.ceil((last - first) / scene.widest)  # where the slopes near a pixel are those of its neighbours

    def meets(count: int) -> bool:
        width = (last - first) / count
        middles = first + width * (torch.arange(count, dtype=torch.float64, device=x.device) + 0.5)
        parts = torch.split(middles, max(1, 2**22 // (x.numel() * (inner + 1))))
        return all(bool((_largest(scene, part, width, inner) <= target).all()) for part in parts)

    low, high = fewest - 1, fewest
    while not meets(high):
        low, high = high, 2 * high
    while high - low > max(1, 0.02 * high):
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high, high * (inner + 1)


def _largest(scene: Scene, middles: Tensor, width: float, inner: int) -> Tensor:
    """A bound [J] of ‖T_γ x − T_γj x‖ for |γ − γ_j| ≤ width/2."""
    share = torch.linspace(-0.5, 0.5, inner + 1, dtype=torch.float64, device=middles.device)
    gamma = (middles[:, None] + width * share).reshape(-1, 1)
    moved = scene.threat.transform(scene.x, gamma, scene.threat.interpolation).reshape(len(middles), inner + 1, -1)
    own = scene.threat.transform(scene.x, middles[:, None], scene.threat.interpolation).flatten(1)
    squared = (moved - own[:, None]).square().sum(-1)
    y, z = scene.places
    radius = (y.square() + z.square()).sqrt().repeat(scene.x.shape[0])
    fast = radius * scene.steepness_near(middles[:, None]).flatten(1)
    lipschitz = 2 * (fast * (fast * width / 2).clamp_max(1)).sum(1)
    between = (squared[:, 1:] + squared[:, :-1]) / 2 + lipschitz[:, None] * (width / inner) / 2
    return between.amax(1).sqrt()
