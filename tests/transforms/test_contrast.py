"""Contrast in shares: ±s holds every reading of it."""

from __future__ import annotations

import math

import pytest

import warpcert as wc
from warpcert.transforms.contrast import Contrast


@pytest.mark.parametrize("share", [0.01, 0.2, 0.4, 0.5, 0.9])
def test_a_share_holds_both_readings(share: float) -> None:
    low, high = (math.exp(end[0]) for end in (Contrast().box(share).lower, Contrast().box(share).upper))
    assert low == pytest.approx(1 - share) and high == pytest.approx(1 / (1 - share))
    assert low < math.exp(-share) < 1 < 1 + share < math.exp(share) < high


def test_it_is_said_as_factors_that_are_inside() -> None:
    t = wc.Threat.contrast(0.4).transform
    assert t.span(t.box(0.4)) == "×0.6 … ÷0.6"
    assert t.span(t.box(-0.123456789, 0.2), inward=True) == "×0.8766 … ÷0.8001"
    for value in (0.1234567, 0.01234567, 0.0001234567):
        said = float(t.span(t.box(-value, 0), inward=True).split(" ")[0].removeprefix("×"))
        assert 1 - value <= said < 1
    assert "contrast change within ×0.75 … ÷0.5" in str(wc.Threat.contrast((-0.25, 0.5)))


@pytest.mark.parametrize("share", [20, 1, -1.5, math.inf])
def test_what_takes_all_contrast_or_more_away_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"between -1 and 1|number r ≥ 0"):
        wc.Threat.contrast(share)
