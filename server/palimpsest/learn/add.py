"""Add messages or a text: keep them, extract facts, reconcile the facts with what is known.

Messages are in the ledger before a model is asked. Whatever fails later, they are kept, and a call that is repeated
continues where the first one stopped.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from palimpsest.core.errors import MemoryNotFoundError, ModelError, PromptError, Remedy, StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.apply import WriteResult, apply_decisions, apply_write, embed_texts
from palimpsest.learn.documents.learn import DocumentText, is_long, learn_document, text_document
from palimpsest.learn.edit import has_text, past_end_notes
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.naming import with_named_facts
from palimpsest.learn.facts.near_duplicates import with_near_duplicates
from palimpsest.learn.facts.reconcile import ReconcileRequest, reconcile
from palimpsest.learn.messages.from_messages import Lesson, learn_from
from palimpsest.learn.sanitize import original_text, sanitize_fact, sanitize_messages
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.jobs.queue import LearnLater
from palimpsest.text.dates.finder import dates_in
from palimpsest.text.dates.spans import DateSpan, day_or_days

logger = logging.getLogger(__name__)

LEARNING = "facts are learned from these messages in the background; a later reply says which"
NO_MODEL = "there is no language model to ask: "

MAX_NOTED_DATES = 5
"""How many dates of a text are noted. Set by hand: a fact has one or two, and a long text is not worth more lines."""

MAX_QUOTED_CHARS = 200
"""How much of a memory's text an error quotes: enough to recognize it."""


async def add_messages(
    engine: Engine,
    scope: Scope,
    messages: Sequence[Message],
    context: Sequence[str],
    *,
    infer: bool | None,
    caller: str,
    stays_in_project: bool = True,
) -> WriteResult:
    """Keep messages. With a model, extract their facts and reconcile them. Raises LedgerError."""
    sanitized = await engine.run(lambda: sanitize_messages(engine, scope, messages, context))
    if not sanitized.messages:
        return WriteResult(notes=sanitized.notes)
    vectors, embedding_notes = await embed_texts(engine, [message.content for message in sanitized.messages])
    provenance = Provenance("keep", caller=caller)
    learns_later = engine.learns_later and infer is not False
    later = LearnLater(tuple(sanitized.context), caller, stays_in_project) if learns_later else None
    fingerprint = engine.embedder.fingerprint
    write = Write(scope, provenance, sanitized.messages, vectors=vectors, embedder=fingerprint, learn_later=later)
    applied = await apply_write(engine, write)
    notes = [*sanitized.notes, *embedding_notes, *applied.notes]
    if not applied.new_message_ids:
        notes.append("all of these messages were known already")
    if deleted := sum(message.deleted_at is not None for message in applied.messages):
        notes.append(f"{deleted} of these messages were deleted before and stay deleted; palimpsest undo restores them")
    kept = WriteResult(kept_messages=len(applied.new_message_ids), notes=tuple(notes))
    # Stored times are in UTC. What a message says of its day counts from the offset that the call gave.
    zones = {message.id: message.said_at.tzinfo for message in sanitized.messages}
    default = engine.clock().tzinfo
    new = [
        message.in_zone(zones.get(message.id, default))
        for message in applied.messages
        if message.id in applied.unlearned_ids
    ]
    if infer is False or not new:
        return kept
    if later is not None:
        return replace(kept, notes=(*kept.notes, LEARNING), is_learning=True)
    if engine.model is None:
        note = (
            f"{NO_MODEL}messages are kept as they are, searchable, and no facts were learned. Now add what matters in "
            "them as text, one fact a call."
        )
        return replace(kept, notes=(*kept.notes, note)) if applied.new_message_ids else kept
    lesson = Lesson(scope, new, tuple(sanitized.context), caller, vectors, stays_in_project)
    learned = await learn_from(engine, engine.model, lesson)
    return replace(learned, kept_messages=kept.kept_messages, notes=(*kept.notes, *learned.notes))


async def add_text(
    engine: Engine, scope: Scope, fact: Fact, *, replaces: Sequence[str], infer: bool | None, caller: str
) -> WriteResult:
    """Store a fact in the caller's words, reconciled with what is known if there is a model.

    With `replaces`, or with `infer` False, the model is not asked, because the caller has decided. With `infer` True
    facts are extracted from the text first. Dates such as "yesterday" stay as they are and are noted: the memory's own
    date is that of the text, and whoever reads it counts from there. A text of several pages becomes a document, unless
    it has more than a time. Raises MemoryNotFoundError and LedgerError.
    """
    if is_long(fact.text) and not (replaces or fact.metadata or fact.relations or infer):
        return await _add_as_document(engine, scope, fact, caller)
    fact, notes, replaced = await engine.run(lambda: _prepared(engine, scope, fact, replaces))
    if infer and engine.model is not None and not replaces:
        message = _as_message(engine, scope, fact)
        result = await add_messages(engine, scope, [message], (), infer=True, caller=caller)
        return replace(result, notes=(*notes, *result.notes))
    if engine.model is None or replaces or infer is False:
        if infer and engine.model is None:
            notes.append(f"{NO_MODEL}stored as one memory, in your words")
        return await _add_as_it_is(engine, scope, Decision(Event.ADD, fact, replaces=replaced), caller, notes)
    vectors, _ = await embed_texts(engine, [fact.text])
    request = ReconcileRequest(scope, (fact,), caller, keep_all=True, vectors=vectors)
    try:
        result = await reconcile(engine, engine.model, request)
    except (ModelError, PromptError, StaleDecisionError, MemoryNotFoundError) as error:
        notes.append(f"stored in your words, not reconciled with what was known: {error}")
        return await _add_as_it_is(engine, scope, Decision(Event.ADD, fact), caller, notes, vectors)
    return replace(result, notes=(*notes, *result.notes))


async def _add_as_document(engine: Engine, scope: Scope, fact: Fact, caller: str) -> WriteResult:
    document = text_document(fact.text, fact.said_at or engine.clock())

    async def given() -> DocumentText:
        return document

    learned = await learn_document(engine, scope, given, caller)
    return WriteResult(notes=learned.notes, document=learned)


async def _add_as_it_is(
    engine: Engine,
    scope: Scope,
    decision: Decision,
    caller: str,
    notes: Sequence[str],
    known: Mapping[str, Vector] | None = None,
) -> WriteResult:
    texts = [decision.fact.text] if decision.fact is not None else []
    decisions = await engine.run(lambda: with_named_facts(engine, scope, [decision]))
    vectors, embedding_notes = await embed_texts(engine, texts, known)
    provenance = Provenance("add", caller=caller)
    notes = [*notes, *embedding_notes]
    result = await apply_decisions(engine, scope, decisions, provenance, vectors=vectors, notes=notes)
    if decision.fact is not None:
        result = replace(result, notes=(*result.notes, *_kept_dates(result, decision.fact)))
    return await with_near_duplicates(engine, scope, result, vectors)


def _prepared(
    engine: Engine, scope: Scope, fact: Fact, replaces: Sequence[str]
) -> tuple[Fact, list[str], tuple[str, ...]]:
    """Return the fact without secrets and without the frame of a search hit, notes, and the ids it replaces."""
    text = original_text(engine, scope, fact.text)
    sanitized, notes = sanitize_fact(engine, replace(fact, text=text))
    notes += past_end_notes(engine, fact)
    notes += _notes_on_dates(sanitized.text, fact.said_at or engine.clock())
    return sanitized, notes, _ids_to_replace(engine, scope, replaces, sanitized.text)


def _notes_on_dates(text: str, at: datetime) -> list[str]:
    """Return notes on the dates in a text that count from its day, that cannot be told, or that disagree."""
    found = dates_in(text, at, guesses=True)
    told = [span for span in found if not span.is_guess and (span.is_relative or _lacks_year(span))][:MAX_NOTED_DATES]
    unclear = [f'"{span.phrase}"' for span in found if span.is_guess][:MAX_NOTED_DATES]
    dates = ", ".join(f'"{span.phrase}" is {day_or_days(span)}' for span in told)
    notes = [f"read on {at:%Y-%m-%d}, {dates}"] if told else []
    notes += [
        f'"{span.phrase}": {day_or_days(span)} is a {span.start:%A}; the date counts'
        for span in found
        if span.disagrees
    ][:MAX_NOTED_DATES]
    if unclear:
        notes.append(f"{', '.join(unclear)}: past or to come? If that matters, give the date")
    return notes


def _lacks_year(span: DateSpan) -> bool:
    return span.is_year_guessed and span.unit == "day"


def _kept_dates(result: WriteResult, fact: Fact) -> list[str]:
    """Return a note for each memory that already had the text of a fact and a later date, which it keeps."""
    return [
        f"its date stays {outcome.memory.date}, which is later"
        for outcome in result.outcomes
        if outcome.duplicate_of is not None and fact.said_at is not None and outcome.memory.at > fact.said_at
    ]


def _ids_to_replace(engine: Engine, scope: Scope, ids: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the full ids, without those that this very text replaced already: then the call is a repetition.

    Raises MemoryNotFoundError for a memory that is deleted or was superseded by another.
    """
    if not ids:
        return ()
    with engine.ledger.read() as conn:
        memories = [id_lookup.find_memory(conn, scope, memory_id) for memory_id in ids]
        successors = memory_queries.memories_by_id(conn, [memory.superseded_by or "" for memory in memories])
    for memory in memories:
        successor = successors.get(memory.superseded_by or "")
        if memory.deleted_at is not None and (successor is None or not has_text(successor, text)):
            raise _cannot_replace(memory, successor)
    return tuple(dict.fromkeys(memory.id for memory in memories if memory.deleted_at is None))


def _cannot_replace(memory: Memory, successor: Memory | None) -> MemoryNotFoundError:
    """Return the error for a memory that can no longer be replaced, with the call that does what was meant."""
    if successor is not None and successor.deleted_at is None:
        successor_id = successor.id[:8]
        quoted = successor.text[:MAX_QUOTED_CHARS]
        return MemoryNotFoundError(
            f"memory '{memory.id[:8]}' was replaced by '{successor_id}' before ({quoted}); nothing was stored",
            Remedy.REPLACE_NEWEST,
            successor_id,
        )
    return MemoryNotFoundError(
        f"memory '{memory.id[:8]}' is deleted already; nothing was stored", Remedy.REPLACE_NOTHING
    )


def _as_message(engine: Engine, scope: Scope, fact: Fact) -> Message:
    now = engine.clock()
    return Message(str(uuid.uuid4()), scope, "user", fact.text, fact.said_at or now, now)
