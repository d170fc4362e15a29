"""What `Ledger.apply` does inside its transaction. Nothing else writes.

Every change of a memory or turn leaves a row of history; every change of what is searched leaves a row in the
change log, which the vector index follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, exists, func, insert, select, update

from palimpsest.core.clock import iso
from palimpsest.core.errors import StaleDecisionError
from palimpsest.core.models import (
    AppliedWrite,
    Decision,
    Event,
    Fact,
    Message,
    Outcome,
    Provenance,
    Scope,
    Summary,
    Undo,
)
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import chunks, is_scope, scope_values, sees
from palimpsest.store.protocols import FullText
from palimpsest.store.schema import index_log, memories, messages, meta, summaries
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes import memories as memory_writes
from palimpsest.store.writes import messages as message_writes
from palimpsest.store.writes import undo as undo_writes
from palimpsest.store.writes.purge import ERASED_AT
from palimpsest.store.writes.transaction import Transaction, cite, find, living, next_edit_number

CLOCK_SLACK = timedelta(minutes=1)
"""Clocks are set right by seconds all the time; that is not worth a word."""


@dataclass(frozen=True, slots=True)
class Write:
    """Hold everything one transaction is to write.

    `vectors` maps texts to their vectors of `embedder`; a text that is missing is stored without and found by
    words until it is embedded. `read` holds the revisions of the memories that the decisions were made on, and
    `based_on` the head of the change log then. `learns` are ids of the turns that the decisions were drawn from.
    """

    scope: Scope
    provenance: Provenance
    messages: tuple[Message, ...] = ()
    decisions: tuple[Decision, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    embedder: str = ""
    read: Mapping[str, int] = field(default_factory=dict[str, int])
    based_on: int | None = None
    learns: tuple[str, ...] = ()
    summary: Summary | None = None
    undo: Undo | None = None


def apply(conn: Connection, full_text: FullText, write: Write, now: datetime) -> AppliedWrite:
    """Write all of `write` and return what it did. Raises as `Ledger.apply` says."""
    _refuse_stale(conn, write)
    touched = entry_writes.TouchedEntries()
    notes = _clock_notes(conn, now)
    tx = Transaction(
        conn, write.scope, write.provenance, now, next_edit_number(conn), write.vectors, write.embedder, touched
    )
    _mark_learnt(conn, write.learns)
    kept, new = message_writes.keep(tx, write.messages) if write.messages else ((), frozenset[str]())
    done = [_carry_out(tx, decision) for decision in write.decisions]
    if write.undo is not None:
        done += undo_writes.take_back(tx, write.undo)
    entry_writes.index(conn, full_text, touched, now)
    if write.summary is not None:
        _keep_summary(conn, write.summary, write.provenance)
    return AppliedWrite(tuple(done), kept, new, notes)


def _clock_notes(conn: Connection, now: datetime) -> tuple[str, ...]:
    """Return what to tell where the clock has jumped back: order is kept by numbers, but dates will look wrong."""
    newest = conn.execute(_NEWEST).scalar_one_or_none()
    if newest is None or newest - now < CLOCK_SLACK:
        return ()
    return (f"this machine's clock stands before the last change ({iso(newest)}); what is written now is dated by it",)


_NEWEST = select(index_log.c.at).order_by(index_log.c.seq.desc()).limit(1)


def _refuse_stale(conn: Connection, write: Write) -> None:
    """Raise StaleDecisionError if what was read has changed since, or the scope has a memory that was not there."""
    for chunk in chunks(list(write.read)):
        query = select(memories.c.id, memories.c.revision).where(memories.c.id.in_(chunk))
        now = {row.id: row.revision for row in conn.execute(query)}
        if any(now.get(memory_id) != write.read[memory_id] for memory_id in chunk):
            raise StaleDecisionError("a memory changed while it was decided what to do with the new facts")
    if write.based_on is None:
        return
    unread = and_(sees(memories, write.scope), memories.c.deleted_at.is_(None), memories.c.id.not_in(write.read))
    changed = select(index_log.c.seq).where(
        index_log.c.user_id == write.scope.user_id,
        index_log.c.seq > write.based_on,
        exists().where(and_(memories.c.id == index_log.c.memory_id, unread)),
    )
    if conn.execute(changed.limit(1)).first() is not None:
        raise StaleDecisionError("memories were added while it was decided what to do with the new facts")


def _mark_learnt(conn: Connection, message_ids: tuple[str, ...]) -> None:
    """Note that facts were drawn from these turns. Raises StaleDecisionError if another call has done so."""
    for chunk in chunks(message_ids):
        fresh = and_(messages.c.id.in_(chunk), messages.c.learnt.is_(False), messages.c.deleted_at.is_(None))
        if conn.execute(update(messages).where(fresh).values(learnt=True)).rowcount != len(chunk):
            raise StaleDecisionError("another call has learnt from these turns meanwhile, or they were forgotten")


def _carry_out(tx: Transaction, decision: Decision) -> Outcome:
    if decision.kind == "message":
        return message_writes.set_deleted(tx, decision.memory_id, deleted=decision.event is Event.DELETE)
    match decision.event:
        case Event.ADD if decision.memory_id is not None:
            return memory_writes.bring_back(tx, find(tx, decision.memory_id))
        case Event.ADD:
            return memory_writes.add(tx, _wanted(decision.fact), decision.replaces)
        case Event.UPDATE:
            return memory_writes.change_text(tx, find(tx, decision.memory_id), _wanted(decision.fact))
        case Event.DELETE:
            return memory_writes.forget(tx, find(tx, decision.memory_id))
        case Event.NONE:
            memory = living(tx, decision.memory_id)
            if decision.fact is not None:
                cite(tx, memory.id, decision.fact, None)
            return Outcome(Event.NONE, memory)


def _wanted(fact: Fact | None) -> Fact:
    if fact is None:
        raise ValueError("ADD and UPDATE carry a fact")
    return fact


def _keep_summary(conn: Connection, summary: Summary, provenance: Provenance) -> None:
    newest = conn.execute(
        select(func.max(summaries.c.seq)).where(is_scope(summaries, summary.scope), summaries.c.kind == summary.kind)
    ).scalar_one_or_none()
    erased = conn.execute(select(meta.c.value).where(meta.c.key == ERASED_AT)).scalar_one_or_none()
    if (newest is not None and newest > summary.seq) or int(erased or 0) > summary.seq:
        return  # another process has written a newer one meanwhile, or erased what this one may quote
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
