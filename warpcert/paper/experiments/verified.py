"""Beside verifiers that use no randomness: DeepG and interval propagation, as the paper quotes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import final

from torch import Tensor, nn

from warpcert import methods
from warpcert.classifier import About, Levels
from warpcert.classifier.votes.voting import Logits
from warpcert.paper.certifying import Certified, Certifying, kept
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.row import NONE, Beside, Measured, Size, Unmeasured, Work
from warpcert.report.table import Cell
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["VERIFIED"]


@final
@dataclass(frozen=True)
class Verified(Measured):
    """Proved accuracy of a classifier without noise, by its own method; and of the same network behind a vignette, if
    one is given.
    """

    name: str
    case: str
    data: str
    model: str
    transform: str
    gamma: float
    quick: Size
    full: Size = Size(100)
    vignette: str = ""
    kept: str = ""  # name of results that a full run tells

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, net, size = desk.dataset(self.data), desk.classifier(self.model), self.size(desk)
        threat, method = Threat.of(self.transform, self.gamma), methods.chosen(net)
        if known := kept(desk, self.kept, net, threat):
            rows, said = known.rows, known.said
        else:
            certifying, said = Certifying(net, threat, method, dataset, size.images), ""
            rows = yield from certifying.run(folder / "run", self.config(desk))
        right = (net.predict(desk.image(dataset, i)) == row.label for i, row in enumerate(rows))
        hidden: dict[str, Cell] = {}
        if self.vignette:
            network, about = _Behind(net.network, self.vignette).eval(), About(net.name, net.classes)
            behind = Levels(network, net.step, precision=net.precision, about=about)
            other = Certifying(behind, threat, method, dataset, size.images)
            hidden_rows = yield from other.run(folder / "vignette", self.config(desk), "certify, vignette")
            hidden = {"verified, vignette": fmean(_whole(r, threat) for r in hidden_rows)}
        return hidden | {
            "images": len(rows),
            "correct": fmean(right),
            "verified": fmean(_whole(r, threat) for r in rows),
            "seconds per image": fmean(r.certificate.seconds for r in rows),
            "remark": f"Model: {net.name}, by {method.name}. {said}".rstrip(),
        }


def _whole(row: Certified, threat: Threat) -> bool:
    """Answered correctly on the whole range."""
    return row.certificate.label == row.label and row.certificate.covers(threat.box)


@final
class _Behind(nn.Module):
    """A network that sees pictures through a vignette, as a part of it."""

    def __init__(self, network: Logits, vignette: str) -> None:
        super().__init__()
        self.network, self.seen = network, Preprocess(vignette, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.seen(x))
        return logits


MNIST = Verified("mnist", "MNIST, rotation ±30°", "mnist500", "mnist-rotation-exact", "rotation", 30, Size(3),
                 vignette="circle", kept="mnist-rotation-exact")  # fmt: skip
CIFAR = Verified("cifar10", "CIFAR-10, rotation ±10°", "cifar10", "cifar-rotation-exact", "rotation", 10, NONE,
                 vignette="circle", kept="cifar-rotation-exact")  # fmt: skip
SHIFTS = Verified("mnist-translation", "MNIST, translation ±2 px", "mnist500", "mnist-translation-lipschitz",
                  "translation", 2, NONE, kept="mnist-translation-lipschitz")  # fmt: skip

VERIFIED = Experiment(
    name="verified",
    title="Beside deterministic verification",
    what="Accuracy proved without randomness, beside what the paper reports of DeepG and quotes of others.",
    minutes=0.3,
    columns=("images", "correct", "verified", "verified, vignette", "verified, refined", "seconds per image"),
    rows=(
        MNIST,
        CIFAR,
        Beside("cifar10-vignette", f"{CIFAR.case}, beside a network trained with a vignette", CIFAR),
        Beside("mnist-quoted", f"{MNIST.case}, beside DeepG's own figure", MNIST),
        SHIFTS,
        Beside("cifar10-quoted", f"{CIFAR.case}, beside DeepG's own figure", CIFAR),
        Unmeasured("imagenet-quoted", "ImageNet, rotation ±2°, nearest neighbour",
                   "an ImageNet classifier that can be verified without noise: none of ours"),
    ),
    notes=(
        "Ours: every picture that the attacker can hand over is tried (exact), or a network's Lipschitz constant "
        "bounds what lies between them (cover). Proved, no randomness.",
        "DeepG verifies other, smaller networks against an attacker who does not round.",
        "Verified, vignette: the same network, which was not trained for it, sees the inner disc alone.",
    ),
)  # fmt: skip
