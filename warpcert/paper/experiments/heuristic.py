"""BaseSPT: how accurate it is on the original pictures and on attacked ones."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, final

import torch

from warpcert.attacks import worst_of_k
from warpcert.classifier.votes.voting import Prediction
from warpcert.paper.classifiers import EFFICIENTNET, classifier_of, plain, smoothed
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import measured
from warpcert.paper.photographs import IMAGENET, Source, source_of
from warpcert.paper.row import Measured, Row, Size, Work
from warpcert.runs.job import seed_for
from warpcert.threat import Threat

__all__ = ["HEURISTIC", "PLAIN"]

PLAIN = {  # plain classifiers by dataset, best first
    "mnist500": ("mnist-paper", "mnist-plain", "mnist-rotation-exact", "mnist-rotation"),
    "fashion-mnist": ("fashion-paper", "fashion-plain", "fashion-rotation-exact"),
    "cifar10": ("cifar-paper", "cifar-plain", "cifar-rotation-exact"),
    "gtsrb": ("gtsrb-paper", "gtsrb-plain", "gtsrb-rotation-exact"),
    IMAGENET: (EFFICIENTNET,),
}
ALPHA = 0.01  # of each answer


@final
@dataclass(frozen=True)
class Heuristic(Measured):
    """Accuracy of b = f∘P and of g, which smooths it over γ alone: on the originals, and at the worst of k uniform γ,
    chosen against b.

    The majority always answers; the abstaining g only if the two leading classes differ at level ALPHA.
    """

    name: str
    case: str
    data: str
    models: tuple[str, ...]
    transform: str
    gamma: float
    full: Size = Size(1000, n=1000, gammas=100, attacks=3)
    quick: Size = Size(80, n=150, gammas=100)

    def work(self, desk: Desk, folder: Path) -> Work:
        size = self.size(desk)
        source = _source(desk, self.data, size.images)
        found = classifier_of(desk, self.models)
        b, g = plain(found), smoothed(found, 0, {self.transform: self.gamma}, interpolation="bilinear")
        threat = Threat.of(self.transform, self.gamma)

        def one(index: int) -> dict[str, Any]:
            x, label = source.image(index), source.label(index)
            draw = torch.Generator(device=desk.device).manual_seed(seed_for(1, index))
            asked = [_right(g.vote(x, n=size.n, alpha=ALPHA, generator=draw), label)]
            kept, spent = [], 0.0
            for attack in range(size.attacks):
                chance = torch.Generator().manual_seed(seed_for(2 + attack, index))
                worst = worst_of_k(b, x, label, threat, k=size.gammas, generator=chance)
                kept.append(not worst.succeeded)
                start = time.perf_counter()
                asked.append(_right(g.vote(worst.x_attacked, n=size.n, alpha=ALPHA, generator=draw), label))
                spent += time.perf_counter() - start
            return {"b": b.predict(x) == label, "b attacked": fmean(kept), "g": asked, "t": spent / size.attacks}

        config = self.config(desk, classifier=g.fingerprint)
        values = yield from measured(folder, config, range(min(size.images, source.count)), one)
        attacked = [answers for v in values for answers in v["g"][1:]]
        return {
            "images": len(values),
            "attacks on each": size.attacks,
            "accuracy of b": fmean(v["b"] for v in values),
            "b, attacked": fmean(v["b attacked"] for v in values),
            "g, original": fmean(v["g"][0][0] for v in values),
            "g, attacked": fmean(answers[0] for answers in attacked),
            "g or abstains, original": fmean(v["g"][0][1] for v in values),
            "g or abstains, attacked": fmean(answers[1] for answers in attacked),
            "t, s": fmean(v["t"] for v in values),
            "remark": f"Model: {found.name}.",
        }


def _right(asked: Prediction, label: int) -> tuple[bool, bool]:
    """Whether the majority is right, and whether the answer that may abstain is."""
    majority = max(range(len(asked.counts)), key=asked.counts.__getitem__)
    return majority == label, asked.label == label


def _source(desk: Desk, name: str, count: int) -> Source:
    """mnist500 is the first part of MNIST's test set, which is taken where more are asked for and it is there."""
    source = source_of(desk, name)
    if name == "mnist500" and count > source.count:
        with suppress(Missing):
            return source_of(desk, "mnist")
    return source


def _heuristic(data: str, title: str, quick: Size, pixels: int = 4) -> tuple[Row, ...]:
    key, models = data.removesuffix("500"), PLAIN[data]
    shifts = f"{title}, translation ±{pixels} px"
    return (
        Heuristic(f"{key}-rotation", f"{title}, rotation ±30°", data, models, "rotation", 30, quick=quick),
        Heuristic(f"{key}-translation", shifts, data, models, "translation", pixels, quick=quick),
    )


HEURISTIC = Experiment(
    name="heuristic",
    title="BaseSPT: accuracy under attack",
    what="Accuracy of a plain classifier b and of its smoothed form g, on the original pictures and at the worst of k "
    "random transformations.",
    minutes=0.4,
    columns=("images", "attacks on each", "accuracy of b", "b, attacked", "g, original", "g, attacked",
             "g or abstains, original", "g or abstains, attacked", "t, s"),
    rows=(
        *_heuristic("mnist500", "MNIST", Heuristic.quick),
        *_heuristic("fashion-mnist", "Fashion-MNIST", Size(30, n=80, gammas=60)),
        *_heuristic("cifar10", "CIFAR-10", Size(8, n=50, gammas=60)),
        *_heuristic("gtsrb", "GTSRB", Size(30, n=80, gammas=60)),
        *_heuristic(IMAGENET, "ImageNet 224×224", Size(3, n=15, gammas=10), 20),
    ),
    notes=(
        "HEURISTIC: no guarantee; the attack is chosen against b, as in the paper.",
        "The paper prints the accuracy of g under attack, but its program asks g about the original picture and takes "
        "the majority, whether or not it would abstain: its number stands beside g on the original.",
        "g smooths over γ with σ_γ = Γ, bilinear, without pixel noise. The majority always answers; g that may abstain "
        f"does so unless the leading class is ahead of the next at level {ALPHA}.",
        "The paper shifts both axes by the same offset; here the two axes are shifted independently.",
        "fashion-paper, cifar-paper and gtsrb-paper are ResNet-18 of half the usual width: 2.8 million parameters, "
        "against 11.2 million.",
        "A model that is not a plain one was trained under rotations, the paper's were not: b is then stronger here.",
    ),
)  # fmt: skip
