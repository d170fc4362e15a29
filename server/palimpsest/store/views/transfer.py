"""Export and import summaries, with what they rest on: so that one that is imported is outdated by the same edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from palimpsest.core.clock import exact_iso
from palimpsest.core.models import Scope
from palimpsest.store.mapping import is_scope
from palimpsest.store.schema import summaries
from palimpsest.store.views import sources

_NAMES = ("project", "agent_id", "run_id", "kind", "text", "model", "prompt", "created_at")


def items_of(conn: Connection, user_id: str) -> Iterator[dict[str, Any]]:
    """Yield every summary of a user as an item, oldest first."""
    for row in conn.execute(select(summaries).where(summaries.c.user_id == user_id).order_by(summaries.c.id)):
        values = {**{name: getattr(row, name) for name in _NAMES}, "created_at": exact_iso(row.created_at)}
        of_memories, message_ids = sources.read(conn, row.id)
        rests_on = {"sources": dict(of_memories), "message_ids": list(message_ids)}
        yield {"type": "summary", **values, **(rests_on if of_memories or message_ids else {})}


def known(conn: Connection, scope: Scope, item: Mapping[str, Any]) -> str | None:
    """Return the row number of a summary that the ledger has already, or None."""
    columns = (summaries.c[name] == item[name] for name in ("kind", "text", "created_at"))
    summary_id = conn.execute(select(summaries.c.id).where(is_scope(summaries, scope), *columns).limit(1)).scalar()
    return None if summary_id is None else str(summary_id)


def store_item(conn: Connection, scope: Scope, item: Mapping[str, Any], owner_ids: Mapping[str, str]) -> bool:
    """Store a summary unless it is known, and return whether it was stored.

    `owner_ids` maps ids of memories and messages in the file to those in the ledger.
    """
    if known(conn, scope, item) is not None:
        return False
    # The number it was current to belongs to another ledger. As nobody knows what it includes, everything comes later.
    values = {name: item[name] for name in _NAMES}
    stored = insert(summaries).values(user_id=scope.user_id, seq=0, **values).returning(summaries.c.id)
    summary_id = conn.execute(stored).scalar_one()
    rests_on: Mapping[str, int] = item.get("sources", {})
    of_memories = {owner_ids.get(memory_id, memory_id): revision for memory_id, revision in rests_on.items()}
    of_messages = [owner_ids.get(message_id, message_id) for message_id in item.get("message_ids", ())]
    sources.store(conn, summary_id, of_memories, of_messages)
    return True
