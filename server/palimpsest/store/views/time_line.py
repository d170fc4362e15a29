"""Count and read what a memory holds of a span of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, String, cast, func, or_, select

from palimpsest.core.models import PAGE, Memory, Scope
from palimpsest.store.mapping import sees, to_memory
from palimpsest.store.schema import TIME_ABOUT, memories, messages

Unit: TypeAlias = Literal["day", "month", "year"]

_CHARS: dict[Unit, int] = {"day": 10, "month": 7, "year": 4}
"""How much of an instant in ISO 8601 names its day, month or year."""

_IS_TURN = messages.c.role != PAGE
"""The condition for messages of conversations."""


def count_memories(conn: Connection, scope: Scope, unit: Unit, begin: datetime, end: datetime) -> dict[str, int]:
    """Return how many living memories are about each day, month or year from `begin` until before `end`.

    The keys are as in ISO 8601; a unit without any is not among them.
    """
    is_counted = (sees(memories, scope), memories.c.deleted_at.is_(None), *_within(TIME_ABOUT, begin, end))
    return _counted(conn, TIME_ABOUT, unit, is_counted)


def count_stored_memories(conn: Connection, scope: Scope, unit: Unit, begin: datetime, end: datetime) -> dict[str, int]:
    """Return how many of the living memories were stored on each day, in each month or year."""
    stored = memories.c.created_at
    return _counted(
        conn, stored, unit, (sees(memories, scope), memories.c.deleted_at.is_(None), *_within(stored, begin, end))
    )


def count_messages(conn: Connection, scope: Scope, unit: Unit, begin: datetime, end: datetime) -> dict[str, int]:
    """Return how many living messages of conversations were said on each day, in each month or year."""
    said = messages.c.said_at
    is_counted = (sees(messages, scope), messages.c.deleted_at.is_(None), _IS_TURN, *_within(said, begin, end))
    return _counted(conn, said, unit, is_counted)


def memories_about(conn: Connection, scope: Scope, begin: datetime, end: datetime, limit: int) -> list[Memory]:
    """Return up to `limit` living memories that are about a span of time, in the order of their times."""
    query = (
        select(memories)
        .where(sees(memories, scope), memories.c.deleted_at.is_(None), *_within(TIME_ABOUT, begin, end))
        .order_by(TIME_ABOUT, memories.c.seq)
        .limit(limit)
    )
    return [to_memory(row) for row in conn.execute(query)]


def conversations_within(conn: Connection, scope: Scope, begin: datetime, end: datetime, limit: int) -> list[str]:
    """Return the ids of up to `limit` conversations in which something was said in a span of time, in that order."""
    said = messages.c.said_at
    query = (
        select(messages.c.session_id)
        .where(sees(messages, scope), messages.c.deleted_at.is_(None), _IS_TURN, *_within(said, begin, end))
        .group_by(messages.c.session_id)
        .order_by(func.min(said), messages.c.session_id)
        .limit(limit)
    )
    return list(conn.execute(query).scalars())


def bounds(conn: Connection, scope: Scope) -> tuple[datetime, datetime] | None:
    """Return the first and the last time that living memories of a scope are about; None if there are none."""
    query = select(TIME_ABOUT).where(sees(memories, scope), memories.c.deleted_at.is_(None)).limit(1)
    first = conn.execute(query.order_by(TIME_ABOUT, memories.c.seq)).scalar()
    last = conn.execute(query.order_by(TIME_ABOUT.desc(), memories.c.seq.desc())).scalar()
    return None if first is None or last is None else (first, last)


def first_stored_at(conn: Connection, scope: Scope) -> datetime | None:
    """Return when the oldest row of a scope's memories was stored, deleted or not; None if there is none."""
    query = select(memories.c.created_at).where(sees(memories, scope)).order_by(memories.c.seq).limit(1)
    return conn.execute(query).scalar()


def living_at(
    conn: Connection, scope: Scope, instant: datetime, limit: int, before: int | None
) -> list[tuple[int, str]]:
    """Return the row numbers and ids of up to `limit` memories that may have been living at an instant, newest first.

    Only the history says which were.
    """
    query = (
        select(memories.c.seq, memories.c.id)
        .where(
            sees(memories, scope),
            memories.c.created_at <= instant,
            or_(memories.c.deleted_at.is_(None), memories.c.deleted_at > instant),
        )
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(memories.c.seq < before)
    return [(row.seq, row.id) for row in conn.execute(query)]


def _within(at: ColumnElement[Any], begin: datetime, end: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return at >= begin, at < end


def _counted(
    conn: Connection, at: ColumnElement[Any], unit: Unit, is_counted: Sequence[ColumnElement[bool]]
) -> dict[str, int]:
    key = func.substr(cast(at, String), 1, _CHARS[unit])
    return {row[0]: row[1] for row in conn.execute(select(key, func.count()).where(*is_counted).group_by(key))}
