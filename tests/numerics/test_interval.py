"""Interval arithmetic: members in, members out; no tolerance."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpcert.numerics.interval import Interval, outward

NUMBERS = st.floats(-50, 50, allow_nan=False)


def interval(a: float, b: float) -> Interval:
    return Interval(torch.tensor([min(a, b)], dtype=torch.float64), torch.tensor([max(a, b)], dtype=torch.float64))


def member(i: Interval, share: float) -> torch.Tensor:
    return torch.minimum(i.low + share * (i.high - i.low), i.high)


@settings(max_examples=200, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 1), st.floats(0, 1))
def test_members_stay_members(a: float, b: float, c: float, d: float, s: float, t: float) -> None:
    x, y = interval(a, b), interval(c, d)
    u, v = member(x, s), member(y, t)
    assert bool((x + y).contains(u + v))
    assert bool((x - y).contains(u - v))
    assert bool((x * y).contains(u * v))
    assert bool((-x).contains(-u))
    assert bool((2.5 - x).contains(2.5 - u))
    assert bool((v * x).contains(v * u))
    assert bool(x.sin().contains(u.sin())) and bool(x.cos().contains(u.cos()))
    assert bool((0.1 * x).exp().contains((0.1 * u).exp()))
    assert bool(x.magnitude >= u.abs())


def test_waves_know_their_crests() -> None:
    for k in range(-3, 4):
        around = interval(k * math.pi - 0.1, k * math.pi + 0.1)
        assert float((around.cos().high if k % 2 == 0 else -around.cos().low)[0]) >= 1
        assert float((around.sin().high)[0]) < 0.11
    assert float(interval(-10, 10).sin().low) <= -1 and float(interval(-10, 10).sin().high) >= 1
    assert float(interval(0.1, 0.2).cos().high) < 1


def test_outward_is_strict() -> None:
    value = torch.tensor([0.0, 1.0, -3.0], dtype=torch.float64)
    wide = outward(value, value)
    assert bool((wide.low < value).all()) and bool((wide.high > value).all())
    tensor_first = value - Interval.point(value)
    assert isinstance(tensor_first, Interval) and bool(tensor_first.contains(torch.zeros(3, dtype=torch.float64)).all())
