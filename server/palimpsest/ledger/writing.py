"""What `Ledger.apply` does inside its transaction. Nothing else writes.

Every change of a memory leaves a row of history; every change of what is searched leaves a row in the change
log, which the vector index follows.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, exists, func, insert, select, update

from palimpsest.errors import InputError, MemoryNotFoundError, StaleDecisionError
from palimpsest.ledger import units
from palimpsest.ledger.rows import content_hash, is_scope, memory_state, scope_values, sees, to_memory
from palimpsest.ledger.tables import changes, history, memories, memory_sources, messages, summaries, vectors
from palimpsest.ports import Vector
from palimpsest.records import (
    Change,
    Decision,
    Event,
    Fact,
    Kind,
    Memory,
    Message,
    Provenance,
    Scope,
    Summary,
)

SESSION_GAP = timedelta(minutes=30)
"""A longer silence in one scope begins a new session."""


@dataclass(frozen=True, slots=True)
class Write:
    """Hold everything one transaction is to write.

    `vectors` maps texts to their vectors of `embedder`; a text that is missing is stored without and found by
    words until it is embedded. `based_on` is the head of the change log that the decisions were made on.
    """

    scope: Scope
    provenance: Provenance
    messages: tuple[Message, ...] = ()
    decisions: tuple[Decision, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    embedder: str = ""
    based_on: int | None = None
    summary: Summary | None = None


@dataclass(frozen=True, slots=True)
class _Pen:
    """Hold what every step of one transaction needs; `touched` collects the units to index anew."""

    conn: Connection
    write: Write
    now: datetime
    touched: units.Touched


def apply(conn: Connection, write: Write, now: datetime) -> list[Change]:
    """Write all of `write` and return one change a decision, in order. Raises as `Ledger.apply` says."""
    if write.based_on is not None:
        _refuse_stale(conn, write.scope, write.based_on)
    pen = _Pen(conn, write, now, units.Touched())
    for message in write.messages:
        _keep_message(pen, message)
    done = [_carry_out(pen, decision) for decision in write.decisions]
    units.index(conn, pen.touched, now)
    if write.summary is not None:
        _keep_summary(conn, write.summary, write.provenance)
    return done


def _refuse_stale(conn: Connection, scope: Scope, based_on: int) -> None:
    """Raise StaleDecisionError if any memory the scope sees has changed since the decisions read them."""
    changed = select(changes.c.seq).where(
        changes.c.user_id == scope.user_id,
        changes.c.seq > based_on,
        exists().where(and_(memories.c.id == changes.c.memory_id, sees(memories, scope))),
    )
    if conn.execute(changed.limit(1)).first() is not None:
        raise StaleDecisionError("memories changed while it was decided what to do with the new facts")


def _keep_message(pen: _Pen, message: Message) -> None:
    """Store a turn and its unit; one of the same id and text, or of the same text and time, is stored once."""
    digest = content_hash(message.content)
    here = is_scope(messages, message.scope)
    same = select(messages.c.id).where(
        here, messages.c.content_hash == digest, messages.c.external_id == message.external_id
    )
    if not message.external_id:
        same = same.where(messages.c.said_at == message.said_at, messages.c.name == message.name)
        same = same.where(messages.c.role == message.role, messages.c.created_at != message.created_at)
    if pen.conn.execute(same).first() is not None:
        return
    last = pen.conn.execute(
        select(messages.c.session_id, messages.c.said_at).where(here).order_by(messages.c.seq.desc()).limit(1)
    ).first()
    goes_on = last is not None and abs(message.said_at - last.said_at) <= SESSION_GAP
    pen.conn.execute(
        insert(messages).values(
            id=message.id,
            **scope_values(message.scope),
            role=message.role,
            name=message.name,
            content=message.content,
            content_hash=digest,
            external_id=message.external_id,
            session_id=last.session_id if last is not None and goes_on else message.id,
            said_at=message.said_at,
            created_at=message.created_at,
        )
    )
    _put_unit(pen, "message", message.id, message.scope, message.content)
    pen.touched.messages.add(message.id)


def _carry_out(pen: _Pen, decision: Decision) -> Change:
    match decision.event:
        case Event.ADD if decision.memory_id is not None:
            return _restore(pen, _find(pen, decision.memory_id, deleted=True))
        case Event.ADD:
            return _add(pen, _wanted(decision.fact), decision.replaces)
        case Event.UPDATE:
            return _update(pen, _find(pen, decision.memory_id), _wanted(decision.fact))
        case Event.DELETE:
            memory = _find(pen, decision.memory_id)
            return Change(Event.DELETE, _close(pen, memory, None), previous=memory.text)
        case Event.NONE:
            memory = _find(pen, decision.memory_id)
            if decision.fact is not None:
                _cite(pen, memory.id, decision.fact, None)
            return Change(Event.NONE, memory)


def _add(pen: _Pen, fact: Fact, replaces: Sequence[str]) -> Change:
    closed = [_find(pen, memory_id) for memory_id in dict.fromkeys(replaces)]
    twin = _twin(pen, pen.write.scope, fact.text)
    if twin is not None:
        done = _update(pen, twin, replace(fact, text=twin.text))
        others = [memory for memory in closed if memory.id != twin.id]
        for memory in others:
            _close(pen, memory, twin.id)
        return _with_replaced(replace(done, duplicate_of=twin.id), others)
    memory = Memory(
        id=str(uuid.uuid4()),
        scope=pen.write.scope,
        text=fact.text,
        created_at=pen.now,
        updated_at=pen.now,
        valid_from=fact.happened_at or _last_said(pen, fact) or pen.now,
        happened_at=fact.happened_at,
        keywords=fact.keywords,
        tags=fact.tags,
        metadata={key: value for key, value in fact.metadata.items() if value is not None},
        actor_id=fact.actor_id,
        role=fact.role,
    )
    pen.conn.execute(
        insert(memories).values(
            id=memory.id,
            **scope_values(memory.scope),
            text=memory.text,
            content_hash=content_hash(memory.text),
            keywords=list(memory.keywords),
            tags=list(memory.tags),
            metadata=memory.metadata,
            actor_id=memory.actor_id,
            role=memory.role,
            happened_at=memory.happened_at,
            valid_from=memory.valid_from,
            created_at=memory.created_at,
            updated_at=memory.updated_at,
            revision=1,
        )
    )
    _put_unit(pen, "memory", memory.id, memory.scope, memory.text)
    _cite(pen, memory.id, fact, _record(pen, Event.ADD, memory, old=None))
    for old in closed:
        _close(pen, old, memory.id)
    return _with_replaced(Change(Event.ADD, memory), closed)


def _with_replaced(change: Change, closed: Sequence[Memory]) -> Change:
    if not closed:
        return change
    texts = "; ".join(memory.text for memory in closed)
    return replace(change, previous=texts, replaced=tuple(memory.id for memory in closed))


def _last_said(pen: _Pen, fact: Fact) -> datetime | None:
    """Return when the newest of the messages a fact comes from was said."""
    return pen.conn.execute(select(func.max(messages.c.said_at)).where(messages.c.id.in_(fact.sources))).scalar_one()


def _update(pen: _Pen, memory: Memory, fact: Fact) -> Change:
    """Give a memory its new text; where another already says just that, close this one in its favour.

    A fact without a text leaves the text as it is, whatever that is by now.
    """
    fact = fact if fact.text else replace(fact, text=memory.text)
    twin = _twin(pen, memory.scope, fact.text)
    if twin is not None and twin.id != memory.id:
        _cite(pen, twin.id, fact, None)
        return Change(Event.DELETE, _close(pen, memory, twin.id), previous=memory.text, duplicate_of=twin.id)
    new = replace(
        memory,
        text=fact.text,
        metadata={key: value for key, value in {**memory.metadata, **fact.metadata}.items() if value is not None},
        keywords=tuple(dict.fromkeys((*memory.keywords, *fact.keywords))),
        tags=tuple(dict.fromkeys((*memory.tags, *fact.tags))),
        happened_at=fact.happened_at or memory.happened_at,
        valid_from=max(memory.valid_from, fact.happened_at or _last_said(pen, fact) or memory.valid_from),
        updated_at=pen.now,
        revision=memory.revision + 1,
    )
    if _says_the_same(new, memory):
        _cite(pen, memory.id, fact, None)
        return Change(Event.NONE, memory)
    pen.conn.execute(
        update(memories)
        .where(memories.c.id == memory.id)
        .values(
            text=new.text,
            content_hash=content_hash(new.text),
            metadata=new.metadata,
            keywords=list(new.keywords),
            tags=list(new.tags),
            happened_at=new.happened_at,
            valid_from=new.valid_from,
            updated_at=new.updated_at,
            revision=new.revision,
        )
    )
    if new.text != memory.text:
        _put_unit(pen, "memory", memory.id, memory.scope, new.text)
    _cite(pen, memory.id, fact, _record(pen, Event.UPDATE, new, old=memory.text))
    return Change(Event.UPDATE, new, previous=memory.text)


def _says_the_same(new: Memory, old: Memory) -> bool:
    """Say whether an update would change nothing but when the fact was last said."""
    return replace(new, updated_at=old.updated_at, revision=old.revision, valid_from=old.valid_from) == old


def _close(pen: _Pen, memory: Memory, superseded_by: str | None) -> Memory:
    closed = replace(
        memory,
        deleted_at=pen.now,
        updated_at=pen.now,
        superseded_by=superseded_by,
        revision=memory.revision + 1,
    )
    pen.conn.execute(
        update(memories)
        .where(memories.c.id == memory.id)
        .values(
            deleted_at=pen.now,
            valid_until=pen.now,
            updated_at=pen.now,
            superseded_by=superseded_by,
            revision=closed.revision,
        )
    )
    _record(pen, Event.DELETE, closed, old=memory.text)
    pen.touched.memories.add(memory.id)
    return closed


def _restore(pen: _Pen, memory: Memory) -> Change:
    twin = _twin(pen, memory.scope, memory.text)
    if twin is not None:
        raise InputError(f"memory {twin.id[:8]} already says the same, so {memory.id[:8]} was left deleted")
    back = replace(memory, deleted_at=None, updated_at=pen.now, superseded_by=None, revision=memory.revision + 1)
    pen.conn.execute(
        update(memories)
        .where(memories.c.id == memory.id)
        .values(deleted_at=None, valid_until=None, superseded_by=None, updated_at=pen.now, revision=back.revision)
    )
    pen.conn.execute(
        update(vectors).where(vectors.c.kind == "memory", vectors.c.owner_id == memory.id).values(live=True)
    )
    _record(pen, Event.ADD, back, old=None)
    pen.touched.memories.add(memory.id)
    return Change(Event.ADD, back)


def _record(pen: _Pen, event: Event, memory: Memory, old: str | None) -> str:
    """Write the row of history and return its id."""
    entry = str(uuid.uuid4())
    gone = event is Event.DELETE
    made_by = pen.write.provenance
    pen.conn.execute(
        insert(history).values(
            id=entry,
            memory_id=memory.id,
            old_memory=old,
            new_memory=None if gone else memory.text,
            event=event.value,
            created_at=memory.created_at,
            updated_at=pen.now,
            is_deleted=gone,
            actor_id=memory.actor_id,
            role=memory.role,
            state=memory_state(memory),
            stage=made_by.stage,
            model=made_by.model,
            prompt=made_by.prompt,
            caller=made_by.caller,
        )
    )
    pen.touched.memories.add(memory.id)
    return entry


def _cite(pen: _Pen, memory_id: str, fact: Fact, entry: str | None) -> None:
    """Note which messages a memory came from, under the row of history that brought them."""
    known = set(
        pen.conn.execute(select(memory_sources.c.message_id).where(memory_sources.c.memory_id == memory_id)).scalars()
    )
    new = [source for source in dict.fromkeys(fact.sources) if source not in known]
    if not new:
        return
    entry = (
        entry
        or pen.conn.execute(
            select(history.c.id).where(history.c.memory_id == memory_id).order_by(history.c.seq.desc()).limit(1)
        ).scalar_one()
    )
    pen.conn.execute(
        insert(memory_sources),
        [{"memory_id": memory_id, "message_id": source, "history_id": entry} for source in new],
    )
    pen.touched.memories.add(memory_id)


def _put_unit(pen: _Pen, kind: Kind, owner_id: str, scope: Scope, text: str) -> None:
    vector = pen.write.vectors.get(text)
    units.put(pen.conn, kind, owner_id, scope, vector, pen.write.embedder, pen.touched)


def _twin(pen: _Pen, scope: Scope, text: str) -> Memory | None:
    row = pen.conn.execute(
        select(memories).where(
            is_scope(memories, scope),
            memories.c.content_hash == content_hash(text),
            memories.c.deleted_at.is_(None),
        )
    ).one_or_none()
    return None if row is None else to_memory(row)


def _find(pen: _Pen, memory_id: str | None, *, deleted: bool = False) -> Memory:
    """Return the memory of that id, in this scope, living or deleted as asked."""
    row = pen.conn.execute(
        select(memories).where(memories.c.id == memory_id, sees(memories, pen.write.scope))
    ).one_or_none()
    if row is None or (row.deleted_at is not None) is not deleted:
        state = "deleted memory" if deleted else "memory"
        raise MemoryNotFoundError(f"there is no {state} {memory_id} any more; nothing was changed")
    return to_memory(row)


def _wanted(fact: Fact | None) -> Fact:
    if fact is None:
        raise ValueError("ADD and UPDATE carry a fact")
    return fact


def _keep_summary(conn: Connection, summary: Summary, provenance: Provenance) -> None:
    newest = conn.execute(
        select(func.max(summaries.c.seq)).where(is_scope(summaries, summary.scope), summaries.c.kind == summary.kind)
    ).scalar_one_or_none()
    if newest is not None and newest > summary.seq:
        return  # another process has written a newer one meanwhile
    conn.execute(
        insert(summaries).values(
            **scope_values(summary.scope),
            kind=summary.kind,
            text=summary.text,
            seq=summary.seq,
            model=provenance.model,
            prompt=provenance.prompt,
            created_at=summary.created_at,
        )
    )
