"""The kind `recent`: what was said and what happened in the last days, whenever it was stored."""

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
    holding,
    material_of,
)
from palimpsest.store.queries import summaries as summary_queries

DAYS = timedelta(days=14)
"""How far back it looks. Set by hand."""

MAX_MESSAGES = 40
MAX_MESSAGE_TOKENS = 4_000
"""How many of the last messages of that time it reads, and how many tokens of them. Set by hand."""


def _material(conn: Connection, request: SummaryRequest) -> Material:
    since, until = request.now - DAYS, request.now + timedelta(days=1)
    found = summary_queries.memories_of_time(conn, request.scope, since, until, MAX_SOURCE_MEMORIES)
    memories = fitting(holding(found, request.now))
    messages = summary_queries.messages_said(conn, request.scope, since, until, MAX_MESSAGES)
    return material_of(memories, messages, MAX_MESSAGE_TOKENS)


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    return listing.newest(conn, request, request.now - DAYS)


RECENT = SummaryKind("recent", "recent", _material, _plain, ages=True)
