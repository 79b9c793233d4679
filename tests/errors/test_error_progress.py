"""Error analyses tell how far they are, and what they tell changes nothing."""

from __future__ import annotations

import pytest
import torch

from warpcert.classifier.defence import Defence
from warpcert.errors.proved import named
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

CIRCLE = Preprocess("circle", 1, 1.0, 3)


@pytest.mark.parametrize(
    ("bound", "about", "at_least"),
    [
        ("curve", ("rotation", (10.0,)), 2),
        ("curve", ("translation", (1.0, 1.0)), 4),
        ("curve", ("brightness", (0.1,)), 1),
        ("interval", ("rotation", (1.0,)), 4),
        ("sampled", ("rotation", (10.0,)), 1),
    ],
)
def test_they_tell_how_far_they_are(bound: str, about: tuple[str, tuple[float, ...]], at_least: int) -> None:
    generator = torch.Generator().manual_seed(0)
    name, gamma = about
    threat = Threat.of(name, *gamma)
    spread = {"rotation": (5.0,), "translation": (0.5,), "brightness": (0.1,)}[name]
    kernel = "bilinear" if bound == "interval" else "bicubic"
    defence = Defence.surface(name, *spread, noise=0.1, preprocess=CIRCLE, interpolation=kernel)
    x = (torch.rand(1, 8, 8, generator=generator) * 255).round() / 255
    beta = defence.draw_beta(4, generator)
    told: list[tuple[int, int]] = []
    found = named(bound).watched(lambda done, of: told.append((done, of)))(x, defence, threat, beta)
    assert len(told) >= at_least and told == sorted(told)
    assert all(0 <= done <= of for done, of in told)
    assert torch.equal(found.values, named(bound)(x, defence, threat, beta).values)
    assert named(bound).watched(lambda done, of: None) == named(bound)
