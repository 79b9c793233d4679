"""The Adversarial Robustness Toolbox: its randomized smoothing, with certificates against transformations instead of
pixel noise.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier import About, Plain, Smoothed
from warpcert.classifier.votes.voting import Draws, fresh_generator, votes
from warpcert.learn.pictures import held_by_float32
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

try:
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
except ImportError:
    raise ImportError("warpcert.app.art needs ART: pip install 'warpcert[art]'") from None

__all__ = ["PyTorchTransformationSmoothing"]

CHUNK = 1024  # pictures transformed at a time by `fit`
OURS = ("over", "threat", "preprocess", "interpolation", "settings")


@final
class PyTorchTransformationSmoothing(PyTorchRandomizedSmoothing):  # type: ignore[misc]
    """ART's PyTorchRandomizedSmoothing for transformations: `certify` returns labels and the r such that, with
    confidence 1 − alpha each, the smoothed classifier keeps the label for every γ within ±r (degrees, pixels, per
    cent …; on every axis). −1 and 0.0 mean that it abstains.

    All arguments of ART's class, pictures [N,C,H,W] in [0,1], and those of `wc.Smoothed`; `scale` is its pixel noise:

    over, preprocess, interpolation   the classifier's; over={} smooths by noise alone
    threat      what is certified against
    settings    of the method, which is `dist-x`, or `cover` without `over`: windows, betas …

    `of` takes a classifier that is there already.
    """

    estimator_params: ClassVar[list[str]] = [*PyTorchRandomizedSmoothing.estimator_params, *OURS]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name) for name in OURS if name in kwargs}
        super().__init__(*args, **kwargs)
        self.over: dict[str, Any] = own.get("over", {"rotation": 30.0})
        self.threat: Threat = own.get("threat") or Threat.rotation(degrees=30.0)
        self.preprocess: Preprocess = own.get("preprocess") or Preprocess()
        self.interpolation: str = own.get("interpolation", "bicubic")
        self.settings: dict[str, Any] = dict(own.get("settings", {}))
        if why := methods.refusal(self._method(n=1000), self.classifier, self.threat):  # now rather than later
            raise ValueError(why)

    @classmethod
    def of(cls, classifier: Smoothed, input_shape: tuple[int, ...], nb_classes: int, **more: Any) -> Self:
        """Around a smoothed classifier, with its own threat; `more` as ART takes it. It is certified as it is."""
        if not isinstance(classifier, Smoothed) or classifier.nested or classifier.precision != "float32":
            raise ValueError("ART smooths classifiers that vote once per sample, in float32: give such a wc.Smoothed")
        if not isinstance(classifier.network, torch.nn.Module):
            raise ValueError("ART needs a network that is an nn.Module")
        if classifier.front != "none":
            raise ValueError(f"ART does not know the front {classifier.front!r}: it would leave it out")
        about = {"threat": classifier.threat, "settings": _fitting(classifier)}
        made = cls(
            classifier.network,
            more.pop("loss", torch.nn.CrossEntropyLoss()),
            input_shape,
            nb_classes,
            scale=classifier.noise,
            over=dict(classifier.over),
            preprocess=classifier.preprocess,
            interpolation=classifier.interpolation,
            **about | more,
        )
        made._name = classifier.name
        return made

    _name = ""

    @property
    def classifier(self) -> Smoothed:
        """What is deployed and certified: ART's network, with its own preprocessing of inputs, behind P and noise."""
        network = _Through(self)
        about = About(name=self._name, threat=self.threat)
        return Smoothed(
            network, self.scale, self.over, preprocess=self.preprocess, interpolation=self.interpolation, about=about
        )

    def certify(self, x: NDArray[Any], n: int, batch_size: int = 32) -> tuple[NDArray[Any], NDArray[Any]]:
        """Labels and certified radii, as ART's: −1 and 0.0 where it abstains."""
        if len(self.threat.transform.parts) > 1:
            raise ValueError(f"{self.threat.transform.name} has no single radius: ask for certificates(x, n) instead")
        found = self.certificates(x, n, batch_size)
        return np.array([c.label for c in found]), np.array([_radius(c) for c in found])

    def certificates(self, x: NDArray[Any], n: int, batch_size: int = 32) -> list[Certificate]:
        """The same with all that a radius leaves out; n samples per picture (of a cover, at most per window)."""
        self._model.eval()
        classifier, method = self.classifier, self._method(n=n, n0=self.sample_size, batch=batch_size)
        pictures = [_float32(v).to(self.device) for v in x]
        return [methods.certify_with(method, classifier, z, self.threat) for z in pictures]

    def fit(self, x: NDArray[Any], y: NDArray[Any], batch_size: int = 128, nb_epochs: int = 10, **kwargs: Any) -> None:
        """Trains on what the smoothed classifier will see: each epoch, every picture under a fresh parameter, and ART
        adds the pixel noise.
        """
        for _ in range(nb_epochs):
            views = np.concatenate([self._view(x[i : i + CHUNK]) for i in range(0, len(x), CHUNK)])
            super().fit(views, y, batch_size=batch_size, nb_epochs=1, **kwargs)

    def loss_gradient(self, x: NDArray[Any], y: NDArray[Any], *args: Any, **kwargs: Any) -> NDArray[Any]:
        """∇_x of the loss of f(P x): P is its own transpose."""
        return self._apply_P(super().loss_gradient(self._apply_P(x), y, *args, **kwargs))

    def _method(self, **given: Any) -> methods.Method:
        name = "dist-x" if self.over else "cover"
        return methods.chosen(self.classifier, name, **{"alpha": self.alpha} | given | self.settings)

    def _prediction_counts(self, x: NDArray[Any], n: int | None = None, batch_size: int = 128) -> NDArray[Any]:
        """The votes that ART's `predict` decides by."""
        self._model.eval()
        z = _float32(x).to(self.device)
        count, classifier = self.sample_size if n is None else n, self.classifier
        generator = fresh_generator(z.device)
        return votes(classifier.logits, classifier.own_defence, z, count, Draws(generator, batch=batch_size)).numpy()

    def _view(self, x: NDArray[Any]) -> NDArray[Any]:
        z, defence = _float32(x), self.classifier.own_defence
        return defence.view(z, defence.draw_beta(len(z), fresh_generator(z.device))).numpy()

    def _apply_P(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.preprocess(torch.from_numpy(np.asarray(x, dtype=np.float32))).numpy()


def _float32(x: NDArray[Any]) -> Tensor:
    """x in float32, as all of ART computes; a ValueError if that would be another picture."""
    given = torch.from_numpy(np.asarray(x))
    if given.is_floating_point() and not bool(held_by_float32(given).all()):
        raise ValueError("x holds float64 values that float32 cannot represent: pass x.astype(np.float32)")
    return given.float()


@final
class _Through:
    """ART's network as it computes logits, its own preprocessing included."""

    def __init__(self, smoothing: PyTorchTransformationSmoothing) -> None:
        self._smoothing = smoothing
        before = [repr(op) for op in smoothing.preprocessing_operations if not _changes_nothing(op)]
        self.fingerprint = "; then ".join([*before, Plain(smoothing.model).source])

    def __call__(self, batch: Tensor) -> Tensor:
        logits: Tensor = self._smoothing._predict_framework(batch)[0]
        return logits


def _changes_nothing(operation: Any) -> bool:
    """ART puts a standardisation by mean 0 and deviation 1 before every network."""
    return bool(np.all(getattr(operation, "mean", 1) == 0) and np.all(getattr(operation, "std", 0) == 1))


def _fitting(classifier: Smoothed) -> dict[str, Any]:
    """The classifier's own settings, if they are for the method that is used here; α, n and the like are ART's."""
    usual = "dist-x" if classifier.over else "cover"
    own = dict(classifier.settings) if classifier.method == usual else {}
    return {k: v for k, v in own.items() if k not in ("alpha", "n", "n0", "batch", "seed")}


def _radius(c: Certificate) -> float:
    """The largest r with every γ within ±r certified, in surface units; 0 if it abstains."""
    if c.abstains or c.range is None:
        return 0.0
    assert isinstance(c.range, tuple)  # these threats have one part
    axes: Any = c.range if isinstance(c.range[0], tuple) else (c.range,)
    return float(min(min(high, -low) for low, high in axes))
