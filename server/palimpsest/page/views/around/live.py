"""Tell an open page that something has changed, in this process or another one, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import cast

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from palimpsest.core.errors import LedgerError
from palimpsest.facade.page.changes import Changes, Look
from palimpsest.page.asked import memory_of, visitor_of

LOOK_SECONDS = 1.0
"""How often a stream looks at the index log. Set by hand: what is added is shown at once, as people see it."""

SAY_SECONDS = 15.0
"""How long a stream is silent at most, so that nothing on the way takes it for dead. Set by hand."""

MAX_STREAMS = 64
"""How many pages are told at once. A browser opens one stream for each tab that is seen. Set by hand."""


class Streams:
    """Counts the open streams of a server, and ends them when it is asked to stop."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(MAX_STREAMS)
        self.is_ending: Callable[[], bool] = lambda: False

    def end_when(self, is_stopping: Callable[[], bool]) -> None:
        """End all streams, within `LOOK_SECONDS`, when a function says so."""
        self.is_ending = is_stopping

    async def counted(self, events: AsyncGenerator[str], owner: object) -> AsyncGenerator[str]:
        """Yield the events of a stream that was counted for an owner, and count it no more at the end."""
        try:
            async for event in events:
                yield event
        finally:
            self._limiter.release_on_behalf_of(owner)

    def take(self, owner: object) -> bool:
        """Count a stream; return whether there was room for it."""
        try:
            self._limiter.acquire_on_behalf_of_nowait(owner)
        except anyio.WouldBlock:
            return False
        return True


async def live(request: Request) -> Response:
    """Send the event `changed` whenever something of the visitor's user has changed."""
    memory, streams, owner = await memory_of(request), cast("Streams", request.app.state.streams), object()
    changes = Changes(memory.engine, visitor_of(request).grant.user_id)
    if not streams.take(owner):
        return Response("too many pages are open; this one is not told of changes", 503)
    last = _look_from(request.headers.get("last-event-id", ""))
    events = _events(changes, last, streams)
    return StreamingResponse(streams.counted(events, owner), media_type="text/event-stream")


async def _events(changes: Changes, last: Look | None, streams: Streams) -> AsyncGenerator[str]:
    """Yield server-sent events until the server stops, or the ledger cannot be read.

    Every answer ends once its visitor may no longer look.
    """
    try:
        look = last or await changes.look()
        yield f"retry: 3000\nid: {look.number} {look.epoch}\n\n"
        silent = 0.0
        while not streams.is_ending():
            look = await changes.look(look)
            if look.is_new:
                yield f"event: changed\nid: {look.number} {look.epoch}\ndata: \n\n"
                silent = 0.0
            elif silent >= SAY_SECONDS:
                yield ":\n\n"
                silent = 0.0
            await anyio.sleep(LOOK_SECONDS)
            silent += LOOK_SECONDS
    except LedgerError:
        return  # the browser asks again


def _look_from(event_id: str) -> Look | None:
    """Return the look that an event named, from which a browser that was cut off goes on."""
    number, _, epoch = event_id.partition(" ")
    return Look(int(number), epoch) if number.isdecimal() and epoch else None
