"""What vignette and blur are for: the error, and IndivSPT's success, with and without them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.sampled import Sampled
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Experiment
from warpcert.paper.experiments.individual import ROTATION
from warpcert.paper.journal import Step, measured
from warpcert.paper.photographs import IMAGENET
from warpcert.paper.row import Measured, Row, Size, Work
from warpcert.paper.sampling import PAPER_P, Sampling
from warpcert.report.sheet import heat, sheet
from warpcert.report.table import Figure
from warpcert.runs.job import seed_for
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["ABLATION"]


@final
@dataclass(frozen=True)
class Observed(Measured):
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
        size = self.size(desk)
        if self.data == IMAGENET:
            sampling = Sampling(self.name, preprocess=self.preprocess, gamma=self.gamma, sigma=self.sigma)
            values = yield from sampling.run(desk, folder.parent, size)
        else:
            values = yield from self._errors(desk, folder, size)
        return {"images": len(values), "largest error": max(values), "mean error": fmean(values)}

    def _errors(self, desk: Desk, folder: Path, size: Size) -> Generator[Step, None, list[float]]:
        dataset, threat = desk.dataset(self.data), Threat.of("rotation", self.gamma)
        defence = Defence.surface(
            "rotation", self.sigma, noise=0.25, interpolation="bilinear", preprocess=self.preprocess
        )

        def one(index: int) -> float:
            draw = torch.Generator().manual_seed(seed_for(0, index))
            beta = defence.draw_beta(size.betas, draw)
            return float(Sampled(gammas=size.gammas)(desk.image(dataset, index), defence, threat, beta).values.max())

        keys = range(min(size.images, len(dataset)))
        return (yield from measured(folder, self.config(desk, data=dataset.name), keys, one))


def _observed(data: str, title: str, full: Size = Observed.full, quick: Size = Observed.quick) -> tuple[Row, ...]:
    key = data.removesuffix("500")
    return tuple(
        Observed(f"{key}-{name}", f"{title}, {words}", data, variant, full=full, quick=quick)
        for name, words, variant in _variants(PAPER_P[data])
    )


def _variants(p: Preprocess) -> tuple[tuple[str, str, Preprocess], ...]:
    """Name, words and what is left of P."""
    return (
        ("both", "vignette and blur", p),
        ("blur", "blur alone (−V)", Preprocess("none", 0, p.blur_sigma, p.blur_size)),
        ("vignette", "vignette alone (−G)", Preprocess(p.vignette, p.margin)),
        ("none", "neither (−V −G)", Preprocess()),
    )


def _figures(desk: Desk, folder: Path) -> list[Figure]:
    """Where the error of one picture lies, with and without vignette and blur."""
    found = []
    for data, title, most_said in PIXELS:
        try:
            x = desk.image(desk.dataset(data), 0)
        except Missing:
            continue
        p = PAPER_P[data]
        errors = [(name, _per_pixel(x, variant)) for name, _, variant in _variants(p)]
        most = max(float(e.max()) for _, e in errors)
        both, blur, vignette, none = ((f"{n}: {float(e.norm()):.2g}", heat(e, most)) for n, e in errors)
        file = f"pixels-{data.removesuffix('500')}.svg"
        sheet([[("the picture", x), none, blur], [vignette, both]], f"Errors of {title}", folder / file)
        words = (
            f"{title}: where the error lies. A picture that is turned twice, first by the attacker and then by the "
            "classifier, is not quite the one that is turned once. Bright pixels are those that differ most (root mean "
            "square over random turns, all five on one scale from black to white; the number is that of the whole "
            f"picture). {most_said}"
        )
        found.append(Figure(file, words))
    return found


@torch.no_grad()
def _per_pixel(x: Tensor, p: Preprocess) -> Tensor:
    """The root mean square [H,W] of P's error over BETAS β ~ N(0, 30²) and the γ in a grid of ±30°, all channels."""
    threat = Threat.of("rotation", 30)
    defence = Defence.surface("rotation", 30, noise=0.25, interpolation="bilinear", preprocess=p)
    gamma = threat.box.grid(BETAS).to(x.device)
    attacked, total = threat.attacked(x, gamma), torch.zeros_like(x[0])
    for beta in defence.draw_beta(BETAS, torch.Generator().manual_seed(0)).to(x.device):
        error = defence.view(attacked, beta.expand(len(gamma), -1)) - defence.view(x, beta + gamma)
        total += error.square().sum(1).mean(0) / BETAS
    return total.sqrt()


BETAS = 20  # of a figure
PIXELS = (
    ("mnist500", "MNIST", "Edges err most, and the blur softens them. The corners of a digit are black: a vignette has "
     "nothing to hide."),
    ("cifar10", "CIFAR-10", "The corners err most, since turning cuts them off: the vignette hides them. Edges come "
     "next: the blur softens them."),
)  # fmt: skip
BLURRED = replace(ROTATION, name="indiv-with-blur", case="MNIST, IndivSPT ±10°, vignette and blur",
                  quick=Size(4, n=6000, betas=100))  # fmt: skip

ABLATION = Experiment(
    name="ablation",
    title="With and without vignette and blur",
    what="The largest interpolation error seen with and without vignette and blur; IndivSPT without blur.",
    minutes=0.6,
    columns=("images", "largest error", "mean error", "attacked images", "g correct", "certified and correct", "E", "ρ",
             "excluded share of Γ", "analysis, s", "smoothing, s"),
    rows=(
        *_observed("mnist500", "MNIST"),
        *_observed("cifar10", "CIFAR-10"),
        *_observed(IMAGENET, "ImageNet, short side 512", Size(100, betas=20, gammas=10), Size(1, betas=2, gammas=3)),
        BLURRED,
        replace(BLURRED, name="indiv-without-blur", case="MNIST, IndivSPT ±10°, no blur",
                preprocess=Preprocess("circle", 1)),
    ),
    notes=(
        "Errors are observed (random β, a grid of γ within ±30°, bilinear, 8-bit): lower bounds of every E.",
        "IndivSPT by the interval inverse; the last row uses a network that was trained with blur, at the same noise.",
    ),
    figures=_figures,
)  # fmt: skip
