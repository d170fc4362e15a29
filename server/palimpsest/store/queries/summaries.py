"""Read summaries, and what changed since one was written."""

from __future__ import annotations

from sqlalchemy import Connection, exists, func, select

from palimpsest.core.models import Scope, Summary
from palimpsest.store.mapping import is_scope, sees, to_summary
from palimpsest.store.schema import history, index_log, memories, summaries, vectors


def latest_summary(conn: Connection, scope: Scope, kind: str) -> Summary | None:
    """Return the newest summary of exactly this scope and kind, or None if there is none."""
    query = (
        select(summaries)
        .where(is_scope(summaries, scope), summaries.c.kind == kind)
        .order_by(summaries.c.id.desc())
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else to_summary(row)


def current_summary(conn: Connection, scope: Scope, kind: str) -> Summary | None:
    """Return the newest summary of exactly this scope and kind unless it may say what no longer holds."""
    last = latest_summary(conn, scope, kind)
    return None if last is None or has_corrections_since(conn, scope, last.seq) else last


def count_changes_since(conn: Connection, scope: Scope, log_number: int) -> int:
    """Return how many times memories that the scope sees changed after a number of the index log."""
    query = (
        select(func.count())
        .select_from(index_log.join(memories, memories.c.id == index_log.c.memory_id))
        .where(index_log.c.user_id == scope.user_id, index_log.c.seq > log_number, sees(memories, scope))
    )
    return conn.execute(query).scalar_one()


def has_corrections_since(conn: Connection, scope: Scope, log_number: int) -> bool:
    """Return whether what a summary may say was deleted, replaced or reworded after a number of the index log.

    Such a summary is not shown again, because a model would believe it.
    """
    # A mention of a memory is in the log too. What changes the memory also leaves a row of history, at the same time.
    changed = exists().where(history.c.memory_id == memories.c.id, history.c.updated_at == index_log.c.at)
    reworded = (
        select(index_log.c.seq)
        .join(memories, memories.c.id == index_log.c.memory_id)
        .where(
            index_log.c.user_id == scope.user_id,
            index_log.c.seq > log_number,
            memories.c.revision > 1,
            changed,
            sees(memories, scope),
        )
    )
    return _has_deletions_since(conn, scope, log_number) or conn.execute(reworded.limit(1)).first() is not None


def _has_deletions_since(conn: Connection, scope: Scope, log_number: int) -> bool:
    """Return whether a memory or message that the scope sees was deleted after a number of the index log.

    A superseded memory counts as deleted.
    """
    of_memories = (
        select(index_log.c.seq)
        .join(memories, memories.c.id == index_log.c.memory_id)
        .where(
            index_log.c.user_id == scope.user_id,
            index_log.c.seq > log_number,
            memories.c.deleted_at.is_not(None),
            sees(memories, scope),
        )
    )
    of_messages = (
        select(index_log.c.seq)
        .join(vectors, vectors.c.seq == index_log.c.unit_seq)
        .where(
            index_log.c.user_id == scope.user_id,
            index_log.c.seq > log_number,
            index_log.c.op == "delete",
            vectors.c.kind == "message",
            sees(vectors, scope),
        )
    )
    return any(conn.execute(query.limit(1)).first() is not None for query in (of_memories, of_messages))
