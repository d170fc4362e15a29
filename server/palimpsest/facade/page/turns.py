"""Where a message stands in its conversation."""

from __future__ import annotations

from sqlalchemy import Connection

from palimpsest.core.models import Scope
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import conversations as queries


async def cursor_before(engine: Engine, scope: Scope, message_id: str, context: int) -> str | None:
    """Return the cursor of the page of a conversation that begins `context` messages before one of its messages.

    It is None if there are not so many, and if there is no such message. Raises LedgerError.
    """

    def read(conn: Connection) -> str | None:
        row = queries.row_before(conn, scope, message_id, context)
        return None if row is None else str(row)

    return await engine.read(read)
