"""Reconcile facts with what is known: compare, let the model decide, apply.

Other clients may write while the model thinks. A write is refused if what its decisions were made on has changed; then
the facts are compared again, and decided on again if the decisions no longer hold.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from palimpsest.core.errors import LedgerError, StaleDecisionError
from palimpsest.core.models import (
    USER_NAME,
    Decision,
    Event,
    Fact,
    ForgetQuestion,
    ForgetRequest,
    Message,
    Outcome,
    Provenance,
    Scope,
)
from palimpsest.core.protocols import LanguageModel, Vector
from palimpsest.learn.apply import WriteResult, apply_write, embed_texts
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.comparison import compared
from palimpsest.learn.facts.forget_notes import FORGOTTEN, MORE_MAY_FIT, first_of
from palimpsest.learn.facts.naming import with_named_facts
from palimpsest.learn.facts.near_duplicates import with_near_duplicates
from palimpsest.learn.facts.personal import personal_facts
from palimpsest.llm.decide import decide
from palimpsest.llm.decisions.verdicts import MAX_FORGOTTEN_UNASKED, Comparison, Decisions, Doubt, Questioned
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.writes.apply import Write
from palimpsest.text.counting import counted
from palimpsest.text.names.self_name import asks_about_name

logger = logging.getLogger(__name__)

MAX_DECISIONS = 5
"""How often the model decides on the same facts. Set by hand: each time costs a call of seconds."""

MAX_COMPARISONS = 50
"""How often facts are compared with what is known. Set by hand: a comparison costs milliseconds and no model."""

NOT_KEPT = "not kept, because the model found it not worth remembering: "
UNDECIDED = "added as it is, although the model decided nothing about it: "
"""How the notes begin that are left out first where there is little room."""


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """Facts to reconcile with the memories of a scope, and what its user asks to forget.

    `learned_from` are the ids of the messages the facts come from. With `keep_all` a fact is added even if the model
    finds it not worth keeping. The requests may take `may_forget` memories without a question. `user_name` is "" if it
    is not known. `vectors` maps texts to their vectors, as far as they could be embedded. `told_name` is the decision
    to store the user's name, if none of the facts keeps it. Unless it `stays_in_project`, a new fact about a person is
    stored for all projects.
    """

    scope: Scope
    facts: tuple[Fact, ...]
    caller: str
    requests: tuple[ForgetRequest, ...] = ()
    learned_from: tuple[str, ...] = ()
    keep_all: bool = False
    may_forget: int = MAX_FORGOTTEN_UNASKED
    user_name: str = ""
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    told_name: Decision | None = None
    stays_in_project: bool = True


@dataclass(frozen=True, slots=True)
class _Basis:
    """What decisions are made on: the end of the index log, the entries, and the ids of the most similar memories."""

    seq: int
    shown: Comparison
    similar_ids: frozenset[str]

    @property
    def revisions(self) -> dict[str, int]:
        """Return the revisions of the memories by id."""
        memories = [entry.memory for entry in self.shown.entries if entry.kind == "memory"]
        return {memory.id: memory.revision for memory in memories}


async def reconcile(engine: Engine, model: LanguageModel, request: ReconcileRequest) -> WriteResult:
    """Decide what becomes of facts and apply it. Raises ModelError, PromptError and LedgerError.

    StaleDecisionError means that other clients kept changing what the decisions were made on.
    """
    if any(fact.text not in request.vectors for fact in request.facts):
        logger.warning("facts are compared by words only, because they could not be embedded")
    decisions: Decisions | None = None
    provenance = Provenance("extract", model.name, caller=request.caller)
    basis = _Basis(0, Comparison(()), frozenset())
    rounds = 0
    for _ in range(MAX_COMPARISONS):
        current = await engine.run(lambda: _compare(engine, request))
        if decisions is None or not await engine.run(partial(_still_holds, engine, basis, current)):
            if rounds == MAX_DECISIONS:
                break
            rounds += 1
            decisions, provenance = await _decide(engine, model, request, current.shown)
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


async def add_undecided(
    engine: Engine, model: LanguageModel, request: ReconcileRequest, error: Exception
) -> WriteResult:
    """Add facts about which the model could not decide, with what they resemble. What they contradict is not closed.

    Requests to forget are not granted. Raises LedgerError.
    """
    decisions = _with_told_name(request, tuple(Decision(Event.ADD, fact) for fact in request.facts))
    homed = await engine.run(lambda: _with_homes(engine, request, decisions))
    write = Write(
        request.scope,
        Provenance("extract", model.name, caller=request.caller),
        decisions=tuple(await engine.run(lambda: with_named_facts(engine, request.scope, homed))),
        vectors=request.vectors,
        embedder=engine.embedder.fingerprint,
        learned_from=request.learned_from,
    )
    applied = await apply_write(engine, write)
    notes = [f"asked to forget, but that failed ({error}); ask again: {asked.what}" for asked in request.requests]
    if request.facts:
        notes.append(f"added as they are, not reconciled with what was known: {error}")
    notes += _general_note(request.scope, applied.outcomes)
    result = WriteResult(applied.outcomes, notes=(*notes, *applied.notes))
    return await with_near_duplicates(engine, request.scope, result, request.vectors)


def not_learned_from(engine: Engine, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that no facts were extracted from yet and that are not deleted. Blocking."""
    with engine.ledger.read() as conn:
        new_ids = message_queries.awaiting_extraction(conn, [message.id for message in messages])
    return [message for message in messages if message.id in new_ids]


async def are_all_learned(engine: Engine, messages: Sequence[Message]) -> bool:
    """Return whether nothing is left to learn from messages, as far as the ledger can be read."""
    try:
        return not await engine.run(lambda: not_learned_from(engine, messages))
    except LedgerError:  # whoever asks has an error to tell already
        return False


def _are_all_new(engine: Engine, message_ids: Sequence[str]) -> bool:
    with engine.ledger.read() as conn:
        return message_queries.awaiting_extraction(conn, message_ids) == set(message_ids)


def _compare(engine: Engine, request: ReconcileRequest) -> _Basis:
    """Return what the facts and requests resemble. Blocking."""
    with engine.ledger.read() as conn:
        seq = log_queries.newest_log_number(conn)
    shown, similar_ids = compared(
        engine,
        request.scope,
        request.facts,
        request.requests,
        request.vectors,
        request.user_name,
        request.may_forget,
    )
    return _Basis(seq, shown, similar_ids)


def _still_holds(engine: Engine, basis: _Basis, current: _Basis) -> bool:
    """Return whether decisions hold: none of the memories they were made on changed, and no similar one was added."""
    with engine.ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, list(basis.revisions))
    unchanged = {memory_id: memory.revision for memory_id, memory in memories.items()} == basis.revisions
    return unchanged and current.similar_ids <= basis.revisions.keys()


async def _decide(
    engine: Engine, model: LanguageModel, request: ReconcileRequest, shown: Comparison
) -> tuple[Decisions, Provenance]:
    """Return the model's decisions on the facts, given what they resemble, and their provenance."""
    if not shown.entries and not shown.listed_facts:
        everything = tuple(Decision(Event.ADD, fact) for fact in request.facts)
        decisions = Decisions(everything, unmatched=request.requests)
        return decisions, Provenance("extract", model.name, caller=request.caller)
    prompt = engine.prompts.get("decide")
    await engine.report_progress(f"asking the model what becomes of {counted(len(request.facts), 'fact')}")
    decisions = await decide(model, prompt, shown)
    if request.keep_all:
        added = tuple(Decision(Event.ADD, fact) for fact in decisions.dropped)
        decisions = replace(decisions, decisions=decisions.decisions + added, dropped=())
    return decisions, Provenance("decide", model.name, prompt.fingerprint, request.caller)


async def _apply(
    engine: Engine,
    request: ReconcileRequest,
    decisions: Decisions,
    provenance: Provenance,
    basis: _Basis,
) -> WriteResult:
    # What asked to forget something is not found by a search for it. A request that was not granted stays.
    asking = {source: None for granted in decisions.granted for source in granted.request.sources}
    known = {decision.memory_id for decision in decisions.decisions}
    hidden = tuple(
        Decision(Event.DELETE, memory_id=message_id, kind="message", forgets=True)
        for message_id in asking
        if message_id not in known
    )
    decisions = replace(decisions, decisions=_with_told_name(request, decisions.decisions))
    # A decision may give a memory a text of the model's own, which has no vector yet.
    facts = [fact for decision in decisions.decisions for fact in (decision.fact, *decision.outdated)]
    texts = [fact.text for fact in facts if fact is not None]
    vectors, notes = await embed_texts(engine, texts, request.vectors)
    homed = await engine.run(lambda: _with_homes(engine, request, decisions.decisions))
    named = await engine.run(lambda: with_named_facts(engine, request.scope, homed))
    write = Write(
        request.scope,
        provenance,
        decisions=(*named, *hidden),
        vectors=vectors,
        embedder=engine.embedder.fingerprint,
        read=basis.revisions,
        based_on=basis.seq,
        learned_from=request.learned_from,
        forgets_name=any(asks_about_name(granted.request.what, request.user_name) for granted in decisions.granted),
    )
    applied = await apply_write(engine, write)
    questions = tuple(_question(questioned, applied.outcomes) for questioned in decisions.questioned)
    notes = [*_notes(decisions), *notes, *applied.notes, *_general_note(request.scope, applied.outcomes)]
    return WriteResult(applied.outcomes, notes=tuple(notes), questions=questions)


def _question(questioned: Questioned, outcomes: Sequence[Outcome]) -> ForgetQuestion:
    """Return what a request would take. Facts of the call are memories by now."""
    texts = {fact.text for fact in questioned.facts}
    stored = {entry.memory.id: entry.memory.text for entry in questioned.entries}
    stored |= {outcome.memory.id: outcome.memory.text for outcome in outcomes if outcome.memory.text in texts}
    request = questioned.request
    ids = tuple(dict.fromkeys((*stored, *request.sources)))  # the request itself goes with what it asks for
    return ForgetQuestion(request.what, ids, tuple(stored.values()), questioned.more_may_fit)


def _with_homes(engine: Engine, request: ReconcileRequest, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return decisions whose new facts about a person belong to no project, unless they stay in it. Blocking."""
    if request.stays_in_project:
        return tuple(decisions)
    added = [each.fact for each in decisions if each.event is Event.ADD and each.fact is not None]
    general = personal_facts(engine, request.scope, added)
    return tuple(replace(decision, is_general=decision.fact in general) for decision in decisions)


def _general_note(scope: Scope, outcomes: Sequence[Outcome]) -> list[str]:
    """Return the note that facts were stored outside of the project in which they were told, if any were."""
    if not scope.project:
        return []
    added = [outcome for outcome in outcomes if outcome.event is Event.ADD and outcome.kind == "memory"]
    general = [outcome.memory.text for outcome in added if not outcome.memory.scope.project]
    if not general:
        return []
    return [f"about a person, so stored for all projects and not in {scope.project} alone: {first_of(general)}"]


def _with_told_name(request: ReconcileRequest, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return decisions that keep the user's name, if the messages tell it."""
    keeps_it = any(decision.fact is not None and decision.fact.metadata.get(USER_NAME) for decision in decisions)
    return decisions if keeps_it or request.told_name is None else (*decisions, request.told_name)


def _notes(decisions: Decisions) -> list[str]:
    """Return what the caller must know, what people asked for first."""
    notes: list[str] = []
    for granted in decisions.granted:
        what = granted.request.what
        quoted = "; ".join(f'"{text}"' for text in granted.texts)
        notes.append(f"{FORGOTTEN}({what}): {quoted}")
        if granted.more_may_fit:
            notes.append(f"{MORE_MAY_FIT}: {what}")
    notes += [f"asked to forget, but nothing stored fits: {request.what}" for request in decisions.unmatched]
    notes += [
        f"asked to forget, but the model decided nothing about it; ask again: {request.what}"
        for request in decisions.unanswered
    ]
    notes += [
        f"not forgotten, because it is stored for all projects; ask for it outside the project: {text}"
        for text in dict.fromkeys(decisions.elsewhere)
    ]
    if decisions.is_cut:
        notes.append("the model's decisions were cut off; raise llm.config.max_tokens")
    notes += map(_doubt, decisions.doubts)
    notes += [f"left out of the model's decisions: {fault.rstrip('.')}" for fault in decisions.faults]
    notes += [f"{UNDECIDED}{fact.text}" for fact in decisions.undecided]
    return notes + [f"{NOT_KEPT}{fact.text}" for fact in decisions.dropped]


def _doubt(doubt: Doubt) -> str:
    """Return the note on a decision that was not believed."""
    if not doubt.fact:
        return f"kept, though the model deleted it, because nothing that was said is about it: {doubt.text}"
    if doubt.event is Event.NONE:
        return f'added, though the model found it known by "{doubt.text}", which says something else: {doubt.fact}'
    verb = "replaced" if doubt.event is Event.DELETE else "reworded"
    return f'kept, though the model {verb} it, because it is about something else than "{doubt.fact}": {doubt.text}'
