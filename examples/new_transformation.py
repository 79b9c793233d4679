"""A new transformation in one class. No bound knows it yet, so its certificates say that they are heuristic.

Run it: python examples/new_transformation.py
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, ClassVar, final

import warpcert as wc
from warpcert.learn import data
from warpcert.networks import resnet as models
from warpcert.transforms import TRANSFORMS, SpatialTransform


@final
class Shear(SpatialTransform):
    """Moves each row sideways by γ pixels per pixel of height. Slopes add: T_β∘T_γ = T_{β+γ}."""

    name: ClassVar[str] = "shear"
    unit: ClassVar[str] = "px/px"
    noun: ClassVar[str] = "shear"
    composition: ClassVar[str] = "slopes add"
    natural_vignette: ClassVar[str] = "rectangle"

    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        return y + 0 * gamma[0], x - gamma[0] * y


def main() -> wc.Certificate:
    TRANSFORMS[Shear.name] = Shear()  # in the package this line stands in transforms/__init__.py
    weights = resources.files("warpcert") / "assets" / "mnist-rotation.safetensors"
    model = models.load_weights(str(weights))[0]
    x = data.load("mnist500").image(0)
    preprocess = wc.Preprocess("circle", 1, 1.5, 7)
    defence = wc.Defence.surface("shear", 0.2, noise=0.15, preprocess=preprocess)
    threat = wc.Threat.of("shear", 0.1)
    sampling = wc.Sampling(n=2000, seed=0)
    try:
        wc.dist_spt_x(model, x, defence, threat, sampling, betas=20)
    except ValueError as error:
        print(f"no proof yet: {error}")
    certificate = wc.dist_spt_x(model, x, defence, threat, sampling, sup=wc.Sampled(), betas=100)
    print(certificate)
    return certificate


if __name__ == "__main__":
    main()
