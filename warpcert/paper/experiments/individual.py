"""IndivSPT: certificates for attacked images whose originals are unseen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from warpcert import methods
from warpcert.classifier import Smoothed
from warpcert.errors.calibration import Calibrating
from warpcert.errors.proved import Curve
from warpcert.paper.calibrating import calibrated, calibration_data, plan
from warpcert.paper.cells import attacked_cells
from warpcert.paper.certifying import Certifying, kept
from warpcert.paper.classifiers import classifier_of, smoothed
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.row import NONE, Measured, Size, Work
from warpcert.report.table import Cell
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["INDIVIDUAL", "ONLINE", "ROTATION", "Individual"]

ONLINE_METHOD = "dist-d-online"


@final
@dataclass(frozen=True)
class Individual(Measured):
    """Attacked by the worst of 100, then certified: by IndivSPT, or online by DistSPT^D.

    inverse    how originals are bounded; "" means DistSPT^D online with a calibration of its own
    sigma, noise  for a network that was not trained to be smoothed over this transformation
    preprocess    in place of the classifier's own
    """

    name: str
    case: str
    data: str
    train: str
    models: tuple[str, ...]
    transform: str
    gamma: float
    inverse: str = "interval"
    sigma: float = 0.0
    noise: float = 0.0
    preprocess: Preprocess | None = None
    attacker: str = "bilinear"
    kept: str = ""  # name of results that a full run tells
    full: Size = Size(300, n=10_000, betas=500, estimate=100, test=700)
    quick: Size = Size(10, n=6000, betas=150, estimate=10, test=40, rho=0.1)

    def work(self, desk: Desk, folder: Path) -> Work:
        size = self.size(desk)
        dataset, net = desk.dataset(self.data), self.classifier(desk)
        threat = Threat.of(self.transform, self.gamma, interpolation=self.attacker)
        config = self.config(desk)
        remark = f"Model: {net.name}."
        if known := kept(desk, self.kept, net, threat):
            return attacked_cells(known.rows) | {"remark": f"{remark} {known.said}"}
        settings: dict[str, Any] = {"n": size.n}
        if self.inverse:
            settings |= {"windows": 3, "betas": size.betas, "inverse": self.inverse}
        else:
            other = calibration_data(desk, dataset, self.train, size)
            work = Calibrating(plan(Curve(), size), net.defence(threat.transform), threat)
            own = config | {"classifier": net.fingerprint}
            made = yield from calibrated(desk, folder, own, other, work, size)
            settings |= {"windows": 1, "calibration": made}
            remark = f"Holds for a share q_E ≥ {made.q_E:.3f} of the images. {remark}"
        method = methods.chosen(net, "indiv" if self.inverse else ONLINE_METHOD, **settings)
        rows = yield from Certifying(net, threat, method, dataset, size.images).run(folder / "run", config)
        cells: dict[str, Cell] = attacked_cells(rows) | {"remark": remark}
        return cells

    def classifier(self, desk: Desk) -> Smoothed:
        """As it is, or its network smoothed otherwise."""
        found = classifier_of(desk, self.models)
        if not (isinstance(found, Smoothed) and self.transform in found.over):
            return smoothed(found, self.noise, {self.transform: self.sigma}, self.preprocess)
        if self.preprocess is None:
            return found
        sigma = found.over[self.transform][0]
        return smoothed(found, found.noise, {self.transform: sigma}, self.preprocess, found.interpolation)


ROTATED = ("mnist-rotation-individual", "mnist-rotation")
SHIFTED = ("mnist-translation-individual", "mnist-translation", "mnist-rotation")
ROTATION = Individual("mnist-rotation", "MNIST, rotation ±10°, interval inverse", "mnist500", "mnist", ROTATED,
                      "rotation", 10)  # fmt: skip
# One window bears E and all of Γ, about 2.5 deviations together: Φ⁻¹ of the votes less ρ must exceed that.
CONFIDENT = Size(300, n=100_000, estimate=100, test=700, rho=0.001)
ONLINE = Individual("mnist-rotation-online", "MNIST, rotation ±30°, DistSPT^D online", "mnist500", "mnist",
                    ("mnist-rotation",), "rotation", 30, inverse="",
                    full=CONFIDENT, quick=NONE)  # fmt: skip

INDIVIDUAL = Experiment(
    name="individual",
    title="IndivSPT: attacked images, originals unseen",
    what="Each image is attacked by the worst of 100 transformations; from the attacked image alone it is certified "
    "that the unseen original has the same label.",
    minutes=1.6,
    columns=("attacked images", "g correct", "certified and correct", "E", "ρ", "excluded share of Γ", "analysis, s",
             "smoothing, s"),
    rows=(
        ROTATION,
        Individual("mnist-rotation-lagrangian", "MNIST, rotation ±10°, Lagrangian inverse", "mnist500", "mnist",
                   ROTATED, "rotation", 10, "lagrangian", kept="mnist-rotation-indiv", quick=Size(2, n=6000, betas=60)),
        Individual("mnist-translation", "MNIST, translation ±1 px, interval inverse", "mnist500", "mnist", SHIFTED,
                   "translation", 1, sigma=1.5, noise=0.15, quick=Size(2, n=4000, betas=60)),
        Individual("mnist-translation-lagrangian", "MNIST, translation ±1 px, Lagrangian inverse", "mnist500", "mnist",
                   SHIFTED, "translation", 1, "lagrangian", sigma=1.5, noise=0.15, quick=Size(1, n=4000, betas=60)),
        Individual("cifar10-rotation", "CIFAR-10, rotation ±10°, Lagrangian inverse", "cifar10", "cifar10",
                   ("cifar-rotation-individual-wide", "cifar-rotation-individual", "cifar-rotation"), "rotation", 10,
                   "lagrangian",
                   kept="cifar-rotation-indiv", quick=Size(1, n=4000, betas=40)),
        Individual("mnist-rotation-online-10", "MNIST, rotation ±10°, DistSPT^D online", "mnist500", "mnist",
                   ("mnist-rotation-calibrated", "mnist-rotation"), "rotation", 10, inverse="",
                   full=CONFIDENT, quick=NONE),
        ONLINE,
    ),
    notes=(
        "Certified and correct: with confidence 0.99 the unseen original has this label for g, and it is the true one.",
        "E: median over the images of the largest window's; analysis: bounding the originals and E, seconds per image.",
        "A translation by whole pixels loses nothing but the border: a picture with a dark border may have come by any "
        "of the nine in Γ = ±1 px, so g must know it at up to 2 px.",
    ),
)  # fmt: skip
