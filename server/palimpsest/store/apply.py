"""Apply a write: the one place that carries out decisions, inside one transaction.

Every row of one write has the same edit number, by which the edit can be undone. Every change of an entry leaves a row
in the index log, which the vector indexes follow.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, exists, select, update

from palimpsest.core import models
from palimpsest.core.clock import iso
from palimpsest.core.errors import InputError, StaleDecisionError
from palimpsest.core.protocols import Vector
from palimpsest.store import contextual_keys, documents, undo, usage, writes
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store import summaries as summary_queries
from palimpsest.store.database import FullText
from palimpsest.store.documents import Gist, PagesRead
from palimpsest.store.entries import TouchedEntries, Transaction, next_edit_number
from palimpsest.store.graph import entity_edits
from palimpsest.store.jobs import MESSAGES, JobRequest, enqueue, enqueue_all
from palimpsest.store.projects import current_scope
from palimpsest.store.rows import among, has_row, is_living
from palimpsest.store.schema import index_log, memories, messages
from palimpsest.store.writes import Conversation, find, find_newest
from palimpsest.text.display import counted

# Clocks are corrected by seconds all the time. Such corrections are not worth a note.
CLOCK_SLACK = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Write:
    """Everything that one transaction writes.

    `vectors` maps texts to their vectors of `embedder`. A text without a vector is found by its words until it is
    embedded. `partial` are the texts of which only the first window was embedded. `read` holds the revisions of the
    memories that the decisions were made on, and `based_on` the newest number of the index log at that time.
    `conversation` is the one that all of `messages` belong to, if a client says so. With `edit` the write goes on with
    the edit of that number, so that one undo takes back what took several transactions.
    `learned_from` are the ids of the messages that the decisions were drawn from. With `learn_later`, a payload, a job
    learns from those of `messages` that no facts were extracted from yet; `later` is other work that is queued.
    `entity_edits` are carried out after the decisions. `annotations` are what the background found out about memories.
    `gists` are those of pages, by the ids of these, and `pages_read` the pages that the new ones take the place of.
    With `forgets_name` the user's name goes with the memories that told it; else another one tells it from then on.
    With `erases_recalls` the recall log of the scope itself is erased, which no undo brings back.
    """

    scope: models.Scope
    provenance: models.Provenance
    messages: tuple[models.Message, ...] = ()
    conversation: Conversation | None = None
    decisions: tuple[models.Decision, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    embedder: str = ""
    partial: AbstractSet[str] = frozenset()
    read: Mapping[str, int] = field(default_factory=dict[str, int])
    based_on: int | None = None
    learned_from: tuple[str, ...] = ()
    learn_later: Mapping[str, Any] | None = None
    later: tuple[JobRequest, ...] = ()
    summary: models.Summary | None = None
    entity_edits: tuple[models.EntityEdit, ...] = ()
    annotations: tuple[models.Annotation, ...] = ()
    undo: models.Undo | None = None
    edit: int | None = None
    gists: Mapping[str, Gist] = field(default_factory=dict[str, Gist])
    pages_read: PagesRead | None = None
    forgets_name: bool = False
    erases_recalls: bool = False


def apply(
    conn: Connection, full_text: FullText, write: Write, now: datetime, max_memories: int = 0
) -> models.AppliedWrite:
    """Carry out a write and return what it did. Raises the errors that `Ledger.apply` lists."""
    write = _in_current_project(conn, write)
    _refuse_stale(conn, write)
    touched = TouchedEntries()
    notes = _clock_notes(conn, now)
    edit = write.edit or next_edit_number(conn)
    tx = Transaction(
        conn, write.scope, write.provenance, now, edit, touched, write.vectors, write.embedder, write.partial
    )
    _mark_learned(conn, write.learned_from)
    # An undo may exceed the limit: it only brings back what was.
    may_add = any(each.event is models.Event.ADD and each.kind == "memory" for each in write.decisions)
    before = memory_queries.count_living(conn, write.scope.user_id) if max_memories and may_add else None
    stored, new_ids = (), frozenset[str]()
    if write.messages:
        stored, new_ids = writes.store(tx, write.messages, write.conversation)
    unlearned = frozenset(message_queries.awaiting_extraction(conn, [message.id for message in stored]))
    if write.learn_later is not None and unlearned:
        ids = [message.id for message in stored if message.id in unlearned]
        enqueue(conn, write.scope, JobRequest("learn", payload={MESSAGES: ids, **write.learn_later}), now)
    outcomes = [outcome for decision in write.decisions for outcome in _carry_out(tx, decision)]
    for edit_of_entities in write.entity_edits:
        entity_edits.carry_out(tx, edit_of_entities)
    for annotation in write.annotations:
        writes.annotate(tx, find(tx, annotation.memory_id), annotation)
    if write.undo is not None:
        outcomes += undo.undo(tx, write.undo)
    elif not write.forgets_name:
        writes.keep_name(tx)
    writes.go_on(tx)
    new_messages = [message.id for message in stored if message.id in new_ids]
    enqueue_all(tx, write.later, outcomes, new_messages)
    _expire_later(conn, outcomes, now)
    if before is not None:
        _refuse_too_many(conn, write.scope.user_id, before, max_memories)
    on_pinned = memory_queries.check(conn, tx.pinned, may_exceed=write.undo is not None)
    if write.gists:
        touched.messages.update(documents.put(conn, write.gists, write.vectors, write.embedder))
    if write.provenance.stage == models.ENRICH:  # whoever read these memories need not read them again
        touched.annotated, touched.memories = touched.memories, set()
    contextual_keys.index(conn, full_text, touched, now)
    if write.summary is not None and write.summary.scope.with_general:  # the others see less than the scope says
        summary_queries.put(conn, write.summary, write.provenance)
    if write.erases_recalls:
        usage.erase_of_scope(conn, write.scope)
    notes = (*notes, *tx.entity_edits, *tx.notes, *on_pinned)
    return models.AppliedWrite(tuple(outcomes), stored, new_ids, unlearned, notes, edit, tuple(tx.entity_edits))


def _in_current_project(conn: Connection, write: Write) -> Write:
    """Return the write in the project that its own was moved to, as one that began before the move does not know it.

    A summary of the old project is left out, because the other one may hold more.
    """
    scope = current_scope(conn, write.scope)
    if scope == write.scope:
        return write
    moved = (replace(message, scope=replace(message.scope, project=scope.project)) for message in write.messages)
    return replace(write, scope=scope, messages=tuple(moved), summary=None)


def _clock_notes(conn: Connection, now: datetime) -> tuple[str, ...]:
    """Return a note if the clock was set back. The order of rows does not depend on it, but their dates do."""
    if (newest := conn.execute(_NEWEST).scalar_one_or_none()) is None or newest - now < CLOCK_SLACK:
        return ()
    return (f"this machine's clock is behind the last change ({iso(newest)}), so new rows get a wrong date",)


_NEWEST = select(index_log.c.at).order_by(index_log.c.seq.desc()).limit(1)


def _refuse_stale(conn: Connection, write: Write) -> None:
    """Raise StaleDecisionError if a memory that was read has changed, or the scope has a memory that was not read."""
    query = select(memories.c.id, memories.c.revision).where(among(memories.c.id, write.read))
    if {row.id: row.revision for row in conn.execute(query)} != write.read:
        raise StaleDecisionError("a memory changed while it was decided what to do with the new facts")
    if write.pages_read is not None:
        documents.refuse_changed(conn, write.scope, write.pages_read)
    if write.based_on is None:
        return
    unread = and_(is_living(memories, write.scope), memories.c.id.not_in(write.read))
    is_later = (index_log.c.user_id == write.scope.user_id, index_log.c.seq > write.based_on)
    is_unread = exists().where(memories.c.id == index_log.c.memory_id, unread)
    if has_row(conn, select(index_log.c.seq).where(*is_later, is_unread)):
        raise StaleDecisionError("memories were added while it was decided what to do with the new facts")


def _refuse_too_many(conn: Connection, user_id: str, before: int, max_memories: int) -> None:
    """Raise InputError if a user has more memories than before, and than there may be.

    The write lock keeps out other writers of the user, so that those who write at once cannot exceed it together.
    """
    after = memory_queries.count_living(conn, user_id)
    if after > max(before, max_memories):
        raise InputError(
            f"{user_id} would have {counted(after, 'memory')} and may have {max_memories:,} (max_memories); nothing "
            "was stored by this step. Delete what is no longer needed, or replace a memory instead of adding one."
        )


def _mark_learned(conn: Connection, message_ids: tuple[str, ...]) -> None:
    """Mark messages as learned from. Raises StaleDecisionError if another call has learned from one of them."""
    fresh = and_(among(messages.c.id, message_ids), messages.c.learnt.is_(False), messages.c.deleted_at.is_(None))
    if conn.execute(update(messages).where(fresh).values(learnt=True)).rowcount != len(message_ids):
        raise StaleDecisionError("another call has learned from these messages, or they were deleted")


def _expire_later(conn: Connection, outcomes: Sequence[models.Outcome], now: datetime) -> None:
    """Queue a job that closes what ends at a time of the memories of a write, or what its plans replace."""
    zone = now.tzinfo or UTC
    for memory in (outcome.memory for outcome in outcomes if outcome.memory.deleted_at is None):
        end, begin = models.end_of(memory.metadata, zone), memory.begins_in(zone)
        if end is not None:
            enqueue(conn, memory.scope, JobRequest("expire", due_at=end), now)
        if begin is not None and begin > now:
            enqueue(conn, memory.scope, JobRequest("expire", due_at=begin), now)


def _carry_out(tx: Transaction, decision: models.Decision) -> list[models.Outcome]:
    """Return what became of a decision, and of what goes with it: facts that were true before, or replaced memories."""
    if decision.forgets and decision.kind == "memory":
        return writes.forget(tx, find(tx, decision.memory_id))
    outcome = _change(tx, decision)
    return [outcome, *(writes.add_outdated(tx, fact, outcome.memory) for fact in decision.outdated)]


def _change(tx: Transaction, decision: models.Decision) -> models.Outcome:
    if decision.kind == "message":
        return writes.set_deleted(tx, decision.memory_id, deleted=decision.event is models.Event.DELETE)
    match decision.event:
        case models.Event.ADD if decision.memory_id is not None:
            return writes.restore(tx, find(tx, decision.memory_id))
        case models.Event.ADD if decision.successor is not None:
            return writes.add_between(tx, _required(decision.fact), decision)
        case models.Event.ADD:
            is_general = decision.is_general and not decision.replaces
            scope = tx.scope.general if is_general else tx.scope
            fact, sets_relations = _required(decision.fact), decision.sets_relations
            return writes.add(tx, fact, decision.replaces, scope, sets_relations=sets_relations)
        case models.Event.UPDATE:
            memory, fact = find(tx, decision.memory_id), _required(decision.fact)
            return writes.change(
                tx, memory, fact, sets_labels=decision.sets_labels, sets_relations=decision.sets_relations
            )
        case models.Event.DELETE if decision.successor is not None:
            return writes.replace_by(tx, find(tx, decision.memory_id), find_newest(tx, decision.successor))
        case models.Event.DELETE:
            return writes.delete_memory(tx, find(tx, decision.memory_id), decision)
        case models.Event.NONE:
            # A decision before this one may have closed the memory. It still is what the fact repeats or came before.
            return writes.mention(tx, find(tx, decision.memory_id), decision.fact)


def _required(fact: models.Fact | None) -> models.Fact:
    if fact is None:
        raise ValueError("ADD and UPDATE need a fact")
    return fact
