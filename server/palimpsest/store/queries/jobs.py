"""Read jobs: work that waits, that was done, or that failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, TypeAlias, cast

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, or_, select, text

from palimpsest.core.clock import in_zone
from palimpsest.core.models import Memory, Outcome, Scope
from palimpsest.store.mapping import chunks, sees, to_memory, to_scope
from palimpsest.store.schema import UNREPORTED, history, jobs, memories, memory_sources, meta

JobKind: TypeAlias = Literal["learn", "capture", "summarize", "link", "expire", "gist"]
"""What kinds of work are done later. `learn` and `capture` extract facts from messages, `capture` from those that hooks
captured. The others make views of what is known."""

TOLD_KINDS: tuple[JobKind, ...] = ("learn", "capture")
"""The kinds of which replies say how they ended, because somebody said what was learned. The others are silent unless
they fail for good."""

ORDER: tuple[JobKind, ...] = ("expire", "learn", "capture", "gist", "link", "summarize")
"""In which order kinds are worked on, of jobs that are due. Expiry takes milliseconds, and without it a search says
what no longer holds. Then comes what people said, and then what is made of it: a link needs the memories, and a
summary should rest on all of them."""

OVERDUE = timedelta(hours=1)
"""A job that has been due for this long goes before all that are not, whatever its kind. Set by hand: without it, an
afternoon of learning would leave no time for a summary, and an hour is no harm to one."""

JobState: TypeAlias = Literal["waiting", "done", "failed"]

MESSAGES = "messages"
"""The key in the payload of a job of the ids of the messages that it is about, if it is about messages."""

MEMORIES = "memories"
"""The key in the payload of a job of the ids of the memories that it is about, if it is about memories."""

ID_LISTS = (MESSAGES, MEMORIES)

TAKEN = "taken"
"""The key in a stored payload of the lists that an attempt began with. What lies beside it was added since."""

ASKED = "asked"
"""The key in a stored payload that says that the work was asked for again since the attempt began, and for when, if not
for soon."""

OWN_ONLY = "own_only"
"""The key in a payload that says that who asked for the work sees the project alone, and not what is general. So it is
not decided on what is general, which would show in the outcome."""

NOTES = "notes"
"""The key in the result of a job of what its caller should know."""

LEARNED = "learned"
"""The key in the result of a job of the number of messages it has learned from."""


MODEL_USE = "model_use"
"""The key in `meta` of how often a model was asked in the background."""


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

    def in_zone(self, zone: tzinfo | None) -> Job:
        """Return this job with its times as times of a zone."""
        finished_at = self.finished_at and in_zone(self.finished_at, zone)
        begun = {name: in_zone(getattr(self, name), zone) for name in ("created_at", "due_at")}
        return replace(self, **begun, finished_at=finished_at)

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Return the ids of the messages that it is about."""
        return tuple(self.payload.get(MESSAGES, ()))

    @property
    def memory_ids(self) -> tuple[str, ...]:
        """Return the ids of the memories that it is about."""
        return tuple(self.payload.get(MEMORIES, ()))

    @property
    def learned(self) -> int:
        """Return how many messages it has learned from so far."""
        return self.result.get(LEARNED, 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what its caller should know."""
        return tuple(self.result.get(NOTES, ()))


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How an attempt at a job ended. `outcomes` is what it changed, also if an `error` ended it.

    With `again_at` there is a new job of its kind and scope at that time, or earlier if something asks for it. A job
    that `is_unfinished` stopped at a good place, so that others have their turn, and goes on after them.
    """

    outcomes: tuple[Outcome, ...] = ()
    error: Exception | None = None
    again_at: datetime | None = None
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """How often a model was asked, and the tokens of prompts and replies."""

    calls: int = 0
    tokens: int = 0

    def __add__(self, other: Use) -> Use:
        return Use(self.calls + other.calls, self.tokens + other.tokens)


UseByKind: TypeAlias = Mapping[JobKind, Mapping[str, Use]]
"""How often a model was asked for each kind of job, by the name of the prompt."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """How often a model was asked in the background: on one day (UTC), and ever."""

    day: str
    today: UseByKind
    ever: UseByKind

    @property
    def budgeted(self) -> Use:
        """Return what was used today for work that nobody asked for."""
        return sum((total(stages) for kind, stages in self.today.items() if kind not in TOLD_KINDS), Use())


def total(stages: Mapping[str, Use]) -> Use:
    """Return the sum over all prompts."""
    return sum(stages.values(), Use())


def joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload with the lists of both, each item once; of other values the new one holds."""
    both = {**old, **new}
    for key, value in both.items():
        if isinstance(value, list):
            items = [*cast("list[Any]", old.get(key, [])), *cast("list[Any]", new.get(key, []))]
            both[key] = list(dict.fromkeys(items))
    return both


def whole_payload(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that a job is about: what its last attempt began with, and what was added since."""
    added = {key: value for key, value in stored.items() if key not in (TAKEN, ASKED)}
    return joined(stored.get(TAKEN, {}), added)


def to_job(row: Row[Any]) -> Job:
    """Return a row of `jobs` as a model."""
    payload = whole_payload(row.payload)
    return Job(
        seq=row.seq,
        kind=row.kind,
        scope=replace(to_scope(row), with_general=not payload.get(OWN_ONLY)),
        payload=payload,
        created_at=row.created_at,
        due_at=row.due_at,
        attempts=row.attempts,
        state=row.state,
        error=row.error,
        result=row.result,
        finished_at=row.finished_at,
    )


def due_job(conn: Connection, now: datetime, kinds: Sequence[JobKind]) -> Row[Any] | None:
    """Return the row of the job of these kinds that is next, or None if none is due.

    It is the first by `ORDER` and the time it is due; before that, whatever is overdue.
    """
    is_due = and_(jobs.c.state == "waiting", jobs.c.due_at <= now, jobs.c.kind.in_(kinds))
    by_kind = case({kind: number for number, kind in enumerate(ORDER)}, value=jobs.c.kind)
    rank = case((jobs.c.due_at <= now - OVERDUE, -1), else_=by_kind)
    return conn.execute(select(jobs).where(is_due).order_by(rank, jobs.c.due_at, jobs.c.seq).limit(1)).one_or_none()


def next_due_at(conn: Connection, kinds: Sequence[JobKind]) -> datetime | None:
    """Return when the next job of these kinds is due, or None if none waits."""
    waits = (jobs.c.state == "waiting", jobs.c.kind.in_(kinds))
    return conn.execute(select(jobs.c.due_at).where(*waits).order_by(jobs.c.due_at).limit(1)).scalar_one_or_none()


def jobs_of(conn: Connection, user_id: str) -> list[Job]:
    """Return the jobs of a user, the newest first."""
    query = select(jobs).where(jobs.c.user_id == user_id).order_by(jobs.c.seq.desc())
    return [to_job(row) for row in conn.execute(query)]


def jobs_seen(conn: Connection, scope: Scope, limit: int) -> list[Job]:
    """Return up to `limit` jobs that the scope sees, the newest first."""
    query = select(jobs).where(sees(jobs, scope)).order_by(jobs.c.seq.desc()).limit(limit)
    return [to_job(row) for row in conn.execute(query)]


def unreported_jobs(conn: Connection, scope: Scope) -> list[Job]:
    """Return the jobs the scope sees that have ended or failed, and that no reply has told of, the oldest first.

    Those that are silent are among them if they failed for good.
    """
    is_told = or_(jobs.c.kind.in_(TOLD_KINDS), jobs.c.state == "failed")
    query = select(jobs).where(sees(jobs, scope), text(UNREPORTED), is_told).order_by(jobs.c.seq)
    return [to_job(row) for row in conn.execute(query)]


def is_later(soon: datetime) -> ColumnElement[bool]:
    """Return the condition for jobs that wait for nothing but a time after `soon`."""
    return and_(jobs.c.state == "waiting", jobs.c.error == "", jobs.c.due_at > soon)


def count_states(conn: Connection, soon: datetime) -> Counter[tuple[JobKind, JobState]]:
    """Return how many jobs of all users are of each kind and in each state, without those that are for later."""
    query = select(jobs.c.kind, jobs.c.state, func.count()).where(~is_later(soon)).group_by(jobs.c.kind, jobs.c.state)
    return Counter({(row[0], row[1]): row[2] for row in conn.execute(query)})


def count_unfinished(conn: Connection) -> Counter[tuple[JobKind, JobState]]:
    """Return how many jobs of all users are of each kind and in each state, without those that are done."""
    query = select(jobs.c.kind, jobs.c.state, func.count()).where(text("state != 'done'"))
    return Counter({(row[0], row[1]): row[2] for row in conn.execute(query.group_by(jobs.c.kind, jobs.c.state))})


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


def model_use(conn: Connection, now: datetime) -> ModelUse:
    """Return how often a model was asked in the background, today (UTC) and ever, over all processes and users."""
    value = conn.execute(select(meta.c.value).where(meta.c.key == MODEL_USE)).scalar_one_or_none()
    stored: dict[str, Any] = {} if value is None else json.loads(value)
    day = f"{now.astimezone(UTC):%Y-%m-%d}"
    today: dict[JobKind, Any] = stored["today"] if stored.get("day") == day else {}
    return ModelUse(day, _by_kind(today), _by_kind(stored.get("ever", {})))


def _by_kind(stored: Mapping[JobKind, Mapping[str, Sequence[int]]]) -> UseByKind:
    return {kind: {stage: Use(*use) for stage, use in stages.items()} for kind, stages in stored.items()}
