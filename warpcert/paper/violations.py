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
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import ABSTAIN, predict, votes
from warpcert.methods.run import Sampling
from warpcert.paper.desk import Desk, Model
from warpcert.paper.experiment import Experiment, Row, Size, Work, measured
from warpcert.paper.heuristic import PLAIN, base_defence
from warpcert.paper.photographs import IMAGENET, model_of, source_of
from warpcert.runs.runner import seed_for
from warpcert.threat import Threat

__all__ = ["VIOLATIONS"]


@final
@dataclass(frozen=True)
class Violations(Row):
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
        source, model, size = source_of(desk, self.data), model_of(desk, self.models), self.size(desk)
        defence = base_defence(model, self.transform, self.sigma, self.vignette)
        t = transforms.get(self.transform)
        threat = Threat(t, t.box(180 if self.transform == "rotation" else max(source.image(0).shape)))

        def one(index: int) -> dict[str, Any]:
            x = source.image(index)
            sampling = Sampling(n=size.n, n0=min(100, size.n), seed=seed_for(0, index))
            base = methods.base_spt(model.classifier, x, defence, threat, sampling)
            r = None if base.abstains else base.whitened_radius(base.windows[0])
            if r is None:
                return {"r": None, "other": 0, "none": 0}
            draw = torch.Generator().manual_seed(seed_for(1, index))
            gamma = _ball(size.gammas, t.dim, draw) * r * defence.sigma_param[0]
            own = torch.Generator(device=desk.device).manual_seed(seed_for(2, index))
            answers = [self._answer(model, defence, threat, x, g, size.n, own) for g in gamma]
            none = answers.count(ABSTAIN)
            other = len(answers) - none - answers.count(base.label)
            return {"r": t.surface(r * defence.sigma_param[0]), "other": other, "none": none}

        config = self.config(desk, model=model.fingerprint)
        values = yield from measured(folder, config, range(min(size.images, source.count)), one)
        radii = [v["r"] for v in values if v["r"] is not None]
        return {
            "images": len(values),
            "with a radius": len(radii),
            "median r": t.to_text(t.internal(median(radii))) if radii else None,
            "γ tried": len(radii) * size.gammas,
            "γ without an answer": sum(v["none"] for v in values),
            "γ that violate": sum(v["other"] for v in values),
            "images violated": sum(v["other"] > 0 for v in values),
            "remark": f"Model: {model.name}.",
        }

    def _answer(
        self, model: Model, defence: Defence, threat: Threat, x: Tensor, gamma: Tensor, n: int,
        generator: torch.Generator,
    ) -> int:  # fmt: skip
        """What g answers at γ, or ABSTAIN: by a test that is wrong once in 10 000 times."""
        if self.composed:
            counts = votes(model.classifier, defence, x, n, generator, tuple(gamma.tolist()))
            return int(counts.argmax()) if stats.top_two_significant(counts.tolist(), 1e-4) else ABSTAIN
        attacked = threat.attacked(x, gamma[None].to(x.device))[0]
        return predict(model.classifier, defence, attacked, n=n, alpha=1e-4, generator=generator).label


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
        models = models[1:]  # under translations with such noise the plain model answers nothing with confidence
    name = f"{data.removesuffix('500')}-{transform}"
    case = f"{title}, {transform}, σ_γ = {sigma:g}{'°' if transform == 'rotation' else ' px'}"
    vignette = "circle" if transform == "rotation" else "rectangle"
    plain = Violations(name, case, data, models, transform, sigma, quick=quick)
    rows = {
        "p": plain,
        "v": replace(plain, name=f"{name}-vignette", case=f"{case}, {vignette} vignette", vignette=vignette),
        "c": replace(plain, name=f"{name}-composed", case=f"{case}, T_(β+γ): no interpolation twice", composed=True),
    }
    return tuple(rows[kind] for kind in kinds)


SMALL = Size(6, n=100, gammas=5)
TINY = Size(2, n=60, gammas=3)

VIOLATIONS = Experiment(
    name="violations",
    title="How often BaseSPT's radius is wrong",
    what="BaseSPT's radius r per image, then random γ inside it: how often does g answer otherwise there.",
    minutes=1.1,
    columns=(
        "images",
        "with a radius",
        "median r",
        "γ tried",
        "γ without an answer",
        "γ that violate",
        "images violated",
    ),
    rows=(
        *_violations("mnist500", "MNIST", "rotation", 30, "pvc", Violations.quick),
        *_violations("mnist500", "MNIST", "translation", 4, "pvc", Violations.quick),
        *_violations("fashion-mnist", "Fashion-MNIST", "rotation", 30, "pvc", SMALL),
        *_violations("fashion-mnist", "Fashion-MNIST", "translation", 4, "pc", SMALL),
        *_violations("cifar10", "CIFAR-10", "rotation", 30, "pvc", TINY),
        *_violations("cifar10", "CIFAR-10", "translation", 4, "pc", TINY),
        *_violations("gtsrb", "GTSRB", "rotation", 30, "pvc", SMALL),
        *_violations("gtsrb", "GTSRB", "translation", 4, "pc", SMALL),
        *_violations(IMAGENET, "ImageNet 224×224", "rotation", 30, "p", Size(2, n=40, gammas=2)),
        *_violations(IMAGENET, "ImageNet 224×224", "translation", 20, "p", Size(2, n=40, gammas=2)),
    ),
    notes=(
        "A γ counts as a violation only if a binomial test at 10⁻⁴ shows another class ahead; without an answer: if it "
        "shows none ahead.",
        "In the last row of each transformation, T_(β+γ), r is a theorem up to its α of 0.01 per image: none may "
        "violate it.",
        "Without a vignette g sees the corners that a rotation loses; the paper trains models with a vignette for the "
        "second rows, here the same model is used.",
    ),
)
