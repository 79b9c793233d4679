"""Classifiers that round their input to few levels: another function, nearly as accurate, far cheaper to exhaust."""

from __future__ import annotations

from typing import Any, ClassVar, final

from torch import Tensor

from warpcert.classifier.base import About, Classifier
from warpcert.classifier.defence import Defence
from warpcert.classifier.plain import answers, deterministic
from warpcert.classifier.rounding import check_step, coarsened
from warpcert.classifier.sees import Sees, behind, told
from warpcert.classifier.stem import Stem
from warpcert.classifier.votes.voting import Logits
from warpcert.transforms import Transform

__all__ = ["Levels"]


@final
class Levels(Classifier):
    """f(Q_w(z)) for a network f of batches with values in [0, 1]. Q_w(Q_w(z)) = Q_w(z).

    sees    what of z the levels are of, if not of every pixel: f(Q(A z)), where A takes means (`Stem`) or reads z at
            some places (`Mosaic`)

    The product 255z is taken in float64: of a picture that is handed over in float32 only the 3·10⁻⁸ by which float32
    rounds it go into a tolerance, besides the error with which it was computed.
    """

    kind: ClassVar[str] = "levels"

    def __init__(
        self,
        network: Logits,
        step: int = 8,
        *,
        sees: Sees | None = None,
        precision: str = "float32",
        slack: float | None = None,
        about: About | None = None,
    ) -> None:
        super().__init__(network, precision=precision, slack=slack, about=about)
        self.step, self.sees = check_step(step), sees
        if isinstance(sees, Stem) and step == 1:
            raise ValueError("behind a stem means are rounded to levels: take a step of 2 or more")

    @property
    def facts(self) -> dict[str, Any]:
        facts = {"kind": self.kind, "step": self.step, "precision": self.precision, "slack": self.slack}
        return facts if self.sees is None else facts | {"sees": told(self.sees)}

    @property
    def usual_method(self) -> str:
        return "exact"

    def defence(self, transform: Transform) -> Defence:
        return deterministic(self.preprocess, transform)

    def forward(self, batch: Tensor) -> Tensor:
        if self.sees is not None:
            return self.logits(behind(self.sees, self.step)(batch))
        return self.logits(coarsened(batch, self.step).float())

    def predict(self, x: Tensor) -> int | list[int]:
        return answers(self, x)
