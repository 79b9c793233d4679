"""How often certificates are false where the truth is at the threshold: within α, and above it if a rule is broken."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import type_one
from warpcert import statistics as stats
from warpcert.certificates import Individual
from warpcert.classifier.votes import early
from warpcert.errors import calibration
from warpcert.methods.run import Votes

ALPHA, TRIALS = 0.1, 150


def of(rule: type_one.Rule, trials: int = TRIALS) -> type_one.Rate:
    found = type_one.rate(rule, trials)
    assert found.value > 0.1 * rule.alpha  # at the threshold it does happen
    return found


def test_the_rate_is_judged_by_the_exact_binomial_test() -> None:
    def every(n: int) -> type_one.Trial:
        return lambda seed: seed % n == 0

    rule = type_one.Rule("", ALPHA, {"a": every(20), "b": every(25)})
    found = type_one.rate(rule, 1000)
    assert found.false == {"a": 50, "b": 40} and found.value == 0.09 and not found.too_high
    low, high = found.interval
    assert low == 2 * stats.lower_bound(90, 2000, 0.025) < 0.09 < high == 2 * stats.upper_bound(90, 2000, 0.025)
    assert type_one.rate(type_one.Rule("", ALPHA, {"a": every(5)}), 1000).too_high


def test_indiv() -> None:
    assert not of(type_one.indiv(ALPHA, 1)).too_high
    assert not of(type_one.indiv(ALPHA, 3, merged=True), 80).too_high


def test_indiv_with_alpha_spent_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its statements at level α, where α is to be shared."""
    monkeypatch.setattr(stats.Ledger, "spend", lambda self, purpose, amount: self.alpha)
    assert of(type_one.indiv(ALPHA, 1), 400).too_high


def test_indiv_with_a_window_that_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong answer enters through one window alone, each in turn: all of them are needed."""
    assert not of(type_one.indiv(ALPHA, 3), 60).too_high
    true = Individual.vouches
    monkeypatch.setattr(Individual, "vouches", lambda self, window: window.center[0] < -1e-9 or true(self, window))
    found = of(type_one.indiv(ALPHA, 3), 60)
    assert found.too_high and found.false["votes"] >= 20


def test_covers() -> None:
    one, every = type_one.covers(ALPHA)
    assert not type_one.rate(one, 30).too_high and not type_one.rate(every, 30).too_high
    assert len(one.worlds) == 5


def test_dist_x_and_what_it_is_with_alpha_for_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not of(type_one.joint(ALPHA, 3), 100).too_high
    true = Votes.certify

    def doubled(self: Votes, alpha: float, progress: Any = None, analyse: Any = None) -> Any:
        monkeypatch.setattr(stats.Ledger, "spend", lambda self, purpose, amount: self.alpha)
        return true(self, 2 * alpha * len(self.centers), progress, analyse)

    monkeypatch.setattr(Votes, "certify", doubled)
    assert of(type_one.joint(ALPHA, 3), 100).too_high


def test_the_share_and_what_it_is_without_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not of(type_one.share(ALPHA, images=25), 60).too_high
    monkeypatch.setattr(calibration.stats, "acceptance_bound", lambda accepted, n, alpha, inner: accepted / n)
    assert of(type_one.share(ALPHA, images=25), 60).too_high


def test_early_answers_and_what_they_are_without_an_anytime_valid_test(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not type_one.rate(type_one.answers(ALPHA, early=True), 250).too_high
    assert not of(type_one.answers(ALPHA, early=False)).too_high

    def peeking(counts: list[int], label: int, alpha: float) -> bool:
        return stats.lower_bound(counts[label], sum(counts), alpha / len(counts)) > 0.5

    monkeypatch.setattr(early, "settled", peeking)
    assert type_one.rate(type_one.answers(ALPHA, early=True), 250).too_high


def test_the_inner_test() -> None:
    assert not type_one.rate(type_one.inner(ALPHA), 400).too_high
