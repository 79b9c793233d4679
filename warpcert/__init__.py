"""warpcert proves how far a classifier's answer survives image transformations."""

from __future__ import annotations

from warpcert.attacks import Attack, gradient, grid, worst_of_k
from warpcert.certificates import Certificate, ErrorBound, Kind
from warpcert.classifier.defence import Defence
from warpcert.classifier.early import predict_early
from warpcert.classifier.inner import GaussianInner, MarginInner
from warpcert.classifier.levels import Coarse
from warpcert.classifier.nested import predict_nested
from warpcert.classifier.voting import ABSTAIN, Prediction, predict
from warpcert.errors.calibration import Calibration
from warpcert.errors.proved import Curve
from warpcert.errors.sampled import Sampled
from warpcert.learn.zoo import Loaded, load
from warpcert.methods import base_spt, cover, dist_spt_d, dist_spt_d_online, dist_spt_x, exact, indiv_spt
from warpcert.methods.run import Sampling
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import IntervalInverse
from warpcert.threat import Threat
from warpcert.transforms import (
    Box,
    Brightness,
    Contrast,
    Preprocess,
    Rotation,
    Scaling,
    Transform,
    Translation,
    Volume,
)
from warpcert.version import __version__

__all__ = [
    "ABSTAIN",
    "Attack",
    "Box",
    "Brightness",
    "Calibration",
    "Certificate",
    "Coarse",
    "Contrast",
    "Curve",
    "Defence",
    "ErrorBound",
    "GaussianInner",
    "IntervalInverse",
    "Kind",
    "Lagrangian",
    "Loaded",
    "MarginInner",
    "Prediction",
    "Preprocess",
    "Rotation",
    "Sampled",
    "Sampling",
    "Scaling",
    "Threat",
    "Transform",
    "Translation",
    "Volume",
    "__version__",
    "base_spt",
    "cover",
    "dist_spt_d",
    "dist_spt_d_online",
    "dist_spt_x",
    "exact",
    "gradient",
    "grid",
    "indiv_spt",
    "load",
    "predict",
    "predict_early",
    "predict_nested",
    "worst_of_k",
]
