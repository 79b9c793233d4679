"""The smoothed classifier: g(z) = argmax_c P(f(P T_β z + δ) = c), β and δ drawn anew for every vote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack, cast, final

import torch
from torch import Tensor

from warpcert import transforms
from warpcert.classifier.base import Classifier, Proved, Rest, lipschitz_of, prepared
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import GaussianInner, Inner, MarginInner
from warpcert.classifier.plain import deterministic
from warpcert.classifier.votes.early import predict_early
from warpcert.classifier.votes.nested import predict_nested
from warpcert.classifier.votes.voting import Draws, Logits, Prediction, as_float32, fresh_generator, predict, votes
from warpcert.transforms import Preprocess, Transform, kernels

__all__ = ["Smoothed"]

VOTES = 1000  # per picture, when it is called or asked


class _Further(Proved, total=False):
    front: str


@final
class Smoothed(Classifier):
    """Votes over pixel noise δ of deviation `noise` and, with over={"rotation": 30}, over turns β of deviation 30°.

    over           one transformation and the σ of its parameters, in degrees, pixels, per cent, dB …; none: noise alone
    interpolation  how the classifier itself turns pictures
    front          what is done to a picture before the noise, so that brightness (centred) or brightness and contrast
                   (standard) are not seen: see `Front`; for noise alone, without P
    nested         two levels: for every β the answer of P T_β z is itself a vote over δ (the paper's construction), or
                   without noise that of a network with a Lipschitz constant
    lipschitz      a proved constant of its logits, which nested votes without noise need
    precision, slack, about   as for every classifier

    Draws are fresh and secret: an attacker who can predict them can fit a picture to them.
    """

    kind: ClassVar[str] = "smoothed"

    def __init__(
        self,
        network: Logits,
        noise: float,
        over: Mapping[str, float | tuple[float, ...]] | None = None,
        *,
        preprocess: Preprocess = Preprocess(),
        interpolation: str = "bicubic",
        nested: bool = False,
        **rest: Unpack[_Further],
    ) -> None:
        lipschitz, front = rest.pop("lipschitz", None), rest.pop("front", "none")
        super().__init__(network, **cast(Rest, rest))
        if len(over or {}) > 1:
            raise ValueError(f"parameters of one transformation can be smoothed over; got {', '.join(over or {})}")
        kernels.kernel(interpolation)
        self.preprocess, self.noise, self.interpolation = preprocess, float(noise), interpolation
        self.front = front
        self.lipschitz, self.nested = lipschitz_of(network, lipschitz, self.precision), bool(nested)
        self.over = {name: _sigmas(name, sigma) for name, sigma in (over or {}).items()}
        if not math.isfinite(self.noise) or self.noise < 0 or not (self.noise or self.over):
            raise ValueError(f"smoothing needs noise ≥ 0 and, without noise, parameters to smooth over; got {noise}")
        if nested and not self.over:
            raise ValueError("nested votes need parameters to smooth over: say over={...}")
        if nested and not self.noise and self.lipschitz is None:
            raise ValueError("nested votes without noise need a network with a Lipschitz constant")
        _ = self.own_defence  # which may refuse

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "noise": self.noise,
            "over": {name: list(sigma) for name, sigma in self.over.items()},
            "preprocess": prepared(self.preprocess),
            "interpolation": self.interpolation,
            "nested": self.nested,
            "lipschitz": self.lipschitz,
            "precision": self.precision,
            "slack": self.slack,
            **({} if self.front == "none" else {"front": self.front}),
        }

    @property
    def usual_method(self) -> str:
        return "dist-x" if self.over else "cover"

    def defence(self, transform: Transform) -> Defence:
        if not self.over:
            plain = replace(deterministic(self.preprocess, transform), front=self.front)
            return plain.without_parameter_noise(self.noise)
        (name, sigma), *_ = self.over.items()
        if transforms.get(name) != transform:
            raise ValueError(f"the threat is {transform.name}, but the classifier smooths over {name}")
        internal = tuple(transform.internal(s) for s in sigma)
        return Defence(transform, internal, self.noise, self.interpolation, self.preprocess, front=self.front)

    @property
    def own_defence(self) -> Defence:
        """That of its own transformation; of any of such items, if it smooths by noise alone."""
        if self.over:
            return self.defence(transforms.get(next(iter(self.over))))
        of_such = (t for t in transforms.TRANSFORMS.values() if t.item_dims == self.item_dims)
        return self.defence(self.threat.transform if self.threat else next(of_such))

    @property
    def inner(self) -> Inner | None:
        """Of nested votes, the classifier inside."""
        if not self.nested:
            return None
        if self.noise:
            return GaussianInner(self.logits, self.noise)
        return MarginInner(self.logits, self.lipschitz or math.inf, slack=self.slack)

    def vote(
        self,
        x: Tensor,
        *,
        n: int = VOTES,
        alpha: float = 0.001,
        early: bool = False,
        generator: torch.Generator | None = None,
        batch: int | None = None,
    ) -> Prediction:
        """g(x) or ABSTAIN, with the counts; wrong with probability ≤ alpha. `early` stops as soon as it is settled."""
        f, defence = self.logits, self.own_defence
        draws = Draws(generator or fresh_generator(x.device), batch=batch)
        if (inner := self.inner) is not None:
            return predict_nested(inner, defence, x, n=n, alpha=alpha, draws=draws)
        ask = predict_early if early else predict
        return ask(f, defence, x, n=n, alpha=alpha, draws=draws)

    def forward(self, batch: Tensor) -> Tensor:
        """The share of the votes that each class gets [B,K], of fresh draws: their argmax is g, if it is not close."""
        if (inner := self.inner) is not None:
            return torch.stack([_inner_shares(inner, self.own_defence, x) for x in as_float32(batch)])
        draws, defence = Draws(fresh_generator(batch.device)), self.own_defence
        counts = [votes(self.logits, defence, x, VOTES, draws) for x in as_float32(batch)]
        return torch.stack(counts).to(batch.device) / VOTES

    def predict(self, x: Tensor) -> int | list[int]:
        """g(x), or ABSTAIN (−1) when the two leading classes are too close to tell."""
        if self.single(x):
            return self.vote(x).label
        return [self.vote(item).label for item in x]


def _sigmas(name: str, sigma: float | tuple[float, ...]) -> tuple[float, ...]:
    transform = transforms.get(name)
    if transform.one_sided:
        raise ValueError(f"{name} has no negative parameters, which noise over them would need; use exact")
    if transform.disc:
        raise ValueError(f"{name} are by whole pixels, and noise over them is not; use exact")
    given = tuple(map(float, sigma)) if isinstance(sigma, list | tuple) else (float(sigma),)
    values = given * transform.dim if len(given) == 1 else given
    if len(values) != transform.dim or not all(math.isfinite(s) and s > 0 for s in values):
        count = "one positive number" if transform.dim == 1 else f"1 or {transform.dim} positive numbers"
        raise ValueError(f"over[{name!r}] needs {count} in {transform.unit}; got {sigma}")
    return values


def _inner_shares(inner: Inner, defence: Defence, x: Tensor) -> Tensor:
    draw = fresh_generator(x.device)
    counts = inner.votes(defence.view(x, defence.draw_beta(VOTES, draw)), draw)
    return counts.to(x.device) / counts.sum()
