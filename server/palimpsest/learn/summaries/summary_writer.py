"""Read, write and schedule summaries."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.clock import TimeSpan, first_instant
from palimpsest.core.errors import CallTimeError, InputError, ModelError, PromptError, logged
from palimpsest.core.models import Memory, Message, Provenance, Scope, Summary
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.engine import Engine
from palimpsest.learn.summaries import kept_kinds, summary_kinds
from palimpsest.learn.summaries.dossier import ABOUT, TIMELINE
from palimpsest.learn.summaries.kept_kinds import DAY, MOOD, OVERALL, PROCEDURES, PROFILE, PROJECT, RECENT, SESSION
from palimpsest.learn.summaries.summary_kinds import LiveKind, Material, SummaryKind, SummaryRequest, SummaryResult
from palimpsest.llm.summarize import summarize
from palimpsest.store import entries, summaries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.jobs import ASKED_KINDS, Job, JobEnd, JobRequest
from palimpsest.store.rows import is_seen

# Every kind of summary by name.

# The kinds whose summaries are kept, and may be due.
KEPT_KINDS = (OVERALL, RECENT, SESSION, DAY, MOOD, PROFILE, PROJECT, PROCEDURES)

# The names of these.
KEPT_KIND_NAMES = tuple(kind.name for kind in KEPT_KINDS)

# All kinds, in the order in which replies and help name them.
KINDS = {kind.name: kind for kind in (*KEPT_KINDS, ABOUT, TIMELINE)}


def kind_named(text: str) -> tuple[SummaryKind | LiveKind, str]:
    """Return the kind that a caller names, and what follows its colon. Raises InputError."""
    name, _, argument = text.partition(":")
    kind = KINDS.get(name.strip().lower())
    argument = argument.strip()
    if kind is None or (argument and not kind.argument):
        raise InputError(f"there is no summary '{text[:80]}'; there are {forms()}")
    return kind, argument


def forms() -> str:
    """Return how each kind is written, such as day:DATE."""
    *others, last = (f"{kind.name}:{kind.argument}" if kind.argument else kind.name for kind in KINDS.values())
    return f"{', '.join(others)} and {last}"


# The summaries of a scope: written in the background when they are due, and when they are asked for.

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the ledger has of a summary. `missed` is what it does not include."""

    last: Summary | None
    missed: int
    is_outdated: bool


# The kinds that can be of a time in the past: those that say what holds. The others have times of their own.
OF_A_TIME = (OVERALL, PROFILE, PROCEDURES)


async def get_summary(
    engine: Engine, scope: Scope, kind: str, *, refresh: bool, caller: str, held_at: TimeSpan | None = None
) -> SummaryResult:
    """Return the summary of a kind. It is written now if it is missing, or if it is outdated and `refresh` is set.

    If no model answers, return its form without a model, with a note. The kind "about:NAME" is what is known about
    somebody or something, and never outdated. With `held_at` it is of what held in the world then, without a model.
    Raises InputError for an unknown kind, day, conversation or name.
    """
    view, argument = kind_named(kind)
    if isinstance(view, LiveKind):
        return await view.answer(engine, scope, argument, held_at)
    if view is MOOD and not engine.settings.summary.mood:
        raise InputError("notes on moods are off; summary.mood = true in the settings lets a model keep them")
    if held_at is not None:
        if view not in OF_A_TIME:
            names = ", ".join(kind.name for kind in OF_A_TIME)
            raise InputError(f"held_at goes with {names} and about:NAME; {view.name} has a time of its own")
        request = replace(_request(engine, scope, view, argument), held_at=held_at)
        return await _plain(engine, request, "no model writes a summary of the past")
    result = await _summary(engine, _request(engine, scope, view, argument), refresh=refresh, caller=caller)
    return await _under_pinned(engine, scope, view, result)


@dataclass(frozen=True, slots=True)
class KeptSummary:
    """A summary and up to as many as were asked for of the memories and messages that it rests on.

    It rests on `all_memories` memories. `written` is what a model wrote last, with when; None if nothing.
    """

    result: SummaryResult
    written: Summary | None
    memories: Sequence[Memory]
    all_memories: int
    messages: Sequence[Message]


async def kept_summary(engine: Engine, scope: Scope, kind: str, limit: int) -> KeptSummary:
    """Return the last summary of a kind unless it is outdated, else its form without a model. No model is asked.

    Raises InputError for an unknown kind, day or conversation, and for a kind that is never kept.
    """
    view, argument = kind_named(kind)
    if isinstance(view, LiveKind):
        raise InputError(f"a text about {argument} is not kept; get_summary writes it")
    asked = _request(engine, scope, view, argument)
    request, stored = await engine.read(lambda conn: _stored(conn, asked))
    if stored.last is None or stored.is_outdated:
        result = await _plain(engine, request, "no model has written a summary that is up to date")
    else:
        result = await _written(engine, request, stored.last, stored.missed)
    result = await _under_pinned(engine, scope, view, result)
    return await engine.read(lambda conn: _with_sources(conn, scope, request, result, limit))


def _with_sources(
    conn: Connection, scope: Scope, request: SummaryRequest, result: SummaryResult, limit: int
) -> KeptSummary:
    """Return a summary with what it rests on, as far as a scope sees it."""
    last = None if result.is_plain else summaries.latest_summary(conn, request.scope, request.name)
    stored = memory_queries.memories_by_id(conn, result.sources[:limit])
    said = () if last is None else summaries.behind(conn, request.scope, request.name)[1][:limit]
    messages = message_queries.messages_by_id(conn, said).values()
    shown = [message for message in messages if message.deleted_at is None and is_seen(scope, message.scope)]
    return KeptSummary(
        result,
        last,
        [stored[one] for one in result.sources[:limit] if one in stored and is_seen(scope, stored[one].scope)],
        len(result.sources),
        sorted(message_queries.without_forgotten(conn, shown), key=lambda message: message.said_at),
    )


def _request(engine: Engine, scope: Scope, view: SummaryKind, argument: str = "") -> SummaryRequest:
    own = scope.general if view.is_of_user else scope
    return SummaryRequest(view, own, argument, engine.clock(), engine.embedder.fingerprint)


async def _under_pinned(engine: Engine, scope: Scope, view: SummaryKind, result: SummaryResult) -> SummaryResult:
    """Return a summary with the pinned memories above it, if it is of no day or conversation, and with what is due."""
    now = engine.clock()

    def read(conn: Connection) -> list[str]:
        pinned = "" if view.argument else summary_kinds.pinned_block(conn, scope, now)
        return list(filter(None, (pinned, summary_kinds.due_block(conn, scope, now) if view is OVERALL else "")))

    block = "\n\n".join(await engine.read(read))
    if not block:
        return result
    return replace(result, text=block if result.text == summary_kinds.NOTHING else f"{block}\n\n{result.text}")


async def _summary(engine: Engine, asked: SummaryRequest, *, refresh: bool, caller: str) -> SummaryResult:
    request, stored = await engine.read(lambda conn: _stored(conn, asked))
    last = stored.last
    if engine.model is None:
        # It was written while there was a model, and nothing has changed since.
        if last is not None and not (stored.missed or stored.is_outdated):
            return await _written(engine, request, last)
        return await _plain(engine, request, "there is no language model to ask")
    # A summary that may say what was deleted, replaced or reworded since is not returned again.
    is_stale = stored.is_outdated or (refresh and (stored.missed > 0 or request.kind.ages))
    if last is not None and not is_stale:
        return await _written(engine, request, last, stored.missed)
    try:
        summary = await write_summary(engine, engine.model, request, caller)
    except (ModelError, PromptError) as error:
        if isinstance(error, CallTimeError) and engine.own_model is not None:
            await _write_later(engine, request.scope, request.name)
        if last is None or stored.is_outdated:
            return await _plain(engine, request, f"the summary could not be written ({error})")
        note = f"the summary could not be refreshed: {error}"
        return replace(await _written(engine, request, last, stored.missed), notes=(note,))
    if summary is None:
        return await _plain(engine, request, "nothing was learned yet")
    return await _written(engine, request, summary)


async def _write_later(engine: Engine, scope: Scope, kind: str) -> None:
    """Leave a summary to a job. If that fails it is written when it is asked for again."""
    with logged(logger, f"the summary {kind} is left to nobody"):
        job = JobRequest("summarize", payload={ASKED_KINDS: [kind]})
        await engine.write(lambda: engine.ledger.queue_job(scope, job))


async def write_summary(engine: Engine, model: LanguageModel, request: SummaryRequest, caller: str) -> Summary | None:
    """Write a new summary and return it; None if there is nothing to summarize. The argument is in full already.

    Raises ModelError and PromptError; the last summary is kept then.
    """

    def read(conn: Connection) -> tuple[int, Material]:
        return entries.newest_log_number(conn), request.kind.material(conn, request)

    seq, material = await engine.read(read)
    if not material.memories and not material.messages:
        return None
    prompt, text = engine.prompts.get(request.kind.prompt), material.previous
    await engine.report_progress(f"asking the model for the summary of {len(material.memories)} memories")
    for memories in _batches(material):
        text = await summarize(
            model,
            prompt,
            kind=request.name,
            previous=text,
            memories=memories,
            messages=material.messages,
            name=material.name,
            now=request.now,
        )
    summary = Summary(request.scope, request.name, text, seq, request.now, material.sources, material.message_ids)
    provenance = Provenance("summarize", model.name, prompt.fingerprint, caller)
    await engine.write(lambda: engine.ledger.apply(Write(request.scope, provenance, summary=summary)))
    return summary


async def last_days(engine: Engine, scope: Scope, number: int) -> list[str]:
    """Return the kinds of the summaries of the last days on which something was said, the last day first."""
    days = await engine.read(lambda conn: kept_kinds.days_with_something_said(conn, scope, engine.clock()))
    return [f"{DAY.name}:{day}" for day in days[:number]]


async def missed_changes(engine: Engine, scope: Scope, kind: str) -> int:
    """Return how much of what was said the last summary of a kind does not include. Raises InputError."""
    view, argument = kind_named(kind)
    if isinstance(view, LiveKind):
        return 0
    request = _request(engine, scope, view, argument)
    return (await engine.read(lambda conn: _stored(conn, request)))[1].missed


def _stored(conn: Connection, asked: SummaryRequest) -> tuple[SummaryRequest, _Stored]:
    """Return the request with its argument in full, and what the ledger has of the summary."""
    request = replace(asked, argument=asked.kind.resolved(conn, asked))
    last = summaries.latest_summary(conn, request.scope, request.name)
    if last is None:
        return request, _Stored(None, summaries.count_changes_since(conn, request.scope, 0), is_outdated=False)
    tells_of_now = not (request.kind.argument or request.kind.ages)
    now = request.now if tells_of_now else None
    is_outdated = summaries.current_summary(conn, request.scope, request.name, now) is None
    return request, _Stored(last, request.kind.missed(conn, request, last), is_outdated)


async def _written(engine: Engine, request: SummaryRequest, summary: Summary, missed: int = 0) -> SummaryResult:
    """Return a summary that a model wrote."""
    text = summary.text
    if request.kind.keeps_plain:
        plain = await engine.read(lambda conn: request.kind.plain(conn, request))
        text = f"{text}\n{plain.text}" if plain.of == "memories" else text
    sources = summary.sources or await engine.read(lambda conn: summaries.behind(conn, request.scope, summary.kind)[0])
    return SummaryResult(text, summary.kind, missed, sources=tuple(sources), is_cut=summary_kinds.is_cut(text))


async def _plain(engine: Engine, request: SummaryRequest, reason: str) -> SummaryResult:
    """Return the form of a summary without a model, and why it is that."""
    plain = await engine.read(lambda conn: request.kind.plain(conn, request))
    notes = (f"{reason}: these are the {plain.of} themselves",) if plain.of else ()
    sources, cut = tuple(plain.sources), summary_kinds.is_cut(plain.text)
    return SummaryResult(plain.text, request.name, 0, notes, sources=sources, is_plain=True, is_cut=cut)


def _batches(material: Material) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the memories of each prompt: the oldest that fit first, each newest first. At least one, if it is empty."""
    left = material.memories[::-1]
    while True:
        size = summary_kinds.how_many_fit([item["text"] for item in left], summary_kinds.MAX_SOURCE_TOKENS)
        yield left[:size][::-1]
        left = left[size:]
        if not left:
            return


# Write the summaries that are due in the background: after some changes, and of days that are over.

CALLER = "background"

# How many summaries an attempt at a job writes before other jobs have their turn.
MAX_SUMMARIES = 3

# How long after its end a day is summarized: what was said just before is stored by then.
AFTER_MIDNIGHT = timedelta(minutes=1)

# Of how many scopes is known that they were looked at today: about a megabyte.
MAX_SEEN = 10_000


async def summarize_due(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Write the summaries of a scope that were asked for or are due, and look again at the end of a day with a message.

    Raises ModelError and PromptError; what is written is kept.
    """
    written = 0
    for kind in job.payload.get(ASKED_KINDS, ()):
        view, argument = kind_named(kind)
        if isinstance(view, SummaryKind):
            asked = _request(engine, job.scope, view, argument)
            request, stored = await engine.read(partial(_stored, asked=asked))
            if stored.last is None or stored.missed:
                await write_summary(engine, model, request, CALLER)
    for view in (DAY, *(view for view in KEPT_KINDS if view is not DAY)):  # the others are made of days
        for request in await due(engine, job.scope, view):
            if written == MAX_SUMMARIES:
                return JobEnd(is_unfinished=True)
            await write_summary(engine, model, request, CALLER)
            written += 1
    now = engine.clock()
    was_said = await engine.read(lambda conn: kept_kinds.something_said_today(conn, job.scope, now))
    return JobEnd(again_at=_tonight(now) if was_said else None)


async def due(engine: Engine, scope: Scope, view: SummaryKind) -> list[SummaryRequest]:
    """Return the summaries of a kind that should be written now."""
    if view is MOOD and not engine.settings.summary.mood:
        return []
    request = _request(engine, scope, view)
    arguments = await engine.read(lambda conn: view.due(conn, request, engine.settings.summary.every))
    return [replace(request, argument=argument) for argument in arguments]


class DueSummaries:
    """Queues jobs that write what is due, and one for the end of each day on which something is written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen_on: dict[Scope, date] = {}

    async def after_write(self, scope: Scope) -> bool:
        """Queue what a write to a scope makes necessary, and return whether something was. Raises LedgerError.

        Past days are looked at with the first write of a day, because that reads all that was said.
        """
        engine = self._engine.of_user(scope.user_id)
        if engine.own_model is None:
            return False
        today = engine.clock().date()
        is_first = self._seen_on.get(scope) != today
        if len(self._seen_on) >= MAX_SEEN:
            self._seen_on.clear()
        self._seen_on[scope] = today
        for view in KEPT_KINDS:
            if (is_first or not view.argument) and await due(engine, scope, view):
                await engine.write(lambda: engine.ledger.queue_job(scope, JobRequest("summarize")))
                return True
        if is_first:
            tonight = JobRequest("summarize", due_at=_tonight(engine.clock()))
            await engine.write(lambda: engine.ledger.queue_job(scope, tonight))
        return is_first


def _tonight(now: datetime) -> datetime:
    """Return when the day of a time is summarized."""
    return first_instant(now.date() + timedelta(days=1), now.tzinfo) + AFTER_MIDNIGHT
