"""A server's insides: the device, the queues, the counts; and how a request waits for its job."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any, final

from starlette.requests import Request

from warpcert.app.serve.batcher import Batcher, pass_size
from warpcert.app.serve.jobs import BusyError, CancelledError, LateError, Pool, Token
from warpcert.app.serve.limits import Limits
from warpcert.app.serve.metrics import Metrics
from warpcert.app.serve.served import Served
from warpcert.methods import Method

__all__ = ["Seldom", "Server", "status_of"]

log = logging.getLogger("uvicorn.error")
POLL = 0.1  # seconds between two looks whether the client is still there
PROGRESS = 0.5  # seconds between two progress events


@final
class Seldom(logging.Filter):
    """Lets each warning through once a minute, with the number of those that it stands for: who opens and closes
    connections all day cannot fill the log.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self._seconds, self._last, self._kept = seconds, dict[str, float](), dict[str, int]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        message, now = str(record.msg), time.monotonic()
        if now - self._last.get(message, -self._seconds) < self._seconds:
            self._kept[message] = self._kept.get(message, 0) + 1
            return False
        self._last[message] = now
        if kept := self._kept.pop(message, 0):
            record.msg = f"{message} (and {kept} more since the last such line)"
        return True


@final
class Server:
    """Everything that lives as long as the server: opened once, drained by `close`."""

    def __init__(self, served: Served, limits: Limits, *, batching: bool = True, threads: int = 0) -> None:
        self.served, self.limits, self.metrics, self.draining = served, limits, Metrics(), False
        size = pass_size(served.device) if batching else None
        self.batcher = Batcher(served.classifier, size, threads, self.metrics.passed)
        self.quick = Pool("quick", limits.quick if batching else 1, limits.waiting)
        self.slow = Pool("slow", limits.slow if batching else 1, limits.waiting)
        self.unseen = Pool("unseen", limits.unseen, limits.waiting)
        self.pictures = Pool("pictures", 1, limits.waiting)
        self.pools = (self.quick, self.slow, self.unseen, self.pictures)
        for pool in self.pools:
            self.metrics.watch(pool)

    def close(self) -> None:
        """Answers what was accepted, then stops."""
        self.draining = True
        for pool in self.pools:
            pool.close()
        self.batcher.close()

    def queue_of(self, method: Method) -> Pool:
        """Methods that look for unseen originals have a queue of their own: they take minutes where others take
        seconds.
        """
        return self.unseen if "inverse" in method.settings() else self.slow

    async def answer(self, request: Request, pool: Pool, work: Callable[[Token], Any]) -> Any:
        """The job's result; if the client goes away first, the job is cancelled."""
        token = Token(self.limits.seconds)
        future = asyncio.wrap_future(self._submit(pool, work, token))
        try:
            while not (await asyncio.wait({future}, timeout=POLL))[0]:
                if await request.is_disconnected():
                    token.cancel()
            return future.result()
        except BaseException as error:
            self._note(error, token)
            raise

    async def stream(self, token: Token, submitted: Future[Any], expected: int | None) -> AsyncIterator[str]:
        """Server-sent events: `progress` now and then, at last `certificate` or `failure`. Closing it cancels the
        job.
        """
        future = asyncio.wrap_future(submitted)
        try:
            while not (await asyncio.wait({future}, timeout=PROGRESS))[0]:
                step = {"seconds": round(token.seconds, 2), "samples": token.samples, "expected": expected}
                yield _event("progress", step)
            yield _event("certificate", future.result())
        except Exception as error:
            self._note(error, token)
            status, sentence = status_of(error)
            if status == 500:  # outside of a stream uvicorn logs it
                log.error("a certificate failed", exc_info=error)
            yield _event("failure", {"status": status, "error": sentence})
        finally:
            token.cancel()
            if not future.done():
                self._note(CancelledError(), token)
                future.add_done_callback(lambda f: f.cancelled() or f.exception())

    def start(self, pool: Pool, work: Callable[[Token], Any]) -> tuple[Token, Future[Any]]:
        """A certificate in the making; a BusyError is raised at once, before any answer has begun."""
        token = Token(self.limits.seconds)
        return token, self._submit(pool, work, token)

    def _submit(self, pool: Pool, work: Callable[[Token], Any], token: Token) -> Future[Any]:
        try:
            return pool.submit(work, token)
        except BusyError:
            self.metrics.ended("busy")
            raise

    def _note(self, error: BaseException, token: Token) -> None:
        """Counts how a job ended early; whoever waits for it has gone, so it must stop."""
        token.cancel()
        reasons = {CancelledError: "cancelled", asyncio.CancelledError: "cancelled", LateError: "late"}
        self.metrics.ended(reasons.get(type(error), "refused" if isinstance(error, ValueError) else "failed"))


def status_of(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the sentence for what a job raised."""
    if isinstance(error, ValueError):
        return 422, str(error)
    if isinstance(error, LateError):
        return 504, str(error)
    if isinstance(error, BusyError):
        return 503, str(error)
    if isinstance(error, CancelledError):
        return 499, str(error)
    return 500, "the server failed; its log says why"


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
