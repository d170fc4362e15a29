"""The jobs that a visitor may see: those of the scope, with what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.clock import local_iso
from palimpsest.core.models import Memory, Scope
from palimpsest.core.settings import Settings
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.job_runner import kinds_for
from palimpsest.learn.reconcile import NOT_KEPT, UNDECIDED
from palimpsest.store import jobs as job_queries
from palimpsest.store.jobs import MAX_DELAY, NOTES, TOLD_KINDS, Job, JobKind, ModelUse, total
from palimpsest.store.rows import is_seen
from palimpsest.text.display import counted, shorten
from palimpsest.text.intents import FORGOTTEN, QUESTION

# How often a model was asked in the background, for people and as values.


def in_words(use: ModelUse, settings: Settings) -> str:
    """Return how much of the limits of today was used, and for what kinds of jobs."""
    background, made = settings.background, use.budgeted
    by_kind = {kind: total(stages.values()) for kind, stages in use.today.items()}
    captured = use.captured_calls
    parts = [
        f"today (UTC) {made.calls} of {counted(background.calls_per_day, 'call')} and {made.tokens:,} of "
        f"{background.tokens_per_day:,} tokens for summaries, links, gists and hints",
        f"{captured} of {counted(settings.learn.captured_calls_per_day, 'call')} for captured messages",
        *(f"{kind}: {counted(of.calls, 'call')}, {of.tokens:,} tokens" for kind, of in by_kind.items()),
    ]
    return "; ".join(parts)


def as_values(use: ModelUse, settings: Settings) -> dict[str, Any]:
    """Return the limits, what was used today by kind of job, and what was ever used by kind and prompt."""
    limits = {"captured_calls_per_day": settings.learn.captured_calls_per_day, **settings.background.model_dump()}
    today = {kind: total(stages.values())._asdict() for kind, stages in use.today.items()}
    ever = {kind: {stage: each._asdict() for stage, each in stages.items()} for kind, stages in use.ever.items()}
    return {"day": use.day, "limits": limits, "today": today, "ever": ever}


# What became of jobs: for `palimpsest jobs`, and for the next reply of their scope.

MAX_FACTS = 5
"""How many facts a note names: a note stands in a reply that is about something else."""

MAX_CHARS = 200
"""How much of a fact a note quotes: a fact is a sentence."""

MAX_NOTES = 3
"""How many remarks on facts that were not kept, or kept in doubt, are passed on. As `MAX_FACTS`."""

FAILED: Mapping[JobKind, str] = {
    "summarize": "the summaries are not up to date",
    "link": "some memories were not linked",
    "expire": "some memories may be shown beyond their time",
    "gist": "some pages of documents have no gist, and are found by their own words",
    "enrich": "some memories got no hints",
}
"""What it means that a silent job has failed for good."""

NO_MODEL = "waits for a server with llm.provider = 'openai'"
"""What work waits for that needs a model. The client's own model is never asked in the background."""


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
        job, quotes_general = report.job, report.job.scope.with_general and not scope.with_general
        if quotes_general:
            job = replace(job, result={name: value for name, value in job.result.items() if name != NOTES})
        seen.append(replace(report, job=job, memories=tuple(m for m in report.memories if is_seen(scope, m.scope))))
    return seen


def _waits_for(job: Job, kinds: Sequence[JobKind], now: datetime) -> str:
    """Return what keeps a job from being done now."""
    if job.state != "waiting":
        return ""
    if job.kind not in kinds:
        return NO_MODEL
    return f"waits until {local_iso(job.due_at)}" if job.due_at > now + MAX_DELAY else ""


def notes_on(reports: Sequence[JobReport]) -> tuple[str, ...]:
    """Return notes for a reply: what was learned, remarks of the work, and what failed.

    A job that failed and is tried again tells what it learned when it has ended.
    """
    ended = [report for report in reports if report.job.state != "waiting"]
    failed = [report.job for report in reports if report.job.state != "done"]
    remarks = _remarks(ended)
    return (*_learned(ended, has_remarks=bool(remarks)), *remarks, *(_failure(job) for job in failed))


def shown_fact(memory: Memory) -> str:
    """Return the text of a memory that was learned, and until when it held if it holds no longer."""
    return memory.text if memory.deleted_at is None else f"{memory.text} (until {memory.until})"


def once_told(job: Job) -> Job:
    """Return a job that a reply has told of without the notes that quote what was forgotten, or may be."""
    kept = [note for note in job.notes if not note.startswith((FORGOTTEN, QUESTION))]
    return replace(job, result={**job.result, NOTES: kept})


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
    if job.kind not in TOLD_KINDS:
        return f"{FAILED[job.kind]}: {job.error} palimpsest jobs --retry tries again."
    what = f"{counted(len(job.message_ids), 'message')}, which are kept: {job.error}"
    if job.state == "waiting":
        again = f"after {local_iso(job.due_at)}, or with palimpsest jobs --retry"
        return f"not learned yet from {what} This is tried again {again}."
    return f"not learned from {what} palimpsest jobs --retry tries again, and so does sending them again."
