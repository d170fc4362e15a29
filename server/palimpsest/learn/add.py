"""Add messages or a text: keep them, extract facts, reconcile the facts with what is known.

Messages are in the ledger before a model is asked. Whatever fails later, they are kept, and a call that is repeated
continues where the first one stopped.
"""

import logging
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, TypeAlias

import anyio
from sqlalchemy import Connection

from palimpsest.core import errors, models
from palimpsest.core.clock import in_zone, shown_date
from palimpsest.core.protocols import LanguageModel, Vector
from palimpsest.core.validation import one_line
from palimpsest.learn import commit
from palimpsest.learn.commit import WriteResult, apply_decisions, apply_write, embed_texts
from palimpsest.learn.document_pages import is_long, learn_document, text_document
from palimpsest.learn.duplicates import NEAREST_SHOWN, with_near_duplicates
from palimpsest.learn.edit import refuse_changed
from palimpsest.learn.engine import Engine, without_excluded
from palimpsest.learn.reconcile import ReconcileRequest, Reconciliation, are_all_learned
from palimpsest.learn.sanitize import original_text, sanitize_fact, sanitize_messages, without_secret_names
from palimpsest.llm.decide import MAX_FORGOTTEN_UNASKED
from palimpsest.llm.extract import Conversation, Extraction, extract
from palimpsest.llm.summarize import describe
from palimpsest.store import entries, rows, summaries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.jobs import MESSAGES, JobRequest, learning_payload
from palimpsest.text.dates.date_finder import dates_in, resolved_dates
from palimpsest.text.dates.date_spans import DateSpan, day_or_days
from palimpsest.text.display import counted, shorten
from palimpsest.text.intents import Asking, asks_to_forget, question_note
from palimpsest.text.relation_updates import leaves_out
from palimpsest.text.tokenizer import count_tokens, lines_within, query_tokens, sentences

# Split what is to be learned from into pieces that a small model can read.

# How long the messages are that are extracted in one call, in tokens: it leaves a small model with a context of 8,000
# tokens room for the prompt and the reply, and longer pieces lose facts.
PIECE_TOKENS = 2_000

# A piece that is at least this full ends where a session ends, so that few sessions are cut in two.
FULL_SHARE = 0.5

# How much of a long message a later part is shown: how it begins, and what stands just before the part. Two lines say
# whose story it is, and a paragraph says who "she" is.
BEGINNING_CHARS = 200
BEFORE_CHARS = 600


@dataclass(frozen=True, slots=True)
class Part:
    """A message, or one part of the text of a long one: the one of this `number` of `count`.

    `beginning` and `before` are how the long message begins and what stands just before this part; "" for the first.
    """

    message: models.Message
    number: int = 1
    count: int = 1
    beginning: str = ""
    before: str = ""

    @property
    def is_last(self) -> bool:
        """Return whether the message ends here."""
        return self.number == self.count

    def note(self, number: int) -> str:
        """Return what the model must know of the part that it is shown as message `number`."""
        note = f"Message {number} is part {self.number} of {self.count} of one long message"
        if not self.is_last:
            note += ", which goes on after it"
        if self.number > 1:
            note += f'. The message begins: "{self.beginning}" Just before this part it says: "{self.before}"'
        return note


# Messages, and parts of long ones, that are extracted in one call.
Piece: TypeAlias = Sequence[Part]


def pieces(messages: Sequence[models.Message]) -> Iterator[Piece]:
    """Split messages into pieces of about `PIECE_TOKENS`, where a session ends if possible.

    A message that is longer than a piece is split at the ends of its lines and sentences.
    """
    piece: list[Part] = []
    tokens = 0
    for part in _parts(messages):
        message = part.message
        cost = count_tokens(message.content)
        is_next_session = bool(piece) and message.session_id != piece[-1].message.session_id
        if piece and (tokens + cost > PIECE_TOKENS or (is_next_session and tokens >= FULL_SHARE * PIECE_TOKENS)):
            yield tuple(piece)
            piece, tokens = [], 0
        piece.append(part)
        tokens += cost
    if piece:
        yield tuple(piece)


def _parts(messages: Sequence[models.Message]) -> Iterator[Part]:
    """Return the messages, a long one as several parts."""
    for message in messages:
        texts = list(_texts(message.content))
        beginning, before = shorten(one_line(message.content[: 2 * BEGINNING_CHARS]), BEGINNING_CHARS), ""
        for number, text in enumerate(texts, 1):
            yield Part(replace(message, content=text), number, len(texts), beginning if number > 1 else "", before)
            before = one_line(text[-BEFORE_CHARS:])


def _texts(text: str) -> Iterator[str]:
    """Split a text that is longer than a piece. Joined, the parts are the text."""
    if count_tokens(text) <= PIECE_TOKENS:
        yield text
        return
    from semantic_text_splitter import TextSplitter  # noqa: PLC0415 - only long messages need it

    yield from TextSplitter.from_callback(count_tokens, PIECE_TOKENS, trim=False).chunks(text)


# Learn from stored messages: extract facts piece by piece, and reconcile them with what is known.
#
# Each piece is a write of its own. If a piece fails, what the pieces before it taught is kept, and the messages of
# the rest are left to a job.

logger = logging.getLogger(__name__)

# How many tokens of facts from the earlier parts of a message are shown with its next one: twenty.
EARLIER_FACTS_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Lesson:
    """Stored messages to learn from.

    `context` is shown to the model, but no facts are learned from it. `vectors` are those of the messages, as far as
    they are known: a fact may have the very text of one. With `stays_in_project` what is about a person is not stored
    for all projects either.
    """

    scope: models.Scope
    messages: Sequence[models.Message]
    context: Sequence[str] = ()
    caller: str = ""
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    stays_in_project: bool = True

    @property
    def payload(self) -> dict[str, Any]:
        """Return what a job that learns from messages must know of them."""
        return learning_payload(self.context, self.caller, stays_in_project=self.stays_in_project)


async def learn_from(engine: Engine, model: LanguageModel, lesson: Lesson) -> WriteResult:
    """Extract facts from stored messages and reconcile them. A failure is noted, together with what was learned."""
    learned, done = WriteResult(), 0
    failure: errors.PalimpsestError | None = None
    try:
        async for count, result in learn_pieces(engine, model, lesson):
            done += count
            names = ("outcomes", "notes", "questions")
            both = {name: (*getattr(learned, name), *getattr(result, name)) for name in names}
            learned = replace(learned, similar={**learned.similar, **result.similar}, **both)
    except errors.PalimpsestError as error:
        failure = error
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _learn_later(engine, lesson)
        raise
    questions = _each_once(learned.questions)
    learned = _with_notes(replace(learned, questions=questions), *map(question_note, questions))
    if failure is not None:
        if await are_all_learned(engine, lesson.messages):
            return _with_notes(learned, "another call has learned from these messages meanwhile")
        # What the settings refuse would be refused again.
        is_learning = not isinstance(failure, errors.InputError) and await _learn_later(engine, lesson)
        note = _failure(lesson.messages, done, failure, is_learning=is_learning)
        return replace(_with_notes(learned, note), is_learning=is_learning)
    if not learned.outcomes and not learned.notes:
        return _with_notes(learned, "nothing in these messages was found worth a memory")
    return learned


def _each_once(questions: Sequence[models.ForgetQuestion]) -> tuple[models.ForgetQuestion, ...]:
    """Return the questions of all pieces, those about one matter as one."""
    by_what: dict[str, models.ForgetQuestion] = {}
    for question in questions:
        known = by_what.get(question.what, question)
        ids = tuple(dict.fromkeys((*known.ids, *question.ids)))
        texts = tuple(dict.fromkeys((*known.texts, *question.texts)))
        more = known.more_may_fit or question.more_may_fit
        by_what[question.what] = models.ForgetQuestion(question.what, ids, texts, more)
    return tuple(by_what.values())


async def learn_pieces(engine: Engine, model: LanguageModel, lesson: Lesson) -> AsyncGenerator[tuple[int, WriteResult]]:
    """Extract facts from stored messages and reconcile them, piece by piece. Raises PalimpsestError.

    After each piece, yield how many messages end in it, and what was learned.
    """
    parts = list(pieces(lesson.messages))
    kept = f"kept {counted(len(lesson.messages), 'message')}"
    learning = _Learning(engine, model, lesson)
    for number, piece in enumerate(parts, 1):
        which = f", piece {number} of {len(parts)}" if len(parts) > 1 else ""
        await engine.report_progress(f"{kept}; asking the model for facts{which}")
        yield sum(part.is_last for part in piece), await learning.learn_from(piece)


class _Learning:
    """Learns from the pieces of a lesson, and knows what a piece hands on to the next.

    Of messages that go on, that is what they ask to forget and their facts so far. A request waits for the end of its
    message, because one that is granted also deletes the message. `_may_forget` is how many memories may still be
    forgotten without a question.
    """

    def __init__(self, engine: Engine, model: LanguageModel, lesson: Lesson) -> None:
        self._engine, self._model, self._lesson = engine, model, lesson
        self._requests: tuple[models.ForgetRequest, ...] = ()
        self._facts: tuple[models.Fact, ...] = ()
        self._may_forget = MAX_FORGOTTEN_UNASKED

    async def learn_from(self, piece: Piece) -> WriteResult:
        """Return what was learned from a piece."""
        engine, model, lesson, scope = self._engine, self._model, self._lesson, self._lesson.scope
        prompt = engine.prompts.get("extract_agent" if scope.agent_id else "extract")
        finished = tuple(part.message.id for part in piece if part.is_last)
        unfinished = {part.message.id for part in piece if not part.is_last}
        conversation = await engine.read(lambda conn: self._conversation(conn, piece))
        found = await extract(model, prompt, conversation, engine.clock())
        found = await engine.run(lambda: _with_own_requests(found, lesson.messages))
        facts, left_out = await engine.run(lambda: without_secret_names(engine, found.facts))
        kept, excluded = without_excluded(facts, engine.settings.excludes)
        requests = (*self._requests, *found.requests)
        self._requests = tuple(request for request in requests if unfinished & set(request.sources))
        self._facts = tuple(fact for fact in (*self._facts, *kept) if unfinished & set(fact.sources))
        requests = tuple(request for request in requests if request not in self._requests)
        notes = (*_notes(found), *excluded, *left_out)
        name = found.user_name
        sources = [part.message.id for part in piece if name in part.message.content]
        told = await engine.read(lambda conn: commit.name_decision(conn, scope, name, sources))
        if not kept and not requests:
            provenance = models.Provenance("extract", model.name, prompt.fingerprint, lesson.caller)
            decisions = () if told is None else (told,)
            applied = await apply_write(engine, Write(scope, provenance, decisions=decisions, learned_from=finished))
            return WriteResult(applied.outcomes, notes=(*notes, *applied.notes))
        texts = [*(fact.key_text for fact in kept), *(request.what for request in requests)]
        vectors, _ = await embed_texts(engine, texts, lesson.vectors)
        # The first fact that tells the name has it in its metadata.
        teller = next((fact for fact in kept if name and name in fact.text), None)
        result = await self._reconciled(
            ReconcileRequest(
                scope,
                tuple(replace(fact, metadata={models.USER_NAME: name}) if fact is teller else fact for fact in kept),
                lesson.caller,
                requests,
                finished,
                user_name=name or conversation.user_name,
                vectors=vectors,
                may_forget=self._may_forget,
                told_name=told,
                stays_in_project=lesson.stays_in_project,
            )
        )
        self._may_forget -= sum(each.kind == "memory" and each.memory.is_forgotten for each in result.outcomes)
        return _with_notes(result, *notes)

    async def _reconciled(self, request: ReconcileRequest) -> WriteResult:
        """Reconcile facts. If the model fails at it, they are added as they are: what was found is not thrown away.

        If it is only not asked any longer, they wait with their messages until it is, unless it is the client's, which
        is there during this call only. Raises as `Reconciliation.run`.
        """
        reconciliation = Reconciliation(self._engine, self._model, request)
        try:
            return await reconciliation.run()
        except (errors.ModelError, errors.PromptError) as error:
            is_later = isinstance(error, errors.CallTimeError | errors.DailyLimitError)
            if is_later and not self._engine.is_model_borrowed:
                raise
            logger.warning("%d facts are added as they are: %s", len(request.facts), error)
            return await reconciliation.add_undecided(error)

    def _conversation(self, conn: Connection, piece: Piece) -> Conversation:
        """Return what extraction reads: the new messages, those before them, and the last summary."""
        scope, zone = self._lesson.scope, self._engine.clock().tzinfo
        messages = [part.message for part in piece]
        notes_on_parts = [part.note(number) for number, part in enumerate(piece, 1) if part.count > 1]
        context = (*self._lesson.context, *notes_on_parts, *self._known_facts(piece))
        recent = self._engine.settings.learn.recent_messages
        before = message_queries.messages_before(conn, scope, messages[0].id, recent)
        names = {message.name for message in (*before, *messages) if message.role == "user" and message.name}
        told_name = "" if names else memory_queries.name_of_user(conn, scope)
        user_name = names.pop() if len(names) == 1 else told_name
        before = [message.in_zone(zone) for message in before]
        return Conversation(messages, before, context, _summary(conn, scope, zone), user_name)

    def _known_facts(self, piece: Piece) -> list[str]:
        """Return the newest facts of earlier parts of a message as a note, because who "she" is may be far above."""
        continued = {part.message.id for part in piece if part.number > 1}
        texts = [fact.text for fact in reversed(self._facts) if continued & set(fact.sources)]
        shown = lines_within(texts, EARLIER_FACTS_TOKENS)[::-1] if texts else []
        return [f"Its earlier parts say, among other things: {' '.join(shown)}"] if shown else []


def _with_own_requests(found: Extraction, messages: Sequence[models.Message]) -> Extraction:
    """Return an extraction with the requests to forget that users make in their own words. Blocking.

    The whole messages are read: the head of a pasted mail may stand in an earlier part.
    """
    texts = {message.id: models.PICTURES.sub(" ", message.content) for message in messages}
    asked = [(each, {asks_to_forget(texts[source], each.what) for source in each.sources}) for each in found.requests]
    refused = (*found.refused, *(each.what for each, asking in asked if asking == {Asking.NOT}))
    kept = [replace(each, is_doubtful=Asking.CLEARLY not in asking) for each, asking in asked if asking != {Asking.NOT}]
    return replace(found, requests=tuple(kept), refused=refused)


async def _learn_later(engine: Engine, lesson: Lesson) -> bool:
    """Leave what was not learned to a job, and return whether one will do it: that takes a model that is always there.

    A failure is logged. The messages are kept, and are learned from if they are sent again.
    """
    request = JobRequest("learn", payload={MESSAGES: [message.id for message in lesson.messages], **lesson.payload})
    with errors.logged(logger, "messages that were not learned from are left to nobody"):
        if engine.own_model is not None:
            await engine.write(partial(engine.ledger.queue_job, lesson.scope, request))
            return True
    return False


def _failure(messages: Sequence[models.Message], done: int, error: Exception, *, is_learning: bool) -> str:
    """Return the note on an error that ended the learning after `done` messages."""
    logger.warning("learned from %d of %d messages: %s", done, len(messages), error)
    what_next = f"Send the same messages again to learn from {'the rest' if done else 'them'}."
    if is_learning:
        they = "The rest is" if done else "They are"
        what_next = f"{they} learned from in the background; a later reply says what was learned."
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


def _summary(conn: Connection, scope: models.Scope, zone: tzinfo | None) -> str:
    """Return the last summary of which nothing was deleted, with its age; "" if there is none.

    In a project without one it is that of the user, if the project sees what is general.
    """
    for owner in dict.fromkeys((scope, scope.general)):
        _, summary = summaries.base_summary(conn, owner, "overall")
        if summary is not None:
            changes = summaries.count_changes_since(conn, owner, summary.seq)
            since = f"; {counted(changes, 'memory')} changed since, which may correct it" if changes else ""
            return f"(Written on {shown_date(in_zone(summary.created_at, zone))}{since}.) {summary.text}"
    return ""


LEARNING = "facts are learned from these messages in the background; a later reply says which"
NO_MODEL = "there is no language model to ask: "

NOT_FORGOTTEN = (
    "asked to forget, but nothing was deleted: no language model read these messages. Search for what is meant, show "
    "it to the user, and call delete_memory with its ids"
)

# How many dates of a text are noted: a fact has one or two, and a long text is not worth more lines.
MAX_NOTED_DATES = 5

# How much of a memory's text an error quotes: enough to recognize it.
MAX_QUOTED_CHARS = 200


async def add_messages(engine: Engine, lesson: Lesson, *, infer: bool | None) -> WriteResult:
    """Keep messages. With a model, extract their facts and reconcile them. Raises LedgerError."""
    said, of_pictures = await _described(engine, lesson.scope, lesson.messages, infer=infer)
    messages, context, notes = await engine.run(lambda: sanitize_messages(engine, lesson.scope, said, lesson.context))
    notes = [*of_pictures, *notes]
    if not messages:
        return WriteResult(notes=tuple(notes))
    vectors, embedding_notes = await embed_texts(engine, [message.content for message in messages])
    lesson = replace(lesson, context=context, vectors=vectors)
    write = Write(
        lesson.scope,
        models.Provenance("keep", caller=lesson.caller),
        messages,
        vectors=vectors,
        learn_later=lesson.payload if engine.learns_later and infer is not False else None,
    )
    applied = await apply_write(engine, write)
    notes += (*embedding_notes, *applied.notes)
    if not applied.new_message_ids:
        notes.append("all of these messages were known already")
    if deleted := sum(message.deleted_at is not None for message in applied.messages):
        notes.append(f"{deleted} of these messages were deleted before and stay deleted; palimpsest undo restores them")
    kept = WriteResult(kept_messages=len(applied.new_message_ids), notes=tuple(notes))
    # Stored times are in UTC. What a message says of its day counts from the offset that the call gave.
    zones = {message.id: message.said_at.tzinfo for message in messages}
    default = engine.clock().tzinfo
    new = [
        message.in_zone(zones.get(message.id, default))
        for message in applied.messages
        if message.id in applied.unlearned_ids
    ]
    if infer is False or not new:
        return await _with_requests(engine, kept, new)
    if write.learn_later is not None:
        return replace(kept, notes=(*kept.notes, LEARNING), is_learning=True)
    if engine.model is None:
        note = (
            f"{NO_MODEL}messages are kept as they are, searchable, and no facts were learned. Now add what matters in "
            "them as text, one fact a call."
        )
        return await _with_requests(engine, _with_notes(kept, note), new) if applied.new_message_ids else kept
    learned = await learn_from(engine, engine.model, replace(lesson, messages=new))
    return replace(learned, kept_messages=kept.kept_messages, notes=(*kept.notes, *learned.notes))


async def _described(
    engine: Engine, scope: models.Scope, messages: Sequence[models.Message], *, infer: bool | None
) -> tuple[list[models.Message], list[str]]:
    """Return messages with their pictures in words, if the settings name a model that sees, and a note on pictures.

    A description never changes afterwards, because no picture is stored. What is sent again has its first one.
    """
    total = sum(len(message.pictures) for message in messages)
    has_vision = bool(engine.settings.llm.config.vision_model)
    model = None if infer is False or not has_vision else engine.own_model
    if not total or model is None:
        hint = "" if has_vision else "; llm.config.vision_model names a model that describes pictures"
        return [*messages], [f"of {counted(total, 'picture')} only a mark is kept{hint}"] if total else []
    hashes = {message.id: rows.content_hash(message.content) for message in messages if message.pictures}
    stored = await engine.read(lambda conn: message_queries.contents_of(conn, scope, [*hashes.values()]))
    described: list[models.Message] = []
    failure, done = "", 0
    for message in messages:
        content = stored.get(hashes.get(message.id, ""), message.content)
        for url in message.pictures:
            mark, words = models.picture_mark(url), ""
            try:
                if mark in content and url and not failure:
                    await engine.report_progress(f"asking the model what picture {done + 1} of {total} shows")
                    words = await describe(model, engine.prompts.get("describe"), message.content, url)
            except (errors.ModelError, errors.PromptError) as error:
                failure = f": {error}"
            content = content.replace(mark, f"{mark[:-1]}: {words}]" if words else mark)
            done += mark not in content
        described.append(replace(message, content=content))
    return described, [f"{done} of {counted(total, 'picture')} described in words{failure}"]


async def _with_requests(engine: Engine, kept: WriteResult, messages: Sequence[models.Message]) -> WriteResult:
    """Return the result of messages that no model reads, with a note if somebody asks in them to forget something."""
    own = [message.content for message in messages if message.role == "user"]
    is_asked = await engine.run(lambda: any(asks_to_forget(text) is Asking.CLEARLY for text in own))
    return _with_notes(kept, NOT_FORGOTTEN) if is_asked else kept


# From so many sentences on a text probably has several facts. Two are often a fact and its reason.
SEVERAL = 3

# How many words a sentence has at least: less is a title, an initial or an exclamation.
MIN_WORDS = 3


async def add_text(
    engine: Engine,
    scope: models.Scope,
    fact: models.Fact,
    *,
    replaces: Sequence[str],
    infer: bool | None,
    caller: str,
    sets_relations: bool = False,
) -> WriteResult:
    """Store a fact in the caller's words, reconciled with what is known if there is a model.

    With `replaces` or `infer` False, and for a block, the model is not asked, because the caller has decided. With
    `infer` True facts are extracted from the text first. Dates such as "yesterday" stay as they are and are noted: the
    memory's own date is that of the text, and whoever reads it counts from there. A text of several pages becomes a
    document, unless it has more than a time. Raises MemoryNotFoundError and LedgerError.
    """
    if is_long(fact.text) and not (replaces or fact.metadata or fact.relations or infer):
        learned = await learn_document(engine, scope, text_document(fact.text, fact.said_at or engine.clock()), caller)
        return WriteResult(notes=learned.notes, document=learned)
    fact, notes, replaced, read = await engine.run(lambda: _prepared(engine, scope, fact, replaces))
    if infer and engine.model is not None and not replaces:
        now = engine.clock()
        message = models.Message(str(uuid.uuid4()), scope, "user", fact.text, fact.said_at or now, now)
        result = await add_messages(engine, Lesson(scope, [message], caller=caller), infer=True)
        return replace(result, notes=(*notes, *result.notes))
    vectors: Mapping[str, Vector] | None = None
    is_block = memory_queries.is_block(fact.metadata)
    if engine.model is not None and not replaces and infer is not False and not is_block:
        vectors, _ = await embed_texts(engine, [fact.key_text])
        request = ReconcileRequest(scope, (fact,), caller, keep_all=True, vectors=vectors)
        try:
            result = await Reconciliation(engine, engine.model, request).run()
        except (errors.ModelError, errors.PromptError, errors.StaleDecisionError, errors.MemoryNotFoundError) as error:
            notes.append(f"stored in your words, not reconciled with what was known: {error}")
        else:
            return replace(result, notes=(*notes, *result.notes))
    else:
        if infer and engine.model is None:
            notes.append(f"{NO_MODEL}stored as one memory, in your words")
        count = sum(len(part.split()) >= MIN_WORDS for part in sentences(fact.text))
        if count >= SEVERAL and not memory_queries.is_pinned(fact.metadata):
            notes.append(f"{count} sentences are one memory now; facts are found better if each is added by itself")
    decision = models.Decision(models.Event.ADD, fact, replaces=replaced, sets_relations=sets_relations)
    decisions = await engine.read(lambda conn: commit.with_named_facts(conn, scope, [decision]))
    vectors, embedding_notes = await embed_texts(engine, [fact.key_text], vectors)
    write = Write(scope, models.Provenance("add", caller=caller), decisions=decisions, vectors=vectors, read=read)
    result = await apply_decisions(engine, write, [*notes, *embedding_notes])
    memories = [outcome.memory for outcome in result.outcomes if outcome.duplicate_of is not None]
    later = [memory.date for memory in memories if fact.said_at is not None and memory.at > fact.said_at]
    unlike = [note for outcome in result.outcomes for note in _unlike(fact.text, outcome)]
    result = _with_notes(result, *(f"its date stays {day}, which is later" for day in later), *unlike)
    return await with_near_duplicates(engine, scope, result, vectors, nearest=NEAREST_SHOWN)


def _unlike(text: str, outcome: models.Outcome) -> Iterator[str]:
    """Yield a note on each replaced memory that shares no word with the text: its id may have been a mistake.

    Of another it says whether that said more: the pill of which a new dose is told was not to be taken with others.
    """
    for memory_id, replaced in zip(outcome.replaced, outcome.replaced_texts, strict=True):
        if {*query_tokens(text)}.isdisjoint(query_tokens(replaced)):
            why = "which it replaced, shares no word with it; restore it if that was a mistake"
            yield f"[{memory_id[:8]}], {why}: {shorten(one_line(replaced), BEGINNING_CHARS)}"
        elif leaves_out(text, replaced):
            yield f"[{memory_id[:8]}] said more: add what of it still holds"


def _prepared(
    engine: Engine, scope: models.Scope, fact: models.Fact, replaces: Sequence[str]
) -> tuple[models.Fact, list[str], tuple[str, ...], dict[str, int]]:
    """Return the fact without secrets and without the frame of a search hit, notes, and what it replaces.

    Without hints of its own it has those of what it replaces: who asked for that asks for it.
    """
    text = original_text(engine, scope, fact.text)
    hints = tuple(dict.fromkeys((*fact.keywords, *models.tags_given(fact.metadata))))
    sanitized, notes = sanitize_fact(engine, replace(fact, text=text, keywords=hints))
    notes += commit.past_end_notes(engine, fact)
    notes += _notes_on_dates(sanitized, fact.said_at or engine.clock())
    ids, read, known = _ids_to_replace(engine, scope, replaces, sanitized.text)
    return replace(sanitized, keywords=sanitized.keywords or known), notes, ids, read


def _is_in_year_of(span: DateSpan, when: datetime) -> bool:
    """Return whether an instant lies in a stretch of days of some year."""
    first, last = ((day.month, day.day) for day in (span.start, span.end - timedelta(seconds=1)))
    day = when.month, when.day
    return first <= day <= last if first <= last else not last < day < first


def _notes_on_dates(fact: models.Fact, at: datetime) -> list[str]:
    """Return notes on the dates in a text that count from its day, that cannot be told, or that disagree.

    A date can be told if that day of a year is one with which the fact begins or ends. Nor is a weekday unclear in a
    fact that was given when it begins or ends.
    """
    found = dates_in(fact.text, at, guesses=True)
    given = [when for when in (fact.valid_from, fact.valid_until) if when is not None]
    incomplete = (span for span in found if span.is_year_guessed or span.is_guess or span.is_weekday)
    known = [span for span in incomplete if any(span.is_weekday or _is_in_year_of(span, when) for when in given)]
    told = [span for span in resolved_dates(fact.text, at) if span not in known][:MAX_NOTED_DATES]
    # "From February on the 25th" is told.
    has_month = "month" in {fact.valid_from_precision, *(span.unit for span in found if not span.is_guess)}
    guesses = (each for each in found if each.is_guess and not each.is_yearly and not (each.is_relative and has_month))
    unclear = [f'"{span.phrase}"' for span in guesses if span not in known]
    dates = ", ".join(f'"{span.phrase}" is {day_or_days(span)}' for span in told)
    notes = [f"read on {at:%Y-%m-%d}, {dates}"] if told else []
    wrong = [span for span in found if span.disagrees][:MAX_NOTED_DATES]
    notes += [f'"{span.phrase}": {day_or_days(span)} is a {span.start:%A}; the date counts' for span in wrong]
    if unclear:
        notes.append(f"{', '.join(unclear[:MAX_NOTED_DATES])}: past or to come? If that matters, give the date")
    return notes


def _ids_to_replace(
    engine: Engine, scope: models.Scope, ids: Sequence[str], text: str
) -> tuple[tuple[str, ...], dict[str, int], tuple[str, ...]]:
    """Return the full ids, without those that this very text replaced (the call is a repetition), revisions, and hints.

    Raises MemoryNotFoundError for a memory that is deleted or was superseded by another, and ChangedMeanwhileError as
    `refuse_changed`.
    """
    read: dict[str, int] = {}
    if not ids:
        return (), read, ()
    with engine.ledger.read() as conn:
        memories = [entries.find_memory(conn, scope, memory_id) for memory_id in ids]
        successors = memory_queries.successors(conn, memories)
    for memory, memory_id in zip(memories, ids, strict=True):
        successor = successors.get(memory.id)
        if memory.deleted_at is None:
            read |= refuse_changed(memory, entries.revision_in(memory_id), takes_away=True)
        elif successor is None or not commit.has_text(successor, text):
            raise _cannot_replace(memory, successor)
    living = [memory for memory in memories if memory.deleted_at is None]
    return tuple(memory.id for memory in living), read, next((each.keywords for each in living if each.keywords), ())


def _cannot_replace(memory: models.Memory, successor: models.Memory | None) -> errors.MemoryNotFoundError:
    """Return the error for a memory that can no longer be replaced, with the call that does what was meant."""
    if successor is not None and successor.deleted_at is None:
        successor_id = successor.id[:8]
        quoted = shorten(one_line(successor.text), MAX_QUOTED_CHARS)
        return errors.MemoryNotFoundError(
            f"memory '{memory.id[:8]}' was replaced by '{successor_id}' before ({quoted}); nothing was stored",
            errors.Remedy.REPLACE_NEWEST,
            successor_id,
        )
    return errors.MemoryNotFoundError(
        f"memory '{memory.id[:8]}' is deleted already; nothing was stored", errors.Remedy.REPLACE_NOTHING
    )
