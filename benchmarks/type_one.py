"""How often certificates are false where the truth is exactly at the threshold: `python -m benchmarks.type_one`.

Pictures, networks and error analyses are replaced by coins whose probabilities are set; everything that decides, draws
bounds from counts and splits α is the package's own. In every world one statement that a certificate rests on is false
by a hair (its probability is the very one at which it would become true) and all others hold with certainty, so a
certificate that is issued there is a false one. Each world may be entered at its own share of α only, and the rates of
a rule's worlds must add up to at most α: they do not if α is spent twice.

The interval (95 %, Clopper and Pearson) is that of the sum, from the trials of all worlds together: a sum of different
coins is no less concentrated than the binomial of their mean (Hoeffding 1956).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from scipy.special import ndtr
from scipy.stats import binomtest
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import Covered, Individual, Kind
from warpcert.certificates.balls import Balls
from warpcert.classifier import Smoothed
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import GaussianInner
from warpcert.errors.base import SupBound, Suprema
from warpcert.errors.calibration import Plan, calibrated
from warpcert.methods.cover import Cover
from warpcert.methods.covering import Covering
from warpcert.methods.dist_x import DistX
from warpcert.methods.indiv import Indiv
from warpcert.methods.individual import CENTRED
from warpcert.originals.protocol import InverseBound, Originals
from warpcert.runs.answers import predicted
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.windows.cover import Windows

NOISE, TURN, RANGE = 0.1, 20.0, 10.0  # σ_δ; σ_γ and Γ in degrees
E, LARGE = 0.05, 1e3  # errors: what noise absorbs, and what it does not
ROTATION = Threat.rotation(RANGE, quantized=False)
PICTURE = torch.full((1, 1, 1), 0.5)
DOUBT = 1e-6  # of the test whether a rate is above α


@dataclass
class Coin:
    """Logits [B,K] that lead for class c with probability p[c], by 10 of 10. `then` are the later p's: (after so many
    samples, p).
    """

    fingerprint: ClassVar[str] = "coin"
    p: Sequence[float]
    seed: int
    then: list[tuple[int, Sequence[float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generator, self.asked = torch.Generator().manual_seed(self.seed), 0

    def __call__(self, batch: Tensor) -> Tensor:
        while self.then and self.asked >= self.then[0][0]:
            self.p = self.then.pop(0)[1]
        self.asked += len(batch)
        ends = torch.tensor(self.p, dtype=torch.float64).cumsum(0)[:-1]
        answer = torch.searchsorted(ends, torch.rand(len(batch), generator=self.generator, dtype=torch.float64))
        return torch.nn.functional.one_hot(answer, len(self.p)).float() * 10


def exceeds(beta: Tensor, rate: float, defence: Defence) -> Tensor:
    """An event of probability `rate`, as a function of β [n,1] around whatever centre."""
    phase = (beta[:, 0].double() / defence.sigma_param[0]).abs() * 1e6
    return phase.frac() < rate  # the fraction of so many turns is uniform, but for 10⁻⁵


@dataclass(frozen=True)
class StatedBound(SupBound):
    """V = E, and with probability `rate` LARGE; for a picture that is dark, E/2 always."""

    rate: float = 0.0
    name: ClassVar[str] = "stated"
    kind: ClassVar[Kind] = Kind.PROVED

    def __call__(
        self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, target: float | None = None
    ) -> Suprema:
        rate = self.rate if float(x.amax()) > 0.25 else 0.0
        values = torch.where(exceeds(beta, rate, defence), LARGE, E if rate or not self.rate else E / 2)
        return Suprema(values.double(), values.double(), 0, 0.0)


class StatedInverse(InverseBound):
    """One cell for each window. When the errors of a window are asked for, the coin becomes that window's (share of
    votes, rate of errors).
    """

    name: ClassVar[str] = "stated"

    def __init__(self, coin: Coin, windows: Sequence[tuple[float, float]], times: int = 1) -> None:
        self.coin, self.count = coin, len(windows)
        self.left = [window for window in windows for _ in range(times)]  # a merged test asks twice

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        lower, upper = (torch.tensor(e, dtype=torch.float64) for e in (threat.box.lower, threat.box.upper))
        ends = lower + (upper - lower) * torch.linspace(0, 1, self.count + 1, dtype=torch.float64)[:, None]
        boxes = x_attacked.double().expand(self.count, *x_attacked.shape)
        return Originals(x_attacked, threat, ends[:-1], ends[1:], boxes, boxes, self.count, 0.0)

    def errors(
        self,
        originals: Originals,
        defence: Defence,
        beta: Tensor,
        *,
        enough: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        share, rate = self.left.pop(0)
        self.coin.p, self.coin.then = (share, 1 - share), []
        return torch.where(exceeds(beta, rate, defence), LARGE, E).double()[:, None]


Trial = Callable[[int], bool]  # seed → whether a false certificate was issued


@dataclass(frozen=True)
class Rule:
    """One way to decide, and the worlds in which it may be wrong; their rates add up to `alpha` at most."""

    name: str
    alpha: float
    worlds: dict[str, Trial]


@dataclass(frozen=True)
class Rate:
    """Of so many trials in each world, how many were false."""

    rule: Rule
    trials: int
    false: dict[str, int]

    @property
    def value(self) -> float:
        return sum(self.false.values()) / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        k, n, worlds = sum(self.false.values()), self.trials * len(self.false), len(self.false)
        return worlds * stats.lower_bound(k, n, 0.025), worlds * stats.upper_bound(k, n, 0.025)

    @property
    def too_high(self) -> bool:
        """Whether a rate of at most α is refuted, by the exact binomial test; wrong with probability DOUBT."""
        k, n = sum(self.false.values()), self.trials * len(self.false)
        return bool(binomtest(k, n, self.rule.alpha / len(self.false), alternative="greater").pvalue < DOUBT)

    def line(self) -> str:
        low, high = self.interval
        worlds = ", ".join(f"{what} {k / self.trials:.4f}" for what, k in self.false.items())
        verdict = "**above α**" if self.too_high else "within"
        return (
            f"| {self.rule.name} | {self.trials * len(self.false):,} | {self.value:.4f} | {low:.4f}–{high:.4f} | "
            f"{self.rule.alpha:g} | {verdict} | {worlds} |"
        )


def rate(rule: Rule, trials: int, seed: int = 0) -> Rate:
    return Rate(rule, trials, {w: sum(map(t, range(seed, seed + trials))) for w, t in rule.worlds.items()})


def smoothed(coin: Coin, nested: bool = False, threat: Threat = ROTATION) -> Smoothed:
    """Over a transformation: by pixel noise, or nested around a network with margins."""
    t = threat.transform
    over = {t.name: TURN if t.dim == 1 else (2.0,) * t.dim}
    if nested:
        return Smoothed(coin, 0.0, over, interpolation="bilinear", nested=True, lipschitz=1.0)
    return Smoothed(coin, NOISE, over, interpolation="bilinear")


def indiv(alpha: float, windows: int, nested: bool = False, merged: bool = False, threat: Threat = ROTATION) -> Rule:
    """γ is in one window, each in turn: its votes are at their threshold, or its errors are, or the vote at x' is at ½.
    All other windows are sure, so that the wrong answer can enter through this one alone.

    Joint votes are counted, window after window, before errors are asked for; others when errors were.
    """
    method = Indiv(n=240 * windows, n0=8, alpha=alpha, windows=windows, betas=150, merged=merged)
    first, each = method.n0 + int(CENTRED * method.n), int((1 - CENTRED) * method.n) // windows

    def certified(seed: int, which: int, votes: float, errors: float, centred: float) -> Individual:
        shares = [(votes, errors) if i == which else (1.0, 0.0) for i in range(windows)]
        turns = [(first + i * each, (share, 1 - share)) for i, (share, _) in enumerate(shares)]
        coin = Coin((1.0, 0.0), seed, [(method.n0, (centred, 1 - centred)), *turns])
        own = replace(method, seed=seed, inverse=StatedInverse(coin, shares, 2 if merged else 1))
        found = own.certify(smoothed(coin, nested, threat), PICTURE, threat)
        assert isinstance(found, Individual)
        return found

    sure = certified(0, 0, 1.0, 0.0, 1.0)
    assert not sure.abstains and len(sure.windows) == windows
    rho, sigma = sure.error.rho, sure.defence.sigma_param
    far = math.hypot(*(top / windows / s for top, s in zip(threat.box.upper, sigma, strict=True)))
    needed = float(ndtr(math.hypot(far, 0.0 if nested else sure.error.E / NOISE))) + rho

    def world(votes: float, errors: float, centred: float) -> Trial:
        def trial(seed: int) -> bool:
            return not certified(seed, seed % windows, votes, errors, centred).abstains

        return trial

    worlds = {"votes": world(needed, 0.0, 1.0), "vote at x'": world(1.0, 0.0, 0.5)}
    if not merged:
        worlds["errors"] = world(1.0, rho, 1.0)
    form = f"indiv{', nested' if nested else ''}{', merged' if merged else ''}, {_windows(windows)}"
    return Rule(f"{form}{', two parameters' if threat.box.dim > 1 else ''}", alpha, worlds)


def _windows(count: int) -> str:
    return f"{count} windows" if count > 1 else "1 window"


def joint(alpha: float, windows: int, nested: bool = False, two_class: bool = False) -> Rule:
    """dist-x: the votes of all windows at a share, of which no more may be claimed; or errors at their quantile."""
    method = DistX(n=300 * windows, n0=8, alpha=alpha, windows=windows, betas=150, two_class=two_class)
    p = (0.75, 0.2, 0.05) if two_class else (0.8, 0.2)

    def certified(seed: int, bound: StatedBound, coin: Coin) -> Balls:
        found = replace(method, seed=seed, bound=bound).certify(smoothed(coin, nested), PICTURE, ROTATION)
        assert isinstance(found, Balls)
        return found

    rho = certified(0, StatedBound(), Coin((1.0, 0.0), 0)).error.rho
    true = radius.kappa_two(p[0], p[1], rho) if two_class else radius.kappa_one(p[0], rho)
    assert true is not None

    def votes(seed: int) -> bool:
        found = certified(seed, StatedBound(), Coin((1.0, *[0.0] * (len(p) - 1)), seed, [(method.n0, p)]))
        return any((found.kappa(w) or 0.0) > true for w in found.windows)

    def errors(seed: int) -> bool:
        return not certified(seed, StatedBound(rho), Coin((1.0, 0.0), seed)).abstains

    form = f"dist-x{', nested' if nested else ''}{', two classes' if two_class else ''}, {_windows(windows)}"
    return Rule(form, alpha, {"votes": votes, "errors": errors})


def share(alpha: float, true: float = 0.7, images: int = 60) -> Rule:
    """dist-d: the rest of the data has errors that are as rare above E as may just be accepted."""
    plan = Plan(bound=StatedBound(0.2), rho=0.2, alpha=alpha, alpha_inner=0.05, E=E)
    defence = smoothed(Coin((1.0, 0.0), 0)).defence(ROTATION.transform)

    def trial(seed: int) -> bool:
        g = torch.Generator().manual_seed(seed)
        inside = torch.rand(images, generator=g) < true
        pictures = [PICTURE * (0.0 if dark else 1.0) for dark in inside.tolist()]
        return calibrated(replace(plan, seed=seed), (defence, ROTATION), (), pictures).q_E > true

    return Rule("dist-d, the share q_E", alpha, {"share": trial})


def answers(alpha: float, early: bool, nested: bool = False) -> Rule:
    """Answers of the server: no class has more than half; of two equal ones, the first is the wrong one."""

    def trial(seed: int) -> bool:
        torch.manual_seed(seed)
        found = predicted(smoothed(Coin((0.5, 0.5), seed), nested), PICTURE, n=400, alpha=alpha, early=early)
        return bool(found["label"] != -1 if early or nested else found["label"] == 0)

    name = "nested" if nested else "early (anytime-valid)" if early else "a fixed number of votes"
    return Rule(f"answers, {name}", alpha, {"votes": trial})


@dataclass
class Bright(Coin):
    """A coin for each of the windows of a cover, which it knows by their brightness; shares[i] for class 0."""

    shares: tuple[float, ...] = ()

    def __call__(self, batch: Tensor) -> Tensor:
        window = (batch.flatten(1).mean(1) * len(self.shares)).long().clamp(0, len(self.shares) - 1)
        right = torch.rand(len(batch), generator=self.generator) < torch.tensor(self.shares)[window]
        return torch.nn.functional.one_hot(1 - right.long(), 2).float() * 10


def covers(alpha: float, windows: int = 5) -> Iterator[Rule]:
    """One window, or all of them, have just the share that would be needed, so that none of these may be accepted.

    Of a picture of 64 pixels the mean brightness tells the window: its noise is an eighth of a window's half.
    """
    method = Cover(n=2000, n0=8, alpha=alpha)
    ends = torch.linspace(-0.5, 0.5, windows + 1, dtype=torch.float64)[:, None]
    tiles = Windows(ends[:-1], ends[1:], torch.full((windows,), E, dtype=torch.float64), True, windows, 0.0)
    needed = radius.needed_probability(E, NOISE)
    assert needed is not None
    threat, picture = Threat.brightness(0.5, quantized=False), PICTURE.expand(1, 8, 8).contiguous()

    def certified(seed: int, shares: tuple[float, ...]) -> Covered:
        g = Smoothed(Bright((), seed, shares=shares), NOISE)
        return Covering(replace(method, seed=seed), g, picture, threat).certify(tiles)

    def only(which: int) -> Trial:
        shares = tuple(needed if i == which else 1.0 for i in range(windows))
        return lambda seed: bool(certified(seed, shares).accepted[which])

    assert certified(0, (1.0,) * windows).accepted.all()
    yield Rule(f"cover, one of {windows} windows", alpha, {f"window {i + 1}": only(i) for i in range(windows)})
    every = (needed,) * windows
    yield Rule(
        f"cover, all of {windows} windows", alpha, {"votes": lambda seed: bool(certified(seed, every).accepted.any())}
    )


def inner(alpha: float, views: int = 100) -> Rule:
    """The inner tests of nested votes, one view each of a batch: at p₀ exactly."""
    needed = radius.needed_probability(E, NOISE)
    assert needed is not None

    def trial(seed: int) -> bool:  # batches of views are asked at once; one of them is the trial's
        if seed // views != state.get("batch"):
            tests = GaussianInner(Coin((needed, 1 - needed), seed // views), NOISE, alpha, cap=1000)
            g = torch.Generator().manual_seed(seed)
            state["accepted"] = tests.accepts(PICTURE.expand(views, 1, 1, 1), 0, E, g)[0].tolist()
            state["batch"] = seed // views
        return bool(state["accepted"][seed % views])

    state: dict[str, object] = {}
    return Rule("nested, the inner test of a view", alpha, {"votes": trial})  # type: ignore[dict-item]


def rules(alpha: float) -> Iterator[Rule]:
    """All of them."""
    for nested, merged in ((False, False), (False, True), (True, False), (True, True)):
        for windows in (1, 3):
            yield indiv(alpha, windows, nested, merged)
    yield indiv(alpha, 1, threat=Threat.translation(0.5, quantized=False))
    for windows in (1, 3):
        yield joint(alpha, windows)
        yield joint(alpha, windows, two_class=True)
        yield joint(alpha, windows, nested=True)
    yield inner(alpha)
    yield share(alpha)
    yield from covers(alpha)
    for early, nested in ((True, False), (False, False), (False, True)):
        yield answers(alpha, early, nested)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="per world")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="rules whose name contains this")
    args = parser.parse_args()
    print("| rule | trials | rate | 95 % | α | | by world |\n| --- | ---: | ---: | ---: | ---: | --- | --- |")
    wrong, start = 0, time.perf_counter()
    for rule in rules(args.alpha):
        if args.only in rule.name:
            found = rate(rule, args.trials, args.seed)
            wrong += found.too_high
            print(found.line(), flush=True)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
