"""A limit on time ends what computes, and nothing after it."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch

from warpcert.app.serve.jobs import LateError, Token
from warpcert.numerics import deadline
from warpcert.numerics.deadline import TimeOverError, limited


def test_operations_end_when_the_time_is_over() -> None:
    with limited(math.inf):
        assert torch.zeros(2).add(1).sum() == 2
    with limited(time.perf_counter() + 60):
        assert torch.zeros(2).add(1).sum() == 2
    with pytest.raises(TimeOverError), limited(time.perf_counter() - 1):
        torch.zeros(2).add(1)
    assert torch.zeros(2).add(1).sum() == 2


def test_ctrl_c_while_it_ends_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    left, made = deadline._Deadline.__exit__, []

    def interrupted(self: Any, *why: Any) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(deadline._Deadline, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt), limited(time.perf_counter() - 1):
        torch.zeros(2).add(1)
    assert torch.zeros(2).add(1).sum() == 2  # though torch still knows of it
    left(made[0], None, None, None)


def test_whoever_is_ended_may_put_back_what_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.no_grad() leaves by a torch operation: were that ended too, nothing could be trained afterwards."""
    left = []

    def endless() -> None:
        with torch.no_grad():
            try:
                while True:
                    torch.zeros(1)
            finally:
                left.append(torch.zeros(1))

    with pytest.raises(TimeOverError), limited(time.perf_counter() + 0.01):
        endless()
    assert torch.is_grad_enabled() and len(left) == 1
    token = Token(0.01)
    with pytest.raises(LateError), token:
        endless()
    assert torch.is_grad_enabled() and len(left) == 2
    monkeypatch.setattr(deadline, "GRACE", 0.01)
    with limited(time.perf_counter() + 0.01):  # who goes on all the same is ended again
        for _ in range(2):
            with pytest.raises(TimeOverError):
                endless()
    assert torch.is_grad_enabled()


def test_gradients_are_on_again_if_the_time_is_over_as_no_grad_ends() -> None:
    with pytest.raises(TimeOverError), limited(time.perf_counter() + 0.05), torch.no_grad():
        torch.zeros(1)
        time.sleep(0.1)
    assert torch.is_grad_enabled()
