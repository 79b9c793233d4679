"""A certificate's set, sentence and record: the arithmetic by hand, round trips, and every edited field noticed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from warpcert import ABSTAIN, Box, Certificate, Defence, ErrorBound, Kind, Threat, certificates
from warpcert import statistics as stats
from warpcert.certificates import Exhausted, Window
from warpcert.certificates.sealed import seal

DEFENCE = Defence.surface("rotation", 30, noise=0.15)
THREAT = Threat.of("rotation", 50)
ERROR = ErrorBound(0.2, 0.005, Kind.PROVED, "curve", betas=1000)


def certificate(*windows: Window, **changes: Any) -> Certificate:
    values: dict[str, Any] = {
        "method": "dist-x",
        "form": "joint",
        "label": 7,
        "threat": THREAT,
        "defence": DEFENCE,
        "error": ERROR,
        "windows": windows or (Window((0.0,), 9990, 10_000, 0.005),),
        "alpha": 0.01,
        "classes": 10,
        "seed": 3,
        "version": "0",
    }
    values |= changes
    spent = [("votes", w.alpha) for w in values["windows"]]
    if values["error"].alpha:
        spent.append(("error", values["error"].alpha))
    return Certificate(**{"ledger": tuple(spent)} | values)


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
    threat, defence = Threat.of("translation", 3), Defence.surface("translation", 1.5, noise=0.2)
    c = certificate(Window((0.0, 0.0), k, 1000, 0.005), threat=threat, defence=defence)
    r = c.whitened_radius(c.windows[0])
    inside = r is not None and math.hypot(a / 1.5, b / 1.5) < r
    assert c.covers(Box((-a, -b), (a, b))) == inside


def test_anisotropic_covariance() -> None:
    threat, defence = Threat.of("translation", 2, 4), Defence.surface("translation", 1, 3, noise=0.5)
    c = certificate(Window((0.0, 0.0), 1000, 1000, 0.005), threat=threat, defence=defence)
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
        {"label": ABSTAIN},
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
    assert certificate(form="base").kind is Kind.HEURISTIC
    assert "HEURISTIC" in str(certificate(form="base"))
    assert "confidence 0.99" in str(certificate()) and "HEURISTIC" not in str(certificate())
    assert "±50°" in str(certificate(Window((0.0,), 10_000, 10_000, 0.005)))


def test_two_class_helps_when_the_rest_is_spread_out() -> None:
    one = certificate(Window((0.0,), 600, 1000, 0.005), error=replace(ERROR, E=0.0))
    two = certificate(Window((0.0,), 600, 1000, 0.005, runner_up=60), error=replace(ERROR, E=0.0))
    a, b = one.whitened_radius(one.windows[0]), two.whitened_radius(two.windows[0])
    assert a is not None and b is not None and b > 2 * a


CASES = [
    certificate(),
    certificate(form="base", error=ErrorBound(0.0, 0.0, Kind.HEURISTIC, "none")),
    certificate(Window((0.0,), 600, 1000, 0.002, 60), Window((0.3,), 990, 1000, 0.002, 3)),
    certificate(form="nested", alpha_inner=0.001),
    certificate(label=ABSTAIN, reason="too close"),
]


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.form)
def test_json_round_trip(c: Certificate) -> None:
    assert certificates.read(json.loads(json.dumps(c.to_dict()))) == c


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves(v, (*path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in leaves(v, (*path, i))]
    return [path]


def edited(record: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    copy = json.loads(json.dumps(record))
    at = copy
    for key in path[:-1]:
        at = at[key]
    old = at[path[-1]]
    at[path[-1]] = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int | float) else f"{old}x"
    return dict(copy)


@pytest.mark.parametrize("path", leaves(CASES[2].to_dict()), ids=lambda p: ".".join(map(str, p)))
def test_every_edited_field_is_noticed(path: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        certificates.read(edited(CASES[2].to_dict(), path))


@pytest.mark.parametrize(
    "path",
    [
        *[("windows", name, 0) for name in ("k", "n", "alpha")],
        *[("error", name) for name in ("E", "betas", "kind")],
        *[("alpha",), ("label",), ("form",), ("defence", "sigma_noise"), ("derived", "kappa", 0)],
    ],
    ids=lambda p: ".".join(map(str, p)),
)
def test_the_arithmetic_is_redone_even_if_the_seal_is_renewed(path: tuple[Any, ...]) -> None:
    record = edited(CASES[2].to_dict(), path)
    record.pop("digest")
    if path == ("alpha",):
        record["alpha"] = 0.001  # less than the ledger spent
    if path == ("form",):
        record["form"] = "base"
    if path == ("error", "kind"):
        record["error"]["kind"] = "heuristic"
    with pytest.raises(ValueError):
        certificates.read(seal(record))


def test_a_bound_outside_the_ledger_is_refused() -> None:
    c = certificate()
    with pytest.raises(ValueError, match="ledger"):
        certificates.read(replace(c, ledger=c.ledger[:1]).to_dict())


def test_a_cover_needs_every_cell() -> None:
    defence = Defence.surface("rotation", 0, noise=0.2)
    cells = [Box((math.radians(a),), (math.radians(a + 25),)) for a in (-50, -25, 0, 25)]
    windows = [Window(c.center, 60, 60, 0.002, cell=c, E=0.1) for c in cells]
    none = ErrorBound(0.1, 0.0, Kind.PROVED, "cover")
    whole = certificate(*windows, form="cover", defence=defence, error=none)
    assert whole.reach == THREAT.box and whole.kind is Kind.WITH_CONFIDENCE
    assert certificates.read(whole.to_dict()) == whole
    for bad in (replace(windows[3], k=30), replace(windows[3], E=0.9), replace(windows[3], n=0, k=0)):
        part = certificate(*windows[:3], bad, form="cover", defence=defence, error=none)
        assert part.reach is not None and part.reach.upper[0] == pytest.approx(math.radians(25), rel=1e-6)
    missing = certificate(*windows[:1], *windows[2:], form="cover", defence=defence, error=none)
    assert missing.reach is not None and missing.reach.lower[0] == 0.0  # the gap begins right of γ = 0


def test_exact_certificates_spend_no_alpha() -> None:
    none = ErrorBound(0.0, 0.0, Kind.PROVED, "crossings")
    done = Exhausted(1234, 1200, 0.5, 1e-4, "tolerance")
    c = Certificate("exact", "exact", 7, THREAT, DEFENCE, none, (), 0.0, (), 10, exhausted=done)
    assert c.kind is Kind.PROVED and c.reach == THREAT.box and "all 1234 possible images" in str(c)
    assert certificates.read(c.to_dict()) == c
    assert replace(c, exhausted=replace(done, margin=1e-5)).reach is None
    floats = replace(c, threat=replace(THREAT, quantized=False), exhausted=replace(done, scope="exact"))
    with pytest.raises(ValueError, match="hands over floats"):
        certificates.read(floats.to_dict())


@pytest.mark.parametrize("share", [0.3333333, 0.66666, 0.99999999, 0.1234567, 1.2e-7, 0.20009999])
def test_a_sentence_never_says_more_than_was_proved(share: float) -> None:
    none, done = ErrorBound(0.0, 0.0, Kind.PROVED, "crossings"), Exhausted(9, 8, 0.5, 1e-4, "tolerance", share)
    c = Certificate("exact", "exact", 7, THREAT, DEFENCE, none, (), 0.0, (), 10, exhausted=done)
    assert c.reach is not None and c.span in str(c)
    said, proved = float(c.span.strip("±°")), math.degrees(c.reach.upper[0])
    assert 0.999 * proved < said <= proved
    assert replace(c, exhausted=replace(done, held=1.0)).span == "±50°"
    with pytest.raises(ValueError, match="no α"):
        certificates.read(replace(c, alpha=0.01).to_dict())


@pytest.mark.parametrize(
    "change",
    [
        {"error": ErrorBound(0.2, 0.0, Kind.PROVED, "curve")},  # ρ = 0 that nothing paid for
        {"error": ErrorBound(0.2, 0.0, Kind.PROVED, "curve", stated_rho=0.0)},  # … or that no calibration stated
        {"error": replace(ERROR, bound="sampled")},  # sampled, yet called proved
        {"classes": 1},
        {"label": 12},
    ],
    ids=["free rho", "stated rho", "sampled", "classes", "label"],
)
def test_records_that_no_method_writes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        certificates.read(certificate(**change).to_dict())
