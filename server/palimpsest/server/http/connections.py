"""Connections on which nothing happens: how long one may stay open, and how many connections there may be."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 900
"""A process may often open 1,024 files, and the ledger, the index and the log need some of them."""

REQUEST_SECONDS = 10.0
"""How long a connection may take from its start, or from its last response, to the end of a request's headers."""

READ_SECONDS = 60.0
"""How long a client may take to read anything of a response, while some of it waits to be sent."""


class BoundedConnection(H11Protocol):
    """A connection of uvicorn's. It is closed if it waits too long, or longest while there are too many.

    It waits while no request of it is being answered: for headers, or for the rest of a body that nobody reads. It is
    based on h11, which strips whitespace around header values, as RFC 9110 demands; httptools does not.
    """

    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. If there are too many, close the one that waits longest; it may be this one."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            _abort_longest_waiting(self.connections)

    def data_received(self, data: bytes) -> None:
        """Handle what the client sends."""
        super().data_received(data)
        if self._is_answering():
            self._request_timer = _cancelled(self._request_timer)

    def on_response_complete(self) -> None:
        """Drop what nobody has read of the body, and wait for the next request."""
        self.cycle.body.clear()
        super().on_response_complete()
        if not self._is_answering():
            self._await_request()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as the server writes."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._read_timer = _cancelled(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._request_timer = _cancelled(self._request_timer)
        self._read_timer = _cancelled(self._read_timer)

    @property
    def waits_until(self) -> float | None:
        """Return when the connection will be closed, in seconds of the event loop; None while it is being answered."""
        return None if self._request_timer is None else self._request_timer.when()

    def abort(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] - it is None before the first request

    def _await_request(self) -> None:
        _cancelled(self._request_timer)
        self._request_timer = self.loop.call_later(REQUEST_SECONDS, self._close)

    def _close(self) -> None:
        """Close the connection once the client has read the last response, or has taken too long for it."""
        self.transport.close()
        self._request_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _abort_longest_waiting(connections: set[Any]) -> None:
    """Close the connection that waits longest. The newest waits too, so there is one."""
    waiting = [connection for connection in connections if connection.waits_until is not None]
    min(waiting, key=lambda connection: connection.waits_until).abort()
