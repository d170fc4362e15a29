"""How jobs change inside a transaction: they are queued, finished, failed, tried again, reported and erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Connection, Row, delete, insert, select, update

from palimpsest.core.models import Scope
from palimpsest.store.mapping import is_scope, scope_values
from palimpsest.store.queries.jobs import LEARNED, MESSAGES, NOTES, Job, JobKind
from palimpsest.store.schema import jobs

DEBOUNCE = timedelta(seconds=5)
"""A job begins when nothing was added to it for this long. Set by hand: an agent that passes on a conversation in
several calls makes them within seconds, and the model then reads them at once."""

MAX_DELAY = timedelta(seconds=60)
"""However often something is added, a job begins after this long. Set by hand: what was said a minute ago is known."""

PAUSES = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))
"""How long a job rests after each failure; after one more failure it has failed for good. Set by hand: a busy endpoint
answers after a minute, one that is restarted after half an hour, and what lasts longer needs a person."""

KEPT_DONE = 20
"""How many jobs of a user are kept that are done. Set by hand: `palimpsest jobs` shows them on one screen."""

ERASED_MEANWHILE = "some of its messages were erased meanwhile"


@dataclass(frozen=True, slots=True)
class LearnLater:
    """A request to learn from the messages of a write later.

    `context` is shown to the model, but no facts are learned from it.
    """

    context: tuple[str, ...] = ()
    caller: str = ""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How an attempt at a job ended: done, or with an error.

    `learned` is how many messages it has learned from, also before an error. `notes` are for the caller.
    """

    error: str = ""
    learned: int = 0
    notes: tuple[str, ...] = ()


def enqueue(conn: Connection, kind: JobKind, scope: Scope, payload: Mapping[str, Any], now: datetime) -> None:
    """Queue work, or add it to the job of this kind and scope that waits or has failed.

    A job that has failed is then tried again, and so is one that rests after a failure if its messages are sent again.
    Lists in the payload are joined; of other values the new one holds.
    """
    row = conn.execute(
        select(jobs).where(is_scope(jobs, scope), jobs.c.kind == kind, jobs.c.state != "done")
    ).one_or_none()
    if row is None:
        _insert(conn, kind, scope, payload, now)
        return
    values: dict[str, Any] = {"payload": _joined(row.payload, payload)}
    is_sent_again = bool(set(row.payload[MESSAGES]) & set(payload[MESSAGES]))
    if row.state == "failed" or (row.attempts and is_sent_again):
        values |= _tried_again(now + DEBOUNCE)
    elif not row.attempts:
        values["due_at"] = min(now + DEBOUNCE, max(row.created_at + MAX_DELAY, now))
    conn.execute(update(jobs).where(jobs.c.seq == row.seq).values(**values))


def finish(conn: Connection, job: Job, end: JobEnd, now: datetime) -> None:
    """Record how an attempt at a job ended. What was added to the job meanwhile waits as a job of its own."""
    row = conn.execute(select(jobs).where(jobs.c.seq == job.seq, jobs.c.state == "waiting")).one_or_none()
    if row is None:
        return  # a purge erased it
    if not set(job.message_ids) <= set(row.payload[MESSAGES]):  # what the model said may quote what a purge erased
        end = JobEnd(ERASED_MEANWHILE if end.error else "", end.learned)
    learned, notes = row.result.get(LEARNED, 0) + end.learned, [*row.result.get(NOTES, ()), *end.notes]
    values: dict[str, Any] = {"result": {LEARNED: learned, NOTES: notes}, "error": end.error}
    if end.error:
        conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(**values, **_failed(row, end, now)))
        return
    done, rest = set(job.message_ids), row.payload
    values["payload"] = {**rest, MESSAGES: [item for item in rest[MESSAGES] if item in done]}
    values |= {"state": "done", "finished_at": now, "reported": not learned}
    conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(**values))
    if later := [item for item in rest[MESSAGES] if item not in done]:
        _insert(conn, job.kind, job.scope, {**rest, MESSAGES: later}, now)
    _drop_oldest_done(conn, job.scope.user_id)


def retry(conn: Connection, user_id: str, now: datetime) -> int:
    """Make all jobs of a user due that wait or have failed, and return how many there are."""
    unfinished = (jobs.c.user_id == user_id, jobs.c.state != "done")
    return conn.execute(update(jobs).where(*unfinished).values(**_tried_again(now))).rowcount


def mark_reported(conn: Connection, seqs: Sequence[int]) -> None:
    """Record that a reply has told how jobs ended."""
    conn.execute(update(jobs).where(jobs.c.seq.in_(seqs)).values(reported=True))


def erase(conn: Connection, user_id: str, message_ids: Sequence[str]) -> None:
    """Take messages out of the jobs of a user, and all text that may quote them."""
    conn.execute(delete(jobs).where(jobs.c.user_id == user_id, jobs.c.state == "done"))
    erased = set(message_ids)
    for row in conn.execute(select(jobs).where(jobs.c.user_id == user_id)).all():
        left = [item for item in row.payload[MESSAGES] if item not in erased]
        is_row = jobs.c.seq == row.seq
        if not left:
            conn.execute(delete(jobs).where(is_row))
            continue
        payload = {**row.payload, MESSAGES: left, "context": []}
        conn.execute(update(jobs).where(is_row).values(payload=payload, error="", result={}))


def _insert(conn: Connection, kind: JobKind, scope: Scope, payload: Mapping[str, Any], now: datetime) -> None:
    row = {
        "kind": kind,
        **scope_values(scope),
        "payload": dict(payload),
        "created_at": now,
        "due_at": now + DEBOUNCE,
        "state": "waiting",
        "result": {},
    }
    conn.execute(insert(jobs).values(row))


def _joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**old, **new}
    for key, value in joined.items():
        if isinstance(value, list):
            both = [*cast("list[Any]", old.get(key, [])), *cast("list[Any]", new.get(key, []))]
            joined[key] = list(dict.fromkeys(both))
    return joined


def _tried_again(due_at: datetime) -> dict[str, Any]:
    return {"state": "waiting", "due_at": due_at, "attempts": 0, "error": "", "finished_at": None, "reported": False}


def _failed(row: Row[Any], end: JobEnd, now: datetime) -> dict[str, Any]:
    """Return the state after a failure. After progress the failures are counted from the first again."""
    attempts = 1 if end.learned else row.attempts + 1
    if attempts > len(PAUSES):
        return {"attempts": attempts, "state": "failed", "finished_at": now, "reported": False}
    return {"attempts": attempts, "due_at": now + PAUSES[attempts - 1]}


def _drop_oldest_done(conn: Connection, user_id: str) -> None:
    of_user = (jobs.c.user_id == user_id, jobs.c.state == "done")
    kept = select(jobs.c.seq).where(*of_user).order_by(jobs.c.seq.desc()).limit(KEPT_DONE)
    conn.execute(delete(jobs).where(*of_user, jobs.c.seq.not_in(kept)))
