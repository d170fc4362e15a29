"""Summaries as they are kept, with what they rest on. Nothing is written for who only looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Message, Scope, Summary
from palimpsest.learn.engine import Engine
from palimpsest.learn.views.kinds import SummaryKind, SummaryResult
from palimpsest.learn.views.registry import KEPT_KINDS, kind_named
from palimpsest.learn.views.summaries import kept_summary
from palimpsest.store.mapping import is_seen
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries

KINDS = tuple(kind.name for kind in KEPT_KINDS)
"""The kinds of summaries that are kept."""


@dataclass(frozen=True, slots=True)
class KeptSummary:
    """A summary and up to as many as were asked for of the memories and messages that it rests on.

    It rests on `all_memories` memories. `written` is what a model wrote last, with when; None if nothing.
    """

    result: SummaryResult
    written: Summary | None
    memories: Sequence[Memory]
    all_memories: int
    messages: Sequence[Message]


class Summaries:
    """The summaries of an open memory. Every method raises PalimpsestError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def kept(self, scope: Scope, kind: str, limit: int) -> KeptSummary:
        """Return a summary as it is kept, or its form without a model. Raises InputError for an unknown kind."""
        result = await kept_summary(self._engine, scope, kind)
        view, _ = kind_named(result.kind)
        own = view.scope_of(scope) if isinstance(view, SummaryKind) else scope
        return await self._engine.read(lambda conn: _with_sources(conn, scope, own, result, limit))


def _with_sources(conn: Connection, scope: Scope, own: Scope, result: SummaryResult, limit: int) -> KeptSummary:
    """Return a summary with what it rests on, as far as a scope sees it. `own` is the scope that it is kept under."""
    last = None if result.is_plain else summary_queries.latest_summary(conn, own, result.kind)
    stored = memory_queries.memories_by_id(conn, result.sources[:limit])
    said = [] if last is None else summary_queries.messages_behind(conn, own, result.kind)[:limit]
    messages = message_queries.messages_by_id(conn, said).values()
    shown = [message for message in messages if message.deleted_at is None and is_seen(scope, message.scope)]
    return KeptSummary(
        result,
        last,
        [stored[one] for one in result.sources[:limit] if one in stored and is_seen(scope, stored[one].scope)],
        len(result.sources),
        sorted(message_queries.without_forgotten(conn, shown), key=lambda message: message.said_at),
    )
