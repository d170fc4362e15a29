"""What becomes of jobs, inside a transaction, if what they are about is erased, moved or merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, select, update

from palimpsest.store.mapping import is_scope, to_scope
from palimpsest.store.queries.jobs import ID_LISTS, LEARNED, NOTES, TAKEN, whole_payload
from palimpsest.store.schema import jobs
from palimpsest.store.writes.jobs.queue import CONTEXT, with_request
from palimpsest.store.writes.jobs.states import tried_again

ERASED_NOTES = "what was noted on it was erased by a purge"
ERASED_MEANWHILE = "some of its messages were erased meanwhile"


def erase(conn: Connection, user_id: str, owner_ids: Sequence[str]) -> None:
    """Take messages and memories out of the jobs of a user, and all text that may quote them.

    A job that was about nothing else goes too.
    """
    conn.execute(delete(jobs).where(jobs.c.user_id == user_id, jobs.c.state == "done", jobs.c.reported.is_(True)))
    erased = set(owner_ids)
    for row in conn.execute(select(jobs).where(jobs.c.user_id == user_id)).all():
        payload = _without_texts(_with_ids(row.payload, lambda ids: [item for item in ids if item not in erased]))
        is_row = jobs.c.seq == row.seq
        if _is_about_owners(row.payload) and not _is_about_owners(payload):
            conn.execute(delete(jobs).where(is_row))
            continue
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
            payload = with_request(waiting.payload, whole_payload(row.payload), None)
            values = {"payload": payload, **tried_again(min(waiting.due_at, row.due_at))}
            conn.execute(update(jobs).where(jobs.c.seq == waiting.seq).values(**values))
            conn.execute(delete(jobs).where(jobs.c.seq == row.seq))
    conn.execute(update(jobs).where(*in_project).values(project=new))


def replace_owner(conn: Connection, user_id: str, owner_id: str, kept_id: str) -> None:
    """Let jobs that wait be about a message or memory in place of another that says the same."""
    for row in conn.execute(select(jobs).where(jobs.c.user_id == user_id, jobs.c.state != "done")).all():
        payload = _with_ids(
            row.payload, lambda ids: list(dict.fromkeys(kept_id if item == owner_id else item for item in ids))
        )
        if payload != row.payload:
            conn.execute(update(jobs).where(jobs.c.seq == row.seq).values(payload=payload))


def _is_about_owners(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored payload has ids of messages or memories."""
    payload = whole_payload(stored)
    return any(payload.get(key) for key in ID_LISTS)


def _with_ids(stored: Mapping[str, Any], change: Callable[[list[str]], list[str]]) -> dict[str, Any]:
    """Return a stored payload with its lists of ids changed, also those that an attempt began with."""
    changed: dict[str, Any] = {key: change(value) if key in ID_LISTS else value for key, value in stored.items()}
    if TAKEN in changed:
        changed[TAKEN] = _with_ids(changed[TAKEN], change)
    return changed


def _without_texts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored payload without the texts that were given for context."""
    changed: dict[str, Any] = {key: [] if key == CONTEXT else value for key, value in stored.items()}
    if TAKEN in changed:
        changed[TAKEN] = _without_texts(changed[TAKEN])
    return changed
