"""Write the summaries that are due in the background: after some changes, and of days that are over."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta

from palimpsest.core.clock import first_instant
from palimpsest.core.models import Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.engine import Engine
from palimpsest.learn.views.days import DAY, something_said_today
from palimpsest.learn.views.kinds import SummaryKind, SummaryRequest
from palimpsest.learn.views.registry import KEPT_KINDS, kind_named
from palimpsest.learn.views.summaries import ASKED_KINDS, missed_changes, write_summary
from palimpsest.store.queries.jobs import Job, JobEnd
from palimpsest.store.writes.jobs.queue import JobRequest

CALLER = "background"

MAX_SUMMARIES = 3
"""How many summaries an attempt at a job writes before other jobs have their turn. Set by hand."""

AFTER_MIDNIGHT = timedelta(minutes=1)
"""How long after its end a day is summarized. Set by hand: what was said just before is stored by then."""

MAX_SEEN = 10_000
"""Of how many scopes is known that they were looked at today. Set by hand: about a megabyte."""


async def summarize_due(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Write the summaries of a scope that were asked for or are due, and look again at the end of a day with a message.

    Raises ModelError and PromptError; what is written is kept.
    """
    written = 0
    for kind in job.payload.get(ASKED_KINDS, ()):
        view, argument = kind_named(kind)
        if isinstance(view, SummaryKind) and await missed_changes(engine, job.scope, kind):
            request = SummaryRequest(job.scope, argument, engine.clock(), engine.embedder.fingerprint)
            await write_summary(engine, model, view, request, CALLER)
    for view in (DAY, *(view for view in KEPT_KINDS if view is not DAY)):  # the others are made of days
        for request in await due(engine, job.scope, view):
            if written == MAX_SUMMARIES:
                return JobEnd(is_unfinished=True)
            await write_summary(engine, model, view, request, CALLER)
            written += 1
    now = engine.clock()
    was_said = await engine.read(lambda conn: something_said_today(conn, job.scope, now))
    return JobEnd(again_at=_tonight(now) if was_said else None)


async def due(engine: Engine, scope: Scope, view: SummaryKind) -> list[SummaryRequest]:
    """Return the summaries of a kind that should be written now."""
    request = SummaryRequest(view.scope_of(scope), "", engine.clock(), engine.embedder.fingerprint)
    arguments = await engine.read(lambda conn: view.due(conn, request, engine.summary_every))
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
