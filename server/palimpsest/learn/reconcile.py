"""Reconcile facts with what is known: compare, let the model decide, apply.

Other clients may write while the model thinks. A write is refused if what its decisions were made on has changed; then
the facts are compared again, and decided on again if the decisions no longer hold.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from palimpsest.core.errors import StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Provenance, Scope
from palimpsest.core.protocols import LanguageModel, Vector
from palimpsest.learn.apply import WriteResult, apply_write, embed_texts
from palimpsest.learn.engine import Engine
from palimpsest.learn.near_duplicates import with_near_duplicates
from palimpsest.llm.decide import NEAREST_MEMORIES, Decisions, decide
from palimpsest.recall.similar import similar_memories
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.writes.apply import Write

logger = logging.getLogger(__name__)

MAX_DECISIONS = 5
"""How often the model decides on the same facts. Set by hand: each time costs a call of seconds."""

MAX_COMPARISONS = 50
"""How often facts are compared with what is known. Set by hand: a comparison costs milliseconds and no model."""


MIN_LIKENESS = 0.25
"""The smallest likeness of a new memory that makes a decision stale. Set by hand, a little below that of two facts on
one subject: to decide again costs a call, to decide on old knowledge a wrong memory."""


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """Facts to reconcile with the memories of a scope.

    `learned_from` are the ids of the messages the facts come from. With `keep_all` a fact is added even if the model
    finds it not worth keeping. `vectors` maps texts to their vectors, as far as they could be embedded.
    """

    scope: Scope
    facts: tuple[Fact, ...]
    caller: str
    learned_from: tuple[str, ...] = ()
    keep_all: bool = False
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What decisions are made on: the end of the index log, the nearest memories, and the ids of the most similar."""

    seq: int
    memories: tuple[Memory, ...]
    similar_ids: frozenset[str]

    @property
    def revisions(self) -> dict[str, int]:
        """Return the revisions of the memories by id."""
        return {memory.id: memory.revision for memory in self.memories}


async def reconcile(engine: Engine, model: LanguageModel, request: ReconcileRequest) -> WriteResult:
    """Decide what becomes of facts and apply it. Raises ModelError, PromptError and LedgerError.

    StaleDecisionError means that other clients kept changing what the decisions were made on.
    """
    if any(fact.text not in request.vectors for fact in request.facts):
        logger.warning("facts are compared by words only, because they could not be embedded")
    decisions: Decisions | None = None
    provenance = Provenance("extract", model.name, caller=request.caller)
    basis = _Comparison(0, (), frozenset())
    rounds = 0
    for _ in range(MAX_COMPARISONS):
        current = await engine.run(lambda: _compare(engine, request))
        if decisions is None or not await engine.run(partial(_still_holds, engine, basis, current)):
            if rounds == MAX_DECISIONS:
                break
            rounds += 1
            decisions, provenance = await _decide(engine, model, request, current.memories)
            basis = current
        basis = replace(basis, seq=current.seq)
        try:
            return await _apply(engine, request, decisions, provenance, basis)
        except StaleDecisionError:
            if request.learned_from and not await engine.run(lambda: _are_all_new(engine, request.learned_from)):
                raise
            logger.info("comparing again: memories changed meanwhile")
    raise StaleDecisionError(
        f"other clients kept changing this memory while {len(request.facts)} facts were decided on; add them again"
    )


def not_learned_from(engine: Engine, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that no facts were extracted from yet and that are not deleted. Blocking."""
    with engine.ledger.read() as conn:
        new_ids = message_queries.awaiting_extraction(conn, [message.id for message in messages])
    return [message for message in messages if message.id in new_ids]


def _are_all_new(engine: Engine, message_ids: Sequence[str]) -> bool:
    with engine.ledger.read() as conn:
        return message_queries.awaiting_extraction(conn, message_ids) == set(message_ids)


def _compare(engine: Engine, request: ReconcileRequest) -> _Comparison:
    """Return the memories that resemble the facts, each once. Blocking."""
    with engine.ledger.read() as conn:
        seq = log_queries.newest_log_number(conn)
    texts = {fact.text: request.vectors.get(fact.text) for fact in request.facts}
    similar = similar_memories(engine.ledger, engine.embedder, engine.index, request.scope, texts, NEAREST_MEMORIES)
    # A project's facts do not change the user's global memories, which are visible outside the project too.
    items = [item for group in similar.values() for item in group if item.memory.scope.project == request.scope.project]
    similar_ids = frozenset(item.memory.id for item in items if item.likeness >= MIN_LIKENESS)
    return _Comparison(seq, tuple({item.memory.id: item.memory for item in items}.values()), similar_ids)


def _still_holds(engine: Engine, basis: _Comparison, current: _Comparison) -> bool:
    """Return whether decisions hold: none of the memories they were made on changed, and no similar one was added."""
    with engine.ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, list(basis.revisions))
    unchanged = {memory_id: memory.revision for memory_id, memory in memories.items()} == basis.revisions
    return unchanged and current.similar_ids <= basis.revisions.keys()


async def _decide(
    engine: Engine, model: LanguageModel, request: ReconcileRequest, memories: Sequence[Memory]
) -> tuple[Decisions, Provenance]:
    """Return the model's decisions on the facts, given what they resemble, and their provenance."""
    if not memories:
        everything = Decisions(tuple(Decision(Event.ADD, fact) for fact in request.facts))
        return everything, Provenance("extract", model.name, caller=request.caller)
    prompt = engine.prompts.get("decide")
    number = len(request.facts)
    await engine.report_progress(f"asking the model what becomes of {number} fact{'s' if number != 1 else ''}")
    decisions = await decide(model, prompt, request.facts, memories)
    if request.keep_all:
        added = tuple(Decision(Event.ADD, fact) for fact in decisions.dropped)
        decisions = replace(decisions, decisions=decisions.decisions + added, dropped=())
    return decisions, Provenance("decide", model.name, prompt.fingerprint, request.caller)


async def _apply(
    engine: Engine,
    request: ReconcileRequest,
    decisions: Decisions,
    provenance: Provenance,
    basis: _Comparison,
) -> WriteResult:
    # A decision may give a memory a text of the model's own, which has no vector yet.
    texts = [decision.fact.text for decision in decisions.decisions if decision.fact is not None]
    vectors, notes = await embed_texts(engine, texts, request.vectors)
    write = Write(
        request.scope,
        provenance,
        decisions=decisions.decisions,
        vectors=vectors,
        embedder=engine.embedder.fingerprint,
        read=basis.revisions,
        based_on=basis.seq,
        learned_from=request.learned_from,
    )
    applied = await apply_write(engine, write)
    notes += [f"not kept, because the model found it not worth remembering: {fact.text}" for fact in decisions.dropped]
    notes += [f"added, although the model decided nothing about it: {fact.text}" for fact in decisions.undecided]
    result = WriteResult(applied.outcomes, notes=tuple(notes))
    return await with_near_duplicates(engine, request.scope, result, vectors)
