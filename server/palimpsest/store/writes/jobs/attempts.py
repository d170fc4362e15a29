"""Attempts at jobs, inside a transaction: they begin, make progress, end, fail, and are tried again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from palimpsest.store.mapping import to_scope
from palimpsest.store.queries.jobs import (
    ASKED,
    ID_LISTS,
    LEARNED,
    NOTES,
    TAKEN,
    TOLD_KINDS,
    Job,
    JobKind,
    due_job,
    is_later,
    to_job,
    whole_payload,
)
from palimpsest.store.schema import jobs
from palimpsest.store.writes.jobs.owners import ERASED_MEANWHILE
from palimpsest.store.writes.jobs.queue import DEBOUNCE, MAX_DELAY, SOON, insert_job
from palimpsest.store.writes.jobs.states import failed, tried_again

KEPT_DONE = 20
"""How many jobs of a user are kept that are done and told. Set by hand: `palimpsest jobs` shows them on one screen."""

KEPT_UNREPORTED = 500
"""How many more are kept that no reply has told of, because their scopes were not used again. Set by hand: a year of
conversations, and less than a megabyte."""

KEPT_SILENT = 5
"""How many jobs of a user are kept that are done, of each kind that no reply tells of. Set by hand: they show that the
work goes on, and say little else."""


def take(conn: Connection, kinds: Sequence[JobKind], now: datetime) -> Job | None:
    """Return the job of these kinds that is next, and begin an attempt at it; None if none is due.

    What is added to it from now on is left to a job of its own.
    """
    row = due_job(conn, now, kinds)
    if row is None:
        return None
    job = to_job(row)
    taken: dict[str, Any] = {key: value for key, value in job.payload.items() if isinstance(value, list)}
    rest = {key: value for key, value in job.payload.items() if key not in taken}
    conn.execute(update(jobs).where(jobs.c.seq == row.seq).values(payload={**rest, TAKEN: taken}))
    return job


def progress(conn: Connection, job: Job, learned: int, notes: Sequence[str]) -> None:
    """Record from how many more messages a job has learned, and what its caller should know.

    After progress the failures are counted from the first again.
    """
    row = _under_way(conn, job)
    if row is None:
        return
    told = notes if _is_whole(row, job) else ()
    result = {
        LEARNED: row.result.get(LEARNED, 0) + learned,
        NOTES: list(dict.fromkeys((*row.result.get(NOTES, ()), *told))),
    }
    attempts = {"attempts": 0} if learned else {}
    conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(result=result, **attempts))


def finish(conn: Connection, job: Job, error: str, again_at: datetime | None, now: datetime) -> None:
    """Record how an attempt at a job ended: with an error, or done if it is "".

    What was asked for meanwhile, or is to be done at `again_at`, waits as a job of its own.
    """
    row = _under_way(conn, job)
    if row is None:
        return
    if error:
        error = error if _is_whole(row, job) else ERASED_MEANWHILE
        conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(error=error, **failed(row, now)))
        return
    added = {key: value for key, value in row.payload.items() if key not in (TAKEN, ASKED)}
    is_told = job.kind in TOLD_KINDS and bool(row.result.get(LEARNED) or row.result.get(NOTES))
    done = {"payload": {**added, **row.payload.get(TAKEN, {})}, "state": "done", "error": "", "finished_at": now}
    conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(**done, reported=not is_told))
    times = [] if again_at is None else [again_at]
    if ASKED in row.payload:
        asked = row.payload[ASKED]
        times.append(now + DEBOUNCE if asked == SOON else datetime.fromisoformat(asked))
    if times:
        insert_job(conn, job.kind, to_scope(row), added, min(times), now)
    _drop_oldest_done(conn, job)


def interrupt(conn: Connection, job: Job, now: datetime) -> None:
    """Let the rest of a job wait until others had their turn."""
    row = _under_way(conn, job)
    if row is not None:
        conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(due_at=now, attempts=0, error=""))


def _under_way(conn: Connection, job: Job) -> Row[Any] | None:
    """Return the row of a job that is being worked on, or None if a purge erased it."""
    return conn.execute(select(jobs).where(jobs.c.seq == job.seq, jobs.c.state == "waiting")).one_or_none()


def _is_whole(row: Row[Any], job: Job) -> bool:
    """Return whether nothing that a job is about was erased while it was worked on. Else its notes may quote it."""
    left = whole_payload(row.payload)
    return all(set(job.payload.get(key, ())) <= set(left.get(key, ())) for key in ID_LISTS)


def postpone(conn: Connection, job: Job, reason: str, due_at: datetime) -> None:
    """Let a job wait until a time, which is no failure. `reason` is what `palimpsest jobs` says of it."""
    is_job = (jobs.c.seq == job.seq, jobs.c.state == "waiting")
    conn.execute(update(jobs).where(*is_job).values(due_at=due_at, error=reason))


def retry(conn: Connection, user_id: str, kinds: Sequence[JobKind], now: datetime) -> int:
    """Make all jobs of a user of these kinds due that wait or have failed, and return how many there are.

    Those that wait for their time alone, such as the end of a day, go on waiting.
    """
    unfinished = (jobs.c.user_id == user_id, jobs.c.state != "done", jobs.c.kind.in_(kinds))
    return conn.execute(update(jobs).where(*unfinished, ~is_later(now + MAX_DELAY)).values(**tried_again(now))).rowcount


def mark_reported(conn: Connection, told: Sequence[Job]) -> None:
    """Record that a reply has told of jobs, unless something else has become of them since.

    The results of those that have ended are kept as they are given here.
    """
    for job in told:
        is_same = (jobs.c.seq == job.seq, jobs.c.state == job.state, jobs.c.due_at == job.due_at)
        result = {} if job.state == "waiting" else {"result": dict(job.result)}
        conn.execute(update(jobs).where(*is_same).values(reported=True, **result))


def _drop_oldest_done(conn: Connection, job: Job) -> None:
    """Drop the oldest jobs of a user that are done. Those that a reply is still to tell of stay longer."""
    is_reported, is_silent = jobs.c.reported.is_(True), jobs.c.kind.not_in(TOLD_KINDS)
    told = ((~is_silent, is_reported, KEPT_DONE), (~is_silent, ~is_reported, KEPT_UNREPORTED))
    silent = ((jobs.c.kind == job.kind, is_reported, KEPT_SILENT),)
    for *which, kept in told if job.kind in TOLD_KINDS else silent:
        of_user = (jobs.c.user_id == job.scope.user_id, jobs.c.state == "done", *which)
        newest = select(jobs.c.seq).where(*of_user).order_by(jobs.c.seq.desc()).limit(kept)
        conn.execute(delete(jobs).where(*of_user, jobs.c.seq.not_in(newest)))
