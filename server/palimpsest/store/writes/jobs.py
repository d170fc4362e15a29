"""How jobs change inside a transaction: they are queued, finished, failed, tried again, reported and erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Connection, Row, delete, insert, select, update

from palimpsest.core.models import Scope
from palimpsest.store.mapping import is_scope, scope_values, to_scope
from palimpsest.store.queries.capture import CALLS, calls_on
from palimpsest.store.queries.jobs import LEARNED, MESSAGES, NOTES, Job, JobKind
from palimpsest.store.schema import conversations, jobs, messages, meta

DEBOUNCE = timedelta(seconds=5)
"""A job begins when nothing was added to it for this long. Set by hand: an agent that passes on a conversation in
several calls makes them within seconds, and the model then reads them at once."""

MAX_DELAY = timedelta(seconds=60)
"""However often something is added, a job begins after this long. Set by hand: what was said a minute ago is known."""

PAUSES = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))
"""How long a job rests after each failure; after one more failure it has failed for good. Set by hand: a busy endpoint
answers after a minute, one that is restarted after half an hour, and what lasts longer needs a person."""

KEPT_DONE = 20
"""How many jobs of a user are kept that are done and told. Set by hand: `palimpsest jobs` shows them on one screen."""

KEPT_UNREPORTED = 500
"""How many more are kept that no reply has told of, because their scopes were not used again. Set by hand: a year of
conversations, and less than a megabyte."""

HOOKS = "hooks"
"""The caller in the history of what hooks brought."""

ERASED_NOTES = "what was noted on it was erased by a purge"
ERASED_MEANWHILE = "some of its messages were erased meanwhile"


@dataclass(frozen=True, slots=True)
class LearnLater:
    """A request to learn from the messages of a write later.

    `context` is shown to the model, but no facts are learned from it.
    """

    context: tuple[str, ...] = ()
    caller: str = ""


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


def queue_session(conn: Connection, user_id: str, client: str, session: str, minimum: int, now: datetime) -> int:
    """Queue the messages of a client's session that wait to be learned from, if there are `minimum`; return how many.

    A session has messages in several scopes if its folder changed. Each scope is counted by itself.
    """
    of_session = (
        conversations.c.user_id == user_id,
        conversations.c.client == client,
        conversations.c.external_id == session,
    )
    queued = 0
    for row in conn.execute(select(conversations).where(*of_session)).all():
        scope = to_scope(row)
        waiting = _waiting(conn, scope, row.session_id)
        if len(waiting) >= minimum:
            payload = {MESSAGES: waiting, "context": [], "caller": HOOKS}
            enqueue(conn, "capture", scope, payload, now)
            queued += len(waiting)
    return queued


def take_call(conn: Connection, limit: int, now: datetime) -> bool:
    """Count one more call of the model, unless `limit` were made today (UTC). Return whether it may be made."""
    made = calls_on(conn, now)
    if made >= limit:
        return False
    conn.execute(delete(meta).where(meta.c.key == CALLS))
    conn.execute(insert(meta).values(key=CALLS, value=f"{now:%Y-%m-%d} {made + 1}"))
    return True


def _waiting(conn: Connection, scope: Scope, session_id: str) -> list[str]:
    """Return the messages of a session that facts may be learned from and that no job has, the oldest first."""
    learnable = (
        is_scope(messages, scope),
        messages.c.session_id == session_id,
        messages.c.learnt.is_(False),
        messages.c.deleted_at.is_(None),
    )
    in_jobs = select(jobs.c.payload).where(is_scope(jobs, scope), jobs.c.kind == "capture", jobs.c.state != "done")
    queued = {message_id for payload in conn.execute(in_jobs).scalars() for message_id in payload[MESSAGES]}
    ids = conn.execute(select(messages.c.id).where(*learnable).order_by(messages.c.seq)).scalars()
    return [message_id for message_id in ids if message_id not in queued]


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


def finish(conn: Connection, job: Job, error: str, now: datetime) -> None:
    """Record how an attempt at a job ended: with an error, or done if it is "".

    What was added to the job meanwhile waits as a job of its own.
    """
    row = _under_way(conn, job)
    if row is None:
        return
    if error:
        error = error if _is_whole(row, job) else ERASED_MEANWHILE
        conn.execute(update(jobs).where(jobs.c.seq == job.seq).values(error=error, **_failed(row, now)))
        return
    done, rest = set(job.message_ids), row.payload
    conn.execute(
        update(jobs)
        .where(jobs.c.seq == job.seq)
        .values(
            payload={**rest, MESSAGES: [item for item in rest[MESSAGES] if item in done]},
            state="done",
            error="",
            finished_at=now,
            reported=not (row.result.get(LEARNED) or row.result.get(NOTES)),
        )
    )
    if later := [item for item in rest[MESSAGES] if item not in done]:
        _insert(conn, job.kind, job.scope, {**rest, MESSAGES: later}, now)
    _drop_oldest_done(conn, job.scope.user_id)


def _under_way(conn: Connection, job: Job) -> Row[Any] | None:
    """Return the row of a job that is being worked on, or None if a purge erased it."""
    return conn.execute(select(jobs).where(jobs.c.seq == job.seq, jobs.c.state == "waiting")).one_or_none()


def _is_whole(row: Row[Any], job: Job) -> bool:
    """Return whether no message of a job was erased while it was worked on. Else what was said may quote it."""
    return set(job.message_ids) <= set(row.payload[MESSAGES])


def postpone(conn: Connection, job: Job, reason: str, due_at: datetime) -> None:
    """Let a job wait until a time, which is no failure. `reason` is what `palimpsest jobs` says of it."""
    is_job = (jobs.c.seq == job.seq, jobs.c.state == "waiting")
    conn.execute(update(jobs).where(*is_job).values(due_at=due_at, error=reason))


def retry(conn: Connection, user_id: str, now: datetime) -> int:
    """Make all jobs of a user due that wait or have failed, and return how many there are."""
    unfinished = (jobs.c.user_id == user_id, jobs.c.state != "done")
    return conn.execute(update(jobs).where(*unfinished).values(**_tried_again(now))).rowcount


def mark_reported(conn: Connection, told: Sequence[Job]) -> None:
    """Record that a reply has told of jobs, unless something else has become of them since.

    The results of those that have ended are kept as they are given here.
    """
    for job in told:
        is_same = (jobs.c.seq == job.seq, jobs.c.state == job.state, jobs.c.due_at == job.due_at)
        result = {} if job.state == "waiting" else {"result": dict(job.result)}
        conn.execute(update(jobs).where(*is_same).values(reported=True, **result))


def erase(conn: Connection, user_id: str, message_ids: Sequence[str]) -> None:
    """Take messages out of the jobs of a user, and all text that may quote them."""
    conn.execute(delete(jobs).where(jobs.c.user_id == user_id, jobs.c.state == "done", jobs.c.reported.is_(True)))
    erased = set(message_ids)
    for row in conn.execute(select(jobs).where(jobs.c.user_id == user_id)).all():
        left = [item for item in row.payload[MESSAGES] if item not in erased]
        is_row = jobs.c.seq == row.seq
        if not left:
            conn.execute(delete(jobs).where(is_row))
            continue
        payload = {**row.payload, MESSAGES: left, "context": []}
        notes = [ERASED_NOTES] if row.result.get(NOTES) else []
        result = {LEARNED: row.result.get(LEARNED, 0), NOTES: notes}
        error = ERASED_MEANWHILE if row.error else ""
        conn.execute(update(jobs).where(is_row).values(payload=payload, error=error, result=result))


def move(conn: Connection, user_id: str, old: str, new: str) -> None:
    """Move the jobs of a project to another. One that waits joins the one that waits there."""
    in_project = (jobs.c.user_id == user_id, jobs.c.project == old)
    for row in conn.execute(select(jobs).where(*in_project, jobs.c.state != "done")).all():
        scope = replace(to_scope(row), project=new)
        there = is_scope(jobs, scope) & (jobs.c.kind == row.kind) & (jobs.c.state != "done")
        waiting = conn.execute(select(jobs).where(there)).one_or_none()
        if waiting is not None:
            values = {"payload": _joined(waiting.payload, row.payload), **_tried_again(min(waiting.due_at, row.due_at))}
            conn.execute(update(jobs).where(jobs.c.seq == waiting.seq).values(**values))
            conn.execute(delete(jobs).where(jobs.c.seq == row.seq))
    conn.execute(update(jobs).where(*in_project).values(project=new))


def replace_message(conn: Connection, user_id: str, message_id: str, kept_id: str) -> None:
    """Let jobs that wait learn from a message in place of another that says the same."""
    for row in conn.execute(select(jobs).where(jobs.c.user_id == user_id, jobs.c.state != "done")).all():
        ids = row.payload[MESSAGES]
        if message_id in ids:
            kept = list(dict.fromkeys(kept_id if item == message_id else item for item in ids))
            conn.execute(update(jobs).where(jobs.c.seq == row.seq).values(payload={**row.payload, MESSAGES: kept}))


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


def _failed(row: Row[Any], now: datetime) -> dict[str, Any]:
    """Return the state after a failure."""
    attempts = row.attempts + 1
    if attempts > len(PAUSES):
        return {"attempts": attempts, "state": "failed", "finished_at": now, "reported": False}
    return {"attempts": attempts, "due_at": now + PAUSES[attempts - 1]}


def _drop_oldest_done(conn: Connection, user_id: str) -> None:
    """Drop the oldest jobs of a user that are done. Those that no reply has told of stay longer."""
    for is_reported, kept in ((jobs.c.reported.is_(True), KEPT_DONE), (jobs.c.reported.is_(False), KEPT_UNREPORTED)):
        of_user = (jobs.c.user_id == user_id, jobs.c.state == "done", is_reported)
        newest = select(jobs.c.seq).where(*of_user).order_by(jobs.c.seq.desc()).limit(kept)
        conn.execute(delete(jobs).where(*of_user, jobs.c.seq.not_in(newest)))
