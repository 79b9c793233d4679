"""κ against the inequality it solves, and that inequality against Gaussian shifts where it is attained."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import norm

from warpcert.statistics import radius

NAN, INF = math.nan, math.inf
probability = st.floats(0.001, 0.999)


def margin(p_a: float, p_b: float, mu: float) -> float:
    return float(norm.cdf(norm.ppf(p_a) - mu) - norm.cdf(norm.ppf(p_b) + mu))


@given(p=probability, rho=st.floats(0, 0.6))
def test_kappa_one_is_where_the_vote_reaches_half(p: float, rho: float) -> None:
    kappa = radius.kappa_one(p, rho)
    if p <= 0.5 + rho:
        assert kappa is None
    elif p > 0.5 + rho + 1e-9:
        assert kappa is not None and kappa > 0
        assert norm.cdf(norm.ppf(p) - kappa) - rho == pytest.approx(0.5, abs=1e-10)
        assert kappa <= norm.ppf(p) - norm.ppf(0.5 + rho)


@given(p=probability, rho=st.floats(0, 0.6))
def test_kappa_attacked_is_where_the_original_reaches_half(p: float, rho: float) -> None:
    kappa = radius.kappa_attacked(p, rho)
    if p - rho <= 0.5:
        assert kappa is None
    elif p - rho > 0.5 + 1e-9:
        assert kappa is not None
        assert norm.cdf(norm.ppf(0.5) + kappa) + rho == pytest.approx(p, abs=1e-10)
        one = radius.kappa_one(p, rho)
        assert one is not None and one >= kappa * (1 - 1e-9)  # knowing the original is worth something


@given(p=st.floats(0.5, 0.9999), q=st.floats(0.5, 0.9999), rho=st.floats(0, 0.3), more=st.floats(0, 0.2))
def test_monotone(p: float, q: float, rho: float, more: float) -> None:
    low, high = min(p, q), max(p, q)
    for kappa in (radius.kappa_one, radius.kappa_attacked, lambda p, r: radius.kappa_two(p, 1 - p, r)):
        assert (kappa(low, rho) or 0) <= (kappa(high, rho) or 0) + 1e-9
        assert (kappa(p, rho + more) or 0) <= (kappa(p, rho) or 0) + 1e-9
    assert (radius.kappa_no_abstain(p, rho, more) or 0) <= (radius.kappa_one(p, rho) or 0)
    assert radius.kappa_no_abstain(p, rho, 0) == radius.kappa_one(p, rho)


def test_no_abstain_leaves_the_lead() -> None:
    kappa = radius.kappa_no_abstain(0.99, 0.017, 0.023)
    assert kappa is not None
    assert norm.cdf(norm.ppf(0.99) - kappa) - 0.017 == pytest.approx(0.523)
    assert radius.kappa_no_abstain(0.99, 0.3, 0.2) is None


@given(p_a=probability, p_b=probability)
def test_two_classes_without_rho(p_a: float, p_b: float) -> None:
    kappa = radius.kappa_two(p_a, p_b)
    exact = (norm.ppf(p_a) - norm.ppf(p_b)) / 2
    if kappa is None:
        assert exact <= 1e-9
    else:
        assert exact - 1e-9 <= kappa <= exact


@given(p_a=probability, share=st.floats(0.01, 1), rho=st.floats(1e-6, 0.4))
def test_two_classes_is_sound_and_tight(p_a: float, share: float, rho: float) -> None:
    p_b = share * (1 - p_a)
    kappa = radius.kappa_two(p_a, p_b, rho)
    if kappa is None:
        assert p_a - p_b <= 2 * rho + 1e-9
    else:
        assume(kappa > 1e-3)
        assert margin(p_a, p_b, kappa * (1 - 1e-9)) > 2 * rho
        assert margin(p_a, p_b, kappa * (1 + 1e-6)) <= 2 * rho
        assert kappa >= (radius.kappa_one(p_a, rho) or 0) - 1e-9  # telling the others apart never hurts


def test_certainty() -> None:
    assert radius.kappa_one(1.0) == radius.kappa_one(1.0, 0.1) == radius.kappa_two(1.0, 0.0, 0.1) == INF
    assert radius.kappa_two(0.9, 0.0) == INF
    assert radius.param_radius(INF, 3.0) == INF and radius.param_radius(INF, INF) is None
    for p_a, p_b in ((0.9, 0.0), (1.0, 0.1)):
        kappa = radius.kappa_two(p_a, p_b, 0.1)
        assert kappa is not None and margin(p_a, p_b, kappa) == pytest.approx(0.2)


def test_guards() -> None:
    for p, rho in ((0.5, 0), (0.3, 0), (1.0, 0.5), (0.99, 0.7), (0.6, 0.1), (0.0, 0.0), (1.0, 1.0)):
        assert radius.kappa_one(p, rho) is None
        assert radius.kappa_attacked(p, rho) is None
    assert radius.kappa_two(0.5, 0.5) is radius.kappa_two(0.6, 0.4, 0.1) is radius.kappa_two(0.0, 0.0) is None
    assert radius.kappa_two(1.0, 1.0) is None
    assert radius.param_radius(1.0, 1.0) is radius.param_radius(1.0, 2.0) is radius.param_radius(-1.0, 0.0) is None
    assert radius.param_radius(1.0, INF) is None


@given(kappa=st.floats(1e-6, 10), ratio=st.floats(0, 10))
def test_param_radius(kappa: float, ratio: float) -> None:
    r = radius.param_radius(kappa, ratio)
    if kappa <= ratio:
        assert r is None
    else:
        assert r is not None and r**2 + ratio**2 <= kappa**2
        assert math.hypot(r, ratio) == pytest.approx(kappa, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: radius.kappa_one(NAN), "p"),
        (lambda: radius.kappa_one(1.1), "p"),
        (lambda: radius.kappa_one(0.9, NAN), "rho"),
        (lambda: radius.kappa_one(0.9, -0.1), "rho"),
        (lambda: radius.kappa_attacked(0.9, NAN), "rho"),
        (lambda: radius.kappa_two(0.9, NAN), "p_b"),
        (lambda: radius.kappa_two(NAN, 0.1), "p_a"),
        (lambda: radius.kappa_two(0.9, 0.1, -1), "rho"),
        (lambda: radius.kappa_no_abstain(0.9, 0.0, NAN), "tau"),
        (lambda: radius.param_radius(NAN, 0.0), "kappa"),
        (lambda: radius.param_radius(1.0, NAN), "error_ratio"),
        (lambda: radius.param_radius(1.0, -1.0), "error_ratio"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        call()


# The inequality itself, in a toy: β in R², δ in R³, the classifier a half-space in whitened coordinates

SIGMA_PARAM, SIGMA_NOISE, DRAWS = 0.5, 0.2, 400_000
BETA = np.random.default_rng(1).normal(0, SIGMA_PARAM, (DRAWS, 2))
DELTA = np.random.default_rng(2).normal(0, SIGMA_NOISE, (DRAWS, 3))
FOUR_SIGMA = 4 * 0.5 / math.sqrt(DRAWS)
DIRECTION = np.array([0.6, -0.8])
ERROR = np.array([2.0, -1.0, 2.0]) / 3


def vote(normal: np.ndarray, p: float, gamma: np.ndarray, error: np.ndarray) -> np.ndarray:
    """[DRAWS] whether the half-space of probability p contains the noise shifted by (γ, error)."""
    z = np.concatenate(((BETA + gamma) / SIGMA_PARAM, (DELTA + error) / SIGMA_NOISE), axis=1)
    return np.asarray(z @ (normal / np.linalg.norm(normal)) <= norm.ppf(p))


@pytest.mark.parametrize(("p", "E", "rho"), [(0.95, 0.1, 0.0), (0.99, 0.3, 0.0), (0.99, 0.25, 0.05)])
def test_the_bound_is_attained(p: float, E: float, rho: float) -> None:
    kappa = radius.kappa_one(p, rho)
    assert kappa is not None
    r = radius.param_radius(kappa, E / SIGMA_NOISE)
    assert r is not None
    gamma, error = r * SIGMA_PARAM * DIRECTION, E * ERROR
    normal = np.concatenate((gamma / SIGMA_PARAM, error / SIGMA_NOISE))  # of length μ = κ
    assert vote(normal, p, 0 * gamma, 0 * error).mean() == pytest.approx(p, abs=FOUR_SIGMA)
    # at the certified radius the vote has come down to ½+ρ exactly, and an event of probability ρ may take the ρ
    after = vote(normal, p, gamma, error)
    assert after.mean() == pytest.approx(0.5 + rho, abs=FOUR_SIGMA)
    assert vote(normal, p, 0.9 * gamma, error).mean() > 0.5 + rho + FOUR_SIGMA
    assert vote(normal, p, 1.1 * gamma, error).mean() < 0.5 + rho - FOUR_SIGMA
    along = BETA @ DIRECTION
    stolen = along < np.sort(along)[int(rho * DRAWS)]  # in the half-space nearly always
    assert 0.5 - FOUR_SIGMA <= (after & ~stolen).mean() <= 0.5 + 0.2 * rho + FOUR_SIGMA


def test_errors_that_depend_on_the_parameter_stay_above_the_bound() -> None:
    p, E, gamma = 0.97, 0.2, 0.4 * DIRECTION
    floor = norm.cdf(norm.ppf(p) - math.hypot(0.4 / SIGMA_PARAM, E / SIGMA_NOISE))
    turned = np.where((BETA @ DIRECTION > 0)[:, None], E * ERROR, -E * ERROR)
    shrunk = E * ERROR * np.exp(-((BETA @ DIRECTION)[:, None] ** 2))
    for error in (turned, shrunk):
        for weight in (0.2, 0.6, 1.0, 1.5):
            normal = np.concatenate((gamma / SIGMA_PARAM, weight * E * ERROR / SIGMA_NOISE))
            assert vote(normal, p, gamma, error).mean() >= floor - FOUR_SIGMA


def test_from_the_attacked_image_the_bound_is_attained() -> None:
    p, E = 0.9, 0.1
    kappa = radius.kappa_attacked(p, 0.0)
    assert kappa is not None
    r = radius.param_radius(kappa, E / SIGMA_NOISE)
    assert r is not None
    gamma, error = r * SIGMA_PARAM * DIRECTION, E * ERROR
    normal = -np.concatenate((gamma / SIGMA_PARAM, error / SIGMA_NOISE))
    original = 0.5  # the attack moves towards the class
    assert vote(normal, original, gamma, error).mean() == pytest.approx(p, abs=FOUR_SIGMA)
