"""The kind `overall`: lasting knowledge."""

from __future__ import annotations

from sqlalchemy import Connection

from palimpsest.learn.views import listing
from palimpsest.learn.views.kinds import (
    MAX_SOURCE_MEMORIES,
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    after_changes,
    fitting,
    memory_item,
    revisions,
)
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import summaries as summary_queries


def _material(conn: Connection, request: SummaryRequest) -> Material:
    memories = fitting([memory for _, memory in memory_queries.list_memories(conn, request.scope, MAX_SOURCE_MEMORIES)])
    last = summary_queries.current_summary(conn, request.scope, OVERALL.name)
    return Material(tuple(map(memory_item, memories)), previous=last.text if last else "", sources=revisions(memories))


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    return listing.newest(conn, request.scope)


OVERALL = SummaryKind("overall", "summarize", _material, _plain, after_changes)
