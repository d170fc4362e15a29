"""What summaries rest on: the memories in the version that was read, and the messages."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from palimpsest.core.models import Summary
from palimpsest.store.mapping import is_scope
from palimpsest.store.schema import summaries
from palimpsest.store.views.tables import summary_sources


def put(conn: Connection, summary_id: int, summary: Summary) -> None:
    """Store what a new summary rests on. Only the newest of a kind and scope keeps it."""
    of_kind = select(summaries.c.id).where(is_scope(summaries, summary.scope), summaries.c.kind == summary.kind)
    conn.execute(delete(summary_sources).where(summary_sources.c.summary_id.in_(of_kind)))
    rows = [
        {"kind": "message", "owner_id": message_id, "revision": 0} for message_id in dict.fromkeys(summary.message_ids)
    ]
    rows += [
        {"kind": "memory", "owner_id": memory_id, "revision": revision}
        for memory_id, revision in summary.sources.items()
    ]
    if rows:
        conn.execute(insert(summary_sources), [{"summary_id": summary_id, **row} for row in rows])
