"""Count how often a model is asked a day (UTC), inside a transaction, over all processes of a ledger."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, insert

from palimpsest.store.queries.capture import CALLS, calls_on
from palimpsest.store.schema import meta


def take_call(conn: Connection, limit: int, now: datetime) -> bool:
    """Count one more call of the model, unless `limit` were made today (UTC). Return whether it may be made."""
    made = calls_on(conn, now)
    if made >= limit:
        return False
    conn.execute(delete(meta).where(meta.c.key == CALLS))
    conn.execute(insert(meta).values(key=CALLS, value=f"{now:%Y-%m-%d} {made + 1}"))
    return True
