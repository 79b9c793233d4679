"""The plain classifier: a network behind P, no noise."""

from __future__ import annotations

from typing import Any, ClassVar, final

import torch
from torch import Tensor

from warpcert.classifier.base import About, Classifier, lipschitz_of, prepared
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import Logits, as_float32, validate_values
from warpcert.transforms import Preprocess, Transform

__all__ = ["Plain", "answers", "deterministic"]


def deterministic(preprocess: Preprocess, transform: Transform) -> Defence:
    """P alone."""
    return Defence(transform, (0.0,) * transform.dim, 0.0, preprocess=preprocess)


@torch.no_grad()
def answers(f: Classifier, x: Tensor) -> int | list[int]:
    """The leading class of one item, or of each item of a batch: a batch has one dimension more than an item. Attackers
    who do not round may hand over values a little beyond the legal range; whatever is far beyond is no picture.
    """
    single = f.single(x)
    validate_values(x, 0.0 if f.item_dims == 3 else -1.0, 1.0, beyond=1.0)
    labels: list[int] = f(x[None] if single else x).argmax(1).tolist()
    return labels[0] if single else labels


@final
class Plain(Classifier):
    """f(P z): deterministic. `lipschitz` is a proved constant of its logit vector in ℓ2, as a function of P z; a
    Lipschitz network of the package brings its own.

    An ordinary network is certified by `exact` against 8-bit attackers; one with a Lipschitz constant by `cover`.
    """

    kind: ClassVar[str] = "plain"

    def __init__(
        self,
        network: Logits,
        *,
        preprocess: Preprocess = Preprocess(),
        lipschitz: float | None = None,
        precision: str = "float32",
        slack: float | None = None,
        about: About | None = None,
    ) -> None:
        super().__init__(network, precision=precision, slack=slack, about=about)
        self.preprocess, self.lipschitz = preprocess, lipschitz_of(network, lipschitz, precision)

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "preprocess": prepared(self.preprocess),
            "lipschitz": self.lipschitz,
            "precision": self.precision,
            "slack": self.slack,
        }

    @property
    def usual_method(self) -> str:
        return "exact" if self.lipschitz is None else "cover"

    def defence(self, transform: Transform) -> Defence:
        return deterministic(self.preprocess, transform)

    def forward(self, batch: Tensor) -> Tensor:
        shown = self.preprocess(as_float32(batch))
        return self.logits(shown.clone() if shown is batch else shown)  # networks may work in place: not on our picture

    def predict(self, x: Tensor) -> int | list[int]:
        return answers(self, x)
