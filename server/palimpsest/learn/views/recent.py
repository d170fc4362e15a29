"""The kind `recent`: what happened in the last days."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection

from palimpsest.learn.views import listing
from palimpsest.learn.views.kinds import (
    MAX_SOURCE_MEMORIES,
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    fitting,
    memory_item,
    never,
    revisions,
)
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries

DAYS = timedelta(days=14)
"""How far back it looks. Set by hand."""

MAX_MESSAGES = 40
"""How many messages of that time it reads at most. Set by hand."""


def _material(conn: Connection, request: SummaryRequest) -> Material:
    since = request.now - DAYS
    listed = memory_queries.list_memories(conn, request.scope, MAX_SOURCE_MEMORIES)
    memories = fitting([memory for _, memory in listed if memory.updated_at >= since])
    messages = message_queries.messages_since(conn, request.scope, since, MAX_MESSAGES)
    last = summary_queries.current_summary(conn, request.scope, RECENT.name)
    return Material(
        tuple(map(memory_item, memories)),
        tuple(messages),
        last.text if last else "",
        revisions(memories),
        tuple(message.id for message in messages),
    )


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    return listing.newest(conn, request.scope, request.now - DAYS)


RECENT = SummaryKind("recent", "summarize", _material, _plain, never, ages=True)
