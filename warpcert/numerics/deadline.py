"""A limit on time that ends long computations wherever they are."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["GRACE", "TimeOverError", "limited"]

GRACE = 1.0  # seconds for whoever is ended to put back what they changed: torch.no_grad() does it by a torch operation


class TimeOverError(Exception):
    """The time is over in the middle of a computation."""


@contextmanager
def limited(until: float) -> Iterator[None]:
    """As a context: the first torch operation from `until` on, by time.perf_counter(), is a TimeOverError, and again
    after GRACE. What computes need not know of it; whoever enters it has to know what holds without the rest.
    """
    if until == math.inf:
        yield
        return
    mode, grad = _Deadline(until), torch.is_grad_enabled()
    try:
        with mode:
            yield
    finally:
        if torch.is_grad_enabled() != grad:  # the time was over just as torch.no_grad() ended
            torch.set_grad_enabled(grad)
        mode.until = math.inf  # should Ctrl-C have kept torch from forgetting it


@final
class _Deadline(TorchFunctionMode):
    def __init__(self, until: float) -> None:
        super().__init__()
        self.until = until

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if (now := time.perf_counter()) > self.until:
            self.until = now + GRACE
            raise TimeOverError
        return func(*args, **(kwargs or {}))
