"""What makes a ledger of copied rows: a new epoch, and numbers that go on above those in use."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, literal, select

from palimpsest.store.mapping import UtcTime
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.schema import index_log, meta, vectors
from palimpsest.store.writes.purge import ERASED_AT


def begin_epoch(conn: Connection, previous: str, now: datetime) -> None:
    """Begin the epoch after `previous`.

    It tells every index that it follows other rows now. A row of the index log for each user makes it look. A model's
    reply about the ledger as it was before is not stored (`purge.ERASED_AT`).
    """
    _set(conn, log_queries.EPOCH, str(int(previous) + 1))
    newest = select(func.max(vectors.c.seq), vectors.c.user_id, literal("upsert"), literal(now, UtcTime())).group_by(
        vectors.c.user_id
    )
    conn.execute(insert(index_log).from_select(["unit_seq", "user_id", "op", "at"], newest))
    _set(conn, ERASED_AT, str(log_queries.newest_log_number(conn)))


def _set(conn: Connection, key: str, value: str) -> None:
    conn.execute(delete(meta).where(meta.c.key == key))
    conn.execute(insert(meta).values(key=key, value=value))
