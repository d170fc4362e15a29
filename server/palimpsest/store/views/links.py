"""Links between memories, to be read from both ends. `memories.links` says the same of each memory."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert

from palimpsest.core.models import Memory
from palimpsest.store.views.tables import memory_links


def put(conn: Connection, memory: Memory) -> None:
    """Bring the links of a memory into the state of its present version. A deleted memory has none."""
    conn.execute(delete(memory_links).where(memory_links.c.memory_id == memory.id))
    others = {link.memory_id for link in memory.links} if memory.deleted_at is None else set[str]()
    if others:
        conn.execute(insert(memory_links), [{"memory_id": memory.id, "other_id": other} for other in sorted(others)])
