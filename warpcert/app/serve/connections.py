"""Connections: the listening socket, and clients that open one and then say nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["impatient", "listen"]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; a ValueError says why it cannot."""
    if not 0 <= port <= 65_535:
        raise ValueError(f"a port lies in 0 … 65535; got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(
            f"port {port} of {host} cannot be used ({why}): choose another one, or 0 for one that is free"
        ) from None


def impatient(seconds: float) -> type[H11Protocol]:
    """uvicorn's HTTP, which closes a connection on which no whole head of a request comes for so many seconds."""

    @final
    class Impatient(H11Protocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:  # a head has come
                self._stop()
            elif self.conn.trailing_data[0] and self._waiting is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def _stop(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if not self.transport.is_closing():
                self.transport.close()

    return Impatient
