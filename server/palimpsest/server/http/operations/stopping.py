"""End a server in order: first it is not ready, then it takes no connections, calls end, streams end, it closes."""

from __future__ import annotations

import signal
import socket
import time
from types import FrameType

import anyio
import uvicorn

from palimpsest.server.session.calls import UnderWay

CALLS_SECONDS = 20.0
"""How long calls that are under way may go on after the server stopped to listen. With the streams' time after it, it
is below the 30 seconds after which Kubernetes kills a process. Set by hand."""

LOOK_SECONDS = 0.1
"""How often it is looked whether calls have ended. The handler of a signal cannot set an event of the loop; the rest of
uvicorn looks as often."""


class DrainingServer(uvicorn.Server):
    """A server that SIGTERM ends in order, and that a second signal, or Ctrl-C, ends without waiting for calls.

    For `drain_seconds` after SIGTERM it serves as before and only `is_draining`. Then it waits for what is `under_way`,
    because streams, among them those that calls are answered in, end as soon as `should_exit` is set. What ended in
    order ends with the status 0.
    """

    def __init__(self, config: uvicorn.Config, under_way: UnderWay, drain_seconds: float) -> None:
        super().__init__(config)
        self._under_way = under_way
        self._drain_seconds = drain_seconds
        self._stop_at: float | None = None

    @property
    def is_draining(self) -> bool:
        """Return whether the server is asked to stop."""
        return self._stop_at is not None or self.should_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if sig != signal.SIGTERM or self.is_draining:
            super().handle_exit(sig, frame)
        else:
            self._stop_at = time.monotonic() + self._drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now."""
        is_time = self._stop_at is not None and time.monotonic() >= self._stop_at
        return await super().on_tick(counter) or is_time

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, wait for calls, and then end everything else."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        end = time.monotonic() + CALLS_SECONDS
        while self._under_way.number and not self.should_exit and time.monotonic() < end:  # noqa: ASYNC110 - see LOOK_SECONDS
            await anyio.sleep(LOOK_SECONDS)
        self.should_exit = True
        await super().shutdown(sockets)
