"""What vignette and blur are for: the error, and IndivSPT's success, with and without them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import final

import torch

from warpcert.classifier.defence import Defence
from warpcert.errors.sampled import Sampled
from warpcert.paper.desk import Desk
from warpcert.paper.error import PAPER_P
from warpcert.paper.experiment import Experiment, Row, Size, Work, measured
from warpcert.paper.individual import Individual
from warpcert.runs.runner import seed_for
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["ABLATION"]


@final
@dataclass(frozen=True)
class Observed(Row):
    """The largest error over images, β and γ: a lower bound of every E."""

    name: str
    case: str
    data: str
    preprocess: Preprocess
    gamma: float = 30
    sigma: float = 30
    full: Size = Size(200, betas=50, gammas=101)
    quick: Size = Size(40, betas=10, gammas=33)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, size = desk.dataset(self.data), self.size(desk)
        defence = Defence.surface(
            "rotation", self.sigma, noise=0.25, interpolation="bilinear", preprocess=self.preprocess
        )
        threat = Threat.of("rotation", self.gamma)

        def one(index: int) -> float:
            draw = torch.Generator().manual_seed(seed_for(0, index))
            beta = defence.draw_beta(size.betas, draw)
            return float(Sampled(gammas=size.gammas)(desk.image(dataset, index), defence, threat, beta).values.max())

        keys = range(min(size.images, len(dataset)))
        values = yield from measured(folder, self.config(desk, data=dataset.name), keys, one)
        return {"images": len(values), "largest error": max(values), "mean error": fmean(values)}


def _observed(data: str, title: str) -> tuple[Row, ...]:
    p, key = PAPER_P[data], data.removesuffix("500")
    variants = (
        ("none", "neither", Preprocess()),
        ("vignette", "vignette alone", Preprocess(p.vignette, p.margin)),
        ("blur", "blur alone", Preprocess("none", 0, p.blur_sigma, p.blur_size)),
        ("both", "vignette and blur", p),
    )
    return tuple(Observed(f"{key}-{name}", f"{title}, {words}", data, variant) for name, words, variant in variants)


BLURRED = Individual("indiv-with-blur", "MNIST, IndivSPT ±10°, vignette and blur", "mnist500", "mnist",
                     ("mnist-rotation-individual", "mnist-rotation"), "rotation", 10,
                     quick=Size(4, n=6000, betas=100))  # fmt: skip

ABLATION = Experiment(
    name="ablation",
    title="With and without vignette and blur",
    what="The largest interpolation error seen with and without vignette and blur; IndivSPT without blur.",
    minutes=0.2,
    columns=("images", "largest error", "mean error", "attacked images", "g correct", "certified and correct", "E", "ρ",
             "excluded share of Γ", "analysis, s", "smoothing, s"),
    rows=(
        *_observed("mnist500", "MNIST"),
        *_observed("cifar10", "CIFAR-10"),
        BLURRED,
        replace(BLURRED, name="indiv-without-blur", case="MNIST, IndivSPT ±10°, no blur",
                preprocess=Preprocess("circle", 1)),
    ),
    notes=(
        "Errors are observed (random β, a grid of γ within ±30°, bilinear, 8-bit): lower bounds of every E.",
        "IndivSPT by the interval inverse; the last row uses a network that was trained with blur, at the same noise.",
    ),
)  # fmt: skip
