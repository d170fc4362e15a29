"""From messages or a text to changed memories: extract, decide, apply.

The messages are in the ledger before a model is asked, so whatever fails later, what was said is kept, and a call
that is sent again goes on where the first one ended.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial

from palimpsest.core.errors import (
    EmbedderError,
    LedgerError,
    MemoryNotFoundError,
    ModelError,
    PromptError,
    StaleDecisionError,
)
from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Outcome, Provenance, Scope
from palimpsest.core.protocols import LanguageModel, Vector
from palimpsest.learn.apply import WriteResult, apply_decisions, apply_write, embedded
from palimpsest.learn.edit import says
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import recalled_text, screened_fact, screened_messages
from palimpsest.llm.decide import NEAREST_MEMORIES, Decisions, decide
from palimpsest.llm.extract import RECENT_MESSAGES, Conversation, extract
from palimpsest.recall.similar import SimilarMemory, similar_memories
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.writes.apply import Write

logger = logging.getLogger(__name__)

MAX_DECIDED_AGAIN = 5
"""How often facts are decided anew because memories changed meanwhile."""

MAX_LOOKS = 50
"""How often it is looked whether a decision still stands; a look costs milliseconds and no model."""

SIMILAR_SHOWN = 3
SIMILAR_ENOUGH = 0.25
"""From this likeness on a memory is named as a near-duplicate or likely conflict of a new one."""

NO_MODEL = "there is no language model to ask: "


@dataclass(frozen=True, slots=True)
class _Look:
    """Hold what decisions are made on: the head of the log, the nearest memories, and the ids of those much alike."""

    seq: int
    memories: tuple[Memory, ...]
    alike: frozenset[str]

    @property
    def revisions(self) -> dict[str, int]:
        return {memory.id: memory.revision for memory in self.memories}


@dataclass(frozen=True, slots=True)
class _Task:
    """Hold what is to be reconciled. With `keep_all` a fact the model finds of no worth is added all the same."""

    scope: Scope
    facts: tuple[Fact, ...]
    caller: str
    learns: tuple[str, ...] = ()
    keep_all: bool = False


async def remember_messages(
    engine: Engine,
    scope: Scope,
    messages: Sequence[Message],
    context: Sequence[str],
    *,
    infer: bool | None,
    caller: str,
) -> WriteResult:
    """Keep the messages; with a model, extract their facts and reconcile them. Raises LedgerError."""
    said = await engine.run(lambda: screened_messages(engine, scope, messages, context))
    if not said.messages:
        return WriteResult(notes=said.notes)
    vectors, told = await embedded(engine, [message.content for message in said.messages])
    provenance = Provenance("keep", caller=caller)
    write = Write(scope, provenance, said.messages, vectors=vectors, embedder=engine.embedder.fingerprint)
    applied = await apply_write(engine, write)
    notes = [*said.notes, *told, *applied.notes]
    if not applied.new_message_ids:
        notes.append("all of these messages were known already")
    if forgotten := sum(message.deleted_at is not None for message in applied.messages):
        notes.append(f"{forgotten} of these turns were forgotten before and stay so; palimpsest undo brings them back")
    kept = WriteResult(kept_messages=len(applied.new_message_ids), notes=tuple(notes))
    fresh = await engine.run(lambda: _unlearnt(engine, applied.messages))
    if infer is False or not fresh:
        return kept
    if engine.model is None:
        told = [f"{NO_MODEL}turns are kept as they are, searchable. Add what matters as text, one fact a call."]
        return replace(kept, notes=(*kept.notes, *(told if applied.new_message_ids else [])))
    return await _learn(engine, engine.model, scope, fresh, said.context, kept, caller)


async def remember_text(
    engine: Engine, scope: Scope, fact: Fact, *, replaces: Sequence[str], infer: bool | None, caller: str
) -> WriteResult:
    """Store a fact in the caller's words, reconciled where a model is there to do it.

    With `replaces`, or `infer` False, nothing is asked: the caller has decided. With `infer` True facts are
    extracted from the text first. Raises MemoryNotFoundError and LedgerError.
    """
    fact, notes, closes = await engine.run(lambda: _prepared(engine, scope, fact, replaces))
    if infer and engine.model is not None and not replaces:
        message = _as_message(engine, scope, fact)
        done = await remember_messages(engine, scope, [message], (), infer=True, caller=caller)
        return replace(done, notes=(*notes, *done.notes))
    if engine.model is None or replaces or infer is False:
        if infer and engine.model is None:
            notes.append(f"{NO_MODEL}stored as one memory, in your words")
        return await _add_as_it_is(engine, scope, Decision(Event.ADD, fact, replaces=closes), caller, notes)
    try:
        done = await _reconcile(engine, engine.model, _Task(scope, (fact,), caller, keep_all=True))
    except (ModelError, PromptError, StaleDecisionError) as error:
        notes.append(f"stored in your words, not reconciled with what was known: {error}")
        return await _add_as_it_is(engine, scope, Decision(Event.ADD, fact), caller, notes)
    return replace(done, notes=(*notes, *done.notes))


async def _add_as_it_is(
    engine: Engine, scope: Scope, decision: Decision, caller: str, notes: Sequence[str]
) -> WriteResult:
    done = await apply_decisions(engine, scope, [decision], Provenance("add", caller=caller), notes)
    return await compared(engine, scope, done)


def _prepared(
    engine: Engine, scope: Scope, fact: Fact, replaces: Sequence[str]
) -> tuple[Fact, list[str], tuple[str, ...]]:
    """Return a fact without secrets and without the frame of a recalled line, what to tell, and what it replaces."""
    text = recalled_text(engine, scope, fact.text)
    screened, notes = screened_fact(engine, replace(fact, text=text))
    return screened, notes, _to_replace(engine, scope, replaces, screened.text)


def _to_replace(engine: Engine, scope: Scope, ids: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the ids in full, without those that just this text replaced already: the call was sent again.

    Raises MemoryNotFoundError for a memory that is deleted, or superseded by another.
    """
    if not ids:
        return ()
    with engine.ledger.read() as conn:
        named = {memory.id: memory for each in ids for memory in (id_lookup.find_memory(conn, scope, each),)}
        successors = memory_queries.memories_by_id(conn, [memory.superseded_by or "" for memory in named.values()])
    for memory in named.values():
        successor = successors.get(memory.superseded_by or "")
        if memory.deleted_at is not None and (successor is None or not says(successor, text)):
            raise _not_to_replace(memory, successor)
    return tuple(memory.id for memory in named.values() if memory.deleted_at is None)


def _not_to_replace(memory: Memory, successor: Memory | None) -> MemoryNotFoundError:
    """Return the error for a memory that is no longer there to be replaced, with the call that does what was meant."""
    if successor is not None and successor.deleted_at is None:
        heir = successor.id[:8]
        return MemoryNotFoundError(
            f"memory '{memory.id[:8]}' was replaced by '{heir}' before ({successor.text[:200]}); nothing was stored. "
            f'If that is what the text replaces, add it again with replaces=["{heir}"].'
        )
    return MemoryNotFoundError(
        f"memory '{memory.id[:8]}' is deleted already; nothing was stored. Add the text again without it in replaces."
    )


async def _learn(
    engine: Engine,
    model: LanguageModel,
    scope: Scope,
    messages: Sequence[Message],
    context: Sequence[str],
    kept: WriteResult,
    caller: str,
) -> WriteResult:
    """Extract and reconcile; what fails is told, with what was kept."""
    of_agent = bool(scope.agent_id) and any(message.role == "assistant" for message in messages)
    conversation = await engine.run(lambda: _conversation(engine, scope, messages, context))
    learns = tuple(message.id for message in messages)
    try:
        prompt = engine.prompts.get("extract_agent" if of_agent else "extract")
        await engine.report_progress(f"kept {_count(messages)}; asking the model for facts")
        facts = await extract(model, prompt, conversation, engine.clock())
        if not facts:
            made_by = Provenance("extract", model.name, prompt.fingerprint, caller)
            await apply_write(engine, Write(scope, made_by, learned_from=learns))
            return replace(kept, notes=(*kept.notes, "nothing in these messages was found worth a memory"))
        done = await _reconcile(engine, model, _Task(scope, tuple(facts), caller, learns))
    except (ModelError, PromptError, LedgerError) as error:
        if not await engine.run(lambda: _unlearnt(engine, messages)):
            return replace(kept, notes=(*kept.notes, "another call has learnt from these messages meanwhile"))
        logger.warning("kept %d messages, learnt nothing from them: %s", kept.kept_messages, error)
        told = (
            f"kept {_count(messages)}, but no facts were learnt from them: {error} "
            "Sent again, the same messages are learnt from."
        )
        return replace(kept, notes=(*kept.notes, told))
    return replace(done, kept_messages=kept.kept_messages, notes=(*kept.notes, *done.notes))


def _conversation(engine: Engine, scope: Scope, messages: Sequence[Message], context: Sequence[str]) -> Conversation:
    """Return what extraction reads: the new messages, those before them, and the summary if it is not outdated."""
    new = {message.id for message in messages}
    with engine.ledger.read() as conn:
        summary = summary_queries.latest_summary(conn, scope, "overall")
        current = summary is not None and not summary_queries.has_deletions_since(conn, scope, summary.seq)
        recent = message_queries.recent_messages(conn, scope, RECENT_MESSAGES + len(new))
    before = [message for message in recent if message.id not in new][-RECENT_MESSAGES:]
    return Conversation(messages, before, context, summary.text if summary is not None and current else "")


async def _reconcile(engine: Engine, model: LanguageModel, task: _Task) -> WriteResult:
    """Decide what becomes of facts and apply it; again where what the decision was made on changed meanwhile."""
    decided: Decisions | None = None
    provenance = Provenance("extract", model.name, caller=task.caller)
    shown = _Look(0, (), frozenset())
    asked = 0
    for _ in range(MAX_LOOKS):
        now = await engine.run(lambda: _look(engine, task))
        if decided is None or not await engine.run(partial(_stands, engine, shown, now)):
            if asked == MAX_DECIDED_AGAIN:
                break
            asked += 1
            decided, provenance = await _decided(engine, model, task, now.memories)
            shown = now
        shown = replace(shown, seq=now.seq)
        try:
            return await _apply(engine, task, decided, provenance, shown)
        except StaleDecisionError:
            if task.learns and not await engine.run(lambda: _all_unlearnt(engine, task.learns)):
                raise
            logger.info("looking again: memories changed meanwhile")
    raise StaleDecisionError(
        f"other clients kept changing this memory while {len(task.facts)} facts were decided on; add them again"
    )


async def _decided(
    engine: Engine, model: LanguageModel, task: _Task, memories: Sequence[Memory]
) -> tuple[Decisions, Provenance]:
    """Return what the model decides about the facts beside what they resemble, and what made it."""
    if not memories:
        everything = Decisions(tuple(Decision(Event.ADD, fact) for fact in task.facts))
        return everything, Provenance("extract", model.name, caller=task.caller)
    prompt = engine.prompts.get("decide")
    await engine.report_progress(f"asking the model what becomes of {_count(task.facts, 'fact')}")
    decided = await decide(model, prompt, task.facts, memories)
    if task.keep_all:
        added = tuple(Decision(Event.ADD, fact) for fact in decided.dropped)
        decided = replace(decided, decisions=decided.decisions + added, dropped=())
    return decided, Provenance("decide", model.name, prompt.fingerprint, task.caller)


def _look(engine: Engine, task: _Task) -> _Look:
    """Return the memories that resemble the facts, each once. Blocking."""
    texts = list(dict.fromkeys(fact.text for fact in task.facts))
    asked: dict[str, Vector | None] = dict.fromkeys(texts)
    try:
        asked.update(zip(texts, engine.embedder.embed(texts), strict=True))
    except EmbedderError as error:
        logger.warning("compared by words only: %s", error)
    with engine.ledger.read() as conn:
        seq = log_queries.newest_log_number(conn)
    found = similar_memories(engine.ledger, engine.embedder, engine.index, task.scope, asked, NEAREST_MEMORIES)
    # A project's facts are not decided against the user's global memories, which others than the project see.
    items = [item for each in found.values() for item in each if item.memory.scope.project == task.scope.project]
    alike = frozenset(item.memory.id for item in items if item.likeness >= SIMILAR_ENOUGH)
    return _Look(seq, tuple({item.memory.id: item.memory for item in items}.values()), alike)


def _stands(engine: Engine, shown: _Look, now: _Look) -> bool:
    """Say whether a decision made on what was shown holds now: none of that changed, and nothing much alike came."""
    with engine.ledger.read() as conn:
        current = memory_queries.memories_by_id(conn, list(shown.revisions))
    unchanged = {memory_id: memory.revision for memory_id, memory in current.items()} == shown.revisions
    return unchanged and now.alike <= shown.revisions.keys()


async def _apply(engine: Engine, task: _Task, decided: Decisions, provenance: Provenance, shown: _Look) -> WriteResult:
    facts = [decision.fact for decision in decided.decisions if decision.fact is not None]
    vectors, notes = await embedded(engine, [fact.text for fact in facts])
    write = Write(
        task.scope,
        provenance,
        decisions=decided.decisions,
        vectors=vectors,
        embedder=engine.embedder.fingerprint,
        read=shown.revisions,
        based_on=shown.seq,
        learned_from=task.learns,
    )
    applied = await apply_write(engine, write)
    notes += [f"not kept, found of no lasting worth: {fact.text}" for fact in decided.dropped]
    notes += [f"added without a decision of the model: {fact.text}" for fact in decided.undecided]
    return await compared(engine, task.scope, WriteResult(applied.outcomes, notes=tuple(notes)))


async def compared(engine: Engine, scope: Scope, done: WriteResult) -> WriteResult:
    """Return what was done with the memories that new texts resemble; failing at that undoes nothing."""
    try:
        return replace(done, similar=await engine.run(lambda: _resembling(engine, scope, done.outcomes)))
    except LedgerError as error:
        return replace(done, notes=(*done.notes, f"stored, but not compared with what is known: {error}"))


def _resembling(engine: Engine, scope: Scope, changes: Sequence[Outcome]) -> Mapping[str, Sequence[SimilarMemory]]:
    """Return for each memory with a new text the others that look much like it. Blocking."""
    added = {change.memory.text: change.memory for change in changes if _is_new_text(change)}
    if not added:
        return {}
    fingerprint = engine.embedder.fingerprint
    with engine.ledger.read() as conn:
        own = vector_queries.own_vectors(conn, fingerprint, "memory", [memory.id for memory in added.values()])
    asked = {text: own.get(memory.id) for text, memory in added.items()}
    found = similar_memories(engine.ledger, engine.embedder, engine.index, scope, asked, SIMILAR_SHOWN + 1)
    others = {
        added[text].id: [item for item in items if item.memory.id != added[text].id] for text, items in found.items()
    }
    return {
        memory_id: [item for item in items if item.likeness >= SIMILAR_ENOUGH][:SIMILAR_SHOWN]
        for memory_id, items in others.items()
    }


def _is_new_text(change: Outcome) -> bool:
    return change.event is Event.ADD or (change.event is Event.UPDATE and change.previous != change.memory.text)


def _unlearnt(engine: Engine, messages: Sequence[Message]) -> list[Message]:
    """Return the messages in which no facts were looked for yet, and which are not forgotten."""
    with engine.ledger.read() as conn:
        fresh = message_queries.awaiting_extraction(conn, [message.id for message in messages])
    return [message for message in messages if message.id in fresh]


def _all_unlearnt(engine: Engine, message_ids: Sequence[str]) -> bool:
    with engine.ledger.read() as conn:
        return message_queries.awaiting_extraction(conn, message_ids) == set(message_ids)


def _as_message(engine: Engine, scope: Scope, fact: Fact) -> Message:
    now = engine.clock()
    return Message(str(uuid.uuid4()), scope, "user", fact.text, fact.happened_at or now, now)


def _count(items: Sized, one: str = "message") -> str:
    return f"{len(items)} {one}{'s' if len(items) != 1 else ''}"
