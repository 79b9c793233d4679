"""BaseSPT: how often its radius is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from warpcert import methods, transforms
from warpcert import statistics as stats
from warpcert.certificates import Voted
from warpcert.classifier import Smoothed
from warpcert.classifier.votes.early import settled
from warpcert.classifier.votes.voting import ABSTAIN, add_noise, batch_size, logits_of
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

__all__ = ["VIOLATIONS", "answers_at"]


SURE, FIRST = 1e-4, 32  # level of the test that says how g answers at γ, and samples before its first look


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
            gamma = gamma.to(x.device)
            own = torch.Generator(device=desk.device).manual_seed(seed_for(2, index))
            if self.composed:
                answers = answers_at(g, x.expand(len(gamma), *x.shape), gamma, size.n, own)
            else:
                answers = answers_at(g, threat.attacked(x, gamma), torch.zeros_like(gamma), size.n, own)
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


@torch.no_grad()
def answers_at(g: Smoothed, z: Tensor, center: Tensor, n: int, generator: torch.Generator) -> list[int]:
    """What g answers to each of z [J,C,H,W], with β drawn around its center [J,d], or ABSTAIN; each is wrong with
    probability ≤ SURE.

    Half of SURE is for stopping before n samples, where a class has more than half of the votes; half for what the n
    tell of the two leading ones.
    """
    answers, left, drawn = [ABSTAIN] * len(z), list(range(len(z))), 0
    counts = torch.zeros(0)
    while left and drawn < n:
        more = min(max(FIRST, drawn), n - drawn)
        size = max(1, batch_size(z[0], None) // more)
        parts = [left[start : start + size] for start in range(0, len(left), size)]
        made = torch.cat([_counted(g, z[part], center[part], more, generator) for part in parts]).cpu()
        drawn, counts = drawn + more, made + counts if drawn else made
        told = [_told(row, drawn == n) for row in counts.tolist()]
        for place, answer in zip(left, told, strict=True):
            answers[place] = answer
        again = [row for row, answer in enumerate(told) if answer == ABSTAIN]
        left, counts = [left[row] for row in again], counts[again]
    return answers


def _told(counts: list[int], last: bool) -> int:
    label = max(range(len(counts)), key=counts.__getitem__)
    sure = settled(counts, label, SURE / 2) or (last and stats.top_two_significant(counts, SURE / 2))
    return label if sure else ABSTAIN


def _counted(g: Smoothed, z: Tensor, center: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Votes [J,K] of `count` draws for each of z."""
    defence = g.own_defence
    beta = defence.draw_beta(len(z) * count, generator) + center.repeat_interleave(count, 0)
    views = defence.view(z.repeat_interleave(count, 0), beta)
    logits = logits_of(g.logits, add_noise(views, defence.sigma_noise, generator))
    return one_hot(logits.argmax(1), logits.shape[1]).reshape(len(z), count, -1).sum(1)


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
        "A γ counts as a violation only if a test at level 10⁻⁴ shows another class ahead; without an answer: if it "
        "shows none ahead. It stops early where the votes are clear.",
        "In the last row of each transformation, T_(β+γ), r is a theorem up to its α of 0.01 per image: none may "
        "violate it.",
        "r is in ° or px. Without a vignette g sees the corners that a rotation loses. With one the paper trains a "
        "network for it; here the same network is used.",
    ),
)  # fmt: skip
