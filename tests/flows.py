"""Linear flows that are not part of the package, each in a few lines: what a new transformation needs."""

from __future__ import annotations

from typing import ClassVar, final

from warpcert.transforms import Flow
from warpcert.transforms.families.flow import Matrix

__all__ = ["Ellipse", "Skew", "Spiral"]


class Oblique(Flow):
    unit: ClassVar[str] = ""
    unit_name: ClassVar[str] = ""
    noun: ClassVar[str] = "change"
    composition: ClassVar[str] = "parameters add"
    natural_vignette: ClassVar[str] = "circle"
    generator: ClassVar[Matrix] = ((0, 0), (0, 0))


@final
class Spiral(Oblique):
    """Turns and enlarges."""

    name: ClassVar[str] = "spiral"
    generator: ClassVar[Matrix] = ((-0.3, 1), (-1, -0.3))


@final
class Ellipse(Oblique):
    """Turns along ellipses: points are farthest out in the middle of a cell, and no step is a multiple of the grid."""

    name: ClassVar[str] = "ellipse"
    generator: ClassVar[Matrix] = ((0, 1.6), (-0.6, 0))


@final
class Skew(Oblique):
    """Stretches one oblique axis and shrinks another: real eigenvalues, every entry."""

    name: ClassVar[str] = "skew"
    generator: ClassVar[Matrix] = ((0.4, 1.1), (0.9, -0.2))
