"""Shifts by whole pixels: against numpy, and the disc that their range is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import warpcert as wc
from warpcert import attacks, transforms
from warpcert.transforms import Box, ReflectedShifts, Shifts, Steps

X = torch.rand(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BOTH = [Shifts(), ReflectedShifts()]


@pytest.mark.parametrize("t", BOTH, ids=lambda t: t.name)
def test_pixels_are_copied_as_numpy_pads(t: Steps) -> None:
    mode = "constant" if t == Shifts() else "reflect"
    padded = np.pad(X.numpy(), ((0, 0), (9, 9), (9, 9)), mode=mode)  # type: ignore[call-overload]
    gamma = torch.cartesian_prod(torch.arange(-9, 10), torch.arange(-9, 10)).double()
    for (right, down), moved in zip(gamma.int().tolist(), t(X, gamma), strict=True):
        assert np.array_equal(moved.numpy(), padded[:, 9 - down : 14 - down, 9 - right : 16 - right])
    assert torch.equal(t(X, gamma + 0.4), t(X, gamma))  # the nearest whole one
    dot = torch.ones(1, 1, 1)
    assert torch.equal(t(dot, torch.tensor([[0.0, 1.0]]))[0], dot * (t != Shifts()))


@pytest.mark.parametrize("t", BOTH, ids=lambda t: t.name)
def test_a_range_is_a_disc(t: Steps) -> None:
    for r, count in ((0, 1), (0.99, 1), (1, 5), (1.4143, 9), (2, 13), (8, 197), (20, 1257)):
        points = t.points(t.box(r))
        length = points.norm(dim=1)
        assert len(points) == count == len(points.unique(dim=0)) and bool((length.diff() >= 0).all())
        assert float(length.max()) <= r and points[0].tolist() == [0, 0]
        side = torch.arange(-25, 26).double()
        assert int((torch.cartesian_prod(side, side).norm(dim=1) <= r).sum()) == count
    box = t.box(5)
    wild = 8 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    legal = t.legal(wild, box)
    known = {tuple(p) for p in t.points(box).tolist()}
    assert {tuple(p) for p in legal.tolist()} <= known and torch.equal(t.legal(legal, box), legal)
    assert t.holds((3, 4), box) and not t.holds((4, 4), box) and not t.holds((3,), box)
    assert t.span(box) == "a radius of 5 px" and "within a radius of 5 px" in t.within(box)
    with pytest.raises(ValueError, match="one radius"):
        t.box(3, 4)
    with pytest.raises(ValueError, match="one radius"):
        t.box(-1)
    with pytest.raises(ValueError, match="the same to all sides"):
        t.points(Box((-1.0, 0.0), (1.0, 2.0)))


def test_threats_of_shifts() -> None:
    assert wc.Threat.shifts(3).transform == Shifts()
    threat = wc.Threat.shifts(3, border="reflected").then(rotation=10, brightness=0.1)
    assert threat.transform == transforms.get("reflected-shifts then rotation then brightness")
    assert threat.transform.box(3, 10, 0.1) == threat.box and wc.Threat.from_dict(threat.to_dict()) == threat
    rest = threat.after_shifts
    assert rest == wc.Threat.rotation(10).then(brightness=0.1) and rest.after_shifts == rest
    assert wc.Threat.shifts(3).after_shifts is None and wc.Threat.shifts(3).off_by == 0
    with pytest.raises(ValueError, match="are by whole pixels"):
        wc.Smoothed(lambda z: z.flatten(1)[:, :2], noise=0.1, over={"shifts": 1})
    with pytest.raises(ValueError, match="black or reflected"):
        wc.Threat.shifts(3, border="grey")


@pytest.mark.parametrize("name", ["worst-of-k", "grid"])
def test_attacks_stay_in_the_disc(name: str) -> None:
    def far(z: torch.Tensor) -> torch.Tensor:
        """The farther the bright corner has moved right and down, the better for the attacker."""
        place = torch.arange(9.0)
        s = (z * (place + place[:, None])).sum((1, 2, 3))
        return torch.stack((-s, s), 1)

    x = torch.zeros(1, 9, 9)
    x[0, 4, 4] = 1
    found = attacks.ATTACKS[name](far, x, 0, wc.Threat.shifts(2.9), 41, torch.Generator().manual_seed(0))
    assert math.hypot(*found.gamma) <= 2.9 and sum(found.gamma) >= (4 if name == "grid" else 3)
    with pytest.raises(ValueError, match="has no gradient"):
        attacks.gradient(far, x, 0, wc.Threat.shifts(2.9), generator=torch.Generator().manual_seed(0))
    turned = wc.Threat.shifts(2.9).then(rotation=20)
    both = attacks.gradient(far, x, 0, turned, starts=4, generator=torch.Generator().manual_seed(0))
    assert turned.transform.holds(both.gamma, turned.box)
