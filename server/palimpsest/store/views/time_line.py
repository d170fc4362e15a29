"""Count and read what a memory holds of a span of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, and_, func, not_, or_, select

from palimpsest.core.clock import first_instant
from palimpsest.core.models import PAGE, Memory, Scope
from palimpsest.store.mapping import local_day, minute_of, sees, to_memory
from palimpsest.store.schema import TIME_ABOUT, memories, messages

Unit: TypeAlias = Literal["day", "month", "year"]

A_DAY = timedelta(days=1)
"""How much earlier or later a day may begin somewhere than in UTC, at most."""

_CHARS: dict[Unit, int] = {"day": 10, "month": 7, "year": 4}
"""How much of an instant in ISO 8601 names its day, month or year."""

_IS_DATE = and_(memories.c.happened_at.is_not(None), memories.c.happened_precision != "")
"""The condition for memories of a day, a month or a year, which is the same date in every zone."""

_IS_TURN = messages.c.role != PAGE
"""The condition for messages of conversations."""


@dataclass(frozen=True, slots=True)
class Days:
    """The days from `first` until before `end`, as they are in a zone."""

    first: date
    end: date
    zone: tzinfo | None

    def hold(self, at: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that an exact time lies within them."""
        return and_(at >= first_instant(self.first, self.zone), at < first_instant(self.end, self.zone))


def count_memories(conn: Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many living memories are about each of the days, or their months or years.

    The keys are as in ISO 8601; a unit without any is not among them.
    """
    is_counted = (sees(memories, scope), memories.c.deleted_at.is_(None), *_are_about(days))
    return _counted(conn, TIME_ABOUT, unit, (*is_counted, not_(_IS_DATE)), days.zone) + _counted(
        conn, TIME_ABOUT, unit, (*is_counted, _IS_DATE), UTC
    )


def count_stored_memories(conn: Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many of the living memories were stored on each day, in each month or year."""
    stored = memories.c.created_at
    is_counted = (sees(memories, scope), memories.c.deleted_at.is_(None), days.hold(stored))
    return _counted(conn, stored, unit, is_counted, days.zone)


def count_messages(conn: Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many living messages of conversations were said on each day, in each month or year."""
    said = messages.c.said_at
    is_counted = (sees(messages, scope), messages.c.deleted_at.is_(None), _IS_TURN, days.hold(said))
    return _counted(conn, said, unit, is_counted, days.zone)


def memories_about(conn: Connection, scope: Scope, days: Days, limit: int) -> list[Memory]:
    """Return up to `limit` living memories that are about some days, in the order of their times."""
    query = (
        select(memories)
        .where(sees(memories, scope), memories.c.deleted_at.is_(None), *_are_about(days))
        .order_by(TIME_ABOUT, memories.c.seq)
        .limit(limit)
    )
    return [to_memory(row) for row in conn.execute(query)]


def conversations_within(conn: Connection, scope: Scope, days: Days, limit: int) -> list[str]:
    """Return the ids of up to `limit` conversations in which something was said on some days, in that order."""
    said = messages.c.said_at
    query = (
        select(messages.c.session_id)
        .where(sees(messages, scope), messages.c.deleted_at.is_(None), _IS_TURN, days.hold(said))
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


def _are_about(days: Days) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for memories that are about some days. The first two alone can use the index."""
    begin, end = first_instant(days.first, UTC), first_instant(days.end, UTC)
    earliest, latest = begin - A_DAY, end + A_DAY
    is_date = and_(_IS_DATE, begin <= TIME_ABOUT, end > TIME_ABOUT)
    return (
        earliest <= TIME_ABOUT,
        latest > TIME_ABOUT,
        or_(is_date, and_(not_(_IS_DATE), days.hold(TIME_ABOUT))),
    )


def _counted(
    conn: Connection,
    at: ColumnElement[Any],
    unit: Unit,
    is_counted: Sequence[ColumnElement[bool]],
    zone: tzinfo | None,
) -> Counter[str]:
    minute, counts = minute_of(at), Counter[str]()
    for each, number in conn.execute(select(minute, func.count()).where(*is_counted).group_by(minute)):
        counts[local_day(each, zone)[: _CHARS[unit]]] += number
    return counts
