"""Classifiers that round their input to few levels: another function, nearly as accurate, far cheaper to exhaust."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack, cast, final

from torch import Tensor

from warpcert.classifier.base import Classifier, Rest
from warpcert.classifier.before.front import BEFORE_LEVELS, Front
from warpcert.classifier.before.rounding import check_step, coarsened, level, shown
from warpcert.classifier.before.sees import Sees, behind, told
from warpcert.classifier.before.stem import Stem
from warpcert.classifier.defence import Defence
from warpcert.classifier.plain import answers, deterministic
from warpcert.classifier.votes.voting import Logits
from warpcert.transforms import Transform

__all__ = ["Levels"]


class _Further(Rest, total=False):
    front: str


@final
class Levels(Classifier):
    """f(Q_w(z)) for a network f of batches with values in [0, 1]. Q_w(Q_w(z)) = Q_w(z).

    sees    what of z the levels are of, if not of every pixel: f(Q(A z)), where A takes means (`Stem`) or reads z at
            some places (`Mosaic`)

    With a front, f(Q_w(front(z))): "grounded" does not see brightness, "stretched" neither brightness nor contrast (see
    `Front`). What it is handed may then lie beyond black and white. The front is computed in float64, and it maps what
    levels show of it to the same again.

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
        **rest: Unpack[_Further],
    ) -> None:
        front = rest.pop("front", "none")
        super().__init__(network, **cast(Rest, rest))
        self.step, self.sees, self.front = check_step(step), sees, Front(front).name
        if isinstance(sees, Stem) and step == 1:
            raise ValueError("behind a stem means are rounded to levels: take a step of 2 or more")
        if front not in BEFORE_LEVELS:
            raise ValueError(
                f"the front {front!r} stands before noise; before levels take one of {', '.join(BEFORE_LEVELS)}"
            )
        if front != "none" and (sees is not None or step == 1):
            raise ValueError("a front stands before levels of 2 or more, of all pixels: leave stem and mosaic out")

    @property
    def facts(self) -> dict[str, Any]:
        facts = {"kind": self.kind, "step": self.step, "precision": self.precision, "slack": self.slack}
        facts |= {} if self.front == "none" else {"front": self.front}
        return facts if self.sees is None else facts | {"sees": told(self.sees)}

    @property
    def usual_method(self) -> str:
        return "exact"

    def defence(self, transform: Transform) -> Defence:
        return deterministic(self.preprocess, transform)

    def seen(self, batch: Tensor) -> Tensor:
        """What the network is shown."""
        if self.sees is not None:
            made: Tensor = behind(self.sees, self.step)(batch)
            return made
        if self.front != "none":
            value = shown(level(Front(self.front).exactly(batch), self.step), self.step).float()
            found: Tensor = value / value.new_full((), 255.0)  # a tensor: a GPU multiplies by the reciprocal
            return found
        return coarsened(batch, self.step).float()

    def forward(self, batch: Tensor) -> Tensor:
        return self.logits(self.seen(batch))

    def predict(self, x: Tensor) -> int | list[int]:
        return answers(self, x)
