"""A certificate's set and sentence: the arithmetic by hand, what abstains, and how far to trust what."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from certificate_samples import (
    ERROR,
    FACTS,
    THREAT,
    by_margins,
    calibrated,
    covered,
    defence,
    exhausted,
    individual,
    part_exhausted,
    samples,
    voted,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import warpcert as wc
from warpcert import certificates
from warpcert import statistics as stats
from warpcert.certificates import NO_ERROR, Enumeration, Kind, Voted, Window
from warpcert.transforms import Box

DEFENCE = defence()
SURE = Window((0.0,), 9990, 10_000, 0.005)


def certificate(*windows: Window, **changes: Any) -> Voted:
    return voted(*(windows or (SURE,)), **changes)


def test_radius_by_hand() -> None:
    c = certificate()
    p, rho = stats.lower_bound(9990, 10_000, 0.005), stats.upper_bound(0, 1000, 0.005)
    kappa = norm.ppf(p) - norm.ppf(0.5 + rho)
    assert c.whitened_radius(c.windows[0]) == pytest.approx(math.sqrt(kappa**2 - (0.2 / 0.15) ** 2), rel=1e-9)
    reach = c.reach
    assert reach is not None
    expected = min(50.0, 30 * math.sqrt(kappa**2 - (0.2 / 0.15) ** 2))
    assert math.degrees(reach.upper[0]) == pytest.approx(expected, rel=1e-6)


def test_reach_stops_inside_the_ball_and_never_leaves_gamma() -> None:
    weak = certificate(Window((0.0,), 9600, 10_000, 0.005))
    reach, r = weak.reach, weak.whitened_radius(weak.windows[0])
    assert reach is not None and r is not None
    assert reach.upper[0] < r * DEFENCE.sigma_param[0] <= reach.upper[0] * (1 + 1e-6)
    strong = certificate(Window((0.0,), 10_000, 10_000, 0.005))
    assert strong.reach == THREAT.box  # r may exceed Γ: E says nothing outside
    assert not strong.covers(Box((0.0,), (THREAT.box.upper[0] * 1.001,)))


def test_windows_vouch_for_each_other_and_gaps_are_seen() -> None:
    step = math.radians(30)
    sure = [Window((c,), 9700, 10_000, 0.001) for c in (-step, 0.0, step)]
    assert certificate(*sure).reach == THREAT.box
    gap = [replace(sure[0], k=100), sure[1], replace(sure[2], k=100)]
    alone = certificate(*gap)
    assert alone.reach is not None and alone.reach.upper[0] < THREAT.box.upper[0]
    ends = [sure[0], replace(sure[1], k=100), sure[2]]  # 0 itself may then be covered by the neighbours only
    r = certificate(*ends).whitened_radius(sure[0])
    assert r is not None
    assert certificate(*ends).covers(Box((0.0,), (0.0,))) == (r * DEFENCE.sigma_param[0] > step)


@given(st.floats(0.05, 3.0), st.floats(0.05, 3.0), st.integers(900, 1000))
def test_two_dimensional_boxes_are_covered_only_by_their_farthest_corner(a: float, b: float, k: int) -> None:
    threat, d = wc.Threat.translation(3), defence("translation", 1.5, noise=0.2)
    c = certificate(Window((0.0, 0.0), k, 1000, 0.005), threat=threat, defence=d)
    r = c.whitened_radius(c.windows[0])
    inside = r is not None and math.hypot(a / 1.5, b / 1.5) < r
    assert c.covers(Box((-a, -b), (a, b))) == inside


def test_anisotropic_covariance() -> None:
    threat, d = wc.Threat.of("translation", 2, 4), defence("translation", 1, 3, noise=0.5)
    c = certificate(Window((0.0, 0.0), 1000, 1000, 0.005), threat=threat, defence=d)
    r = c.whitened_radius(c.windows[0])
    assert r is not None
    for scale, expected in ((0.999, True), (1.001, False)):
        point = (0.5 * r * scale, 3 * math.sqrt(0.75) * r * scale)
        if threat.box.contains(point):
            assert c.covers(Box(point, point)) == expected


@pytest.mark.parametrize(
    "bad",
    [
        {"error": replace(ERROR, betas=7)},  # ρ ≥ ½
        {"error": replace(ERROR, E=5.0)},  # κ ≤ E/σ
        {"error": replace(ERROR, E=math.inf)},
        {"windows": (Window((0.0,), 5050, 10_000, 0.005),)},
        {"label": wc.ABSTAIN},
    ],
    ids=["rho", "E", "infinite E", "p", "abstained"],
)
def test_guards_abstain(bad: dict[str, Any]) -> None:
    c = certificate(**bad)
    assert c.reach is None
    assert not c.covers(Box((0.0,), (0.0,)))
    assert str(c).startswith("Abstains")


def test_kind_is_the_weakest_used() -> None:
    assert certificate().kind is Kind.WITH_CONFIDENCE
    assert certificate(error=replace(ERROR, kind=Kind.HEURISTIC)).kind is Kind.HEURISTIC
    assert certificate(form="base", error=NO_ERROR).kind is Kind.HEURISTIC
    assert "HEURISTIC" in str(certificate(form="base", error=NO_ERROR))
    assert "confidence 0.99" in str(certificate()) and "HEURISTIC" not in str(certificate())
    assert "±50°" in str(certificate(Window((0.0,), 10_000, 10_000, 0.005)))


def test_two_class_helps_when_the_rest_is_spread_out() -> None:
    one = certificate(Window((0.0,), 600, 1000, 0.005), error=replace(ERROR, E=0.0))
    two = certificate(Window((0.0,), 600, 1000, 0.005, runner_up=60), error=replace(ERROR, E=0.0))
    a, b = one.whitened_radius(one.windows[0]), two.whitened_radius(two.windows[0])
    assert a is not None and b is not None and b > 2 * a


def test_covers_need_every_cell() -> None:
    whole = covered()
    assert whole.reach == whole.threat.box and whole.kind is Kind.WITH_CONFIDENCE
    for bad in ({"k": 30}, {"E": 0.9}, {"n": 0, "k": 0}):
        part = covered(bad={3: bad})
        assert part.reach is not None and part.reach.upper[0] == pytest.approx(math.radians(25), rel=1e-6)
        assert certificates.read(part.to_dict()) == part
    missing = replace(whole, windows=(*whole.windows[:1], *whole.windows[2:]))
    assert missing.reach is not None and missing.reach.lower[0] == 0.0  # the gap begins left of γ = 0
    middle = covered("translation", bad={5: {"k": 30}})
    assert middle.reach is not None and not any(middle.reach.upper) and not middle.covers(Box((-1.5, -1.5), (0.0, 0.0)))
    assert middle.covers(Box((-2.0, -2.0), (2.0, -1.0)))


def test_covers_by_margins() -> None:
    c = by_margins()
    assert c.kind is Kind.PROVED and c.reach == c.threat.box and "0.9-Lipschitz" in str(c)
    part = by_margins(bad={0: {"margin": math.sqrt(2) * 0.9 * 0.1}})  # just not enough
    assert part.reach is not None and part.reach.lower[0] == pytest.approx(-math.radians(25))


def test_enumerations_are_proofs() -> None:
    c = exhausted()
    assert c.kind is Kind.PROVED and c.reach == THREAT.box and c.confidence == 1.0
    assert str(c).startswith("Proved: ") and "1234 in all" in str(c) and "confidence" not in str(c)
    assert c.found and replace(c, found=replace(c.found, margin=1e-5)).reach is None
    part = part_exhausted(0.5)
    assert part.reach is not None and part.reach.upper[0] == pytest.approx(math.radians(25))
    assert "±25°" not in str(part) and "ends there" in str(part)
    none = exhausted(found=None, label=wc.ABSTAIN, counterexample=(0.0,), reason="the classifier answers differently")
    assert none.reach is None and str(none).startswith("Not kept")


@pytest.mark.parametrize("share", [0.3333333, 0.66666, 0.99999999, 0.1234567, 1.2e-7, 0.20009999])
def test_a_sentence_never_says_more_than_was_proved(share: float) -> None:
    c = exhausted(found=Enumeration(9, 8, 0.5, 1e-4, "tolerance", share))
    assert c.reach is not None and c.span in str(c)
    said, proved = float(c.span.strip("±°")), math.degrees(c.reach.upper[0])
    assert 0.999 * proved < said <= proved
    assert isinstance(c.range, tuple) and c.range[1] <= proved * (1 + 1e-12)
    assert exhausted().span == "±50°" and exhausted().range == (-50.0, 50.0) and c.unit == "degrees"


def test_individual_certificates_are_all_or_nothing() -> None:
    c = individual()
    assert c.reach == c.threat.box and c.unseen and "unseen original" in str(c) and "ruled out" in str(c)
    for weak in (
        replace(c, windows=(replace(c.windows[0], k=2400), c.windows[1])),
        replace(c, centred=replace(c.centred, k=500)),  # type: ignore[type-var]
        replace(c, centred=None),
    ):
        assert weak.reach is None
    everything = replace(c, excluded=0.0)
    assert "No rotation is ruled out" in str(everything)


def test_attacked_certificates_claim_all_of_gamma_or_nothing() -> None:
    c = calibrated("attacked")
    assert c.unseen and c.reach == c.threat.box and not c.covers(Box((0.0,), (1.0,)))
    weak = replace(c, windows=(replace(c.windows[0], k=6500),))
    assert weak.reach is None and not weak.covers(Box((0.0,), (0.0,)))


def test_a_share_is_in_the_sentence() -> None:
    c = calibrated()
    assert c.share is not None and 0.99 < c.share.share < 0.991
    assert c.share.share == pytest.approx(stats.acceptance_bound(999, 1000, 0.001, 0.001))
    assert "at least 99.07 %" in str(c) and "if the error" in str(c)


def test_every_sentence_is_whole() -> None:
    for c in samples().values():
        assert str(c)[0].isupper() and str(c).endswith(".") and "  " not in str(c) and ".." not in str(c)
        assert c.classifier.name in str(c) and c.because().endswith(".")
        assert all(name and value != "" for name, value in [*c.settings(), *c.facts()])


def test_facts_of_the_samples_are_those_of_classifiers() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2)).eval()
    for made, kind in (
        (wc.Smoothed(net, 0.15, {"rotation": 30}), "smoothed"),
        (wc.Plain(net, lipschitz=0.9), "plain"),
        (wc.Levels(net, 8), "levels"),
    ):
        assert made.facts.items() >= FACTS[kind].items()
