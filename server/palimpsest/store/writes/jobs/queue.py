"""Queue work for later, inside a transaction: what is asked for joins the job of its kind and scope that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, insert, select, update

from palimpsest.core.models import Event, Outcome, Scope
from palimpsest.store.mapping import is_scope, scope_values, to_scope
from palimpsest.store.queries.jobs import (
    ASKED,
    MEMORIES,
    MESSAGES,
    OWN_ONLY,
    TAKEN,
    TOLD_KINDS,
    JobKind,
    joined,
    whole_payload,
)
from palimpsest.store.schema import conversations, jobs, messages
from palimpsest.store.writes.jobs.states import PAUSES, tried_again

DEBOUNCE = timedelta(seconds=5)
"""A job begins when nothing was added to it for this long. Set by hand: an agent that passes on a conversation in
several calls makes them within seconds, and the model then reads them at once."""

MAX_DELAY = timedelta(seconds=60)
"""However often something is added, a job begins after this long. Set by hand: what was said a minute ago is known."""

HOOKS = "hooks"
"""The caller in the history of what hooks brought."""

CONTEXT = "context"
"""The key in a payload of texts that are shown to the model and are stored nowhere else."""

STAYS = "stays_in_project"
"""The key in a payload of whether what is learned stays in the project, also what is about a person. Once asked for, it
holds for the whole job."""

SOON = ""
"""The value of `ASKED` for work that is asked for without a time."""


@dataclass(frozen=True, slots=True)
class LearnLater:
    """A request to learn from the messages of a write later.

    `context` is shown to the model, but no facts are learned from it. With `stays_in_project` what is about a person
    is not stored for all projects either.
    """

    context: tuple[str, ...] = ()
    caller: str = ""
    stays_in_project: bool = False


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request for work of a kind, in the scope of a write.

    With `about` it is about the memories that the write added or changed, each in its own scope, or about the messages
    that were new to it; if there are none, nothing is queued. Without `due_at` it begins soon.
    """

    kind: JobKind
    about: Literal["", "memories", "messages"] = ""
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    due_at: datetime | None = None


def enqueue(
    conn: Connection,
    kind: JobKind,
    scope: Scope,
    payload: Mapping[str, Any],
    now: datetime,
    *,
    due_at: datetime | None = None,
) -> None:
    """Queue work, or add it to the job of this kind and scope that waits or has failed.

    Lists in the payload are joined; of other values the new one holds. With `due_at` the job begins then, or earlier if
    it is due earlier. A job that rests after a failure is tried again if its messages are sent again, one that was put
    off until tomorrow waits, and one that has failed is tried again.
    """
    if kind == "learn" and not scope.with_general:
        payload = {**payload, OWN_ONLY: True}
    row = conn.execute(
        select(jobs).where(is_scope(jobs, scope), jobs.c.kind == kind, jobs.c.state != "done")
    ).one_or_none()
    if row is None:
        insert_job(conn, kind, scope, payload, due_at or now + DEBOUNCE, now)
        return
    known = set(whole_payload(row.payload).get(MESSAGES, ()))
    asked_messages = payload.get(MESSAGES, ())
    values: dict[str, Any] = {"payload": with_request(row.payload, payload, due_at)}
    if row.state == "failed":
        values |= _after_failure(kind, row.finished_at, now)
    elif row.attempts and known & set(asked_messages):
        values |= tried_again(now + DEBOUNCE)
    elif not row.attempts and not row.error:
        values |= _sooner(row.created_at, row.due_at, due_at, now)
    conn.execute(update(jobs).where(jobs.c.seq == row.seq).values(**values))


def enqueue_all(
    conn: Connection,
    scope: Scope,
    requests: Sequence[JobRequest],
    outcomes: Sequence[Outcome],
    new_message_ids: Sequence[str],
    now: datetime,
) -> None:
    """Queue what a write asks for, given what it did."""
    changed: dict[Scope, list[str]] = {}
    for outcome in outcomes:
        is_changed = outcome.event in (Event.ADD, Event.UPDATE) and outcome.memory.deleted_at is None
        if outcome.kind == "memory" and is_changed:
            changed.setdefault(outcome.memory.scope, []).append(outcome.memory.id)
    for request in requests:
        due_at = request.due_at
        if request.about == "memories":
            for owner, ids in changed.items():
                enqueue(conn, request.kind, owner, {**request.payload, MEMORIES: ids}, now, due_at=due_at)
        elif request.about == "messages":
            if new_message_ids:
                ids = list(new_message_ids)
                enqueue(conn, request.kind, scope, {**request.payload, MESSAGES: ids}, now, due_at=due_at)
        else:
            enqueue(conn, request.kind, scope, request.payload, now, due_at=due_at)


def insert_job(
    conn: Connection, kind: JobKind, scope: Scope, payload: Mapping[str, Any], due_at: datetime, now: datetime
) -> None:
    """Store a new job."""
    row = {
        "kind": kind,
        **scope_values(scope),
        "payload": dict(payload),
        "created_at": now,
        "due_at": due_at,
        "state": "waiting",
        "result": {},
    }
    conn.execute(insert(jobs).values(row))


def with_request(stored: Mapping[str, Any], payload: Mapping[str, Any], due_at: datetime | None) -> dict[str, Any]:
    """Return a stored payload with what is asked for. What an attempt began with is not touched.

    Messages never change, so those that the attempt began with are not added again.
    """
    taken = stored.get(TAKEN)
    if taken is None:
        return joined(stored, payload)
    begun = set(taken.get(MESSAGES, ()))
    added = dict(payload)
    if MESSAGES in payload:
        added[MESSAGES] = [item for item in payload[MESSAGES] if item not in begun]
        if not added[MESSAGES]:
            return dict(stored)
    asked = SOON if due_at is None else due_at.isoformat()
    return {**joined(stored, added), ASKED: min(stored.get(ASKED, asked), asked)}


def _sooner(created_at: datetime, due: datetime, asked: datetime | None, now: datetime) -> dict[str, Any]:
    """Return when a job that waits is due after it was asked for again.

    One that waits for a time far off counts as new, if it is asked for without one.
    """
    if asked is not None:
        return {"due_at": min(due, asked)}
    if due > now + MAX_DELAY:
        return {"due_at": now + DEBOUNCE, "created_at": now}
    return {"due_at": min(now + DEBOUNCE, max(created_at + MAX_DELAY, now))}


def _after_failure(kind: JobKind, failed_at: datetime, now: datetime) -> dict[str, Any]:
    """Return the state of a job that has failed and is asked for again.

    What a person sent again is tried at once. The others are asked for by every write: they are tried once, after the
    longest pause, and what was told of the failure is not told again.
    """
    if kind in TOLD_KINDS:
        return tried_again(now + DEBOUNCE)
    due_at = max(now + DEBOUNCE, failed_at + PAUSES[-1])
    return {"state": "waiting", "due_at": due_at, "attempts": len(PAUSES), "finished_at": None}


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
            payload = {MESSAGES: waiting, CONTEXT: [], "caller": HOOKS}
            enqueue(conn, "capture", scope, payload, now)
            queued += len(waiting)
    return queued


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
