"""Connections on which nothing happens: how long one may stay open, and how many connections there may be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import h11
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

    waiting_since: float | None = None
    """When it began to wait, by the monotonic clock, in seconds; None while it is being answered.

    The event loop's own time may be too coarse to say which of two connections waits longer.
    """

    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. If there are too many, close the one that waits longest; it may be this one."""
        super().connection_made(_LingeringTransport(transport, self._is_client_sending))  # pyright: ignore[reportArgumentType] - it has all of a transport
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            _abort_longest_waiting(self.connections)

    def data_received(self, data: bytes) -> None:
        """Handle what the client sends. Drop it once the connection is closing."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

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
        self._stop_waiting()
        self._read_timer = _cancelled(self._read_timer)

    def abort(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] - it is None before the first request

    def _await_request(self) -> None:
        self._stop_waiting()
        self.waiting_since = time.monotonic()
        self._request_timer = self.loop.call_later(REQUEST_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        self._request_timer = _cancelled(self._request_timer)

    def _close(self) -> None:
        """Close the connection once the client has read the last response, or has taken too long for it."""
        self.transport.close()
        self._request_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def _is_client_sending(self) -> bool:
        """Return whether the client may be in the middle of a request."""
        return self.conn.their_state in {h11.SEND_BODY, h11.ERROR}


class _LingeringTransport:
    """A transport that closes only its own direction at first, if the client may still be sending.

    A socket that is closed with unread bytes resets the connection, and the client may lose a response that it has
    not read yet (RFC 9112, section 9.6). The second call of `close` closes it wholly.
    """

    def __init__(self, transport: Any, is_client_sending: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_client_sending = is_client_sending
        self._is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if self.is_closing() or not self._is_client_sending():
            self._transport.close()
            return
        self._is_lingering = True
        self._transport.write_eof()
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._is_lingering or self._transport.is_closing()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _abort_longest_waiting(connections: set[Any]) -> None:
    """Close the connection that waits longest. The newest waits too, so there is one."""
    waiting = [connection for connection in connections if connection.waiting_since is not None]
    min(waiting, key=lambda connection: connection.waiting_since).abort()
