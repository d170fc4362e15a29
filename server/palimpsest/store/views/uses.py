"""How often and when memories were used, and what else says how well they are remembered.

A memory that was never used has no row. Only what is noted here is written; the rest is read from the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, union_all, update

from palimpsest.core.clock import exact_iso
from palimpsest.core.models import Scope
from palimpsest.store.mapping import Query, chunks, listed, sees
from palimpsest.store.schema import memories, memory_sources, messages
from palimpsest.store.views.tables import memory_uses

FIRST_STRENGTH = 1
"""The strength of a memory that was never used (MemoryBank, section 2.3)."""


@dataclass(frozen=True, slots=True)
class Use:
    """How often a memory was used since it was last noted, and when last. `times` is 0 if it was only stated again."""

    times: int
    last_at: datetime


class Trace(NamedTuple):
    """What says how well a memory is remembered.

    `owner_id` is the memory, or a message that it was learned from. `last_at` is when it was last used or stated, and
    `used_at` when it was last used.
    """

    owner_id: str
    memory_id: str
    last_at: datetime
    strength: int
    used_at: datetime | None
    tags: Sequence[str]
    metadata: Mapping[str, Any]


def note(conn: Connection, uses: Mapping[str, Use]) -> None:
    """Note uses of memories by id. Those that are deleted or were erased meanwhile are left out."""
    ids = [memory_id for chunk in chunks(sorted(uses)) for memory_id in conn.execute(_LIVING, {"ids": chunk}).scalars()]
    for memory_id in ids:
        use = uses[memory_id]
        _put(conn, memory_id, use.times, use.last_at)


_LIVING = select(memories.c.id).where(memories.c.id.in_(listed("ids")), memories.c.deleted_at.is_(None))


def _put(conn: Connection, memory_id: str, times: int, at: datetime) -> None:
    """Add uses to those of a memory."""
    known = conn.execute(_KNOWN, {"memory": memory_id}).one_or_none()
    if known is None:
        conn.execute(insert(memory_uses), {"memory_id": memory_id, "strength": FIRST_STRENGTH + times, "used_at": at})
        return
    values = {"strength": known.strength + times, "used_at": max(known.used_at, at)}
    conn.execute(update(memory_uses).where(memory_uses.c.memory_id == memory_id).values(**values))


_KNOWN = select(memory_uses).where(memory_uses.c.memory_id == bindparam("memory"))


def exported(conn: Connection, memory_id: str) -> dict[str, Any]:
    """Return the strength of a memory and when it was used as JSON values; nothing if it never was."""
    row = conn.execute(_KNOWN, {"memory": memory_id}).one_or_none()
    return {} if row is None else {"strength": row.strength, "used_at": exact_iso(row.used_at)}


def restore(conn: Connection, memory_id: str, strength: int | None, used_at: datetime | None) -> None:
    """Store the uses of a memory that was exported; None if it had none."""
    if strength is not None and used_at is not None:
        _put(conn, memory_id, strength - FIRST_STRENGTH, used_at)


def give(conn: Connection, memory_id: str, other_id: str) -> None:
    """Add the uses of a memory to those of another one, which says the same."""
    row = conn.execute(_KNOWN, {"memory": memory_id}).one_or_none()
    if row is not None:
        _put(conn, other_id, row.strength - FIRST_STRENGTH, row.used_at)
        erase(conn, [memory_id])


def erase(conn: Connection, memory_ids: Sequence[str]) -> None:
    """Erase the uses of memories."""
    conn.execute(delete(memory_uses).where(memory_uses.c.memory_id.in_(memory_ids)))


def strays(conn: Connection) -> list[str]:
    """Return the ids in the table of uses that no memory has."""
    known = select(memories.c.id)
    return list(conn.execute(select(memory_uses.c.memory_id).where(memory_uses.c.memory_id.not_in(known))).scalars())


def traces(conn: Connection, memory_ids: Sequence[str], message_ids: Sequence[str] = ()) -> list[Trace]:
    """Return the traces of living memories, and of the living memories that messages were learned as."""
    return _read(conn, _BY_ID, {"memories": memory_ids, "messages": message_ids})


def traces_in(conn: Connection, scope: Scope) -> list[Trace]:
    """Return the traces of all living memories that a scope sees, and of the messages they were learned from."""
    seen = sees(memories, scope)
    return _read(conn, union_all(_OF_MEMORIES.where(seen), _OF_MESSAGES.where(seen)), {})


def _read(conn: Connection, query: Any, values: Mapping[str, Any]) -> list[Trace]:
    return [
        Trace(
            row.owner_id,
            row.memory_id,
            max(at for at in (row.stated_at, row.said_at, row.used_at) if at is not None),
            row.strength or FIRST_STRENGTH,
            row.used_at if (row.strength or 0) > FIRST_STRENGTH else None,
            row.tags,
            row.metadata,
        )
        for row in conn.execute(query, values)
    ]


def _trace(owner: ColumnElement[Any]) -> Query:
    """Return the query for living memories and what says how well they are remembered, by owner."""
    last_said = (
        select(func.max(messages.c.said_at))
        .join(memory_sources, memory_sources.c.message_id == messages.c.id)
        .where(memory_sources.c.memory_id == memories.c.id)
        .correlate(memories)
        .scalar_subquery()
    )
    return (
        select(
            owner.label("owner_id"),
            memories.c.id.label("memory_id"),
            memories.c.stated_at,
            last_said.label("said_at"),
            memories.c.tags,
            memories.c.metadata.label("metadata"),
            memory_uses.c.strength,
            memory_uses.c.used_at,
        )
        .select_from(memories)
        .outerjoin(memory_uses, memory_uses.c.memory_id == memories.c.id)
        .where(memories.c.deleted_at.is_(None))
    )


_CITED = memory_sources.alias("cited")
_OF_MEMORIES = _trace(memories.c.id)
_OF_MESSAGES = _trace(_CITED.c.message_id).join(_CITED, _CITED.c.memory_id == memories.c.id)
_BY_ID = union_all(
    _OF_MEMORIES.where(memories.c.id.in_(listed("memories"))),
    _OF_MESSAGES.where(_CITED.c.message_id.in_(listed("messages"))),
)
