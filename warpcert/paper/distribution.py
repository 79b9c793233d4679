"""DistSPT: certified accuracy with E for a share of the data (D), or for each image (x)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

from torch import Tensor

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound
from warpcert.errors.proved import Curve
from warpcert.errors.sampled import Sampled
from warpcert.methods.run import Sampling
from warpcert.paper.calibrating import calibrated, calibration_data
from warpcert.paper.desk import Desk, Model
from warpcert.paper.experiment import Experiment, Row, Size, Work, certified
from warpcert.paper.photographs import EFFICIENTNET, IMAGENET, model_of, pictures_of
from warpcert.paper.table import Cell, quarters
from warpcert.runs import summary as report
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["DISTRIBUTION_D", "DISTRIBUTION_X", "Dist", "accuracy_cells"]

ANGLES = (0, 10, 20, 30, 50)
RADII = (("r > 0 px", 0.0), ("r > 1 px", 1.0), ("r > √2 px", 2**0.5), ("r > 2 px", 2.0))


def accuracy_cells(rows: Sequence[report.Row]) -> dict[str, Cell]:
    """Shares of images that are answered correctly and certified up to each level, E, percentiles of r, time."""
    first = rows[0].certificate
    t, top = first.threat.transform, first.threat.box.upper[0]
    cells: dict[str, Cell] = {"images": len(rows), "E": median(r.certificate.error.E for r in rows)}
    cells["ρ"] = max(r.certificate.error.rho for r in rows)
    radii = [_radius(r) for r in rows]
    if t.name == "translation":
        cells |= {name: fmean(r > level for r in radii) for name, level in RADII}
    else:
        levels = {"rotation": ANGLES, "volume": (0, 1, 2, 3, 4)}[t.name]
        for level in (v for v in levels if v <= t.surface(top) * (1 + 1e-9)):
            box = first.threat.box.scaled(min(1.0, t.internal(level) / top))
            share = fmean(r.certificate.label == r.label and r.certificate.covers(box) for r in rows)
            cells[f"±{level}{'' if t.unit == '°' else ' '}{t.unit}"] = share
    cells["r: 25, 50, 75 %"] = quarters(radii)
    return cells | {"seconds per image": fmean(r.certificate.seconds for r in rows)}


def _radius(row: report.Row) -> float:
    """The certified radius in surface units: of a wrong answer or none −1. Of one window the theorem's r, up to the
    farthest corner of Γ (E says nothing beyond it); of several the largest ±γ.
    """
    c = row.certificate
    if c.abstains or c.label != row.label:
        return -1.0
    if len(c.windows) == 1:
        r, corner = c.whitened_radius(c.windows[0]), math.hypot(*c.threat.box.upper)
        return -1.0 if r is None else c.threat.transform.surface(min(r * min(c.defence.sigma_param), corner))
    return -1.0 if c.reach is None else c.threat.transform.surface(c.reach.upper[0])


@final
@dataclass(frozen=True)
class Dist(Row):
    """DistSPT^x or DistSPT^D: certified accuracy with a proved E, α = 0.01 per certificate.

    sigma, noise, interpolation, preprocess  for a model that was not trained for this transformation
    sampled  so many γ per β in place of a proof: E is HEURISTIC ('#')
    """

    name: str
    case: str
    method: str  # dist-x or dist-d
    data: str
    train: str  # where a calibration's pictures come from; "": from the test pictures
    models: tuple[str, ...]
    transform: str
    gamma: float
    windows: int = 3
    sigma: float = 0.0
    noise: float = 0.15
    interpolation: str = "bicubic"
    preprocess: Preprocess = Preprocess()
    sampled: int = 0
    full: Size = Size(500, n=10_000, betas=500)
    quick: Size = Size(12, n=6000, betas=200)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = pictures_of(desk, self.data), model_of(desk, self.models), self.size(desk)
        sup: SupBound = Sampled(gammas=self.sampled, batch=16) if self.sampled else Curve()
        defence, threat = self.defence(model), Threat.of(self.transform, self.gamma)
        config = self.config(desk, model=model.fingerprint)
        sampling = Sampling(n=size.n, windows=self.windows)
        cells: dict[str, Cell] = {"remark": f"Model: {model.name}."}
        calibration = None
        if self.method == "dist-d":
            other = calibration_data(desk, dataset, self.train, size)
            calibration = yield from calibrated(desk, folder, config, other, defence, threat, size, sup)
            cells["q_E"] = calibration.q_E

        def one(x: Tensor, seed: int) -> Certificate:
            f, seeded = model.classifier, replace(sampling, seed=seed)
            if calibration is not None:
                return methods.dist_spt_d(f, x, calibration, seeded, model=model.fingerprint)
            return methods.dist_spt_x(f, x, defence, threat, seeded, sup=sup, betas=size.betas, model=model.fingerprint)

        more: dict[str, Any] = {"method": self.method, "defence": defence.to_dict(), "threat": threat.to_dict()}
        more |= {"calibration": calibration.digest} if calibration else {}
        indices = range(min(size.images, len(dataset)))
        rows = yield from certified(
            folder / "run", config | more, dataset, indices, one, lambda i: desk.image(dataset, i)
        )
        cells = accuracy_cells(rows) | cells
        return cells | ({"E": f"{cells['E']:.3g} #"} if self.sampled else {})

    def defence(self, model: Model) -> Defence:
        if model.defence.transform.name == self.transform and any(model.defence.sigma_param):
            return model.defence
        return Defence.surface(
            self.transform, self.sigma, noise=self.noise, interpolation=self.interpolation, preprocess=self.preprocess
        )


COLUMNS = (
    "images", "E", "ρ", "q_E", *(f"±{a}°" for a in ANGLES), *(name for name, _ in RADII), "r: 25, 50, 75 %",
    "seconds per image",
)  # fmt: skip
NOTES = (
    "Certified accuracy: answered correctly and certified on the whole range, α = 0.01 per certificate, E proved "
    "('#': sampled, heuristic). r: percentiles of the certified radius within Γ, wrong answers count as 0.",
    "The attacker's picture is rounded to 8 bits. The paper's samplers, one window and bilinear defender are not "
    "repeated: E, windows and joint sampling are ours.",
)
CIFAR_MODELS = ("cifar-rotation", "cifar-rotation-individual")
D_FULL = Size(500, n=10_000, estimate=100, test=700, rho=0.01)
D_QUICK = Size(12, n=6000, estimate=8, test=40, rho=0.1)
# The paper blurs (σ 1, 5×5) after the reduction by 2; here P and noise come before it, so the blur is twice as wide,
# and f reduces the picture, and the noise with it.
PHOTOGRAPHS = Dist("imagenet-rotation", "ImageNet, short side 512, Γ = ±30°, E sampled #", "", IMAGENET, "",
                   (EFFICIENTNET,), "rotation", 30, windows=1, sigma=30, noise=0.5, interpolation="bilinear",
                   preprocess=Preprocess("circle", 4, 2.0, 11), sampled=5)  # fmt: skip
TRANSLATED = Dist("mnist-translation", "MNIST, translation, Γ = ±2 px", "", "mnist500", "mnist",
                  ("mnist-translation", "mnist-rotation"), "translation", 2, windows=1, sigma=1.5, noise=0.15,
                  interpolation="bilinear", preprocess=Preprocess("circle", 1, 1.5, 7))  # fmt: skip

DISTRIBUTION_D = Experiment(
    name="distribution-d",
    title="DistSPT^D: one E for a share q_E of the data",
    what="E is chosen on some images, the share q_E that keeps it is tested on others, and test images are certified.",
    minutes=2.7,
    columns=COLUMNS,
    rows=(
        Dist("mnist-rotation", "MNIST, rotation, Γ = ±30°", "dist-d", "mnist500", "mnist",
             ("mnist-rotation-calibrated", "mnist-rotation"), "rotation", 30, full=D_FULL, quick=D_QUICK),
        Dist("cifar10-rotation", "CIFAR-10, rotation, Γ = ±30°", "dist-d", "cifar10", "cifar10", CIFAR_MODELS,
             "rotation", 30, full=D_FULL, quick=Size(2, n=2000, estimate=2, test=6, rho=0.2)),
        replace(TRANSLATED, method="dist-d", full=D_FULL, quick=Size(6, n=6000, estimate=4, test=16, rho=0.1)),
        replace(PHOTOGRAPHS, method="dist-d", full=Size(50, n=1000, estimate=50, test=100, rho=0.01),
                quick=Size(2, n=100, estimate=1, test=5, rho=0.4)),
    ),
    notes=(*NOTES, "q_E holds with confidence 0.999; certified accuracy on the data is at least the measured one "
           "minus 1 − q_E minus α."),
)  # fmt: skip

DISTRIBUTION_X = Experiment(
    name="distribution-x",
    title="DistSPT^x: E for each image",
    what="The interpolation error of every image is bounded by a proof, and the image certified with its own E.",
    minutes=3.1,
    columns=tuple(c for c in COLUMNS if c != "q_E"),
    rows=(
        Dist("mnist-rotation", "MNIST, rotation, Γ = ±50°", "dist-x", "mnist500", "mnist", ("mnist-rotation",),
             "rotation", 50, quick=Size(8, n=6000, betas=200)),
        replace(TRANSLATED, method="dist-x", quick=Size(6, n=6000, betas=200)),
        Dist("cifar10-rotation-30", "CIFAR-10, rotation, Γ = ±30°", "dist-x", "cifar10", "cifar10",
             CIFAR_MODELS, "rotation", 30, quick=Size(2, n=2000, betas=60)),
        Dist("cifar10-rotation-10", "CIFAR-10, rotation, Γ = ±10°", "dist-x", "cifar10", "cifar10",
             CIFAR_MODELS, "rotation", 10, quick=Size(2, n=2000, betas=60)),
        replace(PHOTOGRAPHS, method="dist-x", full=Size(50, n=1000, betas=640), quick=Size(2, n=100, betas=20)),
    ),
    notes=NOTES,
)  # fmt: skip
