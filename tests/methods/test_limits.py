"""Inside one certificate: a limit on its time keeps what is proved by then, progress is told, and reasons name a way
out.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from warpcert import certificates, methods
from warpcert.certificates import ByMargins, Certificate, Covered, Exhausted, Individual, Voted
from warpcert.classifier import Levels, Plain, Smoothed
from warpcert.classifier.votes.voting import Logits
from warpcert.errors.calibration import calibrate
from warpcert.methods import dist_x
from warpcert.methods.outlook.forecast import Forecast
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

SIDE = 12
CIRCLE = Preprocess("circle", 1)
THREAT = Threat.rotation(4)


def bright(z: Tensor) -> Tensor:
    """Class 1 if the mean exceeds a third: a half-space of constant 1/√(pixels) per logit."""
    s = z.flatten(1).mean(1) - 1 / 3
    return torch.stack((-s, s), 1)


def picture() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(1, SIDE, SIDE, generator=generator) * 255).round() / 255


class Clock:
    """Time that passes only where the network is asked: so many seconds per batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def __call__(self, z: Tensor) -> Tensor:
        self.now += self.seconds
        return bright(z)


def certified(network: Logits, method: str, **settings: Any) -> tuple[Certificate, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    over = {} if method == "cover" else {"rotation": 4}
    classifier = Smoothed(network, noise=0.25, over=over, preprocess=CIRCLE)
    chosen = methods.chosen(classifier, method, seed=0, **settings)
    made = methods.certify_with(
        chosen, classifier, picture(), THREAT, seed=0, progress=lambda done, of, note="": told.append((done, of))
    )
    assert certificates.read(made.to_dict()) == made
    return made, told


def test_a_cover_keeps_the_windows_accepted_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"n": 2000, "target": 0.02}
    whole, told = certified(bright, "cover", **settings)
    assert isinstance(whole, Covered) and whole.reach == THREAT.box and len(whole.windows) > 100
    assert told[0] == (0, len(whole.windows))
    clock = Clock(monkeypatch, 1.0)
    part, told = certified(clock, "cover", time_limit=8.0, **settings)
    assert isinstance(part, Covered) and not part.abstains and part.reach is not None
    assert part.reach != THREAT.box and 0 < part.reach.upper[0] < THREAT.box.upper[0]
    assert 32 <= len(part.windows) < len(whole.windows)
    assert "time limit of 8 s" in str(part) and len(told) > 1 and told == sorted(told)
    alpha = {w.alpha for w in part.windows}
    assert alpha == {w.alpha for w in whole.windows}, "the α of a window is fixed before the clock ends anything"


def test_a_cover_by_margins_keeps_the_windows_asked_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(network: Logits, **settings: Any) -> ByMargins:
        classifier = Plain(network, preprocess=CIRCLE, lipschitz=2.0)
        c = classifier.certify(picture(), THREAT, method="cover", **settings)
        assert isinstance(c, ByMargins) and certificates.read(c.to_dict()) == c
        return c

    whole = made(bright)
    assert whole.reach == THREAT.box and len(whole.windows) > 64 and not whole.reason
    part = made(Clock(monkeypatch, 1.0), time_limit=2.5)
    assert part.reach is not None and 0 < part.reach.upper[0] < THREAT.box.upper[0]
    assert len(part.windows) < len(whole.windows) and "time limit" in str(part)
    assert made(Clock(monkeypatch, 1.0), time_limit=1e9).windows == whole.windows


def test_indiv_abstains_when_the_time_is_over() -> None:
    settings: dict[str, Any] = {"n": 4000, "betas": 100, "inverse": "interval"}
    late, _ = certified(bright, "indiv", time_limit=1e-9, **settings)
    assert isinstance(late, Individual) and late.abstains and "time limit" in late.reason


class Slow:
    """Work of a hundred seconds, a torch operation every second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __call__(self, *_: Any, **__: Any) -> None:
        for _second in range(100):
            self.clock.now += 1.0
            torch.zeros(1)
        raise AssertionError("nobody ended it")


def test_a_cover_is_ended_while_its_windows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0)
    monkeypatch.setattr("warpcert.methods.cover.cover_windows", Slow(clock))
    made, _ = certified(clock, "cover", time_limit=3.0)
    assert clock.now == 4.0 and made.abstains and not made.reach and made.scores is not None
    assert isinstance(made, Covered) and not len(made.windows) and made.error.E == 0
    assert made.reason.startswith("the time limit of 3 s") and made.reason.endswith("still being cut")


def test_a_cover_by_margins_is_ended_while_its_windows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0)
    classifier = Plain(bright, preprocess=CIRCLE, lipschitz=2.0)
    monkeypatch.setattr("warpcert.methods.margins.SHARE", 1.0)  # windows so wide that some have to be halved
    whole = classifier.certify(picture(), THREAT, method="cover")
    with monkeypatch.context() as later:  # in the second round, what the first one proved is kept
        later.setattr("warpcert.methods.margins.halved", Slow(clock))
        part = classifier.certify(picture(), THREAT, method="cover", time_limit=3.0)
    assert clock.now == 4.0 and isinstance(part, ByMargins) and certificates.read(part.to_dict()) == part
    assert 0 < len(part.windows) < len(whole.windows) and "time limit of 3 s" in part.reason
    monkeypatch.setattr("warpcert.methods.margins.cover_windows", Slow(clock))
    none = classifier.certify(picture(), THREAT, method="cover", time_limit=3.0)
    assert clock.now == 8.0 and isinstance(none, ByMargins) and certificates.read(none.to_dict()) == none
    assert none.abstains and not len(none.windows) and none.reason.endswith("still being cut")


def test_votes_are_ended_and_none_of_them_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"n": 3000, "batch": 100, "windows": 3}
    for method in ("base", "dist-x", "dist-d"):
        more = settings | ({"bound": "sampled", "betas": 50} if method == "dist-x" else {})
        if method == "dist-d":
            sure = Smoothed(bright, noise=0.25, over={"rotation": 4}, preprocess=CIRCLE)
            more["calibration"] = calibrate(sure, [picture()] * 2, THREAT, bound="sampled", E=0.1, rho=0.1)
        with monkeypatch.context() as own:
            clock = Clock(own, 0.5)
            made, told = certified(clock, method, time_limit=10.0, **more)
        assert clock.now <= 10 + 3 * clock.seconds and isinstance(made, Voted) and not made.windows
        assert "time limit of 10 s" in str(made) and "votes were still being counted" in str(made) and told
        whole, _ = certified(bright, method, time_limit=1e9, **more)
        assert "time limit" not in whole.reason and isinstance(whole, Voted) and len(whole.windows) == 3


def test_dist_x_is_ended_while_it_bounds_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0)
    monkeypatch.setattr("warpcert.methods.dist_x.bound_error", Slow(clock))
    made, _ = certified(clock, "dist-x", time_limit=3.0, n=1000, betas=50)
    assert clock.now == 4.0 and made.abstains and made.reason.endswith("still being bounded")


def test_the_analysis_of_dist_x_leaves_time_for_the_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for each of ten passes of 100: the analysis gets the rest, and at least half."""
    clock, asked = Clock(monkeypatch, 0.0), list[Any]()
    monkeypatch.setattr("warpcert.methods.dist_x.votes.foreseen", lambda *_: Forecast(1000, 5.0))
    true = dist_x.named

    def named(bound: str, time_limit: float | None = None) -> Any:
        asked.append(time_limit)
        return true("sampled")

    monkeypatch.setattr(dist_x, "named", named)
    for limit, guessed in ((20.0, False), (6.0, False), (20.0, True)):
        certified(clock, "dist-x", time_limit=limit, n=1000, n0=10, betas=100, guessed=guessed)
    assert [a for a in asked if a not in (None, 20.0, 6.0)] == [20 - 1.3 * 5, 3.0, (20 - 1.3 * 5) / 2]


def test_too_few_votes_are_refused_before_the_error_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpcert.methods.dist_x.bound_error", Slow(Clock(monkeypatch, 0.0)))
    with pytest.raises(ValueError, match="n = 9 is too small"):
        certified(bright, "dist-x", n=9)


@pytest.mark.parametrize("kind", list(methods.METHODS))
def test_a_limit_is_positive(kind: str) -> None:
    with pytest.raises(ValueError, match="time limit must be > 0"):
        methods.METHODS[kind](time_limit=0.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("nested", [False, True])
def test_votes_tell_progress_and_are_those_drawn_at_once(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = Smoothed(bright, noise=0.25, over={"rotation": 4}, preprocess=CIRCLE, nested=nested)
    found = []
    for batches in (1, 1000):
        monkeypatch.setattr("warpcert.methods.run.BATCHES", batches)
        told: list[tuple[int, int]] = []
        method = methods.chosen(classifier, "base", n=90, windows=3, batch=7)
        made = methods.certify_with(
            method,
            classifier,
            picture(),
            THREAT,
            seed=0,
            progress=lambda done, of, note="", told=told: told.append((done, of)),
        )  # fmt: skip
        assert isinstance(made, Voted)
        assert told == sorted(told) and told[-1] == (90, 90) and len(told) == (15 if batches == 1 else 3)
        found.append((made.windows, made.passes))
    assert found[0] == found[1]


def test_dist_x_tells_of_its_analysis_and_of_its_votes() -> None:
    _, told = certified(bright, "dist-x", n=600, windows=1, betas=50, bound="sampled")
    assert {of for _, of in told} == {50, 600} and told[-1] == (600, 600)


def chance(z: Tensor) -> Tensor:
    return torch.stack((0 * z[:, 0, 0, 0], z[:, 0, 0, 0]), 1)


@pytest.mark.parametrize(
    ("network", "method", "settings", "words"),
    [
        (bright, "dist-x", {"noise": 0.002}, "times the noise: add blur, smooth with more noise or take a smaller"),
        (bright, "dist-x", {"noise": 0.002, "vignette": "none"}, "add a vignette and blur"),
        (chance, "dist-x", {"noise": 1.0}, "train the network under this noise"),
        (chance, "cover", {"noise": 1.0}, "next to γ = 0, class"),
        (chance, "indiv", {"noise": 1.0}, "at this picture itself, class"),
        (bright, "indiv", {"noise": 0.002}, "times the noise: add blur"),
    ],
)
def test_reasons_name_a_way_out(network: Logits, method: str, settings: dict[str, Any], words: str) -> None:
    facts = {"vignette": "circle"} | settings
    over = {} if method == "cover" else {"rotation": 4}
    classifier = Smoothed(network, noise=facts["noise"], over=over, preprocess=Preprocess(facts["vignette"]))
    more: dict[str, Any] = {"betas": 60} if method != "cover" else {}
    more |= {"dist-x": {"bound": "sampled"}, "indiv": {"inverse": "interval"}}.get(method, {})
    made = classifier.certify(picture(), THREAT, method=method, n=2000, seed=0, **more)
    assert made.abstains and words in made.reason, made.reason
    assert len(made.reason) < 200


def test_exact_names_a_way_out() -> None:
    made = Plain(bright).certify(picture(), THREAT, method="exact", time_limit=1e-9)
    assert made.abstains and made.reason.endswith("put the classifier behind levels or take a smaller range")
    made = Levels(bright, step=8).certify(picture(), THREAT, method="exact", time_limit=1e-9)
    assert made.reason.endswith("take coarser levels or take a smaller range")


def test_indiv_ends_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where possible originals are looked for: nothing is told there, and nobody looks at the clock."""
    clock = Clock(monkeypatch, 0.0)

    class Endless:
        name = "lagrangian"

        def survivors(self, x: Tensor, threat: Threat) -> None:
            for _ in range(100):
                clock.now += 1.0
                torch.zeros(1)
            raise AssertionError("nobody ended it")

    monkeypatch.setattr("warpcert.methods.individual.named", lambda *_: Endless())
    made, _ = certified(clock, "indiv", time_limit=3.0)
    assert isinstance(made, Individual) and made.abstains and "time limit of 3 s" in made.reason
    assert clock.now == 4.0 and made.excluded == 0.0 and made.scores is not None


@pytest.mark.parametrize("threat", [Threat.rotation(20), Threat.shifts(2), Threat.shifts(2).then(brightness=0.1)])
def test_exact_ends_within_an_operation_of_its_limit(threat: Threat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second per operation of the network, whatever the batch: more than one is not begun too late."""
    clock = Clock(monkeypatch, 0.0)

    def slow(z: Tensor) -> Tensor:
        for _ in range(50):
            clock.now += 0.1
            z = z + 0.0
        return bright(z)

    size = 1 if threat == Threat.shifts(2) else 16
    whole = Levels(bright, 64).certify(picture(), threat, batch=size)
    part = Levels(slow, 64).certify(picture(), threat, batch=size, time_limit=60.0)
    assert clock.now < 60 + 5 + 0.2, "the picture itself is asked about at last, in any case"
    assert isinstance(whole, Exhausted) and isinstance(part, Exhausted) and certificates.read(part.to_dict()) == part
    assert "time limit of 60 s" in part.reason and part.passes < whole.passes
    assert part.found is None or (whole.found is not None and part.found.held < whole.found.held)


def test_a_test_that_the_clock_ends_is_judged_by_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the first windows, and within a round: what was counted adds up."""
    clock = Clock(monkeypatch, 0.5)
    made, _ = certified(clock, "cover", time_limit=3.0, n=100_000, target=0.02, n0=1)
    assert isinstance(made, Covered) and clock.now <= 3.0 + 2 * clock.seconds
    assert made.passes == 1 + sum(w.n for w in made.windows) and "time limit" in made.reason
