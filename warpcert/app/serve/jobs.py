"""Requests as jobs: a bounded number of them, each with a time limit, each can be called off."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

import torch
from torch.overrides import TorchFunctionMode

from warpcert.numerics.deadline import GRACE

__all__ = ["BusyError", "CancelledError", "LateError", "Pool", "Token"]


class BusyError(Exception):
    """The queue is full; try again after `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the server is busy; try again in {seconds} s")
        self.seconds = seconds


class CancelledError(Exception):
    """The client went away."""


class LateError(Exception):
    """The request took longer than the server allows."""


@final
class Token(TorchFunctionMode):
    """A request's right to compute, for `limit` seconds or until cancelled.

    Used as a context in the job's thread it makes every torch operation a place where the job can end: methods and
    bounds need not know that they can be called off.
    """

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit, self.start, self.samples = limit, time.monotonic(), 0
        self._cancelled, self._let_be = threading.Event(), 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.seconds)

    @property
    def ended(self) -> bool:
        return self._cancelled.is_set() or self.seconds > self.limit

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError("the client closed the connection")
        if self.seconds > self.limit:
            raise LateError(f"the request took longer than the {self.limit:g} s that this server allows")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.ended and time.monotonic() > self._let_be:
            self._let_be = time.monotonic() + GRACE
            self.check()
        return func(*args, **(kwargs or {}))


@final
class Pool:
    """`workers` threads and at most `waiting` jobs in line; one more is refused with a BusyError."""

    def __init__(self, name: str, workers: int, waiting: int) -> None:
        self.name, self.workers, self.waiting = name, workers, waiting
        self._lock, self._pending, self._mean = threading.Lock(), 0, 0.1
        self._threads = ThreadPoolExecutor(workers, name, initializer=torch.set_num_threads, initargs=(1,))

    @property
    def pending(self) -> int:
        """Jobs accepted and not yet answered."""
        return self._pending

    def submit(self, work: Callable[[Token], Any], token: Token) -> Future[Any]:
        """The work's future; it runs with the token in force."""
        with self._lock:
            if self._pending >= self.workers + self.waiting:
                seconds = math.ceil(self._mean * self._pending / self.workers)
                raise BusyError(min(max(seconds, 1), 60))
            self._pending += 1

        def run() -> Any:
            token.check()  # it may have ended in the queue
            start = time.monotonic()
            try:
                with token, torch.no_grad():
                    return work(token)
            except (CancelledError, LateError) as error:
                ended = type(error)(*error.args)  # without the frames that it came through: they hold all tensors
            finally:
                self._mean += 0.1 * (time.monotonic() - start - self._mean)
            raise ended

        future = self._threads.submit(run)
        future.add_done_callback(self._done)
        return future

    def close(self) -> None:
        """Waits for every job that was accepted."""
        self._threads.shutdown(wait=True)

    def _done(self, _: Future[Any]) -> None:
        with self._lock:
            self._pending -= 1
