"""How memories change inside a transaction. Every change leaves a row of history."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import func, insert, select, update

from palimpsest.core.clock import Precision, finer
from palimpsest.core.entities import name_key
from palimpsest.core.errors import InputError
from palimpsest.core.models import (
    EXPIRES_AT,
    ORIGIN,
    PINNED,
    UNDO,
    USER_NAME,
    Annotation,
    Decision,
    Event,
    Fact,
    Memory,
    Outcome,
    Scope,
    has_expired,
)
from palimpsest.store.graph import statements as graph
from palimpsest.store.graph.identity.spoken import mention_with
from palimpsest.store.graph.surroundings import about_user
from palimpsest.store.mapping import connections, is_scope, memory_hash, scope_values, sees, statements, to_memory
from palimpsest.store.queries.memories import name_of_user
from palimpsest.store.schema import memories, messages, vectors
from palimpsest.store.views import links as link_rows
from palimpsest.store.views import pinned, recalls
from palimpsest.store.writes.transaction import (
    Transaction,
    cite,
    find,
    find_duplicate,
    find_living,
    find_newest,
    put_entry,
    record,
)
from palimpsest.text.names.self_name import told_self_name

_Ended: TypeAlias = tuple[datetime, Precision]
"""Until when a memory held, and how exactly that is known."""


def add(tx: Transaction, fact: Fact, replaces: Sequence[str], scope: Scope) -> Outcome:
    """Store a fact as a memory of a scope and close the memories it replaces.

    If a memory already has the same text, the fact's metadata, labels and sources are added to that memory instead.
    What that memory has already replaced stays closed: the same call came twice.
    """
    duplicate = find_duplicate(tx, scope, fact.text)
    named = [find(tx, memory_id) for memory_id in dict.fromkeys(replaces)]
    replaced = [
        find_living(tx, memory.id) for memory in named if duplicate is None or memory.superseded_by != duplicate.id
    ]
    if duplicate is not None:
        others = [memory for memory in replaced if memory.id != duplicate.id]
        again = replace(_said_again(duplicate, fact), text=duplicate.text)
        given = with_handed_on(tx, again, others, duplicate)
        outcome = change(tx, duplicate, given)
        for memory in others:
            _close(tx, memory, duplicate)
        return _with_replaced(replace(outcome, duplicate_of=duplicate.id), others)
    given = with_handed_on(tx, fact, replaced)
    memory = _store(tx, given, replaced, scope)
    for old in replaced:
        _close(tx, old, memory)
    for other in graph.handed_on_otherwise(tx.conn, memory):
        before = find(tx, other.id)
        if other != before:
            record(tx, Event.UPDATE, update_row(tx, before, other), old=before.text)
    handed_on = tuple(key for key in given.metadata if key not in fact.metadata)
    return _with_replaced(Outcome(Event.ADD, memory, handed_on=handed_on), replaced)


def _said_again(memory: Memory, fact: Fact) -> Fact:
    """Return a fact that says what a memory says. An origin stays only while nobody said the same without one."""
    if (ORIGIN in memory.metadata) == (ORIGIN in fact.metadata):
        return fact
    return replace(fact, metadata={**fact.metadata, ORIGIN: None})


def with_handed_on(tx: Transaction, fact: Fact, replaced: Sequence[Memory], successor: Memory | None = None) -> Fact:
    """Return a fact with what the memories that it replaces hand on: metadata, and the relations that hold on.

    What the fact says itself counts more, and so does what its memory has already, the `successor` if there is one.
    """
    if not replaced:
        return fact
    own: Mapping[str, Any] = {} if successor is None else successor.metadata
    given = {
        key: value
        for memory in replaced
        for key, value in memory.metadata.items()
        if key not in own and _is_handed_on(tx, key, value, replace(fact, metadata={**own, **fact.metadata}))
    }
    told = str(own.get(USER_NAME) or given.get(USER_NAME) or name_of_user(tx.conn, tx.scope))
    return graph.handed_on(replace(fact, metadata={**given, **fact.metadata}), replaced, {name_key(told)} - {""})


_JOINING = ("merge", "settle")
"""The stages that close memories in favour of one that was there before, whose own end is what counts."""


def _is_handed_on(tx: Transaction, key: str, value: Any, fact: Fact) -> bool:
    """Return whether the metadata of a replaced memory holds for what replaces it.

    An end is about the words that were given with it. Whoever names the memory to be replaced is told that it stays.
    Where the replaced one came from says nothing of the other, and what came from elsewhere is not pinned by it.
    """
    if key in fact.metadata or key == ORIGIN:
        return False
    if key == PINNED and (ORIGIN in fact.metadata or not pinned.is_pinned({key: value})):
        return False
    if key != EXPIRES_AT:
        return True
    if tx.provenance.stage in _JOINING or tx.provenance.model or has_expired({key: value}, tx.now):
        return False
    tx.notes.append(f"{EXPIRES_AT} {value} stays, as what was replaced had it; {EXPIRES_AT}=null takes it away")
    return True


def add_between(tx: Transaction, fact: Fact, decision: Decision) -> Outcome:
    """Store a fact as closed by the memory that came after it, and close the memories that it replaced itself."""
    outcome = add_outdated(tx, fact, find(tx, decision.successor), _ended(decision))
    older = [find(tx, memory_id) for memory_id in dict.fromkeys(decision.replaces)]
    older = [memory for memory in older if memory.deleted_at is None and memory.id != outcome.memory.id]
    for memory in older:
        close(tx, memory, outcome.memory)
    return _with_replaced(outcome, older)


def add_outdated(tx: Transaction, fact: Fact, successor: Memory, ended: _Ended | None = None) -> Outcome:
    """Store a fact that no longer holds as a memory that was closed by the one that holds now.

    It held until it `ended`, or until the other began to hold. If a memory already has the same text, that memory is
    closed instead, unless it was before.
    """
    same = find_duplicate(tx, tx.scope, fact.text) or _find_superseded(tx, fact.text, successor)
    if same is None:
        memory = _store(tx, fact)
        told = {key: value for key, value in memory.metadata.items() if key == USER_NAME}  # the rest is about the fact
        _hand_on(tx, replace(memory, metadata=told), successor)
        return Outcome(Event.ADD, _close(tx, memory, successor, ended))
    cite(tx, same.id, fact, None)
    if same.id == successor.id or same.deleted_at is not None:
        return Outcome(Event.NONE, same, duplicate_of=same.id)
    return Outcome(Event.DELETE, close(tx, same, successor, ended), previous=same.text)


def _find_superseded(tx: Transaction, text: str, successor: Memory) -> Memory | None:
    query = select(memories).where(
        is_scope(memories, tx.scope),
        memories.c.content_hash == memory_hash(text),
        memories.c.superseded_by == successor.id,
        memories.c.is_forgotten.is_(False),
    )
    row = tx.conn.execute(query.limit(1)).one_or_none()
    return None if row is None else to_memory(row)


def _store(tx: Transaction, fact: Fact, replaced: Sequence[Memory] = (), scope: Scope | None = None) -> Memory:
    memory = Memory(
        id=str(uuid.uuid4()),
        scope=scope or tx.scope,
        text=fact.text,
        created_at=tx.now,
        updated_at=tx.now,
        stated_at=_stated_at(tx, fact) or tx.now,
        valid_from=fact.valid_from,
        valid_from_precision=fact.valid_from_precision,
        happened_at=fact.happened_at,
        happened_precision=fact.happened_precision,
        keywords=fact.keywords,
        tags=fact.tags,
        metadata={key: value for key, value in fact.metadata.items() if value is not None},
        actor_id=fact.actor_id,
        role=fact.role,
        entities=fact.entities,
        relations=graph.fact_relations(fact),
    )
    pinned.note_change(tx.pinned, None, memory)
    _insert(tx, memory)
    graph.put_new(tx.graph, memory, replaced)
    put_entry(tx, "memory", memory.id, memory.scope, memory.text)
    cite(tx, memory.id, fact, record(tx, Event.ADD, memory, old=None))
    return memory


def _insert(tx: Transaction, memory: Memory) -> None:
    row = {
        "id": memory.id,
        **scope_values(memory.scope),
        "text": memory.text,
        "content_hash": memory_hash(memory.text),
        "keywords": list(memory.keywords),
        "tags": list(memory.tags),
        "metadata": memory.metadata,
        "actor_id": memory.actor_id,
        "role": memory.role,
        "happened_at": memory.happened_at,
        "happened_precision": memory.happened_precision,
        "stated_at": memory.stated_at,
        "valid_from": memory.valid_from,
        "valid_from_precision": memory.valid_from_precision,
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
        "revision": 1,
        **statements(memory),
        **connections(memory),
    }
    tx.conn.execute(_INSERT, row)
    if memory.links:
        link_rows.put(tx.conn, memory)


_INSERT = insert(memories)


def _with_replaced(outcome: Outcome, replaced: Sequence[Memory]) -> Outcome:
    if not replaced:
        return outcome
    texts = tuple(memory.text for memory in replaced)
    return replace(
        outcome,
        previous="\n".join(texts),
        replaced_texts=texts,
        replaced=tuple(memory.id for memory in replaced),
        replaced_projects=tuple(memory.scope.project for memory in replaced),
    )


def _stated_at(tx: Transaction, fact: Fact) -> datetime | None:
    """Return when a fact was said, else when the newest of its source messages was said, if there are any."""
    return fact.said_at or _last_said_at(tx, fact)


def _last_said_at(tx: Transaction, fact: Fact) -> datetime | None:
    """Return when the newest source message of a fact was said; None without sources."""
    if not fact.sources:
        return None
    return tx.conn.execute(select(func.max(messages.c.said_at)).where(messages.c.id.in_(fact.sources))).scalar_one()


def change(tx: Transaction, memory: Memory, fact: Fact, *, sets_labels: bool = False) -> Outcome:
    """Give a memory the text, metadata, labels and sources of a fact. A fact without a text leaves the text unchanged.

    With `sets_labels` its tags and since when it holds become those of the fact, also if the fact has none.
    If another memory already has the new text, this one is closed in its favour. Raises MemoryNotFoundError for a
    deleted memory, unless it was closed in favour of exactly this text: the same call came twice.
    """
    fact = fact if fact.text else replace(fact, text=memory.text)
    if memory.deleted_at is not None:
        successor = find_duplicate(tx, memory.scope, fact.text)
        if successor is not None and successor.id == memory.superseded_by:
            return Outcome(Event.NONE, successor, duplicate_of=successor.id)
    memory = find_living(tx, memory.id)
    duplicate = find_duplicate(tx, memory.scope, fact.text)
    if duplicate is not None and duplicate.id != memory.id:
        change(tx, duplicate, with_handed_on(tx, replace(fact, text=duplicate.text), [memory], duplicate))
        closed = _close(tx, memory, duplicate)
        return Outcome(Event.DELETE, closed, previous=memory.text, duplicate_of=duplicate.id)
    happened_at, happened_precision = finer(
        (fact.happened_at, fact.happened_precision), (memory.happened_at, memory.happened_precision)
    )
    valid_from, valid_from_precision = finer(
        (fact.valid_from, fact.valid_from_precision), (memory.valid_from, memory.valid_from_precision)
    )
    new = replace(
        memory,
        text=fact.text,
        context=memory.context if fact.text == memory.text else "",  # it was written for the text before
        metadata={key: value for key, value in {**memory.metadata, **fact.metadata}.items() if value is not None},
        keywords=tuple(dict.fromkeys((*memory.keywords, *fact.keywords))),
        tags=tuple(dict.fromkeys((*memory.tags, *fact.tags))),
        happened_at=happened_at,
        happened_precision=happened_precision,
        stated_at=max(memory.stated_at, _stated_at(tx, fact) or memory.stated_at),
        valid_from=valid_from,
        valid_from_precision=valid_from_precision,
        **graph.stated_with(memory, fact),
    )
    if sets_labels:
        dates = {"valid_from": fact.valid_from, "valid_from_precision": fact.valid_from_precision}
        new = replace(new, tags=fact.tags, **dates)
    # A later date is a change if the caller gives it. With messages it comes with every mention, which is none.
    is_dated_by_caller = fact.said_at is not None and not fact.sources
    changed = new if is_dated_by_caller else replace(new, stated_at=memory.stated_at)
    if changed == memory:
        cite(tx, memory.id, fact, None)
        return Outcome(Event.NONE, memory)
    new = update_row(tx, memory, new)
    cite(tx, memory.id, fact, record(tx, Event.UPDATE, new, old=memory.text))
    return Outcome(Event.UPDATE, new, previous=memory.text)


def mention(tx: Transaction, memory: Memory, fact: Fact | None) -> Outcome:
    """Add what a fact knows more than a memory that says the same: its sources, its relations, and the user's name."""
    if fact is None:
        return Outcome(Event.NONE, memory)
    name, stated = fact.metadata.get(USER_NAME), graph.also_stated(memory, fact)
    if memory.deleted_at is None and (name or stated):
        # Without the sources, because a mention does not change when the memory was last stated.
        change(tx, memory, Fact(memory.text, metadata={USER_NAME: name} if name else {}, **stated))
    cite(tx, memory.id, fact, None)
    return Outcome(Event.NONE, memory)


def annotate(tx: Transaction, memory: Memory, found: Annotation) -> None:
    """Write the context, the tags and the links of a living memory.

    It says what it said before: its revision and its dates stay, and no summary that rests on it becomes stale.
    """
    new = replace(memory, context=found.context, tags=found.tags, links=found.links)
    if memory.deleted_at is not None or new == memory:
        return
    values = {"tags": list(new.tags), **connections(new)}
    tx.conn.execute(update(memories).where(memories.c.id == new.id).values(**values))
    if new.links != memory.links:
        link_rows.put(tx.conn, new)
    record(tx, Event.UPDATE, new, old=memory.text, is_annotated=True)


def delete(tx: Transaction, memory: Memory, decision: Decision) -> Outcome:
    """Delete a memory, or close it if the decision says when it ended. A deleted memory stays as it is."""
    if memory.deleted_at is not None:
        return Outcome(Event.NONE, memory)
    ended = _ended(decision)
    gone = replace(memory, is_forgotten=True) if ended is None else _until(memory, ended)
    return Outcome(Event.DELETE, _delete(tx, gone, memory), previous=memory.text)


def forget(tx: Transaction, memory: Memory) -> list[Outcome]:
    """Forget a memory, living or closed, and with it the memories that it replaced, which say nearly the same."""
    wanted = [old for old in (memory, *_replaced_by(tx, memory)) if not old.is_forgotten]
    recalls.forget(tx.conn, tx.scope.user_id, [old.id for old in wanted])
    outcomes = [
        Outcome(Event.DELETE, _delete(tx, replace(old, is_forgotten=True), old), previous=old.text) for old in wanted
    ]
    return outcomes or [Outcome(Event.NONE, memory)]


def _replaced_by(tx: Transaction, memory: Memory) -> list[Memory]:
    """Return the memories that a memory replaced, and those that these replaced before."""
    replaced: dict[str, Memory] = {}
    newest = {memory.id}
    while newest:
        query = select(memories).where(memories.c.superseded_by.in_(newest), sees(memories, tx.scope))
        found = {row.id: to_memory(row) for row in tx.conn.execute(query)}
        newest = found.keys() - replaced.keys() - {memory.id}
        replaced |= {old_id: found[old_id] for old_id in newest}
    return list(replaced.values())


def replace_by(tx: Transaction, memory: Memory, successor: Memory) -> Outcome:
    """Close a memory in favour of a living one. A memory that is closed already stays as it is."""
    if memory.deleted_at is not None or memory.id == successor.id:
        return Outcome(Event.NONE, memory)
    return Outcome(Event.DELETE, close(tx, memory, successor), previous=memory.text)


def close(tx: Transaction, memory: Memory, successor: Memory, ended: _Ended | None = None) -> Memory:
    """Mark a memory as superseded by another one, to which it hands on what holds on.

    It held until it `ended`, or until the other began to hold.
    """
    _hand_on(tx, memory, successor)
    return _close(tx, memory, successor, ended)


def _hand_on(tx: Transaction, memory: Memory, successor: Memory) -> None:
    """Give what holds on of a replaced memory to the living one that stands for it in the end, if there is one."""
    heir = find_newest(tx, successor.id)
    if heir.deleted_at is None and heir.id != memory.id:
        said = Fact(heir.text, entities=heir.entities, relations=heir.relations)
        change(tx, heir, with_handed_on(tx, said, [memory], heir))


def _close(tx: Transaction, memory: Memory, successor: Memory, ended: _Ended | None = None) -> Memory:
    replaced = replace(memory, superseded_by=successor.id)
    return _delete(tx, _until(replaced, ended or _beginning(successor)), memory)


def _ended(decision: Decision) -> _Ended | None:
    return None if decision.ended_at is None else (decision.ended_at, decision.ended_precision)


def _beginning(memory: Memory) -> _Ended:
    return memory.holds_from, memory.valid_from_precision if memory.valid_from else ""


def _until(memory: Memory, ended: _Ended) -> Memory:
    """Return a memory that held until a time, but not until before it began to hold."""
    end, precision = max(ended, _beginning(memory), key=lambda time: time[0])
    return replace(memory, valid_until=end, valid_until_precision=precision)


def _delete(tx: Transaction, memory: Memory, old: Memory) -> Memory:
    if old.deleted_at is None and old.metadata.get(USER_NAME):
        tx.told_names.append(old)
    deleted = update_row(tx, old, replace(memory, deleted_at=tx.now))
    record(tx, Event.DELETE, deleted, old=old.text)
    return deleted


def keep_name(tx: Transaction) -> None:
    """Let another memory about the user tell the name that only deleted ones told, if there is one in their project.

    What says nothing but the name takes it along.
    """
    for old in reversed(tx.told_names):
        if name_of_user(tx.conn, Scope(old.scope.user_id, old.scope.project)) or told_self_name(old.text):
            return
        name = str(old.metadata[USER_NAME])
        heir_id = about_user(tx.conn, replace(tx.scope, project=old.scope.project), name_key(name))
        if heir_id is not None:
            heir = find(tx, heir_id)
            change(tx, heir, Fact(heir.text, metadata={USER_NAME: name}))
            return


def restore(tx: Transaction, memory: Memory) -> Outcome:
    """Restore a deleted memory. A living memory stays. Raises InputError if another memory has the same text."""
    if memory.deleted_at is None:
        return Outcome(Event.NONE, memory)
    duplicate = find_duplicate(tx, memory.scope, memory.text)
    if duplicate is not None:
        raise InputError(f"memory {duplicate.id[:8]} already says the same, so {memory.id[:8]} was left deleted")
    living = replace(without_past_end(memory, tx.now), deleted_at=None, superseded_by=None, is_forgotten=False)
    restored = update_row(tx, memory, replace(living, valid_until=None, valid_until_precision=""))
    record(tx, Event.ADD, restored, old=None)
    return Outcome(Event.ADD, restored)


def without_past_end(memory: Memory, now: datetime) -> Memory:
    """Return a memory that is to live again without the end it had, if that has passed: it would be closed at once."""
    if not has_expired(memory.metadata, now):
        return memory
    return replace(memory, metadata={key: value for key, value in memory.metadata.items() if key != EXPIRES_AT})


def update_row(tx: Transaction, old: Memory, new: Memory) -> Memory:
    """Write the row and the entry of a changed memory. Return the memory with its next revision."""
    new = replace(new, updated_at=tx.now, revision=old.revision + 1)
    pinned.note_change(tx.pinned, old, new, is_undo=tx.provenance.stage.startswith(UNDO))
    stated = statements(new)
    names_others = stated != statements(old)  # where names were not looked for, the columns stay NULL
    is_unnamed = new.text != old.text and not any(stated.values())
    # An earlier text may be one in which names were not looked for. The background looks again, and finds the same.
    columns: dict[str, Any] = dict.fromkeys(stated) if is_unnamed else stated if names_others else {}
    tx.conn.execute(
        update(memories)
        .where(memories.c.id == new.id)
        .values(
            text=new.text,
            content_hash=memory_hash(new.text),
            metadata=dict(new.metadata),
            keywords=list(new.keywords),
            tags=list(new.tags),
            happened_at=new.happened_at,
            happened_precision=new.happened_precision,
            stated_at=new.stated_at,
            valid_from=new.valid_from,
            valid_until=new.valid_until,
            valid_from_precision=new.valid_from_precision,
            valid_until_precision=new.valid_until_precision,
            is_forgotten=new.is_forgotten,
            updated_at=new.updated_at,
            deleted_at=new.deleted_at,
            superseded_by=new.superseded_by,
            revision=new.revision,
            **connections(new),
            **columns,
        )
    )
    if names_others or new.metadata.get(USER_NAME) != old.metadata.get(USER_NAME):
        graph.put(tx.graph, new)
        mention_with(tx.conn, new.id)
    if new.links != old.links or (new.links and (new.deleted_at is None) is not (old.deleted_at is None)):
        link_rows.put(tx.conn, new)
    if new.text != old.text:
        put_entry(tx, "memory", new.id, new.scope, new.text)
    elif old.deleted_at is not None and new.deleted_at is None:
        of_memory = (vectors.c.kind == "memory", vectors.c.owner_id == new.id)
        tx.conn.execute(update(vectors).where(*of_memory).values(live=True))
    tx.touched.memories.add(new.id)
    return new
