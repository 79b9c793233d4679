"""The Adversarial Robustness Toolbox: its randomized smoothing, with certificates against transformations instead of
pixel noise.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import fresh_generator, votes
from warpcert.methods.run import Sampling
from warpcert.networks.resnet import fingerprint
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

try:
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
except ImportError:
    raise ImportError("warpcert.app.art needs ART: pip install 'warpcert[art]'") from None

__all__ = ["PyTorchTransformationSmoothing"]

CHUNK = 1024  # pictures transformed at a time by `fit`


@final
class PyTorchTransformationSmoothing(PyTorchRandomizedSmoothing):  # type: ignore[misc]
    """ART's PyTorchRandomizedSmoothing for transformations: `certify` returns labels and the r such that, with
    confidence 1 − alpha each, the smoothed classifier keeps the label for every γ within ±r (degrees, pixels, per
    cent …; on every axis). −1 and 0.0 mean that it abstains.

    All arguments of ART's class, pictures [N,C,H,W] in [0,1], and:

    transform, gamma   the attacker's, within ±gamma; `attacker` is his interpolation, `quantized` his 8-bit rounding
    sigma              of the parameter noise, in gamma's units; `scale` is that of the pixel noise
    preprocess, interpolation   the defender's
    method             "dist-x" smooths over parameters and noise; "cover" over noise alone (sigma is not used)
    windows, betas     as those of `warpcert certify`
    """

    estimator_params: ClassVar[list[str]] = [
        *PyTorchRandomizedSmoothing.estimator_params,
        *("transform", "gamma", "sigma", "preprocess", "interpolation", "attacker", "quantized"),
        *("method", "windows", "betas"),
    ]

    def __init__(
        self,
        *args: Any,
        transform: str = "rotation",
        gamma: float = 30.0,
        sigma: float = 30.0,
        preprocess: Preprocess = Preprocess(),
        interpolation: str = "bicubic",
        attacker: str = "bilinear",
        quantized: bool = True,
        method: str = "dist-x",
        windows: int = 3,
        betas: int = 500,
        **kwargs: Any,
    ) -> None:
        if method not in ("dist-x", "cover"):
            raise ValueError(f"method {method!r} gives ART no certificates; choose dist-x or cover")
        super().__init__(*args, **kwargs)
        self.transform, self.gamma, self.sigma = transform, gamma, sigma
        self.preprocess, self.interpolation = preprocess, interpolation
        self.attacker, self.quantized = attacker, quantized
        self.method, self.windows, self.betas = method, windows, betas
        _ = self.defence, self.threat  # refuse now what does not fit

    @property
    def defence(self) -> Defence:
        """What the smoothed classifier computes."""
        made = Defence.surface(
            self.transform,
            self.sigma,
            noise=self.scale,
            interpolation=self.interpolation,
            preprocess=self.preprocess,
        )
        return made.without_parameter_noise(self.scale) if self.method == "cover" else made

    @property
    def threat(self) -> Threat:
        return Threat.of(self.transform, self.gamma, interpolation=self.attacker, quantized=self.quantized)

    def certify(self, x: NDArray[Any], n: int, batch_size: int = 32) -> tuple[NDArray[Any], NDArray[Any]]:
        """Labels and certified radii, as ART's: −1 and 0.0 where it abstains."""
        found = self.certificates(x, n, batch_size)
        return np.array([c.label for c in found]), np.array([_radius(c) for c in found])

    def certificates(self, x: NDArray[Any], n: int, batch_size: int = 32) -> list[Certificate]:
        """The same with all that a radius leaves out; n samples per picture (of a cover, at most per window)."""
        sampling = Sampling(n=n, n0=self.sample_size, alpha=self.alpha, windows=self.windows, batch=batch_size)
        f, defence, threat, model = self._classifier, self.defence, self.threat, fingerprint(self.model)
        self._model.eval()
        pictures = [torch.from_numpy(np.asarray(v, dtype=np.float32)).to(self.device) for v in x]
        if self.method == "cover":
            return [methods.cover(f, z, defence, threat, sampling, model=model) for z in pictures]
        return [methods.dist_spt_x(f, z, defence, threat, sampling, betas=self.betas, model=model) for z in pictures]

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

    def _classifier(self, batch: Tensor) -> Tensor:
        logits: Tensor = self._predict_framework(batch)[0]
        return logits

    def _prediction_counts(self, x: NDArray[Any], n: int | None = None, batch_size: int = 128) -> NDArray[Any]:
        """The votes that ART's `predict` decides by."""
        self._model.eval()
        z = torch.from_numpy(np.asarray(x, dtype=np.float32)).to(self.device)
        count = self.sample_size if n is None else n
        generator = fresh_generator(z.device)
        return votes(self._classifier, self.defence, z, count, generator, batch=batch_size).numpy()

    def _view(self, x: NDArray[Any]) -> NDArray[Any]:
        z = torch.from_numpy(np.asarray(x, dtype=np.float32))
        return self.defence.view(z, self.defence.draw_beta(len(z), fresh_generator(z.device))).numpy()

    def _apply_P(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.preprocess(torch.from_numpy(np.asarray(x, dtype=np.float32))).numpy()


def _radius(c: Certificate) -> float:
    """The largest r with every γ within ±r certified, in surface units; 0 if it abstains."""
    reach, t = c.reach, c.threat.transform
    if c.abstains or reach is None:
        return 0.0
    return min(min(t.surface(hi), -t.surface(lo)) for lo, hi in zip(reach.lower, reach.upper, strict=True))
