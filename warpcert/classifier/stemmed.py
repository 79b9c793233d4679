"""Classifiers behind a stem: the network sees means of pixels, rounded to few levels."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Unpack, final

from torch import Tensor

from warpcert.classifier.base import Classifier, Rest, prepared
from warpcert.classifier.defence import Defence
from warpcert.classifier.plain import answers, deterministic
from warpcert.classifier.stem import Front, Stem
from warpcert.classifier.voting import Logits
from warpcert.transforms import Preprocess, Transform

__all__ = ["Stemmed"]


@final
class Stemmed(Classifier):
    """f(Q(A(V z))): a vignette V of the 8-bit picture, then `Front`, then a network f of pictures in [0, 1]."""

    kind: ClassVar[str] = "stem"

    def __init__(
        self,
        network: Logits,
        step: int = 32,
        stem: Stem = Stem(),  # noqa: B008 - it is frozen
        *,
        vignette: str = "none",
        margin: float = 0.0,
        **rest: Unpack[Rest],
    ) -> None:
        super().__init__(network, **rest)
        self.front, self.stem = Front(step, stem), stem
        self.step, self.preprocess = self.front.step, Preprocess(vignette, margin)

    @property
    def facts(self) -> dict[str, Any]:
        before = prepared(self.preprocess)
        own = {"kind": self.kind, "step": self.step, "stem": asdict(self.stem)}
        own |= {name: before[name] for name in ("vignette", "margin")}
        return own | {"precision": self.precision, "slack": self.slack}

    @property
    def usual_method(self) -> str:
        return "exact"

    def defence(self, transform: Transform) -> Defence:
        return deterministic(self.preprocess, transform)

    def forward(self, batch: Tensor) -> Tensor:
        return self.logits(self.front(self.preprocess(batch)))

    def predict(self, x: Tensor) -> int | list[int]:
        return answers(self, x)
