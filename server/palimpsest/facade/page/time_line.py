"""What a memory holds of each day, month and year, how it grew, and what it believed at an instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time

from sqlalchemy import Connection

from palimpsest.core.clock import in_zone
from palimpsest.core.models import Memory, Scope, has_expired
from palimpsest.core.search.hits import Hit
from palimpsest.learn.engine import Engine
from palimpsest.recall.hits import memory_hit
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries.conversations import ConversationSummary
from palimpsest.store.views import time_line as queries
from palimpsest.store.views.time_line import Days, Unit


@dataclass(frozen=True, slots=True)
class Counts:
    """How many memories and messages there are by day, month or year. A key is "2026-11-21", "2026-11" or "2026"."""

    memories: Mapping[str, int]
    messages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Span:
    """What a span of time holds: its memories and conversations in the order of their times, and the counts."""

    memories: Sequence[Memory]
    conversations: Sequence[ConversationSummary]
    counts: Counts


@dataclass(frozen=True, slots=True)
class Believed:
    """Memories that were living at an instant, as they were then, newest first.

    `before` requests the next page, and is None on the last one.
    """

    hits: Sequence[Hit]
    before: int | None = None


class TimeLine:
    """The time line of an open memory. Every method raises LedgerError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._zone = engine.clock().tzinfo

    async def bounds(self, scope: Scope) -> tuple[date, date] | None:
        """Return the first and the last day that living memories are about; None if there are none."""
        times = await self._engine.read(lambda conn: queries.bounds(conn, scope))
        if times is None:
            return None
        # What is known to the day is stored as that day's beginning in UTC, and is that day in every zone.
        first, last = (at if at.time() == time() else in_zone(at, self._zone) for at in times)
        return first.date(), last.date()

    async def first_stored_on(self, scope: Scope) -> date | None:
        """Return on which day the first memory was stored; None if there is none."""
        at = await self._engine.read(lambda conn: queries.first_stored_at(conn, scope))
        return at and in_zone(at, self._zone).date()

    async def span(self, scope: Scope, unit: Unit, first: date, end: date, limit: int) -> Span:
        """Return what is of the days from `first` until before `end`, counted by `unit`, up to `limit` of each kind."""
        now, days = self._engine.clock(), Days(first, end, self._zone)

        def read(conn: Connection) -> Span:
            about = queries.memories_about(conn, scope, days, limit)
            ids = queries.conversations_within(conn, scope, days, limit)
            held = [conversation_queries.list_conversations(conn, scope, 1, only=one) for one in ids]
            counts = Counts(
                queries.count_memories(conn, scope, unit, days),
                queries.count_messages(conn, scope, unit, days),
            )
            living = [memory.in_zone(days.zone) for memory in about if not has_expired(memory.metadata, now)]
            return Span(living, [conversation for found in held for conversation in found], counts)

        return await self._engine.read(read)

    async def growth(self, scope: Scope, unit: Unit, first: date, end: date) -> Counts:
        """Return how many of the living memories were stored, and how many messages were said, by `unit`."""
        days = Days(first, end, self._zone)

        def read(conn: Connection) -> Counts:
            return Counts(
                queries.count_stored_memories(conn, scope, unit, days),
                queries.count_messages(conn, scope, unit, days),
            )

        return await self._engine.read(read)

    async def believed(self, scope: Scope, instant: datetime, limit: int, before: int | None = None) -> Believed:
        """Return a page of the memories that were living at an instant, as they were then."""

        def read(conn: Connection) -> Believed:
            near = queries.living_at(conn, scope, instant, limit, before)
            place = {memory_id: number for number, memory_id in near}
            then = history_queries.memories_at(conn, scope, instant, list(place))
            then.sort(key=lambda memory: place[memory.id], reverse=True)
            hits = [memory_hit(memory, memory.text, (), 0.0).in_zone(self._zone) for memory in then]
            return Believed(tuple(hits), near[-1][0] if len(near) == limit else None)

        return await self._engine.read(read)
