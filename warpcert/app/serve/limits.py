"""What a server lets through: sizes, ranges, times; and the gate in front of every request that enforces them."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warpcert.app.serve.metrics import Metrics

__all__ = ["LOCAL", "Gate", "Limits", "hosts_of"]

OPEN = ("/", "/docs", "/healthz")  # need no token: the page asks for it
LOCAL = ("127.0.0.1", "::1", "localhost")


def hosts_of(host: str, more: Iterable[str] = ()) -> frozenset[str] | None:
    """The names by which a server that listens on this address may be asked; None: by any.

    A page from elsewhere can have its own name point to 127.0.0.1 (DNS rebinding): to the browser both are then one
    site. It cannot change the name that the browser asks for.
    """
    return frozenset({*LOCAL, *(name.lower() for name in more)}) if host in LOCAL else None


@final
@dataclass(frozen=True)
class Limits:
    """A server's limits. Γ is limited per axis, in surface units, for certificates; None: the served Γ."""

    body: int = 1 << 20  # bytes of a request
    upload: int = 1 << 24  # bytes of a photograph that is to be made fit
    body_seconds: float = 20.0  # for a request to arrive in
    n: int = 100_000  # samples of one request
    alpha: float = 1e-9  # smallest
    windows: int = 9
    cells: int = 200  # of the possible originals
    gamma: float | None = None
    seconds: float = 60.0  # per request, waiting included
    waiting: int = 64  # requests in line, per kind
    quick: int = 16  # threads that answer predictions
    slow: int = 2  # threads that certify
    unseen: int = 1  # threads that certify unseen originals, which takes longest

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"the limit {name} must be positive; got {value}")

    def check(self, name: str, value: float, low: float, high: float) -> None:
        """Raises a ValueError unless low ≤ value ≤ high."""
        if not low <= value <= high:
            raise ValueError(f"{name} = {value:g} is outside what this server allows, {low:g} … {high:g}")


@final
class Gate:
    """Refuses before any work is done: other names, other sites' pages, missing tokens, bodies that are too large or
    too slow.

    A body is measured while it arrives; beyond the limit nothing is kept, and soon nothing read. Counts and times every
    answer.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, token: str | None, hosts: frozenset[str] | None, metrics: Metrics
    ) -> None:
        self.app, self.limits, self.token, self.hosts, self.metrics = app, limits, token, hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = Headers(scope=scope)
            refusal = self._refuse(scope["path"], headers)
            if refusal and "expect" not in headers:
                await self._discard(receive)
            await (refusal or self._inside)(scope, receive, counted)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self.metrics.answered(path, status or 499, time.perf_counter() - start)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, self._measured(receive, self._room(scope["path"])), send)

    def _refuse(self, path: str, headers: Headers) -> JSONResponse | None:
        """The refusal that the headers alone call for."""
        host = urlsplit(f"//{headers.get('host', '')}").hostname
        if self.hosts is not None and host not in self.hosts:
            return _error(403, f"this server is asked by the name of {host or 'nobody'}, which is not one of its own")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return _error(403, f"requests from pages of {origin} are not answered")
        if self.token is not None and path not in OPEN:
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                say = "this server needs a token: send the header Authorization: Bearer TOKEN"
                return _error(401, say, {"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._room(path):
            return _error(413, _too_large(self._room(path)), {"Connection": "close"})
        return None

    def _room(self, path: str) -> int:
        """Bytes that a request to this path may have."""
        return self.limits.upload if path == "/v1/picture" else self.limits.body

    async def _discard(self, receive: Receive) -> None:
        """Lets go what a refused client is still sending, within bounds: it would not hear the refusal otherwise."""
        left = 8 * self.limits.body
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while left > 0 and (message := await receive()).get("more_body"):
                    left -= len(message["body"])

    def _measured(self, receive: Receive, room: int) -> Receive:
        size, complete, deadline = 0, False, time.monotonic() + self.limits.body_seconds

        async def measured() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()  # waits for the client to go away
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise HTTPException(
                    408, f"the request did not arrive within {self.limits.body_seconds:g} s", {"Connection": "close"}
                ) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > room:
                await self._discard(receive)
                raise HTTPException(413, _too_large(room), {"Connection": "close"})
            return message

        return measured


def _too_large(room: int) -> str:
    return f"the request is larger than the {room} bytes that this server allows"


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    body: dict[str, Any] = {"error": sentence}
    return JSONResponse(body, status, headers)
