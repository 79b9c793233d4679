"""Estimates: near what is then spent, quick, and with advice where there is no hope."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from warpcert import methods
from warpcert.certificates import Exhausted
from warpcert.classifier import Classifier, Levels, Plain, Smoothed
from warpcert.errors.calibration import calibrate
from warpcert.methods.outlook.forecast import HOPELESS, Forecast, duration, pace
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

SIDE = 12
CIRCLE = Preprocess("circle", 1)
THREAT = Threat.rotation(10)


def bright(z: Tensor) -> Tensor:
    s = z.flatten(1).mean(1) - 1 / 3
    return torch.stack((-s, s), 1)


def chance(z: Tensor) -> Tensor:
    """A coin that the noise tosses."""
    s = z[:, 0, SIDE // 2, SIDE // 2] - 0.5
    return torch.stack((-s, s), 1)


def picture(value: float | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, SIDE, SIDE, generator=generator)
    if value is not None:
        x = torch.full_like(x, value)
    return (x * 255).round() / 255


def smoothed(**facts: Any) -> Smoothed:
    return Smoothed(bright, **{"noise": 0.25, "over": {"rotation": 4}, "preprocess": CIRCLE} | facts)


def foreseen(classifier: Classifier, method: str, x: Tensor | None = None, **settings: Any) -> Forecast:
    chosen = methods.chosen(classifier, method, **settings)
    return methods.foresee(chosen, classifier, picture() if x is None else x, THREAT)


@pytest.mark.parametrize("classifier", [Plain(bright), Levels(bright, step=32)], ids=["plain", "levels"])
def test_exact_counts_crossings_on_thin_slices(classifier: Classifier) -> None:
    found = foreseen(classifier, "exact")
    made = classifier.certify(picture(), THREAT, method="exact")
    assert isinstance(made, Exhausted) and made.found is not None and made.found.held == 1
    assert 0.7 * made.passes < found.passes < 1.4 * made.passes
    assert not found.advice and 0 < found.memory < 2**30
    assert foreseen(classifier, "exact", time_limit=1e-3).seconds == 1e-3


def test_exact_of_a_range_that_is_a_point() -> None:
    still = methods.chosen(Plain(bright), "exact")
    assert methods.foresee(still, Plain(bright), picture(), Threat.rotation(0)).passes == 1


def test_exact_names_what_to_try_when_it_would_take_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpcert.methods.exact.network_pace", lambda *_: 60.0)
    found = foreseen(Plain(bright), "exact")
    assert found.seconds > HOPELESS and "put the classifier behind levels or take a smaller range" in found.advice
    assert "for one picture" in found.advice


def test_a_cover_foresees_its_windows() -> None:
    classifier = smoothed(over={})
    for target in (0.5, 0.05):
        found = foreseen(classifier, "cover", target=target)
        made = classifier.certify(picture(), THREAT, method="cover", target=target, seed=0)
        assert 0.5 * made.passes < found.passes < 2 * made.passes and not found.advice


def test_a_cover_by_margins_foresees_its_passes() -> None:
    classifier = Plain(bright, preprocess=CIRCLE, lipschitz=2.0)
    found, made = foreseen(classifier, "cover"), classifier.certify(picture(), THREAT, method="cover")
    assert 0.3 * made.passes < found.passes < 3 * made.passes and not found.advice
    flat = foreseen(Plain(bright, lipschitz=2.0), "cover", picture(1 / 3))
    assert "train for larger margins" in flat.advice


@pytest.mark.parametrize("method", ["base", "dist-x", "dist-d", "dist-d-online"])
def test_votes_are_n_and_n0(method: str) -> None:
    settings: dict[str, Any] = {"n": 3000, "n0": 50}
    if method == "dist-x":
        settings |= {"bound": "sampled", "betas": 100}
    if method.startswith("dist-d"):
        settings["calibration"] = calibrate(smoothed(), [picture()] * 2, THREAT, bound="sampled", E=0.1, rho=0.1)
    found = foreseen(smoothed(), method, picture(0.9), **settings)
    assert found.passes == 3050 and found.seconds > 0 and not found.advice


def test_nested_votes_cost_what_their_tests_do() -> None:
    found = foreseen(smoothed(nested=True), "base", n=200)
    made = smoothed(nested=True).certify(picture(), THREAT, method="base", n=200, seed=0)
    assert 0.3 * made.passes < found.passes < 3 * made.passes


def test_indiv_times_a_few_errors() -> None:
    found = foreseen(smoothed(), "indiv", THREAT.transform.quantize(picture()), n=2000, betas=60, inverse="interval")
    assert found.passes == 2100 and found.seconds > 0
    limited = foreseen(smoothed(), "indiv", n=2000, betas=60, inverse="interval", time_limit=1e-3)
    assert limited.seconds == 1e-3


def test_hopeless_cases_say_what_to_try() -> None:
    faint = smoothed(noise=0.002, preprocess=Preprocess())
    found = foreseen(faint, "dist-x", bound="sampled", betas=50)
    assert "times the noise: add a vignette and blur" in found.advice
    x = picture()
    x[0, SIDE // 2, SIDE // 2] = 0.5
    assert "train the network under this noise" in foreseen(Smoothed(chance, noise=1.0), "cover", x).advice


def test_an_estimate_draws_nothing_that_a_certificate_uses() -> None:
    classifier = smoothed()
    first = classifier.certify(picture(), THREAT, method="base", n=500, seed=3)
    foreseen(classifier, "base", n=500, seed=3)
    assert (
        classifier.certify(picture(), THREAT, method="base", n=500, seed=3).to_dict()["windows"]
        == (first.to_dict()["windows"])
    )


def test_what_is_refused_is_not_estimated() -> None:
    with pytest.raises(ValueError, match="without noise"):
        foreseen(smoothed(), "exact")


def test_the_pace_is_that_of_a_batch_that_takes_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], list[int]()
    monkeypatch.setattr("warpcert.methods.outlook.forecast.time.perf_counter", lambda: now[0])

    def work(count: int) -> None:
        asked.append(count)
        now[0] += 0.01 + 0.001 * count

    assert pace(work, 1000) == pytest.approx(0.01 / 256 + 0.001) and asked == [1, 4, 16, 64, 256, 256]
    asked.clear()
    assert pace(work, 10) == pytest.approx(0.01 / 10 + 0.001) and asked == [1, 4, 10]
    asked.clear()

    def prepared(count: int) -> None:
        """As a GPU does: seconds when it meets a size for the first time."""
        now[0] += 0.0 if count in asked else 3.0
        work(count)

    assert pace(prepared, 1000) == pytest.approx(0.01 / 256 + 0.001) and asked.count(4) == 2


def test_durations_are_told_as_people_do() -> None:
    told = [duration(s) for s in (0.034, 9.6, 60, 600, 7200, 86400 * 2, 86400 * 365)]
    assert told == ["0.034 s", "9.6 s", "60 s", "10 min", "2 h", "2 days", "365 days"]
    assert str(Forecast(12000, 90, 2**30)) == "about 1.5 min and 12\u202f000 passes, 1.0 GiB"


def test_a_classifier_foresees_its_own_certificate() -> None:
    classifier = Levels(bright, step=32)
    assert classifier.foresee(picture(), THREAT).passes == foreseen(classifier, "exact").passes
    assert classifier.foresee(picture(), THREAT, time_limit=1e-3).seconds == 1e-3
    with pytest.raises(ValueError, match="a threat"):
        classifier.foresee(picture())
