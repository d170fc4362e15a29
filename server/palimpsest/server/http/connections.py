"""Connections that send no request: how long one may stay open, and how many connections there may be."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 900
"""A process may often open 1,024 files, and the ledger, the index and the log need some of them."""

REQUEST_SECONDS = 10.0
"""How long a connection may take from its start, or from its last response, to the end of a request's headers."""


class BoundedConnection(H11Protocol):
    """A connection of uvicorn's. It is closed if it waits too long, or longest while there are too many.

    It waits while no request of it is being answered: for headers, or for the rest of a body that nobody reads. It is
    based on h11, which strips whitespace around header values, as RFC 9110 demands; httptools does not.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. If there are too many, close the one that waits longest; it may be this one."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            _abort_longest_waiting(self.connections)

    def data_received(self, data: bytes) -> None:
        """Handle what the client sends."""
        super().data_received(data)
        if self._is_answering() and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self._is_answering():
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    @property
    def waits_until(self) -> float | None:
        """Return when the connection will be closed, in seconds of the event loop; None while it is being answered."""
        return None if self._deadline is None else self._deadline.when()

    def abort(self) -> None:
        """Close the connection at once, even if a response is not read."""
        self.connections.discard(self)
        self.transport.abort()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] - it is None before the first request

    def _await_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)


def _abort_longest_waiting(connections: set[Any]) -> None:
    """Close the connection that waits longest. The newest waits too, so there is one."""
    waiting = [connection for connection in connections if connection.waits_until is not None]
    min(waiting, key=lambda connection: connection.waits_until).abort()
