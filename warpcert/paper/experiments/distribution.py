"""DistSPT: certified accuracy with E for a share of the data (D), or for each image (x)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, final

from warpcert import methods
from warpcert.classifier import Classifier, Smoothed
from warpcert.errors.base import SupBound
from warpcert.errors.calibration import Calibrating
from warpcert.errors.proved import Curve
from warpcert.errors.sampled import Sampled
from warpcert.learn.data import Dataset
from warpcert.paper.calibrating import calibrated, calibration_data, plan
from warpcert.paper.cells import ANGLES, RADII, accuracy_cells
from warpcert.paper.certifying import Certified, Certifying, kept
from warpcert.paper.classifiers import EFFICIENTNET, RESTRICTED, classifier_of, plain, reference_of, smoothed
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import Step, measured
from warpcert.paper.photographs import IMAGENET, RIMAGENET, pictures_of
from warpcert.paper.row import NONE, Beside, Measured, Size, Work
from warpcert.report.table import Cell
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["DISTRIBUTION_D", "DISTRIBUTION_X", "Dist"]

LOOSE = 1.2  # tightness of bounds of each picture in a quick run: a third of the time, E a seventh larger


@final
@dataclass(frozen=True)
class Dist(Measured):
    """DistSPT^x or DistSPT^D: certified accuracy with a proved E, α = 0.01 per certificate.

    sigma, noise, interpolation, preprocess  for a network that was not trained to be smoothed over this transformation
    sampled  so many γ per β in place of a proof: E is HEURISTIC ('#')
    quick_models  in a quick run: a smaller network
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
    quick_models: tuple[str, ...] = ()
    kept: str = ""  # name of results that a full run tells
    full: Size = Size(500, n=10_000, betas=500)
    quick: Size = Size(12, n=6000, betas=200)

    def work(self, desk: Desk, folder: Path) -> Work:
        size = self.size(desk)
        dataset, net = pictures_of(desk, self.data), self.classifier(desk)
        config, threat = self.config(desk), Threat.of(self.transform, self.gamma)
        sup: SupBound = Curve(tightness=LOOSE) if desk.quick and self.method == "dist-x" else Curve()
        sup = Sampled(gammas=self.sampled, batch=16) if self.sampled else sup
        settings: dict[str, Any] = {"n": size.n, "windows": self.windows}
        cells: dict[str, Cell] = {"remark": f"Model: {net.name}."}
        cells["accuracy of b"] = yield from _base_accuracy(folder, config, dataset, net, size.images)
        if known := kept(desk, self.kept, net, threat):
            cells["remark"] = f"Model: {net.name}. {known.said}"
            if (share := known.rows[0].certificate.share) is not None:
                cells["q_E"] = share.share
            return self._cells(known.rows) | cells
        if self.method == "dist-d":
            defence = replace(net.defence(threat.transform), reference=reference_of(net))
            other = calibration_data(desk, dataset, self.train, size)
            work = Calibrating(plan(sup, size), defence, threat)
            own = config | {"classifier": net.fingerprint}
            made = yield from calibrated(desk, folder, own, other, work, size)
            settings["calibration"], cells["q_E"] = made, made.q_E
        else:
            settings |= {"bound": sup, "betas": size.betas, "reference": reference_of(net)}
        method = methods.chosen(net, self.method, **settings)
        rows = yield from Certifying(net, threat, method, dataset, size.images).run(folder / "run", config)
        return self._cells(rows) | cells

    def _cells(self, rows: list[Certified]) -> dict[str, Cell]:
        unused = ("analysis, s", "smoothing, s") if self.method == "dist-d" else ("seconds per image",)
        cells = {k: v for k, v in accuracy_cells(rows).items() if k not in unused}
        return cells | ({"E": f"{cells['E']:.3g} #"} if self.sampled else {})

    def classifier(self, desk: Desk) -> Smoothed:
        """As it is, if it was trained to be smoothed over this transformation; else its network, smoothed so."""
        found = classifier_of(desk, (self.quick_models if desk.quick else ()) or self.models)
        if self.transform in found.over and isinstance(found, Smoothed):
            return found
        return smoothed(found, self.noise, {self.transform: self.sigma}, self.preprocess, self.interpolation)


def _base_accuracy(
    folder: Path, config: dict[str, Any], dataset: Dataset, net: Classifier, count: int
) -> Generator[Step, None, float]:
    """Of f∘P on the pictures that are certified: no noise, no attack."""
    b = plain(net)

    def right(index: int) -> bool:
        return b.predict(dataset.image(index).to(net.device)) == int(dataset.labels[index])

    keys = range(min(count, len(dataset)))
    answers = yield from measured(folder / "base", config | {"classifier": b.fingerprint}, keys, right, "accuracy of b")
    return fmean(answers)


COLUMNS = ("images", "accuracy of b", "E", "ρ", "q_E", *(f"±{a}°" for a in ANGLES), *(name for name, _ in RADII),
           "r: 25, 50, 75 %")  # fmt: skip
NOTES = (
    "Certified accuracy: answered correctly and certified on the whole range, α = 0.01 per certificate, E proved "
    "('#': sampled, heuristic). b: the network behind vignette and blur, without noise. r: percentiles of the "
    "certified radius within Γ, wrong answers count as 0.",
    "The attacker's picture is rounded to 8 bits. The paper's samplers, one window and bilinear defender are not "
    "repeated: E, windows and joint sampling are ours.",
)
CIFAR_MODELS = ("cifar-rotation", "cifar-rotation-individual")
CIFAR_QUICK = ("cifar-rotation-individual",)
D_FULL = Size(500, n=10_000, estimate=100, test=700, rho=0.01)
D_QUICK = Size(10, n=6000, estimate=6, test=16, rho=0.1)
MNIST_D = Dist("mnist-rotation", "MNIST, rotation, Γ = ±30°", "dist-d", "mnist500", "mnist",
               ("mnist-rotation-calibrated", "mnist-rotation"), "rotation", 30, quick_models=("mnist-rotation",),
               kept="mnist-rotation-dist-d", full=D_FULL, quick=D_QUICK)  # fmt: skip
CIFAR_D = Dist("cifar10-rotation", "CIFAR-10, rotation, Γ = ±30°", "dist-d", "cifar10", "cifar10", CIFAR_MODELS,
               "rotation", 30, kept="cifar-rotation-dist-d", quick_models=CIFAR_QUICK, full=D_FULL,
               quick=Size(2, n=2000, estimate=2, test=4, rho=0.2))  # fmt: skip
# The paper blurs (σ 1, 5×5) after the reduction by 2; here P and noise come before it, so the blur is twice as wide,
# and f reduces the picture, and the noise with it.
PHOTOGRAPHS = Dist("imagenet-rotation", "ImageNet, short side 512, Γ = ±30°, E sampled #", "", IMAGENET, "",
                   (EFFICIENTNET,), "rotation", 30, windows=1, sigma=30, noise=0.5, interpolation="bilinear",
                   preprocess=Preprocess("circle", 4, 2.0, 11), sampled=5)  # fmt: skip
IMAGENET_D = replace(PHOTOGRAPHS, method="dist-d", full=Size(50, n=1000, estimate=50, test=100, rho=0.01),
                     quick=Size(2, n=100, estimate=1, test=5, rho=0.4))  # fmt: skip
RIMAGENET_D = replace(IMAGENET_D, name="rimagenet-rotation", case="Restricted ImageNet, Γ = ±30°, E sampled #",
                      data=RIMAGENET, models=(RESTRICTED,), quick=NONE)  # fmt: skip
TRANSLATED = Dist("mnist-translation", "MNIST, translation, Γ = ±2 px", "", "mnist500", "mnist",
                  ("mnist-translation", "mnist-rotation"), "translation", 2, windows=1, sigma=1.5, noise=0.15,
                  interpolation="bilinear", preprocess=Preprocess("circle", 1, 1.5, 7))  # fmt: skip


def _again(of: Dist, suffix: str, words: str) -> Beside:
    return Beside(f"{of.name}-{suffix}", f"{of.case}, beside the paper's {words}", of)


DISTRIBUTION_D = Experiment(
    name="distribution-d",
    title="DistSPT^D: one E for a share q_E of the data",
    what="E is chosen on some images, the share q_E that keeps it is tested on others, and test images are certified.",
    minutes=1.5,
    columns=(*COLUMNS, "seconds per image"),
    rows=(
        MNIST_D,
        replace(MNIST_D, name="mnist-rotation-50", case="MNIST, rotation, Γ = ±50°", models=("mnist-rotation",),
                gamma=50, kept="", quick=NONE),
        CIFAR_D,
        _again(CIFAR_D, "200", "n_γ = 200"),
        replace(TRANSLATED, method="dist-d", full=D_FULL, quick=Size(6, n=6000, estimate=4, test=16, rho=0.1)),
        RIMAGENET_D,
        _again(RIMAGENET_D, "135", "E = 1.35"),
        IMAGENET_D,
        _again(IMAGENET_D, "120", "E = 1.20"),
        _again(IMAGENET_D, "135", "E = 1.35"),
    ),
    notes=(*NOTES, "q_E holds with confidence 0.999; certified accuracy on the data is at least the measured one "
           "minus 1 − q_E minus α."),
)  # fmt: skip

DISTRIBUTION_X = Experiment(
    name="distribution-x",
    title="DistSPT^x: E for each image",
    what="The interpolation error of every image is bounded by a proof, and the image certified with its own E.",
    minutes=0.9,
    columns=(*(c for c in COLUMNS if c != "q_E"), "analysis, s", "smoothing, s"),
    rows=(
        Dist("mnist-rotation", "MNIST, rotation, Γ = ±50°", "dist-x", "mnist500", "mnist", ("mnist-rotation",),
             "rotation", 50, kept="mnist-rotation-dist-x", quick=Size(8, n=6000, betas=200)),
        replace(TRANSLATED, method="dist-x", quick=Size(6, n=6000, betas=200)),
        Dist("cifar10-rotation-30", "CIFAR-10, rotation, Γ = ±30°", "dist-x", "cifar10", "cifar10",
             ("cifar-rotation-dist-x-30", *CIFAR_MODELS), "rotation", 30, kept="cifar-rotation-dist-x-30",
             quick_models=CIFAR_QUICK, quick=Size(2, n=2000, betas=60)),
        Dist("cifar10-rotation-10", "CIFAR-10, rotation, Γ = ±10°", "dist-x", "cifar10", "cifar10",
             ("cifar-rotation-dist-x-10", *CIFAR_MODELS), "rotation", 10, kept="cifar-rotation-dist-x-10",
             quick_models=CIFAR_QUICK, quick=Size(2, n=2000, betas=60)),
        replace(PHOTOGRAPHS, method="dist-x", full=Size(50, n=1000, betas=640), quick=Size(2, n=100, betas=20)),
        replace(PHOTOGRAPHS, name="imagenet-rotation-40", case=f"{PHOTOGRAPHS.case}, σ_δ = 0.4", method="dist-x",
                noise=0.4, full=Size(50, n=1000, betas=640), quick=NONE),
    ),
    notes=(*NOTES, "The time is that of the error analysis and that of the votes."),
)  # fmt: skip
