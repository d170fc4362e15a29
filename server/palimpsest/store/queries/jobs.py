"""Read jobs: work that waits, that was done, or that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, and_, func, or_, select, text

from palimpsest.core.models import Memory, Scope
from palimpsest.store.mapping import chunks, sees, to_memory, to_scope
from palimpsest.store.schema import UNREPORTED, history, jobs, memories, memory_sources

JobKind: TypeAlias = Literal["learn", "capture"]
"""What kinds of work are done later: both extract facts from messages, `capture` from those that hooks captured."""

JobState: TypeAlias = Literal["waiting", "done", "failed"]

MESSAGES = "messages"
"""The key in the payload of a job of the ids of the messages that it is about."""

NOTES = "notes"
"""The key in the result of a job of what its caller should know."""

LEARNED = "learned"
"""The key in the result of a job of the number of messages it has learned from."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is done later. A waiting one may be under way.

    `attempts` is how often it failed, and `error` why. `finished_at` is when it was done, or failed for good.
    """

    seq: int
    kind: JobKind
    scope: Scope
    payload: Mapping[str, Any]
    created_at: datetime
    due_at: datetime
    attempts: int
    state: JobState
    error: str
    result: Mapping[str, Any]
    finished_at: datetime | None

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Return the ids of the messages that it is about."""
        return tuple(self.payload[MESSAGES])

    @property
    def learned(self) -> int:
        """Return how many messages it has learned from so far."""
        return self.result.get(LEARNED, 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what its caller should know."""
        return tuple(self.result.get(NOTES, ()))


def _to_job(row: Row[Any]) -> Job:
    """Return a row of `jobs` as a model."""
    return Job(
        seq=row.seq,
        kind=row.kind,
        scope=to_scope(row),
        payload=row.payload,
        created_at=row.created_at,
        due_at=row.due_at,
        attempts=row.attempts,
        state=row.state,
        error=row.error,
        result=row.result,
        finished_at=row.finished_at,
    )


def due_job(conn: Connection, now: datetime) -> Job | None:
    """Return the job of all users that has been due for longest, or None if none is due."""
    query = select(jobs).where(jobs.c.state == "waiting", jobs.c.due_at <= now).order_by(jobs.c.due_at).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else _to_job(row)


def next_due_at(conn: Connection) -> datetime | None:
    """Return when the next job is due, or None if none waits."""
    query = select(jobs.c.due_at).where(jobs.c.state == "waiting").order_by(jobs.c.due_at).limit(1)
    return conn.execute(query).scalar_one_or_none()


def jobs_of(conn: Connection, user_id: str) -> list[Job]:
    """Return the jobs of a user, the newest first."""
    query = select(jobs).where(jobs.c.user_id == user_id).order_by(jobs.c.seq.desc())
    return [_to_job(row) for row in conn.execute(query)]


def unreported_jobs(conn: Connection, scope: Scope) -> list[Job]:
    """Return the jobs the scope sees that have ended or failed, and that no reply has told of, the oldest first."""
    query = select(jobs).where(sees(jobs, scope), text(UNREPORTED)).order_by(jobs.c.seq)
    return [_to_job(row) for row in conn.execute(query)]


def count_states(conn: Connection) -> dict[JobState, int]:
    """Return how many jobs of all users are in each state."""
    return {row[0]: row[1] for row in conn.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))}


def memories_of_job(conn: Connection, job: Job) -> list[Memory]:
    """Return the memories that a job added or changed, the oldest first, without those that were deleted later.

    A fact that no longer held when it was learned is among them, as a memory that was closed at once.
    """
    return [to_memory(row) for ids in chunks(job.message_ids) for row in conn.execute(_learned(ids, job.created_at))]


def _learned(message_ids: Sequence[str], since: datetime) -> Any:
    cited = (
        select(memory_sources.c.memory_id)
        .join(history, history.c.id == memory_sources.c.history_id)
        .where(memory_sources.c.message_id.in_(message_ids), history.c.updated_at >= since)
    )
    closed_at_once = and_(
        memories.c.superseded_by.is_not(None),
        memories.c.created_at >= since,
        memories.c.deleted_at == memories.c.created_at,
    )
    shown = or_(memories.c.deleted_at.is_(None), closed_at_once)
    return select(memories).where(memories.c.id.in_(cited), shown).order_by(memories.c.seq)
