"""What a watch shows inside one certificate: bars on a terminal, a line a minute in a log."""

from __future__ import annotations

import time
from io import StringIO

import pytest
import torch
from rich.console import Console

from warpcert import methods
from warpcert.classifier import Smoothed
from warpcert.methods.outlook.forecast import duration
from warpcert.runs.progress import Watch
from warpcert.threat import Threat


class Clock:
    """Half a minute passes whenever the network is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def network(self, z: torch.Tensor) -> torch.Tensor:
        self.now += 30
        s = z.flatten(1).mean(1) - 0.3
        return torch.stack((-s, s), 1)


def watched(clock: Clock, console: Console) -> None:
    classifier = Smoothed(clock.network, noise=0.2, over={"rotation": 5})
    method = methods.chosen(classifier, "base", n=1600, n0=20, batch=20, windows=1)
    x = torch.full((1, 8, 8), 0.5)
    with Watch(console, clock) as watch:
        methods.certify_with(
            method, classifier, x, Threat.rotation(5), seed=0,
            progress=lambda done, of, note="": watch.show("  this picture", done, of, note),
        )  # fmt: skip


def test_a_log_gets_a_line_a_minute_while_one_picture_is_certified() -> None:
    log, clock = StringIO(), Clock()
    watched(clock, Console(file=log, width=100))
    lines = log.getvalue().splitlines()
    assert clock.now == 81 * 30
    # 8 batches, four minutes, pass between two words of progress: none is left out, and none is said twice
    left = ["", *(f", about {duration(1.5 * (1600 - 160 * i))} left" for i in range(2, 10)), ""]
    assert lines == [f"  this picture: {160 * i} of 1600{left[i - 1]}" for i in range(1, 11)]


def test_a_log_is_not_flooded() -> None:
    log, clock = StringIO(), Clock()
    with Watch(Console(file=log), clock) as watch:
        for done in range(600):
            clock.now += 1
            watch.show("exact", done, 600, "3 right")
    left = [f", about {duration(541 - 60 * i)} left" for i in range(10)]
    assert log.getvalue().splitlines() == [f"exact: {59 + 60 * i} of 600 3 right{left[i]}" for i in range(10)]


def test_a_log_hears_of_a_step_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log, clock = StringIO(), Clock()
    monkeypatch.setattr("warpcert.runs.progress.MINUTE", 0.2)
    with Watch(Console(file=log), clock) as watch:
        time.sleep(0.2)  # nothing to say yet
        watch.show("cover", 0, 3, "0 right")
        clock.now = 300.0
        until = time.monotonic() + 10
        while not log.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        clock.now = 300.1
        watch.still()
    assert log.getvalue() == "cover: 0 of 3 0 right, on the next step for 5 min\n"
    clock.now = 900.0
    time.sleep(0.2)
    assert log.getvalue().count("\n") == 1, "it falls silent at the end"


def test_a_terminal_gets_a_bar() -> None:
    screen = StringIO()
    watched(Clock(), Console(file=screen, force_terminal=True, width=100))
    assert "this picture" in screen.getvalue() and "1600/1600" in screen.getvalue()
