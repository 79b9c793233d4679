"""BaseSPT: how often its radius is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, final

import torch
from torch import Tensor

from warpcert import methods, transforms
from warpcert import statistics as stats
from warpcert.certificates import Voted
from warpcert.classifier import Smoothed
from warpcert.classifier.votes.voting import ABSTAIN, Draws, votes
from warpcert.paper.classifiers import classifier_of, smoothed
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.experiments.heuristic import PLAIN
from warpcert.paper.journal import measured
from warpcert.paper.photographs import IMAGENET, source_of
from warpcert.paper.row import Measured, Row, Size, Work
from warpcert.runs.job import seed_for
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["VIOLATIONS"]


SURE = 1e-4  # level of the test that says how g answers at γ


@final
@dataclass(frozen=True)
class Violations(Measured):
    """Heuristic radius r, then γ's inside it: does g answer otherwise there, beyond doubt?

    composed: T_{β+γ} x instead of T_β(T_γ x): nothing is interpolated twice, Theorem 3.2 holds, and none may.
    """

    name: str
    case: str
    data: str
    models: tuple[str, ...]
    transform: str
    sigma: float
    vignette: str = ""
    composed: bool = False
    full: Size = Size(100, n=2000, gammas=100)
    quick: Size = Size(10, n=200, gammas=10)

    def work(self, desk: Desk, folder: Path) -> Work:
        source, size = source_of(desk, self.data), self.size(desk)
        found = classifier_of(desk, self.models)
        p = Preprocess(self.vignette, 1) if self.vignette else None
        g = smoothed(found, 0, {self.transform: self.sigma}, p, interpolation="bilinear")
        t = transforms.get(self.transform)
        everything = 180 if t.unit == "°" else max(source.image(0).shape)
        threat, sigma = Threat.of(self.transform, everything), t.internal(self.sigma)
        base = methods.Base(n=size.n, n0=min(100, size.n), windows=1)

        def one(index: int) -> dict[str, Any]:
            x = source.image(index)
            made = methods.certify_with(base, g, x, threat, seed=seed_for(0, index))
            assert isinstance(made, Voted)
            r = None if made.abstains else made.whitened_radius(made.windows[0])
            if r is None:
                return {"r": None, "other": 0, "none": 0}
            gamma = _ball(size.gammas, t.dim, torch.Generator().manual_seed(seed_for(1, index))) * r * sigma
            own = torch.Generator(device=desk.device).manual_seed(seed_for(2, index))
            answers = [self._answer(g, threat, x, each, own, size.n) for each in gamma]
            none = answers.count(ABSTAIN)
            return {"r": t.surface(r * sigma), "other": len(answers) - none - answers.count(made.label), "none": none}

        config = self.config(desk, classifier=g.fingerprint)
        values = yield from measured(folder, config, range(min(size.images, source.count)), one)
        radii = [v["r"] for v in values if v["r"] is not None]
        return {
            "images": len(values),
            "with a radius": len(radii),
            "median r": median(radii) if radii else None,
            "γ tried": len(radii) * size.gammas,
            "γ without an answer": sum(v["none"] for v in values),
            "γ that violate": sum(v["other"] for v in values),
            "images violated": sum(v["other"] > 0 for v in values),
            "remark": f"Model: {found.name}.",
        }

    def _answer(self, g: Smoothed, threat: Threat, x: Tensor, gamma: Tensor, generator: torch.Generator, n: int) -> int:
        """What g answers at γ, or ABSTAIN: by a test that is wrong once in 10 000 times."""
        if self.composed:
            counts = votes(g.logits, g.own_defence, x, n, Draws(generator, tuple(gamma.tolist())))
            return int(counts.argmax()) if stats.top_two_significant(counts.tolist(), SURE) else ABSTAIN
        attacked = threat.attacked(x, gamma[None].to(x.device))[0]
        return g.vote(attacked, n=n, alpha=SURE, generator=generator).label


def _ball(count: int, dim: int, generator: torch.Generator) -> Tensor:
    """Uniform in the open unit ball [count, dim], float64."""
    direction = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    length = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / dim)
    inside: Tensor = direction / direction.norm(dim=1, keepdim=True) * length
    return inside


def _violations(data: str, title: str, transform: str, sigma: float, kinds: str, quick: Size) -> tuple[Row, ...]:
    """One row for each of `kinds`: p(lain), v(ignette), c(omposed)."""
    models = PLAIN[data]
    if (data, transform) == ("mnist500", "translation"):
        models = models[2:]  # under translations with such noise the plain model answers nothing with confidence
    name = f"{data.removesuffix('500')}-{transform}"
    case = f"{title}, {transform}, σ_γ = {sigma:g}{'°' if transform == 'rotation' else ' px'}"
    vignette = "circle" if transform == "rotation" else "rectangle"
    hidden = vignette if transform == "rotation" else ""  # as in the paper
    once = f"{f'{hidden} vignette, ' if hidden else ''}T_(β+γ): no interpolation twice"
    plain = Violations(name, case, data, models, transform, sigma, quick=quick)
    rows = {
        "p": plain,
        "v": replace(plain, name=f"{name}-vignette", case=f"{case}, {vignette} vignette", vignette=vignette),
        "c": replace(plain, name=f"{name}-composed", case=f"{case}, {once}", vignette=hidden, composed=True),
    }
    return tuple(rows[kind] for kind in kinds)


SMALL = Size(6, n=100, gammas=5)
TINY = Size(2, n=60, gammas=3)

VIOLATIONS = Experiment(
    name="violations",
    title="How often BaseSPT's radius is wrong",
    what="BaseSPT's radius r per image, then random γ inside it: how often does g answer otherwise there.",
    minutes=0.7,
    columns=("images", "with a radius", "median r", "γ tried", "γ without an answer", "γ that violate",
             "images violated"),
    rows=(
        *_violations("mnist500", "MNIST", "rotation", 30, "pvc", Violations.quick),
        *_violations("mnist500", "MNIST", "translation", 4, "pvc", Violations.quick),
        *_violations("fashion-mnist", "Fashion-MNIST", "rotation", 30, "pvc", SMALL),
        *_violations("fashion-mnist", "Fashion-MNIST", "translation", 4, "pc", SMALL),
        *_violations("cifar10", "CIFAR-10", "rotation", 30, "pvc", TINY),
        *_violations("cifar10", "CIFAR-10", "translation", 4, "pc", TINY),
        *_violations("gtsrb", "GTSRB", "rotation", 30, "pvc", SMALL),
        *_violations("gtsrb", "GTSRB", "translation", 4, "pc", SMALL),
        *_violations(IMAGENET, "ImageNet 224×224", "rotation", 10, "p", Size(2, n=40, gammas=2)),
        *_violations(IMAGENET, "ImageNet 224×224", "translation", 20, "p", Size(2, n=40, gammas=2)),
    ),
    notes=(
        "A γ counts as a violation only if a binomial test at 10⁻⁴ shows another class ahead; without an answer: if it "
        "shows none ahead.",
        "In the last row of each transformation, T_(β+γ), r is a theorem up to its α of 0.01 per image: none may "
        "violate it.",
        "r is in ° or px. Without a vignette g sees the corners that a rotation loses. With one the paper trains a "
        "network for it; here the same network is used.",
    ),
)  # fmt: skip
