"""What became of jobs: for `palimpsest jobs`, and for the next reply of their scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Scope
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import jobs as job_queries
from palimpsest.store.queries.jobs import Job
from palimpsest.text.counting import counted
from palimpsest.text.shorten import shorten

MAX_FACTS = 5
"""How many facts a note names. Set by hand: a note stands in a reply that is about something else."""

MAX_CHARS = 200
"""How much of a fact a note quotes. Set by hand: a fact is a sentence."""

MAX_NOTES = 3
"""How many remarks of the model's work are passed on. Set by hand, as `MAX_FACTS`."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job and the living memories that it added or changed."""

    job: Job
    memories: tuple[Memory, ...]


def reports_of_user(engine: Engine, user_id: str) -> list[JobReport]:
    """Return the jobs of a user, the newest first. Blocking."""
    with engine.ledger.read() as conn:
        return _reports(conn, job_queries.jobs_of(conn, user_id))


def unreported(engine: Engine, scope: Scope) -> list[JobReport]:
    """Return the jobs the scope sees that have ended and that no reply has told of, the oldest first. Blocking."""
    with engine.ledger.read() as conn:
        return _reports(conn, job_queries.unreported_jobs(conn, scope))


def _reports(conn: Connection, jobs: Sequence[Job]) -> list[JobReport]:
    return [JobReport(job, tuple(job_queries.memories_of_job(conn, job))) for job in jobs]


def notes_on(reports: Sequence[JobReport]) -> tuple[str, ...]:
    """Return notes for a reply: what was learned, remarks of the work, and what failed."""
    done = [report for report in reports if report.job.state == "done"]
    failed = [report.job for report in reports if report.job.state == "failed"]
    remarks = [note for report in done for note in report.job.notes][:MAX_NOTES]
    return (*([_learned(done)] if done else []), *remarks, *(_failure(job) for job in failed))


def _learned(done: Sequence[JobReport]) -> str:
    learned_from = f"learned from {counted(sum(report.job.learned for report in done), 'message')}"
    texts = list(dict.fromkeys(memory.text for report in done for memory in report.memories))
    if not texts:
        return f"{learned_from}: nothing new"
    lines = [f"- {shorten(one_line(text), MAX_CHARS)}" for text in texts[:MAX_FACTS]]
    if len(texts) > MAX_FACTS:
        lines.append(f"- and {len(texts) - MAX_FACTS} more")
    return "\n".join([f"{learned_from}:", *lines])


def _failure(job: Job) -> str:
    return (
        f"not learned from {counted(len(job.message_ids), 'message')}, which are kept: {job.error} "
        "palimpsest jobs --retry tries again, and so does sending them again."
    )
