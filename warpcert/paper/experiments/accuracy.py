"""Accuracy of the networks without any attack: plain, behind blur, behind a vignette, behind both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import final

from warpcert.paper.classifiers import EFFICIENTNET, RESTRICTED, classifier_of, plain
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import measured
from warpcert.paper.photographs import IMAGENET, RIMAGENET, source_of
from warpcert.paper.row import NONE, Measured, Size, Work
from warpcert.paper.sampling import PAPER_P
from warpcert.transforms import Preprocess

__all__ = ["ACCURACY"]

KINDS = ("plain", "+ blur (G)", "+ vignette (V)", "+ both")


@final
@dataclass(frozen=True)
class Accuracy(Measured):
    """f∘P for the four P that can be made of a vignette and a blur: the classifier's own, or those given."""

    name: str
    case: str
    data: str
    models: tuple[str, ...]
    preprocess: Preprocess | None = None
    full: Size = Size(1000)
    quick: Size = Size(100)

    def work(self, desk: Desk, folder: Path) -> Work:
        source, size = source_of(desk, self.data), self.size(desk)
        found = classifier_of(desk, self.models)
        p = self.preprocess or found.preprocess
        blur, vignette = Preprocess(blur_sigma=p.blur_sigma, blur_size=p.blur_size), Preprocess(p.vignette, p.margin)
        variants = [plain(found, kind) for kind in (Preprocess(), blur, vignette, p)]

        def one(index: int) -> list[bool]:
            return [f.predict(source.image(index)) == source.label(index) for f in variants]

        config = self.config(desk, classifier=variants[-1].fingerprint)
        values = yield from measured(folder, config, range(min(size.images, source.count)), one)
        shares = (fmean(v[place] for v in values) for place in range(len(KINDS)))
        return {"images": len(values), **dict(zip(KINDS, shares, strict=True)), "remark": f"Model: {found.name}."}


SHIFTED = Preprocess("circle", 1, 1.5, 7)
PHOTOGRAPHS = Accuracy("imagenet", "ImageNet 224×224", IMAGENET, (EFFICIENTNET,), PAPER_P[IMAGENET], quick=NONE)

ACCURACY = Experiment(
    name="accuracy",
    title="Accuracy with blur and vignette",
    what="Accuracy of the networks on original pictures: plain, and behind blur, vignette or both.",
    minutes=0.3,
    columns=("images", *KINDS),
    rows=(
        Accuracy("mnist-rotation", "MNIST", "mnist500", ("mnist-rotation",)),
        Accuracy("mnist-translation", "MNIST, network for translations", "mnist500",
                 ("mnist-translation", "mnist-rotation"), SHIFTED),
        Accuracy("cifar10-d", "CIFAR-10, network for DistSPT^D", "cifar10",
                 ("cifar-rotation", "cifar-rotation-individual"), quick=Size(20)),
        Accuracy("cifar10-x", "CIFAR-10, network for DistSPT^x", "cifar10",
                 ("cifar-rotation-individual", "cifar-rotation"), quick=Size(20)),
        replace(PHOTOGRAPHS, name="rimagenet", case="Restricted ImageNet 224×224", data=RIMAGENET,
                models=(RESTRICTED,)),
        PHOTOGRAPHS,
    ),
    notes=(
        "Each network was trained for one of the four; the others ask it about pictures that it was not trained for.",
        "No noise, no attack.",
    ),
)  # fmt: skip
