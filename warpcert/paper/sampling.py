"""Interpolation errors of photographs, found by sampling, as the paper has them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import torch

from warpcert.classifier.defence import Defence
from warpcert.paper.desk import Desk
from warpcert.paper.journal import Step, measured
from warpcert.paper.photographs import IMAGENET, RIMAGENET, SHORT_SIDE, reduced, source_of
from warpcert.paper.row import Size
from warpcert.runs.job import seed_for
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["PAPER_P", "Sampling"]

# The paper's filters exp(−r²/σ_b), corrected to sum 1: σ_b = 2 and 1 there are σ = 1 and 0.7071 here, both 5×5.
PAPER_P = {
    "mnist500": Preprocess("circle", 2, 1.0, 5),
    "cifar10": Preprocess("circle", 2, 0.5**0.5, 5),
    IMAGENET: Preprocess("circle", 2, 1.0, 5),
    RIMAGENET: Preprocess("circle", 2, 1.0, 5),
}


@final
@dataclass(frozen=True)
class Sampling:
    """Photographs are rotated at short side 512, then reduced to what the paper's network sees, then P: the largest
    error of each over sampled β and γ, a lower bound of its supremum. HEURISTIC ('#').

    name  of the folder that keeps the errors: rows that ask the same share it
    """

    name: str
    interpolation: str = "bilinear"
    preprocess: Preprocess = PAPER_P[IMAGENET]
    gamma: float = 30
    sigma: float = 30

    def run(self, desk: Desk, folder: Path, size: Size) -> Generator[Step, None, list[float]]:
        """The errors, image by image."""
        source = source_of(desk, IMAGENET, SHORT_SIDE)
        defence = Defence.surface("rotation", self.sigma, noise=0.5, interpolation=self.interpolation)
        threat = Threat.of("rotation", self.gamma, interpolation=self.interpolation)
        gamma = threat.box.grid(size.gammas).to(desk.device)

        @torch.no_grad()
        def one(index: int) -> float:
            x, draw = source.image(index), torch.Generator().manual_seed(seed_for(0, index))
            attacked = threat.attacked(x, gamma)
            largest = 0.0
            for beta in defence.draw_beta(size.betas, draw).to(desk.device):
                error = defence.view(attacked, beta.expand(len(gamma), -1)) - defence.view(x, beta + gamma)
                seen = self.preprocess(reduced(error))
                largest = max(largest, float(seen.flatten(1).norm(dim=1).max()))
            return largest

        config = {"errors": asdict(self), "size": asdict(size), "quick": desk.quick, "device": desk.machine}
        keys = range(min(size.images, source.count))
        return (yield from measured(folder / self.name, config, keys, one, "sample E"))
