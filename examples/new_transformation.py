"""A new transformation in one class. The proofs need nothing else: its certificates are proved.

Run it: python examples/new_transformation.py
"""

from __future__ import annotations

from typing import ClassVar, final

import warpcert as wc
from warpcert.learn import data
from warpcert.transforms import TRANSFORMS
from warpcert.transforms.families.flow import Flow, Matrix


@final
class Slant(Flow):
    """Moves each column down by γ pixels per pixel of width. Slopes add: T_β∘T_γ = T_{β+γ}."""

    name: ClassVar[str] = "slant"
    unit: ClassVar[str] = "px/px"
    unit_name: ClassVar[str] = "pixels per pixel"
    noun: ClassVar[str] = "slant"
    composition: ClassVar[str] = "slopes add"
    natural_vignette: ClassVar[str] = "rectangle"
    generator: ClassVar[Matrix] = ((0, -1), (0, 0))  # the value at (y, x) comes from (y − γx, x)


def main() -> wc.Certificate:
    TRANSFORMS[Slant.name] = Slant()  # in the package this is an entry in transforms/__init__.py
    net = wc.load("mnist-rotation-exact")
    x = data.load("mnist500").image(0)
    certificate = net.certify(x, wc.Threat.of("slant", 0.1))
    print(certificate)
    return certificate


if __name__ == "__main__":
    main()
