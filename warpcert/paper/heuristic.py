"""BaseSPT: how accurate it is under attack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, final

import torch
from torch import Tensor

from warpcert import methods
from warpcert.attacks import worst_of_k
from warpcert.classifier.defence import Defence
from warpcert.methods.run import Sampling
from warpcert.paper.desk import Desk, Model
from warpcert.paper.experiment import Experiment, Row, Size, Work, measured
from warpcert.paper.photographs import EFFICIENTNET, IMAGENET, model_of, source_of
from warpcert.paper.table import quarters
from warpcert.runs.runner import seed_for
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["HEURISTIC", "PLAIN", "base_defence"]

PLAIN = {  # plain classifiers by dataset, best first
    "mnist500": ("mnist-plain", "mnist-rotation-exact", "mnist-rotation"),
    "fashion-mnist": ("fashion-plain", "fashion-rotation-exact"),
    "cifar10": ("cifar-plain", "cifar-rotation-exact"),
    "gtsrb": ("gtsrb-plain", "gtsrb-rotation-exact"),
    IMAGENET: (EFFICIENTNET,),
}


def base_defence(model: Model, transform: str, sigma: float, vignette: str = "") -> Defence:
    """BaseSPT's: parameter noise alone, bilinear, the model's own P (or only a vignette)."""
    p = Preprocess(vignette, 1) if vignette else model.defence.preprocess
    return Defence.surface(transform, sigma, noise=0.0, interpolation="bilinear", preprocess=p)


@final
@dataclass(frozen=True)
class Heuristic(Row):
    """Accuracy of b = f∘P, and of b and g at the worst of k uniform γ (chosen against b).

    g answers where its heuristic radius is positive, p ≥ ½ with confidence 0.99, and abstains elsewhere.
    """

    name: str
    case: str
    data: str
    models: tuple[str, ...]
    transform: str
    gamma: float
    full: Size = Size(500, n=1000, gammas=100)
    quick: Size = Size(100, n=200, gammas=100)

    def work(self, desk: Desk, folder: Path) -> Work:
        source, model, size = source_of(desk, self.data), model_of(desk, self.models), self.size(desk)
        defence = base_defence(model, self.transform, self.gamma)
        threat = Threat.of(self.transform, self.gamma)
        t = threat.transform

        def plain(z: Tensor) -> Tensor:
            return model.classifier(defence.preprocess(z))  # type: ignore[no-any-return]

        def one(index: int) -> dict[str, Any]:
            x, label = source.image(index), source.label(index)
            draw = torch.Generator().manual_seed(seed_for(0, index))
            with torch.no_grad():
                clean = int(plain(x[None]).argmax()) == label
            found = worst_of_k(plain, x, label, threat, k=size.gammas, generator=draw)
            sampling = Sampling(n=size.n, n0=min(100, size.n), seed=seed_for(1, index))
            base = methods.base_spt(model.classifier, found.x_attacked, defence, threat, sampling)
            r = None if base.abstains else base.whitened_radius(base.windows[0])
            return {
                "b": clean,
                "b attacked": not found.succeeded,
                "r": -1.0 if r is None or base.label != label else t.surface(r * defence.sigma_param[0]),
                "t": base.seconds,
            }

        config = self.config(desk, model=model.fingerprint)
        values = yield from measured(folder, config, range(min(size.images, source.count)), one)
        return {
            "images": len(values),
            "accuracy of b": mean(v["b"] for v in values),
            "b under attack": mean(v["b attacked"] for v in values),
            "g under attack": mean(v["r"] > 0 for v in values),
            "r: 25, 50, 75 %": quarters([v["r"] for v in values]),
            "seconds per image": mean(v["t"] for v in values),
            "remark": f"Model: {model.name}.",
        }


def _heuristic(data: str, title: str, quick: Size, full: Size = Heuristic.full, pixels: int = 4) -> tuple[Row, ...]:
    key, models = data.removesuffix("500"), PLAIN[data]
    return (
        Heuristic(f"{key}-rotation", f"{title}, rotation ±30°", data, models, "rotation", 30, full, quick),
        Heuristic(
            f"{key}-translation", f"{title}, translation ±{pixels} px", data, models, "translation", pixels, full, quick
        ),
    )


HEURISTIC = Experiment(
    name="heuristic",
    title="BaseSPT: accuracy under attack",
    what="Accuracy of a plain classifier b, and of b and its smoothed form g at the worst of k random transformations.",
    minutes=0.9,
    columns=("images", "accuracy of b", "b under attack", "g under attack", "r: 25, 50, 75 %", "seconds per image"),
    rows=(
        *_heuristic("mnist500", "MNIST", Heuristic.quick),
        *_heuristic("fashion-mnist", "Fashion-MNIST", Size(40, n=100, gammas=60)),
        *_heuristic("cifar10", "CIFAR-10", Size(12, n=60, gammas=60), Size(200, n=300, gammas=100)),
        *_heuristic("gtsrb", "GTSRB", Size(40, n=100, gammas=60), Size(500, n=300, gammas=100)),
        *_heuristic(IMAGENET, "ImageNet 224×224", Size(4, n=20, gammas=10), Size(200, n=300, gammas=100), 20),
    ),
    notes=(
        "HEURISTIC: no guarantee; the attack is chosen against b, as in the paper.",
        "σ_γ equals Γ; bilinear interpolation, no pixel noise; g abstains where its radius is not positive; seconds "
        "are those of g's answer.",
        "r: percentiles of g's heuristic radius at the attacked image, wrong answers count as 0.",
        "A model other than a plain one was trained under rotations, the paper's were not: b is then stronger here.",
        "The published accuracies are not repeated: we are not certain of them.",
    ),
)
