"""Run the jobs in the ledger: learning, expiry, links and hints; daily limits; and reports of what became of them."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, TypeAlias

import anyio
from sqlalchemy import Connection

from palimpsest.core import errors, models
from palimpsest.core.clock import Precision, Zones, first_instant, local_iso, parse_date
from palimpsest.core.errors import DailyLimitError, InputError, LedgerError, PalimpsestError, StaleDecisionError, logged
from palimpsest.core.models import Annotation, Decision, Entity, Event, Fact, Link, Memory, Provenance, Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.settings import Settings
from palimpsest.core.validation import one_line
from palimpsest.learn.add import Lesson, learn_pieces
from palimpsest.learn.commit import apply_write, embed_texts
from palimpsest.learn.document_pages import write_gists
from palimpsest.learn.duplicates import replaced_by_plan
from palimpsest.learn.edit import with_labels
from palimpsest.learn.engine import Engine, WrappedModel
from palimpsest.learn.reconcile import NOT_KEPT, UNDECIDED, are_all_learned, not_learned_from
from palimpsest.learn.sanitize import Cleaner
from palimpsest.learn.summaries.summary_kinds import how_many_fit, revisions
from palimpsest.learn.summaries.summary_writer import summarize_due
from palimpsest.llm import summarize as stages
from palimpsest.llm.summarize import Shown
from palimpsest.recall.similar import SimilarMemory, similar_memories
from palimpsest.store import entries, history
from palimpsest.store import jobs as job_queries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_of
from palimpsest.store.jobs import EDIT, Job, JobEnd, JobKind, JobRequest, ModelUse
from palimpsest.store.links import without_annotation
from palimpsest.store.memories import A_DAY, ending_memories, plans_of, plans_since, scopes_ending
from palimpsest.store.rows import is_seen
from palimpsest.text.display import counted, shorten
from palimpsest.text.intents import FORGOTTEN, QUESTION, question_note
from palimpsest.text.redaction import is_marker
from palimpsest.text.tokenizer import count_tokens

# Learn from the messages of a job.
#
# Each piece of a conversation marks its messages as learned from, so work that was interrupted goes on with the
# rest.

# How many tokens of messages an attempt learns from before other jobs have their turn: ten pieces, which take a model
# one or two minutes.
SLICE_TOKENS = 20_000


async def learn(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Learn from the messages of a job that were neither learned from nor deleted since it was queued."""
    zone = engine.clock().tzinfo

    def left(conn: Connection) -> list[models.Message]:
        known = message_queries.messages_by_id(conn, job.message_ids)
        return not_learned_from(conn, [known[key].in_zone(zone) for key in job.message_ids if key in known])

    waiting = await engine.read(left)
    messages = waiting[: how_many_fit([message.content for message in waiting], SLICE_TOKENS)]
    outcomes: list[models.Outcome] = []
    error: Exception | None = None
    run_for, user = engine.ledger.run_for, job.scope.user_id
    try:
        context, stays = job.payload[job_queries.CONTEXT], bool(job.payload.get(job_queries.STAYS))
        lesson = Lesson(job.scope, messages, context, job.payload["caller"], stays_in_project=stays)
        async for learned, result in learn_pieces(engine, model, lesson):
            outcomes.extend(result.outcomes)
            notes = (*result.notes, *map(question_note, result.questions))
            progress = partial(job_queries.progress, job=job, learned=learned, notes=notes)
            await engine.write(partial(run_for, user, progress))
    except Exception as fault:  # noqa: BLE001 - whatever it meets, what was learned before is passed on
        error = None if await are_all_learned(engine, messages) else fault
    return JobEnd(tuple(outcomes), error, is_unfinished=len(messages) < len(waiting))


# Close memories whose time has come: what they say held until then.
#
# A search does not wait for it. Whoever reads memories leaves out those that have expired, closed or not.

logger = logging.getLogger(__name__)


async def expire(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Close the memories of a job's scope that have expired, as one edit, and come back for the next ones.

    What a plan replaces that has come into force is closed too, as an edit of its own.
    """
    del model  # what somebody said holds until Friday needs no opinion
    now, zone = engine.clock(), engine.ledger.zones.of(job.scope.user_id)
    known = await engine.read(lambda conn: ending_memories(conn, job.scope))
    ending = [(memory, end) for memory in known if (end := models.end_of(memory.metadata, zone)) is not None]
    expired = [memory for memory, end in ending if end <= now]
    outcomes = await _close(engine, job, models.EXPIRE, [_closed(memory, zone) for memory in expired], expired)

    def begun(conn: Connection) -> tuple[dict[str, tuple[Memory, Memory]], list[datetime]]:
        known = [(plan, begin) for plan in plans_of(conn, job.scope) if (begin := plan.begins_in(zone))]
        in_force = [plan for plan, begin in known if begin <= now and not plan.has_ended(now)]
        pairs = {old.id: (old, plan) for plan in in_force for old in replaced_by_plan(conn, plan, now)}
        return pairs, [begin for _, begin in known if begin > now]

    replaced, coming = await engine.read(begun)
    delete = partial(Decision, Event.DELETE)
    decisions = [delete(memory_id=old.id, successor=plan.id) for old, plan in replaced.values()]
    read = [memory for pair in replaced.values() for memory in pair]
    outcomes += await _close(engine, job, models.BEGIN, decisions, read)
    return JobEnd(outcomes, again_at=min((*coming, *(end for _, end in ending if end > now)), default=None))


async def _close(
    engine: Engine, job: Job, stage: str, decisions: Sequence[Decision], read: Sequence[Memory]
) -> tuple[models.Outcome, ...]:
    """Apply decisions on memories that were read, as an edit of its own; without any do nothing."""
    write = Write(job.scope, Provenance(stage), decisions=tuple(decisions), read=revisions(read))
    return (await apply_write(engine, write)).outcomes if decisions else ()


async def queue_expiry(engine: Engine) -> None:
    """Queue the closing of all memories that end at a time, also those of an import, which no job may wait for.

    A failure is logged. The next start tries again.
    """
    now = engine.clock()
    with logged(logger, "memories that end at a time are not closed"):
        for scope, end in (await engine.read(lambda conn: _first_ends(conn, engine.ledger.zones, now))).items():
            await engine.write(partial(engine.ledger.queue_job, scope, JobRequest("expire", due_at=end)))


def _first_ends(conn: Connection, zones: Zones, now: datetime) -> dict[Scope, datetime]:
    """Return the scopes with memories that end or begin at a time, and when the first one does."""
    first: dict[Scope, datetime] = {}
    for scope, metadata in scopes_ending(conn):
        if (end := models.end_of(metadata, zones.of(scope.user_id))) is not None:
            first[scope] = min(end, first.get(scope, end))
    for plan in plans_since(conn, now - A_DAY):
        if (begin := plan.begins_in(zones.of(plan.scope.user_id))) is not None and begin > now:
            first[plan.scope] = min(begin, first.get(plan.scope, begin))
    return first


def _closed(memory: Memory, zone: tzinfo) -> Decision:
    """Return the decision that a memory held until its end. A day, month or year is stored as it is in UTC."""
    named = parse_date(str(memory.metadata[models.EXPIRES_AT]))
    precision: Precision = "" if named is None else named[1]
    ended_at = models.end_of(memory.metadata, UTC if precision else zone)
    return Decision(Event.DELETE, memory_id=memory.id, ended_at=ended_at, ended_precision=precision)


# Find what new memories are held against: the memories nearest to each.

# How many memories a new one is held against; k in section 3.2 of A-Mem.
NEAREST = 5


# A new memory and the living ones nearest to it, the nearest first.
Neighbourhood: TypeAlias = tuple[Memory, Sequence[SimilarMemory]]


def neighbourhoods(engine: Engine, scope: Scope, memory_ids: Sequence[str]) -> list[Neighbourhood]:
    """Return the neighbourhoods of those memories that are living and of exactly this scope, in order.

    It is the search by which a decision finds what a fact resembles. Blocking. Raises LedgerError.
    """
    with engine.ledger.read() as conn:
        found = memory_queries.memories_by_id(conn, list(memory_ids))
        stored = entries.own_vectors(conn, engine.embedder.fingerprint, "memory", list(found))
    new = [found[memory_id] for memory_id in memory_ids if memory_id in found]
    new = [memory for memory in new if memory.deleted_at is None and memory.scope == scope]
    near = similar_memories(engine, scope, {memory.text: stored.get(memory.id) for memory in new}, NEAREST + 1)
    return [(memory, [item for item in near[memory.text] if item.memory.id != memory.id][:NEAREST]) for memory in new]


def memories_of(near: Sequence[Neighbourhood]) -> list[Memory]:
    """Return the memories of neighbourhoods, each once, the new ones first."""
    memories = [memory for memory, _ in near] + [other.memory for _, nearest in near for other in nearest]
    return list({memory.id: memory for memory in memories}.values())


# Link memories without a model: those near to each other that name the same entity, or that are much alike.

# From which likeness two memories are linked that name no entity in common.
MIN_LIKENESS = 0.55

# How many memories an entity is named by at most to connect two of them. What everything speaks of connects nothing:
# with 25, half of the answers that links bring among the first three hits stay below them (benchmarks/two_hops.py).
MAX_MENTIONS = 12


def links_by_rule(conn: Connection, neighbourhoods: Sequence[Neighbourhood]) -> list[Annotation]:
    """Return the links of new memories, as far as they have any. All else stays as it is."""
    named = entities_of(conn, sorted(memory.id for memory in memories_of(neighbourhoods)))
    found = [
        Annotation(memory.id, memory.context, memory.tags, tuple(_links(memory, nearest, named)), memory.keywords)
        for memory, nearest in neighbourhoods
    ]
    return [annotation for annotation in found if annotation.links]


def _links(
    memory: Memory, nearest: Sequence[SimilarMemory], named: Mapping[str, Mapping[Entity, int]]
) -> Iterator[Link]:
    own = {entity for entity, count in named.get(memory.id, {}).items() if count <= MAX_MENTIONS}
    for item in nearest:
        common = sorted({entity.name for entity in named.get(item.memory.id, ()) if entity in own})
        if common:
            yield Link(item.memory.id, f"both mention {', '.join(common)}")
        elif item.likeness >= MIN_LIKENESS:
            yield Link(item.memory.id, "they are much alike")


# How many new memories one call of the model is about: with their neighbours they are at most 36, which is about a
# thousand tokens.
LINKED_AT_ONCE = 6

# After how many pieces another job has its turn: with a model, about ten seconds.
PIECES = 5

BACKGROUND = "background"


async def link(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Link the memories of a job that were added or edited since they were last looked at.

    Each piece is an edit of its own. Raises ModelError, PromptError and LedgerError; what was done so far is kept.
    """
    waiting = await engine.read(lambda conn: without_annotation(conn, job.memory_ids))
    pieces = [waiting[start : start + LINKED_AT_ONCE] for start in range(0, len(waiting), LINKED_AT_ONCE)]
    annotated = 0
    for done, piece in enumerate(pieces):
        if done >= PIECES and annotated:  # without any, the next attempt would begin with the same ones
            return JobEnd(is_unfinished=True)
        annotated += await _link_piece(engine, model, job, piece)
    return JobEnd()


async def _link_piece(engine: Engine, model: LanguageModel | None, job: Job, piece: Sequence[Memory]) -> int:
    """Link some memories and return how many were annotated. Raises StaleDecisionError if they change meanwhile."""
    near = await engine.run(partial(neighbourhoods, engine, job.scope, [memory.id for memory in piece]))
    near = [item for item in near if item[1]]
    if not near:
        return 0
    found, provenance = await _decide(engine, model, job, near)
    known = {memory.id: memory for memory in memories_of(near)}
    keys = [models.key_text(known[each.memory_id].text, each.keywords, each.context, each.tags) for each in found]
    changed = sorted({*keys} - {memory.key_text for memory in known.values()})
    vectors, _ = await embed_texts(engine, changed)  # what cannot be embedded now waits for the background
    read = revisions(known.values())
    await apply_write(engine, Write(job.scope, provenance, annotations=tuple(found), read=read, vectors=vectors))
    return len(found)


async def _decide(
    engine: Engine, model: LanguageModel | None, job: Job, near: Sequence[Neighbourhood]
) -> tuple[list[Annotation], Provenance]:
    if model is None:
        return await engine.read(lambda conn: links_by_rule(conn, near)), Provenance(models.LINK, caller=BACKGROUND)
    prompt = engine.prompts.get("links")
    found = await stages.links(model, prompt, _shown(near, job, engine.clock()))
    return found, Provenance(models.LINK, model.name, prompt.fingerprint, BACKGROUND)


def _shown(near: Sequence[Neighbourhood], job: Job, now: datetime) -> Shown:
    """Return what the model is shown: the new memories first, then those near to them, each once.

    Of those near to them, what is stored for all projects stays as it is in a project. So does a memory that waits to
    be looked at itself, in this job or the next, because it would count as looked at.
    """
    memories = memories_of(near)
    places = {memory.id: place for place, memory in enumerate(memories)}
    waiting = frozenset(job.memory_ids)
    may_change = {
        place
        for place, memory in enumerate(memories)
        if place < len(near)
        or (memory.scope == job.scope and memory.id not in waiting and memory.updated_at <= job.created_at)
    }
    return Shown(
        tuple(memory.in_zone(now.tzinfo) for memory in memories),
        {places[memory.id]: [places[other.memory.id] for other in nearest] for memory, nearest in near},
        frozenset(may_change),
    )


# Give old memories hints: a person asks for it, and a model writes them for a few memories at once.

# How many memories one call of the model is about: with their hints about a thousand tokens, so that a small model
# keeps to the form.
ENRICHED_AT_ONCE = 12


@dataclass(frozen=True, slots=True)
class Enrichment:
    """How many memories have no hints, how many of them get some, in how many calls of a model, and by which edit.

    `edit` is 0 if nothing was queued.
    """

    without: int
    chosen: int
    edit: int = 0

    @property
    def calls(self) -> int:
        """Return how often a model is asked, if each of its replies can be used."""
        return -(-self.chosen // ENRICHED_AT_ONCE)


async def queue_enrichment(engine: Engine, scope: Scope, limit: int | None, *, dry_run: bool) -> Enrichment:
    """Queue the newest memories that a scope sees and that have no hints, at most `limit`; with `dry_run` count them.

    Raises InputError if there is no model that the background can ask.
    """
    without = await engine.read(lambda conn: history.without_hints(conn, scope))
    chosen = without[:limit]
    if dry_run or not chosen:
        return Enrichment(len(without), len(chosen))
    if engine.own_model is None:
        raise InputError(
            "there is no language model to write hints, so nothing was queued. palimpsest setup chooses one. Without "
            "one, a connected agent can give a memory hints with update_memory"
        )
    ledger, user = engine.ledger, scope.user_id
    edit = await engine.write(lambda: ledger.run_for(user, job_queries.queue_enrichment, scope, chosen, ledger.clock()))
    return Enrichment(len(without), len(chosen), edit)


async def enrich(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Give the next memories of a job hints. What a run does is one edit, whose number the job has.

    Raises ModelError, PromptError and LedgerError; what was done so far is kept.
    """
    waiting = await engine.read(lambda conn: history.left_to_enrich(conn, job.memory_ids, int(job.payload[EDIT])))
    prompt = engine.prompts.get("enrich")
    provenance = Provenance(models.ENRICH, model.name, prompt.fingerprint, BACKGROUND)
    for start in range(0, len(waiting), ENRICHED_AT_ONCE):
        piece = waiting[start : start + ENRICHED_AT_ONCE]
        hints = await engine.run(partial(_cleaned, engine, await stages.enrich(model, prompt, piece)))
        if await _give(engine, job, piece, hints, provenance):
            return JobEnd(is_unfinished=start + ENRICHED_AT_ONCE < len(waiting))
        # Without any, the next attempt would begin with the same ones.
    return JobEnd()


def _cleaned(engine: Engine, found: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return hints without secrets, and without those that were nothing else."""
    clean = Cleaner(engine).text
    cleaned = {
        memory_id: tuple(dict.fromkeys(text for text in map(clean, hints) if not is_marker(text)))
        for memory_id, hints in found.items()
    }
    return {memory_id: hints for memory_id, hints in cleaned.items() if hints}


async def _give(
    engine: Engine, job: Job, memories: Sequence[Memory], hints: Mapping[str, tuple[str, ...]], provenance: Provenance
) -> bool:
    """Give memories hints and return whether any got some. What changed since the model was asked stays as it is."""
    edit = int(job.payload[EDIT])
    keys = [
        models.key_text(each.text, hints[each.id], each.context, each.tags) for each in memories if each.id in hints
    ]
    vectors, _ = await embed_texts(engine, keys)  # what cannot be embedded now waits for the background
    shown = revisions(memories)
    present = await engine.read(lambda conn: history.left_to_enrich(conn, list(hints), edit))
    same = [each for each in present if each.revision == shown[each.id]]
    decisions = [
        Decision(Event.UPDATE, with_labels(each, Fact(""), each.tags, hints[each.id]), each.id, sets_labels=True)
        for each in same
    ]
    if not decisions:
        return False
    write = Write(job.scope, provenance, decisions=tuple(decisions), vectors=vectors, read=revisions(same), edit=edit)
    await apply_write(engine, write)
    return True


# The kinds of jobs: what does the work of each, and whether it needs a language model.
#
# A function gets the engine, the model and the job, and returns how far it came. It may be killed at any time, and
# may be called again for what it has done. So it looks at what is left to do, and each of its writes is a whole.
# Work on many memories or pages stops after some calls of the model, with `is_unfinished`, so that other jobs have
# their turn. The model counts its calls, and raises DailyLimitError in place of one that is too many, which the
# function lets pass.

WORK: Mapping[JobKind, Callable[[Engine, Any, Job], Awaitable[JobEnd]]] = {
    "learn": learn,
    "capture": learn,
    "summarize": summarize_due,
    "gist": write_gists,
    "enrich": enrich,
    "expire": expire,
    "link": link,
}

# Work that is done without a language model too. It gets None if there is none.
WITHOUT_MODEL: tuple[JobKind, ...] = ("expire", "link")


def kinds_for(model: LanguageModel | None) -> tuple[JobKind, ...]:
    """Return the kinds that can be worked on with a model, or without one."""
    return WITHOUT_MODEL if model is None else tuple(WORK)


# A model that counts its calls for jobs, and is asked only so often a day, over all processes of a ledger.
#
# What was said in a call is learned from however often that takes, because somebody asked for it. What hooks
# captured has a limit of its own, and all other work shares one.


@dataclass(frozen=True, slots=True)
class _CountedModel(WrappedModel):
    """A language model that counts its calls, and raises DailyLimitError in place of one that is one too many.

    A call counts from its beginning with the tokens of its prompt, and at its end with those of its reply.
    """

    engine: Engine
    kind: JobKind

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        prompt = sum(count_tokens(message["content"]) for message in messages)
        if setting := await self._count(job_queries.begin_call, prompt, self.engine.settings):
            raise DailyLimitError(
                f"{setting} allows no call with a prompt of {counted(prompt, 'token')} any more today. This goes on "
                "tomorrow (UTC)."
            )
        try:
            reply = await self.model.complete(messages, schema)
        except errors.CutOffReplyError as error:
            await self._count(job_queries.end_call, count_tokens(error.reply))
            raise
        await self._count(job_queries.end_call, count_tokens(reply))
        return reply

    async def _count(self, count: Callable[..., str | None], *values: Any) -> str | None:
        ledger = self.engine.ledger
        return await self.engine.write(lambda: ledger.run(count, self.kind, *values, ledger.clock()))


# Work on the jobs in the ledger: what was said is learned from, and views of what is known are made.
#
# A job stays in the ledger until it is done. Of all processes one works on jobs at a time, by a lock of the
# operating system; if that process is killed, another goes on with what is left of it.

# How often a process looks for jobs of others: those of a process that was killed, or that has no time to do them. Set
# by hand; a look takes less than a millisecond.
LOOK_SECONDS = 30.0

# How long a process waits while another one works on jobs, and after an error of the ledger.
BUSY_SECONDS = 5.0

AfterWork = Callable[[Scope, Sequence[models.Outcome]], Awaitable[None]]


class JobRunner:
    """Works on the jobs of all users while the memory is open."""

    def __init__(self, engine: Engine, after_work: AfterWork) -> None:
        self._engine = engine
        self._after_work = after_work
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Look for jobs now, because there may be a new one."""
        self._woken.set()

    async def run(self) -> None:
        """Work on what is due until cancelled, beginning with what waits from before."""
        await queue_expiry(self._engine)
        while True:
            self._woken = anyio.Event()
            rest = await self._work()
            with anyio.move_on_after(rest):
                await self._woken.wait()

    async def _work(self) -> float:
        """Work on what is due and return for how many seconds there is nothing to do."""
        engine = self._engine
        kinds = kinds_for(engine.own_model)
        try:
            due_at = await _next_due_at(engine, kinds)
            if due_at is not None and due_at <= engine.clock():
                if not await work_on_jobs(engine, engine.own_model, self._after_work):
                    return BUSY_SECONDS
                due_at = await _next_due_at(engine, kinds)
        except Exception as error:  # one that escaped would close the memory for all its callers
            is_ours = isinstance(error, LedgerError)
            logger.warning("what waits to be done is not looked at: %s", error, exc_info=not is_ours)
            return BUSY_SECONDS if is_ours else LOOK_SECONDS
        if due_at is None:
            return LOOK_SECONDS
        return min(max((due_at - engine.clock()).total_seconds(), 0.0), LOOK_SECONDS)


async def work_on_jobs(engine: Engine, model: LanguageModel | None, after_work: AfterWork | None = None) -> bool:
    """Work on the jobs that are due, one after the other. Return False if another process is doing it.

    If another task of this process is doing it, its end is awaited. Without a model, jobs that need one wait.
    `after_work` is awaited after each job, with its scope and what it changed. Raises LedgerError.
    """
    kinds = kinds_for(model)
    async with engine.jobs_lock, AsyncExitStack() as stack:
        if not await engine.run(lambda: stack.enter_context(engine.ledger.database.alone_at("jobs"))):
            return False
        while (due_at := await _next_due_at(engine, kinds)) is not None and due_at <= engine.clock():
            job = await engine.write(lambda: engine.ledger.run(job_queries.take, kinds, engine.ledger.clock()))
            if job is None:
                continue
            end = await _attempt(engine, None if model is None else _CountedModel(model, engine, job.kind), job)
            await engine.write(partial(_record, engine, job, end))
            if after_work is not None:
                await after_work(job.scope, end.outcomes)
    return True


async def _attempt(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Return how an attempt at a job ended; an error is part of it."""
    try:
        return await WORK[job.kind](engine.of_user(job.scope.user_id), model, job)
    except StaleDecisionError:  # memories have changed meanwhile: the rest of the job is decided again
        return JobEnd(is_unfinished=True)
    except Exception as error:  # noqa: BLE001 - whatever one job meets, the memory and the other jobs go on
        return JobEnd(error=error)


def _record(engine: Engine, job: Job, end: JobEnd) -> None:
    """Record in the ledger how an attempt at a job ended."""
    error, user, now = end.error, job.scope.user_id, engine.ledger.clock()
    if isinstance(error, DailyLimitError):
        tomorrow = engine.clock().astimezone(UTC).date() + timedelta(days=1)
        engine.ledger.run_for(user, job_queries.postpone, job, str(error), first_instant(tomorrow, UTC))
    elif error is not None:
        logger.warning("a job ended before its end: %s", error, exc_info=not isinstance(error, PalimpsestError))
        text = str(error) if isinstance(error, PalimpsestError) else f"{type(error).__name__}: {error}."
        engine.ledger.run_for(user, job_queries.finish, job, text, None, now)
    elif end.is_unfinished:
        engine.ledger.run_for(user, job_queries.interrupt, job, now)
    else:
        engine.ledger.run_for(user, job_queries.finish, job, "", end.again_at, now)


async def _next_due_at(engine: Engine, kinds: Sequence[JobKind]) -> datetime | None:
    return await engine.read(lambda conn: job_queries.next_due_at(conn, kinds))


# How often a model was asked in the background, for people and as values.


def in_words(use: ModelUse, settings: Settings) -> str:
    """Return how much of the limits of today was used."""
    background, made = settings.background, use.budgeted
    return (
        f"today (UTC) {made.calls} of {counted(background.calls_per_day, 'call')} and {made.tokens:,} of "
        f"{background.tokens_per_day:,} tokens for summaries, links, gists and hints; {use.captured_calls} of "
        f"{counted(settings.learn.captured_calls_per_day, 'call')} for captured messages"
    )


def as_values(use: ModelUse, settings: Settings) -> dict[str, Any]:
    """Return the limits, and what was used today by kind of job."""
    limits = {"captured_calls_per_day": settings.learn.captured_calls_per_day, **settings.background.model_dump()}
    return {"day": use.day, "limits": limits, "today": {kind: each._asdict() for kind, each in use.today.items()}}


# What became of jobs: for `palimpsest jobs`, and for the next reply of their scope.

# How many facts a note names: a note stands in a reply that is about something else.
MAX_FACTS = 5

# How much of a fact a note quotes: a fact is a sentence.
MAX_CHARS = 200

# How many remarks on facts that were not kept, or kept in doubt, are passed on. As `MAX_FACTS`.
MAX_NOTES = 3

# What work waits for that needs a model. The client's own model is never asked in the background.
NO_MODEL = "waits for a server with llm.provider = 'openai'"


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job and the memories that it added or changed, without those that were deleted later.

    `waits_for` is what a job waits for that is not under way; "" if nothing.
    """

    job: Job
    memories: tuple[Memory, ...]
    waits_for: str = ""


async def reports_of_user(engine: Engine, user_id: str) -> list[JobReport]:
    """Return the jobs of a user, the newest first. Raises LedgerError."""
    return await engine.read(lambda conn: _reports(engine, conn, job_queries.jobs_of(conn, user_id)))


async def jobs_seen(engine: Engine, scope: Scope, limit: int) -> Sequence[JobReport]:
    """Return up to `limit` jobs that a scope sees, the newest first. Raises LedgerError."""
    seen = await engine.read(lambda conn: _reports(engine, conn, job_queries.jobs_seen(conn, scope, limit)))
    return _seen(scope, seen)


async def unreported(engine: Engine, scope: Scope) -> list[JobReport]:
    """Return the jobs the scope sees that have ended or failed, and that no reply has told of, the oldest first."""
    reports = await engine.read(lambda conn: _reports(engine, conn, job_queries.unreported_jobs(conn, scope)))
    return _seen(scope, [each for each in reports if scope.with_general or not each.job.scope.with_general])


def _reports(engine: Engine, conn: Connection, jobs: Sequence[Job]) -> list[JobReport]:
    """Return jobs with what they made and what they wait for, with times where their user is."""
    kinds, now = kinds_for(engine.own_model), engine.clock()
    local = [(job, job.in_zone(engine.ledger.zones.of(job.scope.user_id))) for job in jobs]
    return [
        JobReport(shown, tuple(job_queries.memories_of_job(conn, job)), _waits_for(shown, kinds, now))
        for job, shown in local
    ]


def _seen(scope: Scope, reports: Sequence[JobReport]) -> list[JobReport]:
    """Return reports as a scope sees them. Remarks may quote what is general, if who asked for the work sees that."""
    seen: list[JobReport] = []
    for report in reports:
        job = report.job
        if job.scope.with_general and not scope.with_general:
            job = replace(job, result={name: value for name, value in job.result.items() if name != job_queries.NOTES})
        seen.append(replace(report, job=job, memories=tuple(m for m in report.memories if is_seen(scope, m.scope))))
    return seen


def _waits_for(job: Job, kinds: Sequence[JobKind], now: datetime) -> str:
    """Return what keeps a job from being done now."""
    if job.state != "waiting":
        return ""
    if job.kind not in kinds:
        return NO_MODEL
    return f"waits until {local_iso(job.due_at)}" if job.due_at > now + job_queries.MAX_DELAY else ""


def notes_on(reports: Sequence[JobReport]) -> tuple[str, ...]:
    """Return notes for a reply: what was learned, remarks of the work, and what failed.

    A job that failed and is tried again tells what it learned when it has ended.
    """
    ended = [report for report in reports if report.job.state != "waiting"]
    failed = [report.job for report in reports if report.job.state != "done"]
    remarks = _remarks(ended)
    return (*_learned(ended, has_remarks=bool(remarks)), *remarks, *map(_failure, failed))


def shown_fact(memory: Memory) -> str:
    """Return the text of a memory that was learned, and until when it held if it holds no longer."""
    return memory.text if memory.deleted_at is None else f"{memory.text} (until {memory.until})"


def once_told(job: Job) -> Job:
    """Return a job that a reply has told of without the notes that quote what was forgotten, or may be."""
    kept = [note for note in job.notes if not note.startswith((FORGOTTEN, QUESTION))]
    return replace(job, result={**job.result, job_queries.NOTES: kept})


def _remarks(reports: Sequence[JobReport]) -> list[str]:
    """Return the remarks of the work. Only those that change nothing for anybody are cut."""
    notes = list(dict.fromkeys(note for report in reports for note in report.job.notes))
    minor = [note for note in notes if note.startswith((NOT_KEPT, UNDECIDED))]
    remarks = [note for note in notes if note not in minor] + minor[:MAX_NOTES]
    if len(minor) > MAX_NOTES:
        remarks.append(f"palimpsest jobs shows {counted(len(minor) - MAX_NOTES, 'more note')} of this kind")
    return remarks


def _learned(reports: Sequence[JobReport], *, has_remarks: bool) -> list[str]:
    """Return a note on what was learned. If that is nothing, the remarks say why, if there are any."""
    count = sum(report.job.learned for report in reports)
    texts = list(dict.fromkeys(shown_fact(memory) for report in reports for memory in report.memories))
    if not count or (has_remarks and not texts):
        return []
    learned_from = f"learned from {counted(count, 'message')}"
    if not texts:
        return [f"{learned_from}: nothing new"]
    lines = [f"- {shorten(one_line(text), MAX_CHARS)}" for text in texts[:MAX_FACTS]]
    if len(texts) > MAX_FACTS:
        lines.append(f"- and {len(texts) - MAX_FACTS} more")
    return ["\n".join([f"{learned_from}:", *lines])]


def _failure(job: Job) -> str:
    if job.kind not in job_queries.TOLD_KINDS:
        return f"the job '{job.kind}' failed in the background: {job.error} palimpsest jobs --retry tries again."
    again = f"after {local_iso(job.due_at)}, or with" if job.state == "waiting" else "by"
    what = f"{counted(len(job.message_ids), 'message')}, which are kept: {job.error}"
    return f"not learned from {what} This is tried again {again} palimpsest jobs --retry."
