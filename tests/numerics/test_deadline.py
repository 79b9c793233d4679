"""A limit on time ends what computes, and nothing after it."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch

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
