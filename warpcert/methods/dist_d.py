"""DistSPT^D: the error comes from a calibration that holds for a tested share of the pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.classifier import Classifier
from warpcert.errors.calibration import Calibration
from warpcert.methods.base import Progress, Sampling, needs_noise, smooths_over
from warpcert.methods.outlook import votes
from warpcert.methods.outlook.forecast import Forecast
from warpcert.methods.run import Votes
from warpcert.threat import Threat

__all__ = ["DistD", "Online"]

MISSING = "needs a calibration: write one with `warpcert bound`, or take a model that carries its own"


@final
@dataclass(frozen=True, kw_only=True)
class DistD(Sampling):
    """As dist-x, for the pictures whose error is within the calibration's (E, ρ): a share ≥ q_E of the data.

    Not "each certificate holds with probability q_E": certified accuracy on the data is at least the measured one minus
    (1 − q_E) minus α.
    """

    calibration: Calibration | None = None
    name: ClassVar[str] = "dist-d"
    summary: ClassVar[str] = "as dist-x, for a tested share of the pictures, without an error analysis for each"

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        return _refuses(self.calibration, classifier, threat, self.name)

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        return _certified(self, "joint", classifier, x, threat, progress)

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        return _foreseen(self, classifier, x, threat)

    def to_dict(self) -> dict[str, Any]:
        return _with_digest(self, self.calibration)


@final
@dataclass(frozen=True, kw_only=True)
class Online(Sampling):
    """g(x) = g(x') for the unseen x with x' = q(T_γ x), γ ∈ Γ, if x is in the calibration's share: all of Γ or nothing.

    The draws are fresh and secret unless a seed is given: who knows them can fit x' to them.
    """

    windows: int = 1
    calibration: Calibration | None = None
    name: ClassVar[str] = "dist-d-online"
    summary: ClassVar[str] = "shown only the attacked picture, of the calibrated share: the original has the same label"
    attacked: ClassVar[bool] = True

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        if self.windows != 1:
            return "online certificates use one window: set windows = 1"
        if classifier.nested:
            return f"{self.name} compares the laws of joint votes: it does not know nested ones; use indiv"
        if self.calibration is not None and self.calibration.defence.reference is not None:
            own = self.calibration.defence.interpolation
            return (
                f"{self.name} does not know the original and goes without a reference: calibrate with the classifier's "
                f"own kernel ({own})"
            )
        return _refuses(self.calibration, classifier, threat, self.name)

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        return _certified(self, "attacked", classifier, x, threat, progress)

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        return _foreseen(self, classifier, x, threat)

    def to_dict(self) -> dict[str, Any]:
        return _with_digest(self, self.calibration)


def _refuses(calibration: Calibration | None, classifier: Classifier, threat: Threat, name: str) -> str:
    if why := smooths_over(classifier, threat, name) or needs_noise(classifier, name):
        return why
    if calibration is None:
        return f"{name} {MISSING}"
    own = replace(classifier.defence(threat.transform), reference=calibration.defence.reference)
    return calibration.mismatch(own, threat)


def _certified(
    method: DistD | Online,
    form: str,
    classifier: Classifier,
    x: Tensor,
    threat: Threat,
    progress: Progress | None,
) -> Certificate:
    calibration = method.calibration
    assert calibration is not None  # `refuses` says so
    calibration.check_image(x)
    run = Votes(method, form, classifier, x, threat, calibration.defence)
    run.error = calibration.error()
    return run.certify(method.alpha, progress, share=calibration.share())


def _foreseen(method: DistD | Online, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
    assert method.calibration is not None
    defence, ratio = method.calibration.defence, method.calibration.E / classifier.noise if classifier.noise else 0.0
    found = votes.foreseen(classifier, x, threat, defence, (method.n, method.n0, method.batch), ratio)
    return found.within(method.time_limit)


def _with_digest(method: Sampling, calibration: Calibration | None) -> dict[str, Any]:
    plain = Sampling.to_dict(method)
    return plain | {"calibration": calibration.digest if calibration else None}
