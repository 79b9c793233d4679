"""Every confidence statement of the package: binomial bounds, order statistics, anytime-valid tests, the α ledger.

Float rounding never helps the certifier: results are moved by a relative 1e-12 towards the weaker claim, some thousand
times what scipy's quantiles and the logarithms here were measured to err by.
"""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from scipy.stats import beta, binomtest, fisher_exact

__all__ = [
    "Ledger",
    "OverspentError",
    "acceptance_bound",
    "accepts",
    "differ",
    "exceedance_bound",
    "futile",
    "log_evidence",
    "lower_bound",
    "samples_needed",
    "top_two_significant",
    "upper_bound",
]

_SLACK = 1e-12
_RATIOS = np.array([0.0, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 7 / 8])  # (1 − p₁)/(1 − p₀) of the alternatives in the mixture


def lower_bound(k: int, n: int, alpha: float) -> float:
    """L with P(L ≤ p) ≥ 1 − α for k ~ Binomial(n, p): one-sided Clopper–Pearson, Beta⁻¹(α; k, n−k+1), 0 for k = 0.

    L(k) is the p at which k or more successes have probability α. L > p thus means that k lies in the upper tail of
    its own law, of probability ≤ α. The n samples are independent and n is fixed before looking at them.
    """
    k, n = _count("k", k, n)
    _open_unit("alpha", alpha)
    return float(beta.ppf(alpha, k, n - k + 1)) * (1 - _SLACK) if k else 0.0


def upper_bound(k: int, n: int, alpha: float) -> float:
    """U with P(U ≥ p) ≥ 1 − α for k ~ Binomial(n, p): Beta⁻¹(1−α; k+1, n−k), 1 for k = n; mirror of `lower_bound`."""
    k, n = _count("k", k, n)
    _open_unit("alpha", alpha)
    return min(1.0, float(beta.isf(alpha, k + 1, n - k)) * (1 + _SLACK)) if k < n else 1.0


def exceedance_bound(n: int, alpha: float, rank: int = 0) -> float:
    """ρ with P(V > E) ≤ ρ, with probability ≥ 1 − α, for E at least the (rank+1)-th largest of n i.i.d. copies of V.

    No second sample is needed. Let s be the smallest number with P(V > s) ≤ ρ. The claim fails only if E < s, that is,
    if at most `rank` copies reach s; each does with probability P(V ≥ s) ≥ ρ, and ρ = `upper_bound(rank, n, α)` makes
    that as rare as α. Ties are harmless; rank 0 gives 1 − α^(1/n). The rank is fixed before looking at the values.
    """
    rank, n = _count("rank", rank, n)
    if rank == n:
        raise ValueError(f"rank = {rank} of n = {n} values: the rank counts from 0, give one below n")
    return upper_bound(rank, n, alpha)


def log_evidence(successes: ArrayLike, failures: ArrayLike, p0: ArrayLike) -> NDArray[np.float64]:
    """Log of a nonnegative supermartingale that starts at 1, for every success probability p ≤ p₀; shapes broadcast.

    It is the mean over alternatives p₁ > p₀ of the likelihood ratios (p₁/p₀)^successes · ((1−p₁)/(1−p₀))^failures. One
    sample multiplies a ratio by p₁/p₀ > 1 with probability p and by (1−p₁)/(1−p₀) < 1 otherwise: in expectation a
    number that grows with p and equals 1 at p = p₀. This needs of each sample only that, given the past, it succeeds
    with probability ≤ p₀; a mean of supermartingales is one. By Ville's inequality it ever reaches 1/α with probability
    ≤ α, however often one looks. It increases in successes and decreases in failures, because every ratio does.

    The alternatives have 1 − p₁ = (1 − p₀)·{0, 1/16, 1/4, 1/2, 3/4, 7/8}: mixing six costs at most log 6 of evidence
    against the best of them. Evidence grows without limit if 1 − p < 0.93(1 − p₀); closer to p₀ it may not.
    """
    s, f, p = np.broadcast_arrays(successes, failures, p0)
    if not np.all((s >= 0) & (s == np.floor(s)) & (f >= 0) & (f == np.floor(f))):
        raise ValueError(f"successes = {successes!r}, failures = {failures!r}: expected counts, whole numbers >= 0")
    if not np.all((p > 0) & (p < 1)):
        raise ValueError(
            f"p0 = {p0!r}: expected 0 < p0 < 1; a hypothesis p <= 1 is never rejected, do not sample for it"
        )
    ratios = _RATIOS.reshape(-1, *[1] * p.ndim)
    gain = s * np.log1p((1 - p) / p * (1 - ratios)) * (1 - _SLACK)
    loss = xlogy(f, ratios) * (1 + _SLACK)  # 0·log 0 = 0: the alternative p₁ = 1 lives until the first failure
    return np.asarray(np.logaddexp.reduce(gain + loss, axis=0) - math.log(len(_RATIOS)), dtype=np.float64)


def accepts(successes: ArrayLike, failures: ArrayLike, p0: ArrayLike, alpha: float) -> NDArray[np.bool_]:
    """Where p > p₀ is established: if p ≤ p₀, this is ever True with probability ≤ α, looked at after every sample.

    Evidence of 1/α, see `log_evidence`. A stream that was stopped without acceptance, for whatever reason, is rejected.
    """
    _open_unit("alpha", alpha)
    return np.asarray(log_evidence(successes, failures, p0) >= -math.log(alpha))


def futile(successes: ArrayLike, failures: ArrayLike, p0: ArrayLike, alpha: float, cap: int) -> NDArray[np.bool_]:
    """Where no continuation up to `cap` samples in all can be accepted: stopping there loses nothing.

    Every later state (s', f') has f' ≥ f and s' ≤ cap − f' ≤ cap − f. Evidence increases in successes and decreases in
    failures, so it is at most that of (cap − f, f), which successes alone would reach: futile iff that is not accepted.
    This is arithmetic, not statistics: a stop is a rejection and costs no α.
    """
    s, f = np.broadcast_arrays(successes, failures)
    if np.any(s + f > cap):
        raise ValueError(f"{np.max(s + f)} samples were counted, at most cap = {cap} are allowed: stop at the cap")
    return np.logical_not(accepts(cap - f, f, p0, alpha))


def acceptance_bound(accepted: int, n: int, alpha: float, alpha_inner: float) -> float:
    """Lower bound, with probability ≥ 1 − α, on how often a property holds that fallible tests accepted in n trials.

    Each of the n independent trials has the property with probability p, and a trial without it is accepted with
    probability ≤ α' = `alpha_inner`. Hence P(accept) ≤ p + (1 − p)α', and p ≥ (a − α')/(1 − α') with a = `lower_bound`
    of the acceptances. False acceptances only lower p: no union over trials, and α' is not taken from the ledger.
    """
    if not 0 <= alpha_inner < 1:
        raise ValueError(f"alpha_inner = {alpha_inner}: expected 0 <= alpha_inner < 1, the error of one inner test")
    return max(0.0, (lower_bound(accepted, n, alpha) - alpha_inner) / (1 - alpha_inner))


def top_two_significant(counts: ArrayLike, alpha: float) -> bool:
    """Whether the winner is settled: a class that is not the most probable one passes with probability ≤ α.

    Two-sided binomial test of the two largest counts [classes] at 1/2. Given the sum of two counts, the less probable
    class leads like a coin or worse; the second side of the test pays for naming the two after the vote, whatever the
    number of classes (Hung and Fithian, Rank verification for exponential families, 2019).
    """
    votes = np.asarray(counts)
    if votes.ndim != 1 or votes.size < 2 or votes.dtype.kind not in "iu" or votes.min() < 0:
        raise ValueError(f"counts = {counts!r}: expected one whole number >= 0 for each of two or more classes")
    _open_unit("alpha", alpha)
    second, first = (int(v) for v in np.sort(votes)[-2:])
    return first > second and bool(binomtest(first, first + second, 0.5).pvalue <= alpha)


def differ(k: int, n: int, other_k: int, other_n: int, alpha: float) -> bool:
    """Whether k of n and other_k of other_n cannot be counts of one share: Fisher's exact test at level alpha. Of two
    counts of the same share it says so with probability ≤ alpha.
    """
    _count("k", k, n)
    _count("k", other_k, other_n)
    return bool(fisher_exact(np.array([[k, n - k], [other_k, other_n - other_k]])).pvalue <= alpha)


def samples_needed(p: float, alpha: float) -> int:
    """The smallest n for which n successes out of n give a `lower_bound` above p: α^(1/n) > p. With fewer, none can."""
    _open_unit("alpha", alpha)
    if not 0 <= p < 1 - 2 * _SLACK:
        raise ValueError(f"p = {p}: expected 0 <= p < 1; no number of samples shows a probability of 1, ask for less")
    return 1 if p == 0 else math.floor(math.log(alpha) / math.log(p / (1 - _SLACK))) + 1


class OverspentError(ValueError):
    """More failure probability was asked for than the certificate was given."""


@final
class Ledger:
    """All claims paid from one ledger hold together with probability ≥ 1 − α: their failure probabilities add to ≤ α.

    A union bound, so the claims may depend on each other. The sum may exceed α by a relative 1e-9, for float addition.
    """

    def __init__(self, alpha: float) -> None:
        _open_unit("alpha", alpha)
        self.alpha = alpha
        self.entries: tuple[tuple[str, float], ...] = ()

    @property
    def spent(self) -> float:
        return math.fsum(amount for _, amount in self.entries)

    @property
    def left(self) -> float:
        return max(0.0, self.alpha - self.spent)

    def spend(self, purpose: str, amount: float) -> float:
        """`amount`, now paid for; what cannot be paid raises `OverspentError` and changes nothing."""
        _open_unit(f"amount for {purpose}", amount, OverspentError)
        entries = (*self.entries, (purpose, amount))
        if math.fsum(a for _, a in entries) > self.alpha * (1 + 1e-9):
            raise OverspentError(
                f"{purpose} asks for {amount:g}, but of alpha = {self.alpha:g} only {self.left:g} is left: split alpha"
            )
        self.entries = entries
        return amount


def _open_unit(name: str, value: float, error: type[ValueError] = ValueError) -> None:
    if not 0 < value < 1:  # also refuses NaN
        raise error(f"{name} = {value}: expected a probability strictly between 0 and 1, such as 0.001")


def _count(name: str, k: SupportsIndex, n: SupportsIndex) -> tuple[int, int]:
    try:
        whole = operator.index(k), operator.index(n)
    except TypeError:
        raise ValueError(f"{name} = {k!r}, n = {n!r}: expected whole numbers, convert them with int()") from None
    if not 0 <= whole[0] <= whole[1] or whole[1] < 1:
        raise ValueError(f"{name} = {k}, n = {n}: expected 0 <= {name} <= n and n >= 1")
    return whole
