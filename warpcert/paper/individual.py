"""IndivSPT: certificates for attacked images whose originals are unseen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from torch import Tensor

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier.defence import Defence
from warpcert.errors.calibration import Calibration
from warpcert.errors.proved import Curve
from warpcert.methods.run import Sampling
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import IntervalInverse, InverseBound
from warpcert.paper.attacked import attacked_cells, attacked_images, attacked_views
from warpcert.paper.calibrating import calibrated, calibration_data
from warpcert.paper.desk import Desk, Missing, Model
from warpcert.paper.experiment import Experiment, Row, Size, Work, certified
from warpcert.paper.table import Cell
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["INDIVIDUAL", "Individual"]

INVERSES: dict[str, InverseBound] = {"interval": IntervalInverse(), "lagrangian": Lagrangian()}


@final
@dataclass(frozen=True)
class Individual(Row):
    """Attacked by the worst of 100, then certified: by IndivSPT, or online by DistSPT^D.

    inverse    how originals are bounded; "" means DistSPT^D online with a calibration of its own
    sigma, noise  for a model that was trained for another transformation
    preprocess    in place of the model's own
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
    full: Size = Size(300, n=10_000, betas=500, estimate=100, test=700)
    quick: Size = Size(10, n=6000, betas=150, estimate=10, test=40, rho=0.1)

    def work(self, desk: Desk, folder: Path) -> Work:
        if not self.size(desk).images:
            raise Missing("the full run: a ρ that is small enough takes too many β's for a quick one")
        dataset, model, size = desk.dataset(self.data), desk.model(*self.models), self.size(desk)
        defence, threat = self.defence(model), Threat.of(self.transform, self.gamma)
        config = self.config(desk, model=model.fingerprint)
        cells: dict[str, Cell] = {"remark": f"Model: {model.name}."}
        calibration: Calibration | None = None
        if not self.inverse:
            other = calibration_data(desk, dataset, self.train, size)
            calibration = yield from calibrated(desk, folder, config, other, defence, threat, size, Curve())
            cells["remark"] = f"Holds for a share q_E ≥ {calibration.q_E:.3f} of the images. Model: {model.name}."
        image = attacked_images(desk, dataset, model, threat, defence.preprocess)
        answers = yield from attacked_views(desk, folder / "answers", config, dataset, model, defence, image, size)

        def one(x: Tensor, seed: int) -> Certificate:
            sampling = Sampling(n=size.n, seed=seed, windows=1 if calibration else 3)
            if calibration is not None:
                return methods.dist_spt_d_online(model.classifier, x, calibration, sampling, model=model.fingerprint)
            return methods.indiv_spt(
                model.classifier, x, defence, threat, sampling, inverse=INVERSES[self.inverse], betas=size.betas,
                model=model.fingerprint,
            )  # fmt: skip

        method = "dist-d-online" if calibration else "indiv"
        more: dict[str, Any] = {"method": method, "threat": threat.to_dict()}
        more |= {"calibration": calibration.digest} if calibration else {}
        rows = yield from certified(folder / "run", config | more, dataset, range(len(answers)), one, image)
        return attacked_cells(rows, answers) | cells

    def defence(self, model: Model) -> Defence:
        own = model.defence
        p = self.preprocess or own.preprocess
        if own.transform.name == self.transform:
            return replace(own, preprocess=p, reference=None)  # the originals are not known
        return Defence.surface(self.transform, self.sigma, noise=self.noise, preprocess=p)


INDIVIDUAL = Experiment(
    name="individual",
    title="IndivSPT: attacked images, originals unseen",
    what="Each image is attacked by the worst of 100 transformations; from the attacked image alone it is certified "
    "that the unseen original has the same label.",
    minutes=1.6,
    columns=("attacked images", "g correct", "certified and correct", "E", "ρ", "excluded share of Γ", "analysis, s",
             "smoothing, s"),
    rows=(
        Individual("mnist-rotation", "MNIST, rotation ±10°, interval inverse", "mnist500", "mnist",
                   ("mnist-rotation-individual", "mnist-rotation"), "rotation", 10),
        Individual("mnist-rotation-lagrangian", "MNIST, rotation ±10°, Lagrangian inverse", "mnist500", "mnist",
                   ("mnist-rotation-individual", "mnist-rotation"), "rotation", 10, "lagrangian",
                   quick=Size(2, n=6000, betas=60)),
        Individual("mnist-translation", "MNIST, translation ±1 px, interval inverse", "mnist500", "mnist",
                   ("mnist-translation-individual", "mnist-translation", "mnist-rotation"), "translation", 1,
                   sigma=1.5, noise=0.15, quick=Size(2, n=4000, betas=60)),
        Individual("mnist-translation-lagrangian", "MNIST, translation ±1 px, Lagrangian inverse", "mnist500", "mnist",
                   ("mnist-translation-individual", "mnist-translation", "mnist-rotation"), "translation", 1,
                   "lagrangian", sigma=1.5, noise=0.15, quick=Size(1, n=4000, betas=60)),
        Individual("cifar10-rotation", "CIFAR-10, rotation ±10°, Lagrangian inverse", "cifar10", "cifar10",
                   ("cifar-rotation-individual", "cifar-rotation"), "rotation", 10, "lagrangian",
                   quick=Size(1, n=4000, betas=40)),
        Individual("mnist-rotation-online-10", "MNIST, rotation ±10°, DistSPT^D online", "mnist500", "mnist",
                   ("mnist-rotation-calibrated", "mnist-rotation"), "rotation", 10, inverse="",
                   quick=Size(10, n=6000, estimate=10, test=30, rho=0.03)),
        Individual("mnist-rotation-online", "MNIST, rotation ±30°, DistSPT^D online", "mnist500", "mnist",
                   ("mnist-rotation",), "rotation", 30, inverse="",
                   full=Size(300, n=100_000, estimate=100, test=700, rho=0.001), quick=Size(0)),
    ),
    notes=(
        "Certified and correct: with confidence 0.99 the unseen original has this label for g, and it is the true one.",
        "E: median over the images of the largest window's; analysis: bounding the originals and E, seconds per image.",
        "A translation by whole pixels loses nothing but the border: a picture with a dark border may have come by any "
        "of the nine in Γ = ±1 px, so g must know it at up to 2 px.",
    ),
)  # fmt: skip
