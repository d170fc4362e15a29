"""Links between memories, to be read from both ends. `memories.links` says the same of each memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, select, union

from palimpsest.core.models import LINK, Link, LinkedMemory, Memory, Scope
from palimpsest.store.mapping import listed, sees, to_memory
from palimpsest.store.schema import history, memories, vectors
from palimpsest.store.views.tables import memory_links


def put(conn: Connection, memory: Memory) -> None:
    """Bring the links of a memory into the state of its present version. A deleted memory has none."""
    conn.execute(delete(memory_links).where(memory_links.c.memory_id == memory.id))
    others = {link.memory_id for link in memory.links} if memory.deleted_at is None else set[str]()
    if others:
        conn.execute(insert(memory_links), [{"memory_id": memory.id, "other_id": other} for other in sorted(others)])


def entries_linked_with(conn: Connection, memory_ids: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return what memories are linked with, in either direction: their id, the other's id, and its entry's number.

    A pair is in the list twice if both are asked for. The others may be deleted, or of another scope.
    """
    return [tuple(row) for row in conn.execute(_LINKED, {"ids": memory_ids}).all()]


def without_annotation(conn: Connection, memory_ids: Sequence[str]) -> list[Memory]:
    """Return those of some memories, in order, that are living and were added or edited since they were annotated."""
    newest = select(func.max(history.c.seq)).where(history.c.memory_id.in_(listed("ids"))).group_by(history.c.memory_id)
    others = select(history.c.memory_id).where(history.c.seq.in_(newest), history.c.stage != LINK)
    query = select(memories).where(memories.c.id.in_(others), memories.c.deleted_at.is_(None))
    found = {row.id: to_memory(row) for row in conn.execute(query, {"ids": memory_ids})}
    return [found[memory_id] for memory_id in memory_ids if memory_id in found]


def linking_to(conn: Connection, memory_id: str) -> list[str]:
    """Return the ids of the memories whose links lead to a memory."""
    query = select(memory_links.c.memory_id).where(memory_links.c.other_id == memory_id)
    return list(conn.execute(query.order_by(memory_links.c.memory_id)).scalars())


def linked_with(conn: Connection, scope: Scope, memory: Memory) -> list[LinkedMemory]:
    """Return the living memories that a memory is linked with, in either direction, and why, the newest first."""
    ids = [other for _, other, _ in entries_linked_with(conn, [memory.id])]
    query = (
        select(memories)
        .where(memories.c.id.in_(listed("ids")), memories.c.deleted_at.is_(None), sees(memories, scope))
        .order_by(memories.c.seq.desc())
    )
    own = {link.memory_id: link.reason for link in memory.links}
    others = [to_memory(row) for row in conn.execute(query, {"ids": ids})]
    return [LinkedMemory(other, own.get(other.id) or _reason_in(other.links, memory.id)) for other in others]


def _reason_in(links: Sequence[Link], memory_id: str) -> str:
    return next((link.reason for link in links if link.memory_id == memory_id), "")


def _linked() -> Any:
    """Go along the links in both directions. Each half uses an index."""
    ends = (memory_links.c.memory_id, memory_links.c.other_id)
    pairs = union(*(select(start, end).where(start.in_(listed("ids"))) for start, end in (ends, ends[::-1]))).subquery()
    start, end = pairs.c
    is_entry = and_(vectors.c.kind == "memory", vectors.c.owner_id == end)
    return select(start, end, vectors.c.seq).join(vectors, is_entry)


_LINKED = _linked()
