"""Transformations, one definition each; `get` finds one by name."""

from __future__ import annotations

from warpcert.numerics.box import Box
from warpcert.transforms.blur import Blur
from warpcert.transforms.brightness import Brightness
from warpcert.transforms.contrast import Contrast
from warpcert.transforms.families.average import Average
from warpcert.transforms.families.base import PointwiseTransform, SpatialTransform, Transform
from warpcert.transforms.families.flow import Flow
from warpcert.transforms.families.gradation import Gradation
from warpcert.transforms.families.product import THEN, Product, product
from warpcert.transforms.families.shift import Shift
from warpcert.transforms.families.steps import Steps
from warpcert.transforms.families.tone import Tone
from warpcert.transforms.power import Power
from warpcert.transforms.preprocess import Preprocess
from warpcert.transforms.rotation import Rotation
from warpcert.transforms.scaling import Scaling
from warpcert.transforms.shear import Shear
from warpcert.transforms.shifts import ReflectedShifts, Shifts
from warpcert.transforms.translation import Translation
from warpcert.transforms.volume import Volume

__all__ = [
    "TRANSFORMS",
    "Average",
    "Blur",
    "Box",
    "Brightness",
    "Contrast",
    "Flow",
    "Gradation",
    "PointwiseTransform",
    "Power",
    "Preprocess",
    "Product",
    "ReflectedShifts",
    "Rotation",
    "Scaling",
    "Shear",
    "Shift",
    "Shifts",
    "SpatialTransform",
    "Steps",
    "Tone",
    "Transform",
    "Translation",
    "Volume",
    "get",
    "product",
]

TRANSFORMS: dict[str, Transform] = {
    t.name: t
    for t in (
        Rotation(), Translation(), Scaling(), Shear(), Brightness(), Contrast(), Power(), Volume(), Shifts(),
        ReflectedShifts(), Blur(),
    )
}  # fmt: skip


def get(name: str) -> Transform:
    """The transformation of that name, or the product of several: "rotation then brightness"."""
    if THEN in name:
        return product(*map(get, name.split(THEN)))
    if name not in TRANSFORMS:
        raise ValueError(f"transformation {name!r} is not known; choose one of {', '.join(TRANSFORMS)}")
    return TRANSFORMS[name]
