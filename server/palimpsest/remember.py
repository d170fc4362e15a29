"""From messages or a text to changed memories: extract, decide, apply.

The messages are in the ledger before a model is asked, so whatever fails later, what was said is kept.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from palimpsest.engine import Engine
from palimpsest.errors import EmbedderError, LedgerError, ModelError, PromptError, StaleDecisionError
from palimpsest.ledger import reading
from palimpsest.ledger.writing import Write
from palimpsest.ports import LanguageModel, Vector
from palimpsest.records import Change, Decision, Event, Fact, Memory, Message, Provenance, Scope
from palimpsest.similar import Similar, similar_memories
from palimpsest.stages.decide import NEAREST_MEMORIES, Decided, decide
from palimpsest.stages.extract import RECENT_MESSAGES, Conversation, extract

logger = logging.getLogger(__name__)

MAX_DECIDED_AGAIN = 5
"""How often facts are decided anew because memories changed meanwhile."""

SIMILAR_SHOWN = 3
SIMILAR_ENOUGH = 0.25
"""From this likeness on a memory is named as a near-duplicate or likely conflict of a new one."""

NO_MODEL = "no language model is configured: "


@dataclass(frozen=True, slots=True)
class Done:
    """Hold what an add did: a change for each fact, and for each changed memory the others it resembles."""

    changes: tuple[Change, ...] = ()
    similar: Mapping[str, Sequence[Similar]] = field(default_factory=dict[str, Sequence[Similar]])
    kept_messages: int = 0
    notes: tuple[str, ...] = ()


async def remember_messages(
    engine: Engine,
    scope: Scope,
    messages: Sequence[Message],
    context: Sequence[str],
    *,
    infer: bool | None,
    caller: str,
) -> Done:
    """Keep the messages; with a model, extract their facts and reconcile them. Raises LedgerError."""

    def before() -> tuple[list[Message], str]:
        with engine.ledger.read() as conn:
            summary = reading.latest_summary(conn, scope, "overall")
            current = summary is not None and not reading.deleted_since(conn, scope, summary.seq)
            return reading.recent_messages(conn, scope, RECENT_MESSAGES), summary.text if summary and current else ""

    recent, summary = await engine.run(before)
    vectors, notes = await _embed(engine, [message.content for message in messages])
    provenance = Provenance("keep", caller=caller)
    write = Write(scope, provenance, tuple(messages), vectors=vectors, embedder=engine.embedder.fingerprint)
    await engine.run(lambda: engine.ledger.apply(write))
    stored = await engine.run(lambda: _stored(engine, messages))
    kept = Done(kept_messages=len(stored), notes=tuple(notes))
    if not stored:
        return replace(kept, notes=(*kept.notes, "all of these messages were known already"))
    if infer is False:
        return kept
    if engine.model is None:
        told = f"{NO_MODEL}turns are kept as they are, searchable. Add what matters as text, one fact a call."
        return replace(kept, notes=(*kept.notes, told))
    conversation = Conversation(stored, recent, context, summary)
    return await _learn(engine, engine.model, scope, conversation, kept, caller)


async def remember_text(
    engine: Engine, scope: Scope, fact: Fact, *, replaces: Sequence[str], infer: bool | None, caller: str
) -> Done:
    """Store a fact in the caller's words, reconciled where a model is there to do it.

    With `replaces`, or `infer` False, nothing is asked: the caller has decided. With `infer` True facts are
    extracted from the text first. Raises MemoryNotFoundError and LedgerError.
    """
    if infer and engine.model is not None and not replaces:
        message = _as_message(engine, scope, fact)
        return await remember_messages(engine, scope, [message], (), infer=True, caller=caller)
    notes = [f"{NO_MODEL}stored as one memory, in your words"] if infer and engine.model is None else []
    if engine.model is None or replaces or infer is False:
        decided = Decided((Decision(Event.ADD, fact, replaces=tuple(replaces)),))
        done = await _apply(engine, scope, decided, Provenance("add", caller=caller), None)
        return replace(done, notes=(*notes, *done.notes))
    try:
        return await _reconcile(engine, engine.model, scope, [fact], caller, keep_all=True)
    except (ModelError, PromptError, StaleDecisionError) as error:
        decided = Decided((Decision(Event.ADD, fact),))
        done = await _apply(engine, scope, decided, Provenance("add", caller=caller), None)
        told = f"stored in your words, not reconciled with what was known: {error}"
        return replace(done, notes=(*done.notes, told))


async def _learn(
    engine: Engine, model: LanguageModel, scope: Scope, conversation: Conversation, kept: Done, caller: str
) -> Done:
    """Extract and reconcile; what fails is told, with what was kept."""
    of_agent = bool(scope.agent_id) and any(message.role == "assistant" for message in conversation.messages)
    name = "extract_agent" if of_agent else "extract"
    try:
        prompt = engine.prompts.get(name)
        facts = await extract(model, prompt, conversation, engine.clock())
        if not facts:
            return replace(kept, notes=(*kept.notes, "nothing in these messages was found worth a memory"))
        done = await _reconcile(engine, model, scope, facts, caller)
    except (ModelError, PromptError, LedgerError) as error:
        logger.warning("kept %d messages, learnt nothing from them: %s", kept.kept_messages, error)
        told = f"kept {_count(conversation.messages)}, but no facts were learnt from them: {error}"
        return replace(kept, notes=(*kept.notes, told))
    return replace(done, kept_messages=kept.kept_messages, notes=(*kept.notes, *done.notes))


async def _reconcile(
    engine: Engine, model: LanguageModel, scope: Scope, facts: Sequence[Fact], caller: str, *, keep_all: bool = False
) -> Done:
    """Decide what becomes of facts and apply it, again where memories changed meanwhile.

    With `keep_all` a fact the model finds of no worth is added all the same: the caller found it worth saying.
    """
    for attempt in range(MAX_DECIDED_AGAIN):
        prompt = engine.prompts.get("decide")
        seq, memories = await _nearest(engine, scope, facts)
        if memories:
            decided = await decide(model, prompt, facts, memories)
            if keep_all:
                added = tuple(Decision(Event.ADD, fact) for fact in decided.dropped)
                decided = replace(decided, decisions=decided.decisions + added, dropped=())
            provenance = Provenance("decide", model.name, prompt.fingerprint, caller)
        else:
            decided = Decided(tuple(Decision(Event.ADD, fact) for fact in facts))
            provenance = Provenance("extract", model.name, caller=caller)
        try:
            return await _apply(engine, scope, decided, provenance, seq)
        except StaleDecisionError:
            logger.info("deciding again: memories changed meanwhile (attempt %d)", attempt + 1)
    raise StaleDecisionError(
        f"other clients kept changing this memory while {len(facts)} facts were decided on; add them again"
    )


async def _nearest(engine: Engine, scope: Scope, facts: Sequence[Fact]) -> tuple[int, list[Memory]]:
    """Return the head of the log and the memories that resemble the facts, each once."""
    vectors, _ = await _embed(engine, [fact.text for fact in facts])

    def look() -> tuple[int, list[Memory]]:
        with engine.ledger.read() as conn:
            seq = reading.head(conn)
        asked = {fact.text: vectors.get(fact.text) for fact in facts}
        found = similar_memories(engine.ledger, engine.embedder.fingerprint, scope, asked, NEAREST_MEMORIES)
        nearest = {item.memory.id: item.memory for items in found.values() for item in items}
        # A project's facts are not decided against the user's global memories, which others than the project see.
        return seq, [memory for memory in nearest.values() if memory.scope.project == scope.project]

    return await engine.run(look)


async def _apply(engine: Engine, scope: Scope, decided: Decided, provenance: Provenance, based_on: int | None) -> Done:
    facts = [decision.fact for decision in decided.decisions if decision.fact is not None]
    vectors, notes = await _embed(engine, [fact.text for fact in facts])
    write = Write(
        scope,
        provenance,
        decisions=decided.decisions,
        vectors=vectors,
        embedder=engine.embedder.fingerprint,
        based_on=based_on,
    )

    changes = await engine.run(lambda: engine.ledger.apply(write))
    done = Done(tuple(changes))
    try:
        done = replace(done, similar=await engine.run(lambda: _resembling(engine, scope, changes, vectors)))
    except LedgerError as error:
        notes.append(f"stored, but not compared with what is known: {error}")
    notes += [f"not kept, found of no lasting worth: {fact.text}" for fact in decided.dropped]
    notes += [f"added without a decision of the model: {fact.text}" for fact in decided.undecided]
    return replace(done, notes=(*done.notes, *notes))


def _resembling(
    engine: Engine, scope: Scope, changes: Sequence[Change], vectors: Mapping[str, Vector]
) -> dict[str, Sequence[Similar]]:
    """Return for each added memory the others that look much like it."""
    added = {change.memory.text: change.memory for change in changes if change.event is Event.ADD}
    if not added:
        return {}
    asked = {text: vectors.get(text) for text in added}
    found = similar_memories(engine.ledger, engine.embedder.fingerprint, scope, asked, SIMILAR_SHOWN + 1)
    others = {
        added[text].id: [item for item in items if item.memory.id != added[text].id] for text, items in found.items()
    }
    return {
        memory_id: [item for item in items if item.likeness >= SIMILAR_ENOUGH][:SIMILAR_SHOWN]
        for memory_id, items in others.items()
    }


async def _embed(engine: Engine, texts: Sequence[str]) -> tuple[dict[str, Vector], list[str]]:
    """Return the vectors of texts; where the embedder fails, none and a note."""
    unique = list(dict.fromkeys(texts))
    try:
        found = await engine.run(lambda: engine.embedder.embed(unique))
    except EmbedderError as error:
        return {}, [f"found by words only, until it can be embedded: {error}"]
    return dict(zip(unique, found, strict=True)), []


def _stored(engine: Engine, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are in the ledger: a turn sent again under the same id is there already."""
    with engine.ledger.read() as conn:
        known = reading.messages_by_id(conn, [message.id for message in messages])
    return [known[message.id] for message in messages if message.id in known]


def _as_message(engine: Engine, scope: Scope, fact: Fact) -> Message:
    now = engine.clock()
    return Message(str(uuid.uuid4()), scope, "user", fact.text, fact.happened_at or now, now)


def _count(messages: Sequence[Message]) -> str:
    return f"{len(messages)} message{'s' if len(messages) != 1 else ''}"
