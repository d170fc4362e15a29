"""Questions about memories, messages, history and summaries. Each takes a connection of `Ledger.read`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, func, or_, select

from palimpsest.errors import InputError, MemoryNotFoundError
from palimpsest.ledger.rows import chunks, is_scope, sees, to_history, to_memory, to_message, to_summary, with_state
from palimpsest.ledger.tables import changes, history, memories, memory_sources, messages, summaries, vectors
from palimpsest.records import HistoryEntry, Memory, Message, Scope, Summary

MIN_PREFIX = 8
"""Shorter beginnings of an id are not taken for it."""


def head(conn: Connection) -> int:
    """Return the newest number of the change log; 0 when nothing has been written."""
    return conn.execute(select(func.max(changes.c.seq))).scalar_one() or 0


def find_memory(conn: Connection, scope: Scope, memory_id: str, *, deleted: bool | None = False) -> Memory:
    """Return the memory whose id is, or uniquely begins with, `memory_id`.

    `deleted` says which are meant: living, deleted, or both (None). Raises MemoryNotFoundError, and InputError
    for a beginning that is too short or fits several.
    """
    wanted = memory_id.strip(" []").lower()
    if len(wanted) < MIN_PREFIX:
        raise InputError(f"'{memory_id}' is too short for a memory id; give at least {MIN_PREFIX} characters")
    query = select(memories).where(memories.c.id.startswith(wanted, autoescape=True), sees(memories, scope)).limit(2)
    if deleted is not None:
        query = query.where(memories.c.deleted_at.is_not(None) if deleted else memories.c.deleted_at.is_(None))
    rows = conn.execute(query).all()
    if len(rows) > 1:
        which = "; ".join(f"{row.id} ({row.text[:60]})" for row in rows)
        raise InputError(f"several memories begin with '{memory_id}'; give more of the id: {which}")
    if not rows and deleted is False:
        _refuse_deleted(conn, scope, wanted)
    if not rows:
        turn = select(messages.c.id).where(messages.c.id.startswith(wanted, autoescape=True), sees(messages, scope))
        if conn.execute(turn.limit(1)).first() is not None:
            raise InputError(
                f"'{memory_id}' is a turn of a conversation, which stays as it was said; only memories can be changed. "
                "A turn is no longer found once the memories learnt from it are deleted."
            )
        state = {True: "deleted memory", False: "memory", None: "memory, living or deleted,"}[deleted]
        raise MemoryNotFoundError(
            f"no {state} '{memory_id}' in this scope ({scope}); take ids from search_memories or list_memories"
        )
    return to_memory(rows[0])


def _refuse_deleted(conn: Connection, scope: Scope, wanted: str) -> None:
    """Raise MemoryNotFoundError saying what became of a memory that is deleted or superseded."""
    query = select(memories).where(
        memories.c.id.startswith(wanted, autoescape=True), sees(memories, scope), memories.c.deleted_at.is_not(None)
    )
    row = conn.execute(query.limit(1)).first()
    if row is not None:
        fate = f"was superseded by '{row.superseded_by[:MIN_PREFIX]}'" if row.superseded_by else "is deleted already"
        raise MemoryNotFoundError(
            f"memory '{wanted}' {fate}, so nothing was done; update_memory(restore=true) brings it back"
        )


def list_memories(
    conn: Connection, scope: Scope, limit: int, *, before: int | None = None, deleted: bool = False
) -> list[tuple[int, Memory]]:
    """Return up to `limit` memories with their row numbers, newest first, from below row `before`."""
    query = (
        select(memories)
        .where(
            sees(memories, scope),
            memories.c.deleted_at.is_not(None) if deleted else memories.c.deleted_at.is_(None),
        )
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(memories.c.seq < before)
    return [(row.seq, to_memory(row)) for row in conn.execute(query)]


def count_memories(conn: Connection, scope: Scope) -> int:
    """Return how many living memories the scope sees."""
    query = select(func.count()).where(sees(memories, scope), memories.c.deleted_at.is_(None))
    return conn.execute(query).scalar_one()


def stored_in(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of a scope itself, without the global ones that a project sees besides."""
    query = select(memories).where(
        sees(memories, scope), memories.c.project == scope.project, memories.c.deleted_at.is_(None)
    )
    return [to_memory(row) for row in conn.execute(query)]


def memories_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Memory]:
    """Return memories, living or deleted, by id."""
    return {
        row.id: to_memory(row)
        for chunk in chunks(ids)
        for row in conn.execute(select(memories).where(memories.c.id.in_(chunk)))
    }


def messages_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Message]:
    """Return messages by id."""
    return {
        row.id: to_message(row)
        for chunk in chunks(ids)
        for row in conn.execute(select(messages).where(messages.c.id.in_(chunk)))
    }


def sources_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, list[Message]]:
    """Return the messages behind each memory, oldest first."""
    found: dict[str, list[Message]] = {}
    for chunk in chunks(memory_ids):
        query = (
            select(memory_sources.c.memory_id, messages)
            .join(messages, messages.c.id == memory_sources.c.message_id)
            .where(memory_sources.c.memory_id.in_(chunk))
            .order_by(messages.c.seq)
        )
        for row in conn.execute(query):
            found.setdefault(row.memory_id, []).append(to_message(row))
    return found


def citing(conn: Connection, message_ids: Sequence[str]) -> dict[str, list[Memory]]:
    """Return the memories, living and deleted, that came from each message."""
    found: dict[str, list[Memory]] = {}
    for chunk in chunks(message_ids):
        query = (
            select(memory_sources.c.message_id, memories)
            .join(memories, memories.c.id == memory_sources.c.memory_id)
            .where(memory_sources.c.message_id.in_(chunk))
        )
        for row in conn.execute(query):
            found.setdefault(row.message_id, []).append(to_memory(row))
    return found


def history_of(conn: Connection, memory_id: str) -> list[HistoryEntry]:
    """Return every change of a memory, oldest first, with the caller's ids of the messages behind each."""
    sources: dict[str, list[str]] = {}
    query = (
        select(memory_sources.c.history_id, messages.c.id, messages.c.external_id)
        .join(messages, messages.c.id == memory_sources.c.message_id)
        .where(memory_sources.c.memory_id == memory_id)
        .order_by(messages.c.seq)
    )
    for row in conn.execute(query):
        sources.setdefault(row.history_id, []).append(row.external_id or row.id)
    rows = conn.execute(select(history).where(history.c.memory_id == memory_id).order_by(history.c.seq))
    return [to_history(row, tuple(sources.get(row.id, ()))) for row in rows]


def recent_messages(conn: Connection, scope: Scope, limit: int) -> list[Message]:
    """Return the newest messages of just this scope, oldest first."""
    query = select(messages).where(is_scope(messages, scope)).order_by(messages.c.seq.desc()).limit(limit)
    return [to_message(row) for row in conn.execute(query)][::-1]


def messages_since(conn: Connection, scope: Scope, since: datetime, limit: int) -> list[Message]:
    """Return the newest messages the scope sees that were said since an instant, oldest first."""
    query = (
        select(messages)
        .where(sees(messages, scope), messages.c.said_at >= since)
        .order_by(messages.c.seq.desc())
        .limit(limit)
    )
    return [to_message(row) for row in conn.execute(query)][::-1]


def messages_until(conn: Connection, scope: Scope, instant: datetime) -> list[Message]:
    """Return the messages the scope sees that were stored up to an instant, oldest first."""
    query = select(messages).where(sees(messages, scope), messages.c.created_at <= instant).order_by(messages.c.seq)
    return [to_message(row) for row in conn.execute(query)]


def latest_summary(conn: Connection, scope: Scope, kind: str) -> Summary | None:
    """Return the newest summary of just this scope and kind."""
    query = (
        select(summaries)
        .where(is_scope(summaries, scope), summaries.c.kind == kind)
        .order_by(summaries.c.id.desc())
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else to_summary(row)


def changes_since(conn: Connection, scope: Scope, seq: int) -> int:
    """Return how many changes of memories the scope has seen after number `seq` of the log."""
    query = (
        select(func.count())
        .select_from(changes.join(memories, memories.c.id == changes.c.memory_id))
        .where(changes.c.user_id == scope.user_id, changes.c.seq > seq, sees(memories, scope))
    )
    return conn.execute(query).scalar_one()


def believed_at(conn: Connection, scope: Scope, instant: datetime) -> list[Memory]:
    """Return the memories that were believed at an instant, as they were then."""
    last = (
        select(func.max(history.c.seq).label("seq"))
        .join(memories, memories.c.id == history.c.memory_id)
        .where(sees(memories, scope), history.c.updated_at <= instant)
        .group_by(history.c.memory_id)
        .subquery()
    )
    query = (
        select(memories, history.c.new_memory, history.c.state, history.c.updated_at.label("changed_at"))
        .join(history, history.c.memory_id == memories.c.id)
        .join(last, last.c.seq == history.c.seq)
        .where(history.c.is_deleted.is_(False))
    )
    return [with_state(to_memory(row), row.new_memory, row.state, row.changed_at) for row in conn.execute(query)]


def deleted_since(conn: Connection, scope: Scope, seq: int) -> bool:
    """Say whether a memory the scope sees was deleted or superseded after number `seq` of the log."""
    query = (
        select(changes.c.seq)
        .join(memories, memories.c.id == changes.c.memory_id)
        .where(
            changes.c.user_id == scope.user_id,
            changes.c.seq > seq,
            memories.c.deleted_at.is_not(None),
            sees(memories, scope),
        )
    )
    return conn.execute(query.limit(1)).first() is not None


def known_names(conn: Connection, scope: Scope) -> list[str]:
    """Return the names of those who spoke in what the scope sees."""
    query = select(messages.c.name).where(sees(messages, scope), messages.c.name != "").distinct()
    return list(conn.execute(query).scalars())


def counts(conn: Connection, scope: Scope) -> dict[str, int]:
    """Return how much there is: for the scope, and in the whole ledger."""
    alive = memories.c.deleted_at.is_(None)
    queries = {
        "memories": select(func.count()).where(sees(memories, scope), alive),
        "deleted": select(func.count()).where(sees(memories, scope), or_(memories.c.deleted_at.is_not(None))),
        "messages": select(func.count()).where(sees(messages, scope)),
        "units": select(func.count()).where(vectors.c.live.is_(True)),
        "users": select(func.count(vectors.c.user_id.distinct())),
    }
    return {name: conn.execute(query).scalar_one() for name, query in queries.items()}
