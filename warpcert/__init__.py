"""warpcert proves how far a classifier's answer survives image transformations.

The names below are imported when they are first used, so that `import warpcert` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpcert.version import __version__

if TYPE_CHECKING:
    from warpcert.attacks import Attack, gradient, grid, worst_of_k
    from warpcert.certificates import Certificate, Kind
    from warpcert.certificates import read as read_certificate
    from warpcert.classifier import Classifier, Levels, Plain, Smoothed
    from warpcert.classifier.before.mosaic import Mosaic
    from warpcert.classifier.before.stem import Stem
    from warpcert.classifier.votes.voting import ABSTAIN, Prediction
    from warpcert.errors.calibration import Calibration, calibrate
    from warpcert.learn.zoo import load
    from warpcert.runs.run import Run, certify_all
    from warpcert.threat import Threat
    from warpcert.transforms import PointwiseTransform, Preprocess, SpatialTransform, Transform

_HOMES = {
    "ABSTAIN": "classifier.votes.voting",
    "Attack": "attacks",
    "Calibration": "errors.calibration",
    "Certificate": "certificates",
    "Classifier": "classifier",
    "Kind": "certificates",
    "Levels": "classifier",
    "Mosaic": "classifier.before.mosaic",
    "Plain": "classifier",
    "PointwiseTransform": "transforms",
    "Prediction": "classifier.votes.voting",
    "Preprocess": "transforms",
    "Run": "runs.run",
    "Smoothed": "classifier",
    "SpatialTransform": "transforms",
    "Stem": "classifier.before.stem",
    "Threat": "threat",
    "Transform": "transforms",
    "calibrate": "errors.calibration",
    "certify_all": "runs.run",
    "gradient": "attacks",
    "grid": "attacks",
    "load": "learn.zoo",
    "read_certificate": "certificates",
    "worst_of_k": "attacks",
}
_OTHERWISE = {"read_certificate": "read"}  # called so in its own room

__all__ = [
    "ABSTAIN",
    "Attack",
    "Calibration",
    "Certificate",
    "Classifier",
    "Kind",
    "Levels",
    "Mosaic",
    "Plain",
    "PointwiseTransform",
    "Prediction",
    "Preprocess",
    "Run",
    "Smoothed",
    "SpatialTransform",
    "Stem",
    "Threat",
    "Transform",
    "__version__",
    "calibrate",
    "certify_all",
    "gradient",
    "grid",
    "load",
    "read_certificate",
    "worst_of_k",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'warpcert' has no attribute {name!r}")
    value = getattr(import_module(f"warpcert.{_HOMES[name]}"), _OTHERWISE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
