"""A new transformation in one class. The proofs need nothing else: its certificates are proved.

Run it: python examples/new_transformation.py
"""

from __future__ import annotations

from typing import ClassVar, final

import warpcert as wc
from warpcert.learn import data
from warpcert.transforms import TRANSFORMS
from warpcert.transforms.flow import Flow, Matrix


@final
class Shear(Flow):
    """Moves each row sideways by γ pixels per pixel of height. Slopes add: T_β∘T_γ = T_{β+γ}."""

    name: ClassVar[str] = "shear"
    unit: ClassVar[str] = "px/px"
    unit_name: ClassVar[str] = "pixels per pixel"
    noun: ClassVar[str] = "shear"
    composition: ClassVar[str] = "slopes add"
    natural_vignette: ClassVar[str] = "rectangle"
    generator: ClassVar[Matrix] = ((0, 0), (-1, 0))  # the value at (y, x) comes from (y, x − γy)


def main() -> wc.Certificate:
    TRANSFORMS[Shear.name] = Shear()  # in the package this is an entry in transforms/__init__.py
    net = wc.load("mnist-rotation-exact")
    x = data.load("mnist500").image(0)
    certificate = net.certify(x, wc.Threat.of("shear", 0.1))
    print(certificate)
    return certificate


if __name__ == "__main__":
    main()
