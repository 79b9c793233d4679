"""Interval boxes: an independent proof of what the curve bound claims, and the only one for nearest."""

from __future__ import annotations

import pytest
import torch

from warpcert.classifier.defence import Defence
from warpcert.errors.base import interpolation_error
from warpcert.errors.boxes import Boxes, box_image
from warpcert.errors.curve.bound import Curve
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, Rotation, Scaling, SpatialTransform, Translation
from warpcert.transforms.kernels import kernel

torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["bilinear", "nearest"])
@pytest.mark.parametrize("transform", [Rotation(), Scaling(), Translation()])
def test_box_images_contain(name: str, transform: SpatialTransform) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 7, 8, dtype=torch.float64, generator=generator)
    low = torch.rand(6, transform.dim, dtype=torch.float64, generator=generator) - 0.5
    low[0] = 0
    high = low + 0.3 * torch.rand(6, transform.dim, dtype=torch.float64, generator=generator)
    image = box_image(x, transform, kernel(name), low, high)
    for _ in range(40):
        gamma = low + (high - low) * torch.rand(6, transform.dim, dtype=torch.float64, generator=generator)
        assert bool(image.contains(transform(x, gamma, name)).all())
    for gamma in (low, high):
        assert bool(image.contains(transform(x, gamma, name)).all())


@pytest.mark.parametrize(
    ("name", "gamma", "interpolation"),
    [
        ("rotation", 10, "bilinear"),
        ("rotation", 10, "nearest"),
        ("scaling", 8, "bilinear"),
        ("translation", 1, "bilinear"),
    ],
)
def test_no_sample_beats_the_boxes(name: str, gamma: float, interpolation: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(1, 8, 9, dtype=torch.float64, generator=generator)
    defence = Defence.surface(name, 5, noise=0.1, interpolation=interpolation, preprocess=Preprocess("circle", 0, 1, 3))
    threat = Threat.of(name, gamma, interpolation=interpolation)
    beta = defence.draw_beta(3, generator)
    first = 16 if name != "translation" else 8
    result = Boxes(tightness=1.5, first=first, most=4000).exact_pipelines(x, defence, threat, beta)
    for b in range(3):
        sample = threat.box.uniform(400, generator)
        error = interpolation_error(x, defence, threat, beta[b].expand(400, -1), sample)
        assert float(error.max()) <= float(result.values[b])
    if interpolation == "bilinear":
        curve = Curve(1.03)(x, defence, threat, beta)
        assert bool((curve.lower <= result.values).all()) and bool((result.lower <= curve.values).all())
        assert float(curve.values.max()) <= float(result.values.max()) * 1.02


def test_all_boxes_of_a_plane_are_analysed() -> None:
    """The largest error of a single bright pixel sits at one corner of Γ only; a diagonal of boxes would miss it."""
    x = torch.zeros(1, 9, 9, dtype=torch.float64)
    x[0, 2, 6] = 1
    defence = Defence.surface("translation", 1, noise=0.1, interpolation="bilinear")
    threat = Threat.of("translation", 1)
    beta = torch.tensor([[0.3, -0.4]], dtype=torch.float64)
    result = Boxes(first=8, most=2000)(x, defence, threat, beta)
    sample = threat.box.grid(41)
    error = interpolation_error(x, defence, threat, beta.expand(len(sample), -1), sample)
    assert float(error.max()) <= float(result.values)


def test_bicubic_is_refused() -> None:
    x = torch.rand(1, 6, 6, dtype=torch.float64)
    defence = Defence.surface("rotation", 5, noise=0.1)
    with pytest.raises(ValueError, match="bilinear and nearest"):
        Boxes().exact_pipelines(x, defence, Threat.of("rotation", 5), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="the classifier uses bicubic"):
        Boxes()(x, defence, Threat.of("rotation", 5), torch.zeros(1, 1))
