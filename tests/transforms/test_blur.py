"""Gaussian blur: against scipy, every bound with zero tolerance, and exhaustive verification of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates, methods
from warpcert.classifier.before.rounding import level
from warpcert.exhaustive.enumeration import images, plan
from warpcert.exhaustive.events.crossings import find_crossings
from warpcert.exhaustive.events.paths import Averaged
from warpcert.learn.data import load
from warpcert.transforms import Blur

T = Blur()


def noise(shape: tuple[int, ...] = (1, 7, 6), seed: int = 0) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed)).double() / 255


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_it_is_scipys_with_a_mirrored_border() -> None:
    x = noise((2, 30, 26))
    for a in (0.05, 0.3, 1.0, 4.0, 30.0):
        reach = [min(side - 1, 24) / math.sqrt(a) for side in (30, 26)]
        theirs = x.numpy()
        for axis, truncate in ((1, reach[0]), (2, reach[1])):
            theirs = scipy.ndimage.gaussian_filter1d(theirs, math.sqrt(a), axis, mode="mirror", truncate=truncate)
        assert np.abs(T(x, column(a))[0].numpy() - theirs).max() < 1e-12
    torch.testing.assert_close(T(x, column(0.0))[0], x, atol=1e-15, rtol=0)
    torch.testing.assert_close(T(T(x, column(1.0))[0], column(0.5)), T(x, column(1.5)), atol=2e-2, rtol=0)
    one = torch.full((1, 3, 3), 0.25, dtype=torch.float64)
    torch.testing.assert_close(T(one, column(0.9))[0], one)  # weights sum to 1


def test_ranges() -> None:
    assert wc.Threat.blur(4).box == T.box(0, 4) and T.span(T.box(4)) == "0 px² … +4 px²"
    for bad in ((-1,), (-1, 4), (1, 4), (1, 2, 3), (math.inf,)):
        with pytest.raises(ValueError, match="one variance ≥ 0"):
            T.box(*bad)
    with pytest.raises(ValueError, match="wider than a picture"):
        wc.Threat.blur(6).attacked(noise(), column(6.0))
    with pytest.raises(ValueError, match="a variance ≥ 0"):
        T(noise(), column(-0.1))
    with pytest.raises(ValueError, match="no negative parameters"):
        wc.Smoothed(lambda z: z.flatten(1)[:, :2], noise=0.1, over={"blur": 1})


@pytest.mark.parametrize("reach", [1, 4, 24])
def test_bounds_of_the_weights(reach: int) -> None:
    step = 1e-5
    ends = [
        (0.0, 0.01),
        (0.02, 0.05),
        (0.05, 0.4),
        (0.0, 0.5),
        (0.1, 0.13),
        (0.3, 0.3),
        (0.5, 2.0),
        (3.0, 40.0),
        (0, 0),
    ]
    for low, high in ends:
        once, twice = (float(b) for b in T.bends(torch.tensor(low).double(), torch.tensor(high).double()))
        at = torch.linspace(low, high, 200, dtype=torch.float64)
        _, slope = T.weights(at, reach)
        assert float(slope.abs().sum(1).max()) <= once
        before, after = (T.weights((at + d).clamp_min(0), reach) for d in (-step, step))
        width = (at + step) - (at - step).clamp_min(0)
        by_difference = (after[0] - before[0]) / width[:, None]
        inner = at >= step
        torch.testing.assert_close(slope[inner], by_difference[inner], atol=2e-6, rtol=1e-4)
        bend = ((after[1] - before[1]) / width[:, None]).abs().sum(1)
        assert float(bend.max()) <= twice + 1e-4 * (1 + twice)


def test_bounds_are_not_much_too_large() -> None:
    for a in (0.2, 0.5, 1.0, 4.0, 16.0):
        at = torch.tensor([a], dtype=torch.float64)
        once, twice = T.bends(at, at)
        slope = T.weights(at, 24)[1].abs().sum()
        bend = (T.weights(at + 1e-4, 24)[1] - T.weights(at - 1e-4, 24)[1]).abs().sum() / 2e-4
        assert float(once / slope) < 3 and float(twice / (bend + slope)) < 20


@pytest.mark.parametrize("step", [1, 16])
@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_picture_is_enumerated(step: int, quantized: bool, seed: int) -> None:
    if step == 1 and not quantized:
        return
    x = noise((1 + seed % 2, 7, 6), seed)
    threat = wc.Threat.blur(3, quantized=quantized)
    crossings = find_crossings(x, threat, threat.off_by, step)
    made = plan(crossings)
    assert made.unresolved == 0 and len(crossings) > 20
    known = {image.numpy().tobytes() for part, _ in images(made, 512) for image in part}
    g = torch.Generator().manual_seed(seed)
    gamma = torch.cat((threat.box.uniform(1500, g), threat.box.grid(101), column(*crossings.lower.tolist())))
    gamma = torch.cat((gamma, column(*crossings.upper.tolist()), gamma[:300] ** 6)).clamp(0, 3)
    moved = threat.attacked(x, gamma)
    if not quantized:
        sign = torch.randint(-1, 2, moved.shape, generator=g)
        moved = (moved + sign * (threat.off_by - 3.1e-8)).float()
    assert all(z.numpy().tobytes() in known for z in level(moved, step))


@pytest.mark.parametrize("what", ["bend", "slack"])
def test_every_term_is_needed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bounds of V'' or without a margin, pictures are missed."""
    x, threat = noise((1, 7, 6), 1), wc.Threat.blur(3)
    if what == "bend":
        monkeypatch.setattr(Blur, "bends", lambda self, low, high: (0 * high, 0 * high))
        monkeypatch.setattr(Averaged, "stride", 3.0)
    else:
        monkeypatch.setattr(Averaged, "slack", property(lambda self: 0.0, lambda self, value: None), raising=False)
        whole = Averaged.on
        monkeypatch.setattr(
            Averaged, "on", lambda self, *a: (whole(self, *a)[0] + 1e-3, whole(self, *a)[1])
        )  # an error of the arithmetic that nothing allows for
    try:
        made = plan(find_crossings(x, threat, 1e-12, 1))
    except RuntimeError:  # noticed on the way
        return
    known = {image.numpy().tobytes() for part, _ in images(made, 512) for image in part}
    moved = threat.attacked(x, threat.box.uniform(4000, torch.Generator().manual_seed(0)))
    assert not all(z.numpy().tobytes() in known for z in level(moved, 1))


def test_a_digit() -> None:
    net = wc.load("mnist-rotation-exact")
    x = load("mnist500").image(0)
    for threat in (wc.Threat.blur(1.0, quantized=False), wc.Threat.shifts(1).then(blur=0.5)):
        made = net.certify(x, threat, method="exact")
        assert certificates.read(made.to_dict()) == made and made.kind is wc.Kind.PROVED
        assert made.reach is not None and "Gaussian blur (reflected border, cut off at 24 px) within 0 px² …" in str(
            made
        )
        gamma = threat.legal(made.reach.uniform(300, torch.Generator().manual_seed(0)))
        assert set(net.predict(threat.attacked(x.double(), gamma).float())) == {made.label}
    assert methods.suitable(net, wc.Threat.blur(1.0)) == ["exact"]
