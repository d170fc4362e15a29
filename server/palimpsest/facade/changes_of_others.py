"""Hear which memories have changed, whichever server changed them, if the database of the ledger tells."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio
import anyio.to_thread
from sqlalchemy import Connection

from palimpsest.core.errors import LedgerError
from palimpsest.core.search.hits import ChangedMemory
from palimpsest.core.threads import in_background
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import index_log as queries

LOOK_SECONDS = 5.0
"""How often the index log is looked at if nothing is heard, because the connection may be lost. Set by hand."""

MAX_CHANGED = 500
"""How many memories are told of at once. Set by hand: more changed in one moment are an import."""

OnChanged: TypeAlias = Callable[[Sequence[ChangedMemory]], Awaitable[None]]

logger = logging.getLogger(__name__)


async def hear_changes(engine: Engine, on_changed: OnChanged) -> None:
    """Await `on_changed` with the memories that change, until cancelled. Return at once if the database does not tell.

    Without an answer of the database, changes are told of when it answers again.
    """
    listener = await engine.run(engine.ledger.listener)
    if listener is None:
        return
    limit = anyio.CapacityLimiter(1)  # a thread of its own, because it waits most of the time
    try:
        with in_background():
            number: int | None = None
            while True:
                try:
                    await anyio.to_thread.run_sync(listener.wait, LOOK_SECONDS, limiter=limit, abandon_on_cancel=True)
                    number = await _tell(engine, on_changed, number)
                except LedgerError as error:
                    logger.warning("changes by other servers are not heard for a while: %s", error)
                    await anyio.sleep(LOOK_SECONDS)
    finally:
        listener.close()


async def _tell(engine: Engine, on_changed: OnChanged, after: int | None) -> int:
    """Tell of what changed after a number of the index log, and return the newest. With None nothing has changed."""

    def look(conn: Connection) -> tuple[int, list[ChangedMemory]]:
        newest = queries.newest_log_number(conn)
        if after is None or newest == after:
            return newest, []
        changed = queries.changed_memories(conn, after, MAX_CHANGED)
        return (changed[-1].log_number if len(changed) == MAX_CHANGED else newest), changed

    newest, changed = await engine.read(look)
    if changed:
        await on_changed(changed)
    return newest
