"""Coverage is computed exactly where the law allows it; each such test also catches a known way to get it wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom, multinomial

from warpcert import statistics as stats
from warpcert.statistics import Ledger, OverspentError

EXACT = 1e-12  # what summing binomial probabilities in floats may lose
NAN = math.nan


def error_rate(n: int, p: float, wrong: NDArray[np.bool_]) -> float:
    """P(wrong[k]) for k ~ Binomial(n, p)."""
    return float(binom.pmf(np.arange(n + 1), n, p)[wrong].sum())


def crossing(accept: Callable[[int, NDArray[np.int64]], NDArray[np.bool_]], p: float, cap: int) -> tuple[float, float]:
    """Exact P(accepted at some t ≤ cap) and mean number of samples, for accept(t, failures) asked at every t."""
    failures = np.arange(cap + 1)
    alive = np.zeros(cap + 1)
    alive[0], accepted, mean = 1.0, 0.0, 0.0
    for t in range(1, cap + 1):
        mean += alive.sum()
        alive = p * alive + (1 - p) * np.concatenate(([0.0], alive[:-1]))
        hit = accept(t, failures[: t + 1])
        accepted += alive[: t + 1][hit].sum()
        alive[: t + 1][hit] = 0.0
    return accepted, mean


def sequential(p0: float, alpha: float) -> Callable[[int, NDArray[np.int64]], NDArray[np.bool_]]:
    return lambda t, f: stats.accepts(t - f, f, p0, alpha)


# Binomial bounds


@pytest.mark.parametrize("n", [1, 2, 7, 50, 400])
@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.001])
def test_clopper_pearson_covers_exactly(n: int, alpha: float) -> None:
    low = np.array([stats.lower_bound(k, n, alpha) for k in range(n + 1)])
    high = np.array([stats.upper_bound(k, n, alpha) for k in range(n + 1)])
    assert low[0] == 0 and high[n] == 1
    assert np.all(low < high) and np.all(np.diff(low) > 0) and np.all(np.diff(high) > 0)
    np.testing.assert_allclose(high, 1 - low[::-1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(low[1:], beta.ppf(alpha, np.arange(1, n + 1), np.arange(n, 0, -1)), rtol=1e-11)
    just_below = low[1 :: max(1, n // 20)] * (1 - 1e-9)  # the bound is tightest just below one of its own values
    for p in [*np.linspace(0.01, 0.99, 15), *just_below]:
        assert error_rate(n, p, low > p) <= alpha + EXACT
        assert error_rate(n, 1 - p, high < 1 - p) <= alpha + EXACT
    assert max(error_rate(n, p, low > p) for p in just_below) > 0.99 * alpha


def test_duplicated_samples_break_coverage() -> None:
    n, alpha, p = 100, 0.01, 0.8
    honest = np.array([stats.lower_bound(k, n, alpha) for k in range(n + 1)])
    copied = np.array([stats.lower_bound(8 * k, 8 * n, alpha) for k in range(n + 1)])
    assert error_rate(n, p, honest > p) <= alpha
    assert error_rate(n, p, copied > p) > 10 * alpha


@given(p=st.floats(0, 0.9999), alpha=st.floats(1e-9, 0.5))
def test_samples_needed_is_the_first_n_that_can_certify(p: float, alpha: float) -> None:
    n = stats.samples_needed(p, alpha)
    assert stats.lower_bound(n, n, alpha) > p
    assert n == 1 or stats.lower_bound(n - 1, n - 1, alpha) <= p


def test_samples_needed_at_ties() -> None:
    assert stats.samples_needed(0.1, 0.001) == 4  # 0.001^(1/3) is 0.1, not above
    assert stats.samples_needed(0.3, 0.0081) == 5
    assert stats.samples_needed(0.5, 0.25) == 3
    assert stats.samples_needed(0, 0.01) == 1


# Order statistics


@pytest.mark.parametrize(("n", "rank"), [(1, 0), (20, 0), (20, 1), (500, 0), (500, 7), (500, 499)])
def test_exceedance_exactly(n: int, rank: int) -> None:
    for alpha in (0.1, 0.001):
        rho = stats.exceedance_bound(n, alpha, rank)
        # continuous V: the mass above the (rank+1)-th largest value is Beta(rank+1, n−rank)
        assert 1 - alpha - EXACT <= beta.cdf(rho, rank + 1, n - rank) <= 1 - alpha + 1e-6
        # ties: V in 0..9; the claim fails iff at most `rank` values reach the first s with P(V > s) ≤ ρ
        for law in (np.full(10, 0.1), np.array([0.9, *[0.1 / 9] * 9]), np.array([*[0.002] * 9, 0.982])):
            above = law[::-1].cumsum()[::-1] - law
            s = int(np.argmax(above <= rho + EXACT))
            assert binom.cdf(rank, n, above[s] + law[s]) <= alpha + 1e-9
    assert stats.exceedance_bound(n, 0.01) == pytest.approx(1 - 0.01 ** (1 / n), rel=1e-10)


@pytest.mark.parametrize("rank", [0, 3])
def test_exceedance_in_simulation(rank: int) -> None:
    n, alpha, runs = 60, 0.1, 20_000
    values = np.floor(30 * np.random.default_rng(rank).random((runs, n)) ** 2)  # many ties
    support = np.arange(30)
    above = 1 - np.sqrt((support + 1) / 30)  # P(V > v)
    edge = np.sort(values, axis=1)[:, n - 1 - rank].astype(int)
    wrong = np.mean(above[edge] > stats.exceedance_bound(n, alpha, rank))
    assert wrong <= alpha + 4 * math.sqrt(alpha / runs)
    # the simulation has power: a rank chosen after looking, here the first with a wide gap below it, is not covered
    ordered = np.sort(np.random.default_rng(9).random((runs, n)), axis=1)[:, ::-1]
    chosen = np.argmax(ordered[:, :10] - ordered[:, 1:11], axis=1) + 1
    bounds = np.array([stats.exceedance_bound(n, alpha, r) for r in range(11)])
    assert np.mean(1 - ordered[np.arange(runs), chosen] > bounds[chosen]) > 1.2 * alpha


# The anytime-valid test


@pytest.mark.parametrize("p0", [0.5, 0.69, 0.9, 0.99])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_peeking_after_every_sample_keeps_alpha(p0: float, alpha: float) -> None:
    false, _ = crossing(sequential(p0, alpha), p0, 1500)
    assert 0.1 * alpha < false <= alpha  # exact, and not by never accepting
    assert crossing(sequential(p0, alpha), 0.95 * p0, 300)[0] <= false


def test_retesting_clopper_pearson_breaks_alpha() -> None:
    p0, alpha, batch, cap = 0.69, 0.001, 100, 1500
    fewest = {}  # successes needed at each look
    for t in range(batch, cap + 1, batch):
        fewest[t] = next(k for k in range(t + 1) if stats.lower_bound(k, t, alpha) > p0)

    def retest(t: int, f: NDArray[np.int64]) -> NDArray[np.bool_]:
        return t - f >= fewest[t] if t in fewest else np.zeros(len(f), dtype=bool)

    assert crossing(retest, p0, batch)[0] <= alpha  # one look is what it was made for
    assert crossing(retest, p0, cap)[0] > 3 * alpha
    assert crossing(sequential(p0, alpha), p0, cap)[0] <= alpha  # asked a hundred times as often


def test_peeking_in_simulation() -> None:
    runs, cap, p0, alpha = 4000, 400, 0.8, 0.05
    s = np.cumsum(np.random.default_rng(0).random((runs, cap)) < p0, axis=1)
    f = np.arange(1, cap + 1) - s
    rate = np.mean(stats.accepts(s, f, p0, alpha).any(axis=1))
    assert rate <= alpha + 4 * math.sqrt(alpha / runs)
    assert rate == pytest.approx(crossing(sequential(p0, alpha), p0, cap)[0], abs=4 * math.sqrt(alpha / runs))


@pytest.mark.parametrize(("p0", "p"), [(0.5, 0.7), (0.69, 0.9), (0.9, 0.97), (0.95, 0.99), (0.98, 0.999)])
def test_ten_times_fewer_samples_than_ten_thousand(p0: float, p: float) -> None:
    accepted, mean = crossing(sequential(p0, 0.001), p, 1600)
    assert accepted > 0.95 and mean < 1000
    assert crossing(sequential(p0, 0.001), p, 3000)[0] > 0.999


def test_accepts_close_to_the_shortest_possible_run() -> None:
    for p0 in (0.5, 0.9, 0.99, 0.999, 0.9999):
        shortest = math.log(1000) / -math.log(p0)  # a test that knew p = 1
        assert stats.accepts(math.ceil(1.3 * shortest), 0, p0, 0.001)
        assert not stats.accepts(math.floor(shortest), 0, p0, 0.001)


def test_evidence_is_the_mean_likelihood_ratio() -> None:
    s, f, p0 = np.array([[3], [40]]), np.array([0, 2, 5]), 0.7
    p1 = [1 - (1 - p0) * r for r in (0, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 7 / 8)]
    direct = np.mean([(q / p0) ** s * ((1 - q) / (1 - p0)) ** f for q in p1], axis=0)
    assert direct.shape == (2, 3)
    np.testing.assert_allclose(stats.log_evidence(s, f, p0), np.log(direct), rtol=1e-9)
    assert stats.log_evidence(0, 0, 0.7) == pytest.approx(0, abs=1e-12)
    each = [stats.log_evidence(10, 1, q) for q in (0.6, 0.9)]
    np.testing.assert_array_equal(stats.log_evidence(10, 1, np.array([0.6, 0.9])), each)


@given(s=st.integers(0, 5000), f=st.integers(0, 500), p0=st.floats(1e-3, 0.99999), share=st.floats(0, 1))
def test_evidence_is_a_monotone_supermartingale(s: int, f: int, p0: float, share: float) -> None:
    now, up, down = (float(v) for v in stats.log_evidence([s, s + 1, s], [f, f, f + 1], p0))
    assert down < now < up
    p = share * p0
    assert p * math.exp(up - now) + (1 - p) * math.exp(down - now) <= 1 + 1e-9


@settings(max_examples=50)
@given(p0=st.floats(0.3, 0.99), cap=st.integers(1, 80), data=st.data())
def test_futile_iff_no_continuation_is_accepted(p0: float, cap: int, data: st.DataObject) -> None:
    t = data.draw(st.integers(0, cap))
    f = data.draw(st.integers(0, t))
    later_s, later_f = np.meshgrid(np.arange(t - f, cap + 1), np.arange(f, cap + 1))
    reachable = later_s + later_f <= cap
    possible = np.any(stats.accepts(later_s, later_f, p0, 0.01)[reachable])
    assert bool(stats.futile(t - f, f, p0, 0.01, cap)) is not bool(possible)


# Bounds on top of tests


@pytest.mark.parametrize("alpha_inner", [0.001, 0.05])
def test_acceptance_bound_survives_adversarial_false_acceptances(alpha_inner: float) -> None:
    n, alpha = 1000, 0.01
    corrected = np.array([stats.acceptance_bound(k, n, alpha, alpha_inner) for k in range(n + 1)])
    for p in (0.0, 0.3, 0.7, 0.95):
        assert error_rate(n, p + (1 - p) * alpha_inner, corrected > p) <= alpha + EXACT
    naive = np.array([stats.lower_bound(k, n, alpha) for k in range(n + 1)])
    worst = error_rate(n, 0.3 + 0.7 * alpha_inner, naive > 0.3)
    assert (worst > 10 * alpha) == (alpha_inner == 0.05)  # the correction is needed
    assert stats.acceptance_bound(990, n, alpha, 0.0) == stats.lower_bound(990, n, alpha)
    assert corrected[0] == 0
    assert corrected[990] == pytest.approx((naive[990] - alpha_inner) / (1 - alpha_inner), rel=1e-9)


def test_acceptance_bound_with_the_sequential_test_inside() -> None:
    """Inner streams either pass easily or sit exactly on p₀, the worst case of the hypothesis."""
    n, alpha, alpha_inner, p0, share = 500, 0.01, 0.05, 0.8, 0.6
    false, _ = crossing(sequential(p0, alpha_inner), p0, 500)
    true, _ = crossing(sequential(p0, alpha_inner), 0.99, 500)
    bounds = np.array([stats.acceptance_bound(k, n, alpha, alpha_inner) for k in range(n + 1)])
    assert error_rate(n, share * true + (1 - share) * false, bounds > share) <= alpha


@cache
def significant(first: int, second: int, alpha: float) -> bool:
    return stats.top_two_significant([second, first, 0], alpha)


@pytest.mark.parametrize("law", [(0.5, 0.5, 0), (1 / 3, 1 / 3, 1 / 3), (0.4, 0.3, 0.3), (0.45, 0.45, 0.1)])
@pytest.mark.parametrize("alpha", [0.2, 0.05])
def test_a_wrong_winner_is_significant_at_most_alpha(law: tuple[float, ...], alpha: float) -> None:
    n = 40
    votes = np.array([(i, j, n - i - j) for i, j in itertools.product(range(n + 1), repeat=2) if i + j <= n])
    # class 0 is (one of) the most probable: it may win, unless the law ties it with another, when nobody may
    tied = law[0] == law[1]
    wrong = [(tied or v[0] < v.max()) and significant(*(int(c) for c in np.sort(v)[:0:-1]), alpha) for v in votes]
    assert float(multinomial.pmf(votes, n, law)[wrong].sum()) <= alpha + EXACT


def test_top_two() -> None:
    assert stats.top_two_significant(np.array([3, 900, 100]), 0.001)
    assert not stats.top_two_significant([501, 499], 0.5)
    assert not stats.top_two_significant([0, 0], 0.9)
    assert not stats.top_two_significant([7, 7], 0.999)


# The ledger


def test_ledger_adds_and_refuses() -> None:
    ledger = Ledger(0.01)
    for purpose in ("votes", "errors", "share"):
        assert ledger.spend(purpose, 0.01 / 3) == 0.01 / 3
    assert [purpose for purpose, _ in ledger.entries] == ["votes", "errors", "share"]
    assert ledger.spent == pytest.approx(0.01) and ledger.left == pytest.approx(0, abs=1e-15)
    before = ledger.entries
    with pytest.raises(OverspentError, match="once more"):
        ledger.spend("once more", 1e-9)
    assert ledger.entries == before


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.01, 0.001])
@pytest.mark.parametrize("parts", [3, 7, 11, 37])  # 11 × 0.1/11 and 37 × 0.3/37 exceed their alpha in floats
def test_ledger_pays_out_all_of_alpha(alpha: float, parts: int) -> None:
    ledger = Ledger(alpha)
    for j in range(parts):
        ledger.spend(f"window {j}", alpha / parts)
    with pytest.raises(OverspentError):
        ledger.spend("one window more", alpha / parts)


@pytest.mark.parametrize("amount", [0, -0.001, 1, NAN, 0.010001])
def test_ledger_refuses(amount: float) -> None:
    ledger = Ledger(0.01)
    with pytest.raises(OverspentError):
        ledger.spend("votes", amount)
    assert ledger.entries == () and ledger.left == 0.01


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: stats.lower_bound(5, 4, 0.1), "0 <= k <= n"),
        (lambda: stats.lower_bound(-1, 4, 0.1), "0 <= k <= n"),
        (lambda: stats.lower_bound(0, 0, 0.1), "n >= 1"),
        (lambda: stats.lower_bound(2.0, 4, 0.1), "whole numbers"),  # type: ignore[arg-type]
        (lambda: stats.lower_bound(2, 4, 0.0), "alpha = 0.0"),
        (lambda: stats.upper_bound(2, 4, NAN), "alpha = nan"),
        (lambda: stats.exceedance_bound(4, 0.1, 4), "below n"),
        (lambda: stats.exceedance_bound(4, 0.1, -1), "rank = -1"),
        (lambda: stats.log_evidence(-1, 0, 0.5), "whole numbers"),
        (lambda: stats.log_evidence([1, NAN], 0, 0.5), "whole numbers"),
        (lambda: stats.log_evidence(1, 0, 1.0), "0 < p0 < 1"),
        (lambda: stats.log_evidence(1, 0, NAN), "0 < p0 < 1"),
        (lambda: stats.accepts(1, 0, 0.5, 1.0), "alpha = 1.0"),
        (lambda: stats.futile(6, 5, 0.5, 0.1, 10), "cap = 10"),
        (lambda: stats.acceptance_bound(5, 10, 0.1, 1.0), "alpha_inner = 1.0"),
        (lambda: stats.acceptance_bound(5, 10, 0.1, NAN), "alpha_inner = nan"),
        (lambda: stats.top_two_significant([5], 0.1), "two or more"),
        (lambda: stats.top_two_significant([5, -1], 0.1), "two or more"),
        (lambda: stats.top_two_significant([5.0, 1.0], 0.1), "two or more"),
        (lambda: stats.samples_needed(1.0, 0.1), "no number of samples"),
        (lambda: stats.samples_needed(NAN, 0.1), "p = nan"),
        (lambda: Ledger(0), "alpha = 0"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
