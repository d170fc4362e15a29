"""How memories change inside a transaction. Every change leaves a row of history."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import func, insert, select, update

from palimpsest.core.errors import InputError
from palimpsest.core.models import Event, Fact, Memory, Outcome
from palimpsest.store.mapping import content_hash, scope_values
from palimpsest.store.schema import memories, messages, vectors
from palimpsest.store.writes.transaction import Transaction, cite, find, find_duplicate, living, put_entry, record


def add(tx: Transaction, fact: Fact, replaces: Sequence[str]) -> Outcome:
    """Store a fact and close what it replaces; where a memory has the very text, that one is completed instead.

    What that one has replaced already stays closed: the same call came twice at once.
    """
    twin = find_duplicate(tx, tx.scope, fact.text)
    named = [find(tx, memory_id) for memory_id in dict.fromkeys(replaces)]
    closed = [living(tx, each.id) for each in named if twin is None or each.superseded_by != twin.id]
    if twin is not None:
        done = change_text(tx, twin, replace(fact, text=twin.text))
        others = [memory for memory in closed if memory.id != twin.id]
        for memory in others:
            close(tx, memory, twin.id)
        return _with_replaced(replace(done, duplicate_of=twin.id), others)
    memory = Memory(
        id=str(uuid.uuid4()),
        scope=tx.scope,
        text=fact.text,
        created_at=tx.now,
        updated_at=tx.now,
        valid_from=fact.happened_at or _last_said(tx, fact) or tx.now,
        happened_at=fact.happened_at,
        keywords=fact.keywords,
        tags=fact.tags,
        metadata={key: value for key, value in fact.metadata.items() if value is not None},
        actor_id=fact.actor_id,
        role=fact.role,
    )
    _insert(tx, memory)
    put_entry(tx, "memory", memory.id, memory.scope, memory.text)
    cite(tx, memory.id, fact, record(tx, Event.ADD, memory, old=None))
    for old in closed:
        close(tx, old, memory.id)
    return _with_replaced(Outcome(Event.ADD, memory), closed)


def _insert(tx: Transaction, memory: Memory) -> None:
    row = {
        "id": memory.id,
        **scope_values(memory.scope),
        "text": memory.text,
        "content_hash": content_hash(memory.text),
        "keywords": list(memory.keywords),
        "tags": list(memory.tags),
        "metadata": memory.metadata,
        "actor_id": memory.actor_id,
        "role": memory.role,
        "happened_at": memory.happened_at,
        "valid_from": memory.valid_from,
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
        "revision": 1,
    }
    tx.conn.execute(insert(memories), row)


def _with_replaced(change: Outcome, closed: Sequence[Memory]) -> Outcome:
    if not closed:
        return change
    texts = "; ".join(memory.text for memory in closed)
    return replace(change, previous=texts, replaced=tuple(memory.id for memory in closed))


def _last_said(tx: Transaction, fact: Fact) -> datetime | None:
    """Return when the newest of the messages a fact comes from was said."""
    return tx.conn.execute(select(func.max(messages.c.said_at)).where(messages.c.id.in_(fact.sources))).scalar_one()


def change_text(tx: Transaction, memory: Memory, fact: Fact) -> Outcome:
    """Give a memory its new text; where another already says just that, close this one in its favour.

    A fact without a text leaves the text as it is, whatever that is by now. Raises MemoryNotFoundError for a deleted
    one, unless it was closed in favour of just this text: the same call came twice at once.
    """
    fact = fact if fact.text else replace(fact, text=memory.text)
    if memory.deleted_at is not None:
        heir = find_duplicate(tx, memory.scope, fact.text)
        if heir is not None and heir.id == memory.superseded_by:
            return Outcome(Event.NONE, heir, duplicate_of=heir.id)
    memory = living(tx, memory.id)
    twin = find_duplicate(tx, memory.scope, fact.text)
    if twin is not None and twin.id != memory.id:
        change_text(tx, twin, replace(fact, text=twin.text))
        return Outcome(Event.DELETE, close(tx, memory, twin.id), previous=memory.text, duplicate_of=twin.id)
    new = replace(
        memory,
        text=fact.text,
        metadata={key: value for key, value in {**memory.metadata, **fact.metadata}.items() if value is not None},
        keywords=tuple(dict.fromkeys((*memory.keywords, *fact.keywords))),
        tags=tuple(dict.fromkeys((*memory.tags, *fact.tags))),
        happened_at=fact.happened_at or memory.happened_at,
        valid_from=max(memory.valid_from, fact.happened_at or _last_said(tx, fact) or memory.valid_from),
    )
    if replace(new, valid_from=memory.valid_from) == memory:
        cite(tx, memory.id, fact, None)
        return Outcome(Event.NONE, memory)
    new = store(tx, memory, new)
    cite(tx, memory.id, fact, record(tx, Event.UPDATE, new, old=memory.text))
    return Outcome(Event.UPDATE, new, previous=memory.text)


def forget(tx: Transaction, memory: Memory) -> Outcome:
    """Delete a memory; one that is deleted already stays as it is."""
    if memory.deleted_at is not None:
        return Outcome(Event.NONE, memory)
    return Outcome(Event.DELETE, close(tx, memory, None), previous=memory.text)


def close(tx: Transaction, memory: Memory, superseded_by: str | None) -> Memory:
    """Take a memory out of what is believed, in favour of another where that is named."""
    closed = store(tx, memory, replace(memory, deleted_at=tx.now, superseded_by=superseded_by))
    record(tx, Event.DELETE, closed, old=memory.text)
    return closed


def bring_back(tx: Transaction, memory: Memory) -> Outcome:
    """Believe a deleted memory again; a living one stays. Raises InputError where another already says the same."""
    if memory.deleted_at is None:
        return Outcome(Event.NONE, memory)
    twin = find_duplicate(tx, memory.scope, memory.text)
    if twin is not None:
        raise InputError(f"memory {twin.id[:8]} already says the same, so {memory.id[:8]} was left deleted")
    back = store(tx, memory, replace(memory, deleted_at=None, superseded_by=None))
    record(tx, Event.ADD, back, old=None)
    return Outcome(Event.ADD, back)


def store(tx: Transaction, old: Memory, new: Memory) -> Memory:
    """Write a memory's row, and what the search sees of it, as it is now to be; return it with its next revision."""
    new = replace(new, updated_at=tx.now, revision=old.revision + 1)
    tx.conn.execute(
        update(memories)
        .where(memories.c.id == new.id)
        .values(
            text=new.text,
            content_hash=content_hash(new.text),
            metadata=dict(new.metadata),
            keywords=list(new.keywords),
            tags=list(new.tags),
            happened_at=new.happened_at,
            valid_from=new.valid_from,
            valid_until=new.deleted_at,
            updated_at=new.updated_at,
            deleted_at=new.deleted_at,
            superseded_by=new.superseded_by,
            revision=new.revision,
        )
    )
    if new.text != old.text:
        put_entry(tx, "memory", new.id, new.scope, new.text)
    elif old.deleted_at is not None and new.deleted_at is None:
        mine = (vectors.c.kind == "memory", vectors.c.owner_id == new.id)
        tx.conn.execute(update(vectors).where(*mine).values(live=True))
    tx.touched.memories.add(new.id)
    return new
