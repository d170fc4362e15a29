"""Learn from stored messages: extract facts piece by piece, and reconcile them with what is known.

Each piece is a write of its own. If a piece fails, what the pieces before it taught is kept, and the messages of the
rest are left to a job.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from typing import Any, TypeAlias

import anyio
from sqlalchemy import Connection

from palimpsest.core.clock import in_zone, shown_date
from palimpsest.core.errors import (
    CallTimeError,
    DailyLimitError,
    InputError,
    LedgerError,
    ModelError,
    PalimpsestError,
    PromptError,
)
from palimpsest.core.models import USER_NAME, Fact, ForgetQuestion, ForgetRequest, Message, Provenance, Scope
from palimpsest.core.protocols import LanguageModel, Vector
from palimpsest.learn.apply import WriteResult, apply_write, embed_texts
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.forget_notes import question_note
from palimpsest.learn.facts.naming import name_decision
from palimpsest.learn.facts.reconcile import (
    ReconcileRequest,
    add_undecided,
    are_all_learned,
    reconcile,
)
from palimpsest.learn.facts.topics import without_excluded
from palimpsest.learn.messages.pieces import Piece, pieces
from palimpsest.learn.sanitize import without_secret_names
from palimpsest.llm.decisions.verdicts import MAX_FORGOTTEN_UNASKED
from palimpsest.llm.extract import RECENT_MESSAGES, Conversation, Extraction, extract
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.queries.jobs import MESSAGES
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.jobs.queue import CONTEXT, STAYS, JobRequest
from palimpsest.text.counting import counted
from palimpsest.text.forget_requests import Asking, asks_to_forget
from palimpsest.text.tokenizer import lines_within

logger = logging.getLogger(__name__)

EARLIER_FACTS_TOKENS = 300
"""How many tokens of facts from the earlier parts of a message are shown with its next one. Set by hand: twenty."""

OnPiece: TypeAlias = Callable[[int, WriteResult], Awaitable[None]]
"""Is told after each piece from how many messages it has learned, and what."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Stored messages to learn from.

    `context` is shown to the model, but no facts are learned from it. `vectors` are those of the messages, as far as
    they are known: a fact may have the very text of one. With `stays_in_project` what is about a person is not stored
    for all projects either.
    """

    scope: Scope
    messages: Sequence[Message]
    context: Sequence[str] = ()
    caller: str = ""
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    stays_in_project: bool = False


@dataclass(frozen=True, slots=True)
class Learning:
    """What was learned from the first `messages` messages, and the error that ended it, or None."""

    result: WriteResult
    messages: int
    error: Exception | None = None


async def learn_from(engine: Engine, model: LanguageModel, lesson: Lesson) -> WriteResult:
    """Extract facts from stored messages and reconcile them. A failure is noted, together with what was learned."""
    try:
        learning = await learn_pieces(engine, model, lesson)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _learn_later(engine, lesson)
        raise
    questions = _each_once(learning.result.questions)
    learned = _with_notes(replace(learning.result, questions=questions), *map(question_note, questions))
    if learning.error is not None:
        if await are_all_learned(engine, lesson.messages):
            return _with_notes(learned, "another call has learned from these messages meanwhile")
        # What the settings refuse would be refused again.
        is_learning = not isinstance(learning.error, InputError) and await _learn_later(engine, lesson)
        note = _failure(lesson.messages, learning.messages, learning.error, is_learning=is_learning)
        return replace(_with_notes(learned, note), is_learning=is_learning)
    if not learned.outcomes and not learned.notes:
        return _with_notes(learned, "nothing in these messages was found worth a memory")
    return learned


def _each_once(questions: Sequence[ForgetQuestion]) -> tuple[ForgetQuestion, ...]:
    """Return the questions of all pieces, those about one matter as one."""
    by_what: dict[str, ForgetQuestion] = {}
    for question in questions:
        known = by_what.get(question.what, question)
        ids, texts = (
            tuple(dict.fromkeys(both)) for both in ((*known.ids, *question.ids), (*known.texts, *question.texts))
        )
        more = known.more_may_fit or question.more_may_fit
        by_what[question.what] = ForgetQuestion(question.what, ids, texts, more)
    return tuple(by_what.values())


async def learn_pieces(
    engine: Engine, model: LanguageModel, lesson: Lesson, on_piece: OnPiece | None = None
) -> Learning:
    """Extract facts from stored messages and reconcile them, piece by piece, until a piece fails."""
    parts = list(pieces(lesson.messages))
    kept = f"kept {counted(len(lesson.messages), 'message')}"
    learned = WriteResult()
    done = 0
    carried = _Carried()
    for number, piece in enumerate(parts, 1):
        which = f", piece {number} of {len(parts)}" if len(parts) > 1 else ""
        await engine.report_progress(f"{kept}; asking the model for facts{which}")
        try:
            result, carried = await _learn_from_piece(engine, model, lesson, piece, carried)
        except PalimpsestError as error:
            return Learning(learned, done, error)
        done += len(piece.finished)
        learned = replace(
            learned,
            outcomes=(*learned.outcomes, *result.outcomes),
            notes=(*learned.notes, *result.notes),
            similar={**learned.similar, **result.similar},
            questions=(*learned.questions, *result.questions),
        )
        if on_piece is not None:
            await on_piece(len(piece.finished), result)
    return Learning(learned, done)


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a piece hands on to the next: of messages that go on, what they ask to forget and their facts so far.

    A request waits for the end of its message, because one that is granted also deletes the message. `may_forget` is
    how many memories may still be forgotten without a question.
    """

    requests: tuple[ForgetRequest, ...] = ()
    facts: tuple[Fact, ...] = ()
    may_forget: int = MAX_FORGOTTEN_UNASKED


async def _learn_from_piece(
    engine: Engine, model: LanguageModel, lesson: Lesson, piece: Piece, carried: _Carried
) -> tuple[WriteResult, _Carried]:
    """Return what was learned, and what the next piece must know."""
    scope = lesson.scope
    prompt = engine.prompts.get("extract_agent" if scope.agent_id else "extract")
    context = (*lesson.context, *piece.notes(), *_known_facts(piece, carried))
    conversation = await engine.run(lambda: _conversation(engine, scope, piece.messages, context))
    found = await extract(model, prompt, conversation, engine.clock())
    found = await engine.run(lambda: _with_own_requests(found, lesson.messages))
    facts, left_out = await engine.run(lambda: without_secret_names(engine, found.facts))
    kept, excluded = without_excluded(facts, engine.excluded_topics)
    requests = (*carried.requests, *found.requests)
    later = tuple(request for request in requests if piece.unfinished & set(request.sources))
    known = tuple(fact for fact in (*carried.facts, *kept) if piece.unfinished & set(fact.sources))
    carried = replace(carried, requests=later, facts=known)
    found = replace(found, facts=tuple(kept), requests=tuple(item for item in requests if item not in later))
    notes = (*_notes(found), *excluded, *left_out)
    sources = [message.id for message in piece.messages if found.user_name in message.content]
    told = await engine.read(lambda conn: name_decision(conn, scope, found.user_name, sources))
    if not found.facts and not found.requests:
        provenance = Provenance("extract", model.name, prompt.fingerprint, lesson.caller)
        decisions = [told] if told is not None else []
        write = Write(scope, provenance, decisions=tuple(decisions), learned_from=piece.finished)
        applied = await apply_write(engine, write)
        return WriteResult(applied.outcomes, notes=(*notes, *applied.notes)), carried
    texts = [*(fact.text for fact in found.facts), *(request.what for request in found.requests)]
    vectors, _ = await embed_texts(engine, texts, lesson.vectors)
    request = ReconcileRequest(
        scope,
        _with_told_name(found),
        lesson.caller,
        found.requests,
        piece.finished,
        user_name=found.user_name or conversation.user_name,
        vectors=vectors,
        may_forget=carried.may_forget,
        told_name=told,
        stays_in_project=lesson.stays_in_project,
    )
    result = await _reconciled(engine, model, request)
    forgotten = sum(outcome.kind == "memory" and outcome.memory.is_forgotten for outcome in result.outcomes)
    return _with_notes(result, *notes), replace(carried, may_forget=carried.may_forget - forgotten)


async def _reconciled(engine: Engine, model: LanguageModel, request: ReconcileRequest) -> WriteResult:
    """Reconcile facts. If the model fails at it, they are added as they are: what was found is not thrown away.

    If it is only not asked any longer, they wait with their messages until it is, unless it is the client's, which is
    there during this call only. Raises as `reconcile`.
    """
    try:
        return await reconcile(engine, model, request)
    except (ModelError, PromptError) as error:
        if isinstance(error, CallTimeError | DailyLimitError) and not engine.is_model_borrowed:
            raise
        logger.warning("%d facts are added as they are: %s", len(request.facts), error)
        return await add_undecided(engine, model, request, error)


def _with_own_requests(found: Extraction, messages: Sequence[Message]) -> Extraction:
    """Return an extraction with the requests to forget that users make in their own words. Blocking.

    The whole messages are read: the head of a pasted mail may stand in an earlier part.
    """
    texts = {message.id: message.content for message in messages}
    requests: list[ForgetRequest] = []
    refused = list(found.refused)
    for request in found.requests:
        asking = {asks_to_forget(texts[source], request.what) for source in request.sources}
        if asking == {Asking.NOT}:
            refused.append(request.what)
        else:
            requests.append(replace(request, is_doubtful=Asking.CLEARLY not in asking))
    return replace(found, requests=tuple(requests), refused=tuple(refused))


def _known_facts(piece: Piece, carried: _Carried) -> list[str]:
    """Return the newest facts of earlier parts of a message as a note, because who "she" is may be far above."""
    texts = [fact.text for fact in reversed(carried.facts) if piece.continued & set(fact.sources)]
    shown = lines_within(texts, EARLIER_FACTS_TOKENS)[::-1] if texts else []
    return [f"Its earlier parts say, among other things: {' '.join(shown)}"] if shown else []


async def _learn_later(engine: Engine, lesson: Lesson) -> bool:
    """Leave what was not learned to a job, and return whether one will do it: that takes a model that is always there.

    A failure is logged. The messages are kept, and are learned from if they are sent again.
    """
    if engine.own_model is None:
        return False
    ids = [message.id for message in lesson.messages]
    payload: dict[str, Any] = {MESSAGES: ids, CONTEXT: list(lesson.context), "caller": lesson.caller}
    if lesson.stays_in_project:
        payload[STAYS] = True
    try:
        await engine.write(partial(engine.ledger.queue_job, lesson.scope, JobRequest("learn", payload=payload)))
    except LedgerError as error:
        logger.warning("messages that were not learned from are left to nobody: %s", error)
        return False
    return True


def _failure(messages: Sequence[Message], done: int, error: Exception, *, is_learning: bool) -> str:
    """Return the note on an error that ended the learning after `done` messages."""
    logger.warning("learned from %d of %d messages: %s", done, len(messages), error)
    rest = "the rest is" if done else "they are"
    what_next = (
        f"{rest[0].upper()}{rest[1:]} learned from in the background; a later reply says what was learned."
        if is_learning
        else f"Send the same messages again to learn from {'the rest' if done else 'them'}."
    )
    count = counted(len(messages), "message")
    if done:
        return f"learned from the first {done} of {count}; the others are kept: {error} {what_next}"
    return f"kept {count}, but no facts were learned from them{' yet' if is_learning else ''}: {error} {what_next}"


def _notes(found: Extraction) -> tuple[str, ...]:
    notes = [
        f"not forgotten, because only the user can ask for it, in words of their own: {what}" for what in found.refused
    ]
    if found.is_cut:
        notes.append(
            "the model's reply was cut off; what was whole of it is kept, and facts and requests to forget may be "
            "missing. Raise llm.config.max_tokens"
        )
    return (*notes, *found.left_out)


def _with_notes(result: WriteResult, *notes: str) -> WriteResult:
    return replace(result, notes=(*result.notes, *notes))


def _conversation(engine: Engine, scope: Scope, messages: Sequence[Message], context: Sequence[str]) -> Conversation:
    """Return what extraction reads: the new messages, those before them, and the last summary."""
    with engine.ledger.read() as conn:
        summary = _summary(conn, scope, engine.clock().tzinfo)
        before = message_queries.messages_before(conn, scope, messages[0].id, RECENT_MESSAGES)
        told_name = memory_queries.name_of_user(conn, scope)
    names = {message.name for message in (*before, *messages) if message.role == "user" and message.name}
    user_name = names.pop() if len(names) == 1 else "" if names else told_name
    before = [message.in_zone(engine.clock().tzinfo) for message in before]
    return Conversation(messages, before, context, summary, user_name)


def _summary(conn: Connection, scope: Scope, zone: tzinfo | None) -> str:
    """Return the last summary of which nothing was deleted, with its age; "" if there is none.

    In a project without one it is that of the user, if the project sees what is general.
    """
    for owner in dict.fromkeys((scope, replace(scope, project="") if scope.with_general else scope)):
        _, summary = summary_queries.base_summary(conn, owner, "overall")
        if summary is not None:
            changes = summary_queries.count_changes_since(conn, owner, summary.seq)
            since = f"; {counted(changes, 'memory')} changed since, which may correct it" if changes else ""
            return f"(Written on {shown_date(in_zone(summary.created_at, zone))}{since}.) {summary.text}"
    return ""


def _with_told_name(found: Extraction) -> tuple[Fact, ...]:
    """Return the facts of an extraction; the first that tells the user's name also has it in its metadata."""
    name = found.user_name
    teller = next((fact for fact in found.facts if name and name in fact.text), None)
    return tuple(replace(fact, metadata={USER_NAME: name}) if fact is teller else fact for fact in found.facts)
