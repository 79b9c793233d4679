"""One image's certificate as a job that travels: plain settings here, the certifier wherever it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import GaussianInner
from warpcert.classifier.voting import Logits
from warpcert.errors.base import SupBound
from warpcert.errors.calibration import Calibration
from warpcert.errors.proved import Curve
from warpcert.learn.foreign import open_model
from warpcert.methods.run import Sampling
from warpcert.threat import Threat

__all__ = ["METHODS", "Certifier", "Job", "device_of"]

METHODS = ("base", "dist-x", "dist-d", "cover", "exact")
Certifier = Callable[[Tensor, int], Certificate]  # (x, seed) → certificate


def device_of(name: str) -> torch.device:
    """The torch device of that name, with TF32 convolutions off: certified and deployed classifier are one float32
    function.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        torch.backends.cudnn.allow_tf32 = False
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


@final
@dataclass(frozen=True)
class Job:
    """Everything that decides the certificate of (x, seed), in values that can be pickled: model by name and
    fingerprint, never the loaded one.
    """

    method: str
    model: str  # what `open_model` takes
    fingerprint: str
    shape: tuple[int, ...]
    device: str
    defence: Defence
    threat: Threat
    sampling: Sampling
    half: bool = False  # the network in half precision
    coarse: int = 1  # the step of the levels that it sees
    nested: bool = False
    sup: SupBound = Curve()  # of dist-x, as are the next two
    betas: int = 500
    guessed: bool = False
    target: float = 0.5  # of cover, as is the next
    rounded: bool = True
    calibration: Calibration | None = None  # of dist-d

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} is not known; choose one of {', '.join(METHODS)}")
        if self.method == "dist-d" and self.calibration is None:
            raise ValueError("dist-d needs --calibration FILE; write one with `warpcert bound`")

    def open(self) -> Certifier:
        """The certifier, with the model loaded in this process; refuses another model than the one described."""
        opened = open_model(self.model, self.shape, device_of(self.device), self.half, self.coarse)
        if opened.fingerprint != self.fingerprint:
            raise ValueError(
                f"the model {self.model} of a worker has the fingerprint {opened.fingerprint[:12]}…, but the run is "
                f"about {self.fingerprint[:12]}…; every machine must hold the same model under the same name"
            )
        return self.certifier(opened.classifier)

    def certifier(self, f: Logits) -> Certifier:
        """The certifier around a classifier that is loaded already, on the job's device."""
        inner = GaussianInner(f, self.defence.sigma_noise) if self.nested else None
        defence, threat, model = self.defence, self.threat, self.fingerprint
        calibration = self.calibration

        def certify(x: Tensor, seed: int) -> Certificate:
            x, sampling = x.to(self.device), replace(self.sampling, seed=seed)
            if self.method == "base":
                return methods.base_spt(f, x, defence, threat, sampling, inner=inner, model=model)
            if self.method == "dist-d" and calibration is not None:
                return methods.dist_spt_d(f, x, calibration, sampling, inner=inner, model=model)
            if self.method == "cover":
                target, rounded = self.target, self.rounded
                return methods.cover(f, x, defence, threat, sampling, target=target, rounded=rounded, model=model)
            if self.method == "exact":
                slack = 0.01 if self.half else 1e-4
                return methods.exact(f, x, defence, threat, slack=slack, model=model)
            return methods.dist_spt_x(
                f,
                x,
                defence,
                threat,
                sampling,
                sup=self.sup,
                betas=self.betas,
                guessed=self.guessed,
                inner=inner,
                model=model,
            )

        return certify
