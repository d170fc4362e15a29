"""What every step inside a write's transaction needs, and the rows that more than one step writes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Event, Fact, Kind, Memory, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import Query, content_hash, memory_state, scope_values, sees, to_memory
from palimpsest.store.schema import history, memories, memory_sources, message_history, meta
from palimpsest.store.writes import entries as entry_writes

EDITS = "edits"
"""The key in `meta` of the highest number that an edit had or was promised, where no row may have it any more."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Hold what is written with: the transaction, who writes and when, the number of the edit, known vectors.

    `touched` collects the units to index anew at the end.
    """

    conn: Connection
    scope: Scope
    provenance: Provenance
    now: datetime
    change: int
    vectors: Mapping[str, Vector]
    embedder: str
    touched: entry_writes.TouchedEntries


def next_edit_number(conn: Connection) -> int:
    """Return the number for the next edit; one that was erased or promised to an import is not given again."""
    newest = conn.execute(_NEWEST).one()
    return max(int(number or 0) for number in newest) + 1


_NEWEST = select(
    select(func.max(history.c.change)).scalar_subquery(),
    select(func.max(message_history.c.change)).scalar_subquery(),
    select(meta.c.value).where(meta.c.key == EDITS).scalar_subquery(),
)


def reserve_edit_numbers(conn: Connection, newest: int) -> None:
    """Keep the numbers of edits up to `newest` from being given to others."""
    conn.execute(delete(meta).where(meta.c.key == EDITS))
    conn.execute(insert(meta).values(key=EDITS, value=str(newest)))


def record(tx: Transaction, event: Event, memory: Memory, old: str | None) -> str:
    """Write the row of history of a changed memory and return its id."""
    entry = str(uuid.uuid4())
    gone = event is Event.DELETE
    made_by = tx.provenance
    row = {
        "id": entry,
        "memory_id": memory.id,
        "old_memory": old,
        "new_memory": None if gone else memory.text,
        "event": event.value,
        "created_at": memory.created_at,
        "updated_at": tx.now,
        "is_deleted": gone,
        "actor_id": memory.actor_id,
        "role": memory.role,
        "state": memory_state(memory),
        "stage": made_by.stage,
        "model": made_by.model,
        "prompt": made_by.prompt,
        "caller": made_by.caller,
        "change": tx.change,
    }
    tx.conn.execute(insert(history), row)
    tx.touched.memories.add(memory.id)
    return entry


def record_turn(tx: Transaction, event: Event, message_id: str) -> None:
    """Write the row of history of a turn that was kept, forgotten or brought back."""
    tx.conn.execute(
        insert(message_history).values(
            message_id=message_id,
            event=event.value,
            updated_at=tx.now,
            stage=tx.provenance.stage,
            caller=tx.provenance.caller,
            change=tx.change,
        )
    )
    tx.touched.messages.add(message_id)


def cite(tx: Transaction, memory_id: str, fact: Fact, entry: str | None) -> None:
    """Note which messages a memory came from, under the row of history that brought them."""
    known = set(
        tx.conn.execute(select(memory_sources.c.message_id).where(memory_sources.c.memory_id == memory_id)).scalars()
    )
    new = [source for source in dict.fromkeys(fact.sources) if source not in known]
    if not new:
        return
    entry = (
        entry
        or tx.conn.execute(
            select(history.c.id).where(history.c.memory_id == memory_id).order_by(history.c.seq.desc()).limit(1)
        ).scalar_one()
    )
    tx.conn.execute(
        insert(memory_sources),
        [{"memory_id": memory_id, "message_id": source, "history_id": entry} for source in new],
    )
    tx.touched.memories.add(memory_id)


def put_entry(tx: Transaction, kind: Kind, owner_id: str, scope: Scope, text: str) -> None:
    """Write what the search sees of a new or changed text."""
    entry_writes.put(tx.conn, kind, owner_id, scope, tx.vectors.get(text), tx.embedder, tx.touched)


def find_duplicate(tx: Transaction, scope: Scope, text: str) -> Memory | None:
    """Return the living memory of just this scope that has this very text, but for case and white space."""
    row = tx.conn.execute(_TWIN, {**scope_values(scope), "digest": content_hash(text)}).one_or_none()
    return None if row is None else to_memory(row)


_TWIN: Query = select(memories).where(
    *(memories.c[name] == bindparam(name) for name in ("user_id", "project", "agent_id", "run_id")),
    memories.c.content_hash == bindparam("digest"),
    memories.c.deleted_at.is_(None),
)


def find(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the memory of that id in this scope, living or deleted. Raises MemoryNotFoundError."""
    row = tx.conn.execute(select(memories).where(memories.c.id == memory_id, sees(memories, tx.scope))).one_or_none()
    if row is None:
        raise MemoryNotFoundError(f"there is no memory {memory_id} in this scope; nothing was changed")
    return to_memory(row)


def living(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the living memory of that id in this scope. Raises MemoryNotFoundError."""
    memory = find(tx, memory_id)
    if memory.deleted_at is not None:
        raise MemoryNotFoundError(f"memory {memory.id[:8]} was deleted meanwhile; nothing was changed")
    return memory
