"""Read the index log, the numbered sequence of changes that vector indexes follow."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from palimpsest.core.search.hits import ChangedMemory, IndexLogRow
from palimpsest.store.schema import index_log, memories, meta

EPOCH = "epoch"
"""The key in `meta` of the epoch: how often rows were erased, or all rows were replaced. Each time, indexes that were
built before must be rebuilt."""


def newest_log_number(conn: Connection) -> int:
    """Return the newest number of the index log, or 0 if it is empty."""
    return conn.execute(_NEWEST).scalar_one() or 0


_NEWEST = select(func.max(index_log.c.seq))


def log_rows_after(conn: Connection, log_number: int, limit: int) -> list[IndexLogRow]:
    """Return the next `limit` rows of the index log after a number, oldest first."""
    rows = conn.execute(_ROWS_AFTER, {"log_number": log_number, "limit": limit})
    return [IndexLogRow(row.seq, row.unit_seq, row.user_id, row.op) for row in rows]


_ROWS_AFTER = (
    select(index_log)
    .where(index_log.c.seq > bindparam("log_number"))
    .order_by(index_log.c.seq)
    .limit(bindparam("limit"))
)


def log_signature(conn: Connection, log_number: int) -> str:
    """Return a text that identifies a row of the index log: the epoch, and what the row says.

    It tells the row from another row of the same number in a ledger that was restored from a backup. For 0, and for a
    number that the ledger does not have, it is the epoch alone.
    """
    row = conn.execute(_ROW, {"log_number": log_number}).one_or_none()
    current = epoch(conn)
    return current if row is None else _signature(current, row)


_ROW = select(index_log.c.unit_seq, index_log.c.op, index_log.c.at).where(index_log.c.seq == bindparam("log_number"))


def newest_position(conn: Connection) -> tuple[int, str]:
    """Return the newest number of the index log and its signature, in one statement for a log that is not empty."""
    row = conn.execute(_NEWEST_ROW).one_or_none()
    return (0, epoch(conn)) if row is None else (row.seq, _signature(row.epoch or "0", row))


def _signature(current_epoch: str, row: Any) -> str:
    return f"{current_epoch} {row.unit_seq} {row.op} {row.at.isoformat()}"


def epoch(conn: Connection) -> str:
    """Return how often rows were erased, or all rows were replaced."""
    return conn.execute(_EPOCH).scalar_one_or_none() or "0"


_EPOCH = select(meta.c.value).where(meta.c.key == EPOCH)

_NEWEST_ROW = (
    select(
        index_log.c.seq,
        index_log.c.unit_seq,
        index_log.c.op,
        index_log.c.at,
        _EPOCH.scalar_subquery().label("epoch"),
    )
    .order_by(index_log.c.seq.desc())
    .limit(1)
)


def entries_changed_since(conn: Connection, user_id: str, log_number: int, limit: int) -> list[int]:
    """Return up to `limit` entries of a user that the index log names after a number."""
    return list(conn.execute(_CHANGED, {"user_id": user_id, "log_number": log_number, "limit": limit}).scalars())


_CHANGED = (
    select(index_log.c.unit_seq)
    .distinct()
    .where(index_log.c.seq > bindparam("log_number"), index_log.c.user_id == bindparam("user_id"))
    .limit(bindparam("limit"))
)


def has_changed_since(conn: Connection, user_id: str, log_number: int) -> bool:
    """Return whether the index log names anything of a user after a number."""
    return conn.execute(_HAS_CHANGED, {"user_id": user_id, "log_number": log_number}).scalar() is not None


_HAS_CHANGED = (
    select(index_log.c.seq)
    .where(index_log.c.seq > bindparam("log_number"), index_log.c.user_id == bindparam("user_id"))
    .limit(1)
)


def changed_memories(conn: Connection, log_number: int, limit: int) -> list[ChangedMemory]:
    """Return the memories that changed after a number of the index log, in its order. Erased ones are left out."""
    return [ChangedMemory(*row) for row in conn.execute(_CHANGED_MEMORIES, {"log_number": log_number, "limit": limit})]


_CHANGED_MEMORIES = (
    select(index_log.c.seq, memories.c.id, memories.c.revision, memories.c.user_id, memories.c.project)
    .join(memories, memories.c.id == index_log.c.memory_id)
    .where(index_log.c.seq > bindparam("log_number"))
    .order_by(index_log.c.seq)
    .limit(bindparam("limit"))
)
