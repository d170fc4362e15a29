"""What every step of a write needs, and the rows that several steps write."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Integer, bindparam, cast, delete, func, insert, select

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Event, Fact, Kind, Memory, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.identity.spoken import mention_with
from palimpsest.store.graph.tables import entity_history
from palimpsest.store.mapping import Query, memory_hash, memory_state, next_number, scope_values, sees, to_memory
from palimpsest.store.schema import history, memories, memory_sources, message_history, meta
from palimpsest.store.views.pinned import GrownBlocks
from palimpsest.store.writes import entries

EDITS = "edits"
"""The key in `meta` of the highest edit number that was used by erased rows or reserved for an import."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The context of one write.

    `edit` is the number of the edit. `vectors` maps texts to their vectors of `embedder`, and `partial` are those of
    them of which only the first window was embedded. `touched` collects the entries that are indexed again at the end,
    `entity_edits` a line about each edit of entities, `pinned` what becomes of pinned blocks, and `notes` what else the
    caller must know. `told_names` are the deleted memories that told the user's name.
    """

    conn: Connection
    scope: Scope
    provenance: Provenance
    now: datetime
    edit: int
    vectors: Mapping[str, Vector]
    embedder: str
    touched: entries.TouchedEntries
    partial: AbstractSet[str] = frozenset()
    entity_edits: list[str] = field(default_factory=list[str])
    pinned: GrownBlocks = field(default_factory=GrownBlocks)
    notes: list[str] = field(default_factory=list[str])
    told_names: list[Memory] = field(default_factory=list[Memory])

    @property
    def graph(self) -> GraphWrite:
        """Return what the graph needs of the write."""
        vectors, told = (self.vectors, self.embedder), (self.entity_edits, self.notes)
        return GraphWrite(self.conn, self.scope, self.provenance, self.now, self.edit, *vectors, *told)


def next_edit_number(conn: Connection) -> int:
    """Return the number of the next edit. Numbers of erased edits and reserved numbers are not used again."""
    return int(conn.execute(_NEXT).scalar_one())


_NEXT = select(
    next_number(
        *(
            func.coalesce(select(func.max(table.c.change)).scalar_subquery(), 0)
            for table in (history, message_history, entity_history)
        ),
        func.coalesce(select(cast(meta.c.value, Integer)).where(meta.c.key == EDITS).scalar_subquery(), 0),
    )
)


def reserve_edit_numbers(conn: Connection, newest: int) -> None:
    """Reserve the edit numbers up to `newest`."""
    conn.execute(delete(meta).where(meta.c.key == EDITS))
    conn.execute(insert(meta).values(key=EDITS, value=str(newest)))
    next_edit_number(conn)  # a database that counts by itself goes on from there


def record(tx: Transaction, event: Event, memory: Memory, old: str | None, *, is_annotated: bool = False) -> str:
    """Insert the row of history of a changed memory and return the row's id.

    `is_annotated` says that the memory says what it said before.
    """
    history_id = str(uuid.uuid4())
    deleted = event is Event.DELETE
    provenance = tx.provenance
    row = {
        "id": history_id,
        "memory_id": memory.id,
        "old_memory": old,
        "new_memory": None if deleted else memory.text,
        "event": event.value,
        "created_at": memory.created_at,
        "updated_at": tx.now,
        "is_deleted": deleted,
        "actor_id": memory.actor_id,
        "role": memory.role,
        "state": memory_state(memory),
        "stage": provenance.stage,
        "model": provenance.model,
        "prompt": provenance.prompt,
        "caller": provenance.caller,
        "change": tx.edit,
    }
    tx.conn.execute(_INSERT_HISTORY, row)
    (tx.touched.annotated if is_annotated else tx.touched.memories).add(memory.id)
    return history_id


_INSERT_HISTORY = insert(history)


def record_message(tx: Transaction, event: Event, message_id: str) -> None:
    """Insert the row of history of a message that was stored, deleted or restored."""
    row = {
        "message_id": message_id,
        "event": event.value,
        "updated_at": tx.now,
        "stage": tx.provenance.stage,
        "caller": tx.provenance.caller,
        "change": tx.edit,
    }
    tx.conn.execute(_INSERT_MESSAGE_HISTORY, row)
    tx.touched.messages.add(message_id)


_INSERT_MESSAGE_HISTORY = insert(message_history)


def cite(tx: Transaction, memory_id: str, fact: Fact, history_id: str | None) -> None:
    """Store which messages a memory came from.

    `history_id` is the row of history that brought them. Without it, they are stored under the memory's newest row.
    """
    if not fact.sources:
        return
    known = set(
        tx.conn.execute(select(memory_sources.c.message_id).where(memory_sources.c.memory_id == memory_id)).scalars()
    )
    new = [source for source in dict.fromkeys(fact.sources) if source not in known]
    if not new:
        return
    if history_id is None:
        newest = select(history.c.id).where(history.c.memory_id == memory_id).order_by(history.c.seq.desc()).limit(1)
        history_id = tx.conn.execute(newest).scalar_one()
    tx.conn.execute(
        insert(memory_sources),
        [{"memory_id": memory_id, "message_id": source, "history_id": history_id} for source in new],
    )
    mention_with(tx.conn, memory_id)
    tx.touched.memories.add(memory_id)


def put_entry(tx: Transaction, kind: Kind, owner_id: str, scope: Scope, text: str) -> None:
    """Write the entry of a new or changed text."""
    vector, is_partial = tx.vectors.get(text), text in tx.partial
    entries.put(tx.conn, kind, owner_id, scope, vector, tx.embedder, tx.touched, partial=is_partial)


def find_duplicate(tx: Transaction, scope: Scope, text: str) -> Memory | None:
    """Return the living memory of exactly this scope with the same text, as `memory_hash` sees it."""
    row = tx.conn.execute(_DUPLICATE, {**scope_values(scope), "digest": memory_hash(text)}).one_or_none()
    return None if row is None else to_memory(row)


_DUPLICATE: Query = select(memories).where(
    *(memories.c[name] == bindparam(name) for name in ("user_id", "project", "agent_id", "run_id")),
    memories.c.content_hash == bindparam("digest"),
    memories.c.deleted_at.is_(None),
)


def find(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the memory with that id in this scope, living or deleted. Raises MemoryNotFoundError."""
    row = tx.conn.execute(select(memories).where(memories.c.id == memory_id, sees(memories, tx.scope))).one_or_none()
    if row is None:
        raise MemoryNotFoundError(f"there is no memory {memory_id} in this scope; nothing was changed")
    return to_memory(row)


def find_living(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the living memory with that id in this scope. Raises MemoryNotFoundError."""
    memory = find(tx, memory_id)
    if memory.deleted_at is not None:
        raise MemoryNotFoundError(f"memory {memory.id[:8]} was deleted in the meantime; nothing was changed")
    return memory


def find_newest(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the memory with that id, or the last one that took its place. Raises MemoryNotFoundError."""
    memory = find(tx, memory_id)
    seen: set[str] = set()
    while memory.superseded_by is not None and memory.id not in seen:
        seen.add(memory.id)
        memory = find(tx, memory.superseded_by)
    return memory
