"""Read, queue and attempt jobs, and count calls of a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import sqlalchemy as sa

from palimpsest.core.clock import times_in_zone
from palimpsest.core.models import Event, Memory, Outcome, Scope
from palimpsest.core.settings import Settings
from palimpsest.store.entries import Transaction, meta_value, next_edit_number, reserve_edit_numbers, set_meta
from palimpsest.store.memories import read_memories
from palimpsest.store.messages import messages_in, sessions_of
from palimpsest.store.rows import Query, among, grouped, is_scope, scope_values, sees, to_scope
from palimpsest.store.schema import UNREPORTED, history, jobs, memories, memory_sources, messages

# The states of a job: waiting, and when it is tried again.

# How long a job rests after each failure; after one more failure it has failed for good: a busy endpoint answers after
# a minute, one that is restarted after half an hour, and what lasts longer needs a person.
PAUSES = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))


def tried_again(due_at: datetime) -> dict[str, Any]:
    """Return the state of a job that is tried as if it had never failed."""
    return {"state": "waiting", "due_at": due_at, "attempts": 0, "error": "", "finished_at": None, "reported": False}


def failed(row: sa.Row[Any], now: datetime) -> dict[str, Any]:
    """Return the state of a job after a failure."""
    attempts = row.attempts + 1
    if attempts > len(PAUSES):
        return {"attempts": attempts, "state": "failed", "finished_at": now, "reported": False}
    return {"attempts": attempts, "due_at": now + PAUSES[attempts - 1]}


# Read jobs: work that waits, that was done, or that failed.

# What kinds of work are done later. `learn` and `capture` extract facts from messages, `capture` from those that hooks
# captured. The others make views of what is known.
JobKind: TypeAlias = Literal["learn", "capture", "summarize", "link", "expire", "gist", "enrich"]

# The kinds of which replies say how they ended, because somebody said what was learned. The others are silent unless
# they fail for good.
TOLD_KINDS: tuple[JobKind, ...] = ("learn", "capture")

# In which order kinds are worked on, of jobs that are due. Expiry takes milliseconds, and without it a search says what
# no longer holds. Then comes what people said, and then what is made of it: a link needs the memories, and a summary
# should rest on all of them. Nobody waits for hints.
ORDER: tuple[JobKind, ...] = ("expire", "learn", "capture", "gist", "link", "summarize", "enrich")

# A job that has been due for this long goes before all that are not, whatever its kind: without it, an afternoon of
# learning would leave no time for a summary, and an hour is no harm to one.
OVERDUE = timedelta(hours=1)

JobState: TypeAlias = Literal["waiting", "done", "failed"]

# The key in the payload of a job of the summaries that somebody asked for.
ASKED_KINDS = "kinds"

# The key in the payload of a job of the ids of the messages that it is about, if it is about messages.
MESSAGES = "messages"

# The key in the payload of a job of the ids of the memories that it is about, if it is about memories.
MEMORIES = "memories"

ID_LISTS = (MESSAGES, MEMORIES)

# The key in the payload of a job of the number that all its writes have, so that one undo takes them back.
EDIT = "edit"

# The key in a stored payload of the lists that an attempt began with. What lies beside it was added since.
TAKEN = "taken"

# The key in a stored payload that says that the work was asked for again since the attempt began, and for when, if not
# for soon.
ASKED = "asked"

# The key in a payload that says that who asked for the work sees the project alone, and not what is general. So it is
# not decided on what is general, which would show in the outcome.
OWN_ONLY = "own_only"

# The key in the result of a job of what its caller should know.
NOTES = "notes"

# The key in the result of a job of the number of messages it has learned from.
LEARNED = "learned"


# The key in `meta` of how often a model was asked in the background.
MODEL_USE = "model_use"


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
        return times_in_zone(self, zone, "created_at", "due_at", "finished_at")

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


class Use(NamedTuple):
    """How often a model was asked, and the tokens of prompts and replies."""

    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelUse:
    """How often a model was asked in the background on one day (UTC), by kind of job."""

    day: str
    today: Mapping[JobKind, Use]

    @property
    def captured_calls(self) -> int:
        """Return how often a model was asked today about what hooks captured."""
        return self.today.get("capture", Use()).calls

    @property
    def budgeted(self) -> Use:
        """Return what was used today for work that nobody asked for."""
        return total(use for kind, use in self.today.items() if kind not in TOLD_KINDS)


def total(uses: Iterable[Use]) -> Use:
    """Return the sum of what was used."""
    return Use(*map(sum, zip(Use(), *uses, strict=True)))


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


def to_job(row: sa.Row[Any]) -> Job:
    """Return a row of `jobs` as a model."""
    payload = whole_payload(row.payload)
    same = ("seq", "kind", "created_at", "due_at", "attempts", "state", "error", "result", "finished_at")
    scope = replace(to_scope(row), with_general=not payload.get(OWN_ONLY))
    return Job(scope=scope, payload=payload, **{name: getattr(row, name) for name in same})


def next_due_at(conn: sa.Connection, kinds: Sequence[JobKind]) -> datetime | None:
    """Return when the next job of these kinds is due, or None if none waits."""
    waits = (jobs.c.state == "waiting", jobs.c.kind.in_(kinds))
    return conn.execute(sa.select(jobs.c.due_at).where(*waits).order_by(jobs.c.due_at).limit(1)).scalar_one_or_none()


def jobs_of(conn: sa.Connection, user_id: str) -> list[Job]:
    """Return the jobs of a user, the newest first."""
    return _read(conn, sa.select(jobs).where(jobs.c.user_id == user_id).order_by(jobs.c.seq.desc()))


def jobs_seen(conn: sa.Connection, scope: Scope, limit: int) -> list[Job]:
    """Return up to `limit` jobs that the scope sees, the newest first."""
    return _read(conn, sa.select(jobs).where(sees(jobs, scope)).order_by(jobs.c.seq.desc()).limit(limit))


def unreported_jobs(conn: sa.Connection, scope: Scope) -> list[Job]:
    """Return the jobs the scope sees that have ended or failed, and that no reply has told of, the oldest first.

    Those that are silent are among them if they failed for good.
    """
    is_told = sa.or_(jobs.c.kind.in_(TOLD_KINDS), jobs.c.state == "failed")
    return _read(conn, sa.select(jobs).where(sees(jobs, scope), sa.text(UNREPORTED), is_told).order_by(jobs.c.seq))


def _read(conn: sa.Connection, query: Query) -> list[Job]:
    return [to_job(row) for row in conn.execute(query)]


def is_later(soon: datetime) -> sa.ColumnElement[bool]:
    """Return the condition for jobs that wait for nothing but a time after `soon`."""
    return sa.and_(jobs.c.state == "waiting", jobs.c.error == "", jobs.c.due_at > soon)


def count_unfinished(conn: sa.Connection, soon: datetime | None = None) -> Counter[tuple[JobKind, JobState]]:
    """Return how many jobs of all users are of each kind and in each state, without those that are done.

    With a time, those that wait for nothing but a later one are left out too.
    """
    query = sa.select(jobs.c.kind, jobs.c.state, sa.func.count()).where(sa.text("state != 'done'"))
    query = query if soon is None else query.where(~is_later(soon))
    return Counter({(row[0], row[1]): row[2] for row in conn.execute(query.group_by(jobs.c.kind, jobs.c.state))})


def memories_of_job(conn: sa.Connection, job: Job) -> list[Memory]:
    """Return the memories that a job added or changed, the oldest first, without those that were deleted later.

    A fact that no longer held when it was learned is among them, as a memory that was closed at once.
    """
    by_job = (among(memory_sources.c.message_id, job.message_ids), history.c.updated_at >= job.created_at)
    cited = sa.select(memory_sources.c.memory_id).where(history.c.id == memory_sources.c.history_id, *by_job)
    is_new, is_replaced = memories.c.created_at >= job.created_at, memories.c.superseded_by.is_not(None)
    closed_at_once = sa.and_(is_replaced, is_new, memories.c.deleted_at == memories.c.created_at)
    return read_memories(conn, memories.c.id.in_(cited), sa.or_(memories.c.deleted_at.is_(None), closed_at_once))


def model_use(conn: sa.Connection, now: datetime) -> ModelUse:
    """Return how often a model was asked in the background today (UTC), over all processes and users."""
    stored: dict[str, Any] = json.loads(meta_value(conn, MODEL_USE) or "{}")
    day = f"{now.astimezone(UTC):%Y-%m-%d}"
    today: dict[JobKind, Sequence[int]] = stored["today"] if stored.get("day") == day else {}
    return ModelUse(day, {kind: Use(*use) for kind, use in today.items()})


# Queue work for later, inside a transaction: what is asked for joins the job of its kind and scope that waits.

# A job begins when nothing was added to it for this long: an agent that passes on a conversation in several calls makes
# them within seconds, and the model then reads them at once.
DEBOUNCE = timedelta(seconds=5)

# However often something is added, a job begins after this long: what was said a minute ago is known.
MAX_DELAY = timedelta(seconds=60)

# The caller in the history of what hooks brought.
HOOKS = "hooks"

# The key in a payload of texts that are shown to the model and are stored nowhere else.
CONTEXT = "context"

# The key in a payload of whether what is learned stays in the project, also what is about a person. Once asked for, it
# holds for the whole job.
STAYS = "stays_in_project"

# The value of `ASKED` for work that is asked for without a time.
SOON = ""


def learning_payload(context: Sequence[str], caller: str, *, stays_in_project: bool) -> dict[str, Any]:
    """Return the payload of a job that learns from messages, but for their ids.

    `context` is shown to the model, but no facts are learned from it. With `stays_in_project` what is about a person
    is not stored for all projects either.
    """
    return {CONTEXT: list(context), "caller": caller, **({STAYS: True} if stays_in_project else {})}


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


def enqueue(conn: sa.Connection, scope: Scope, request: JobRequest, now: datetime) -> None:
    """Queue work, or add it to the job of this kind and scope that waits or has failed.

    Lists in the payload are joined; of other values the new one holds. With `due_at` the job begins then, or earlier if
    it is due earlier. A job that rests after a failure is tried again if its messages are sent again, one that was put
    off until tomorrow waits, and one that has failed is tried again.
    """
    kind, payload, due_at = request.kind, request.payload, request.due_at
    if kind == "learn" and not scope.with_general:
        payload = {**payload, OWN_ONLY: True}
    unfinished = (is_scope(jobs, scope), jobs.c.kind == kind, jobs.c.state != "done")
    if (row := conn.execute(sa.select(jobs).where(*unfinished)).one_or_none()) is None:
        insert_job(conn, kind, scope, payload, due_at or now + DEBOUNCE, now)
        return
    known = set(whole_payload(row.payload).get(MESSAGES, ()))
    values: dict[str, Any] = {"payload": with_request(row.payload, payload, due_at)}
    if row.state == "failed":
        values |= _after_failure(kind, row.finished_at, now)
    elif row.attempts and known & set(payload.get(MESSAGES, ())):
        values |= tried_again(now + DEBOUNCE)
    elif not row.attempts and not row.error:
        values |= _sooner(row.created_at, row.due_at, due_at, now)
    conn.execute(sa.update(jobs).where(jobs.c.seq == row.seq).values(**values))


def enqueue_all(
    tx: Transaction, requests: Sequence[JobRequest], outcomes: Sequence[Outcome], new_message_ids: Sequence[str]
) -> None:
    """Queue what a write asks for, given what it did."""
    written = [o.memory for o in outcomes if o.kind == "memory" and o.event in (Event.ADD, Event.UPDATE)]
    changed = grouped((memory.scope, memory.id) for memory in written if memory.deleted_at is None)
    new_messages = {tx.scope: list(new_message_ids)} if new_message_ids else {}
    for request in requests:
        if not request.about:
            enqueue(tx.conn, tx.scope, request, tx.now)
            continue
        for owner, ids in (changed if request.about == MEMORIES else new_messages).items():
            about = replace(request, payload={**request.payload, request.about: ids})
            enqueue(tx.conn, owner, about, tx.now)


def insert_job(
    conn: sa.Connection, kind: JobKind, scope: Scope, payload: Mapping[str, Any], due_at: datetime, now: datetime
) -> None:
    """Store a new job."""
    row = {"kind": kind, **scope_values(scope), "payload": dict(payload), "created_at": now, "due_at": due_at}
    conn.execute(sa.insert(jobs).values(**row, state="waiting", result={}))


def with_request(stored: Mapping[str, Any], payload: Mapping[str, Any], due_at: datetime | None) -> dict[str, Any]:
    """Return a stored payload with what is asked for. What an attempt began with is not touched.

    Messages never change, so those that the attempt began with are not added again.
    """
    if (taken := stored.get(TAKEN)) is None:
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


def queue_enrichment(conn: sa.Connection, scope: Scope, memory_ids: Sequence[str], now: datetime) -> int:
    """Queue memories that are to get hints, and return the number of the edit that will give them."""
    edit = next_edit_number(conn)
    reserve_edit_numbers(conn, edit)
    enqueue(conn, scope, JobRequest("enrich", payload={MEMORIES: list(memory_ids), EDIT: edit}), now)
    return edit


def queue_session(
    conn: sa.Connection, user_id: str, client: str, session: str, now: datetime, minimum: int, summarized_from: int
) -> int:
    """Queue the messages of a client's session that wait to be learned from, if there are `minimum`; return how many.

    If it has `summarized_from` messages it is also to be summarized; 0: never.
    A session has messages in several scopes if its folder changed. Each scope is counted by itself.
    """
    queued = 0
    for scope, session_id in sessions_of(conn, user_id, client, session):
        waiting = _waiting(conn, scope, session_id)
        if len(waiting) >= minimum:
            payload = {MESSAGES: waiting, **learning_payload((), HOOKS, stays_in_project=False)}
            enqueue(conn, scope, JobRequest("capture", payload=payload), now)
            queued += len(waiting)
        if summarized_from and len(messages_in(conn, scope, session_id, summarized_from)) == summarized_from:
            asked = {ASKED_KINDS: [f"session:{session_id}"]}
            enqueue(conn, scope, JobRequest("summarize", payload=asked), now)
    return queued


def _waiting(conn: sa.Connection, scope: Scope, session_id: str) -> list[str]:
    """Return the messages of a session that facts may be learned from and that no job has, the oldest first."""
    in_session = (is_scope(messages, scope), messages.c.session_id == session_id)
    learnable = (*in_session, messages.c.learnt.is_(False), messages.c.deleted_at.is_(None))
    in_jobs = sa.select(jobs.c.payload).where(is_scope(jobs, scope), jobs.c.kind == "capture", jobs.c.state != "done")
    queued = {message_id for payload in conn.execute(in_jobs).scalars() for message_id in payload[MESSAGES]}
    ids = conn.execute(sa.select(messages.c.id).where(*learnable).order_by(messages.c.seq)).scalars()
    return [message_id for message_id in ids if message_id not in queued]


# Count how often a model is asked in the background today, inside a transaction, over all processes of a ledger.


def begin_call(conn: sa.Connection, kind: JobKind, tokens: int, settings: Settings, now: datetime) -> str:
    """Count one more call for a job, unless it is one too many; return which setting refuses it then, else "".

    `tokens` is what is known of its length.
    """
    made, background = model_use(conn, now), settings.background
    if kind == "capture":
        if made.captured_calls >= settings.learn.captured_calls_per_day:
            return "learn.captured_calls_per_day"
    elif kind not in TOLD_KINDS:
        if made.budgeted.calls >= background.calls_per_day:
            return "background.calls_per_day"
        if made.budgeted.tokens + tokens > background.tokens_per_day:
            return "background.tokens_per_day"
    _count(conn, made, kind, Use(1, tokens))
    return ""


def end_call(conn: sa.Connection, kind: JobKind, tokens: int, now: datetime) -> None:
    """Count the tokens of the reply of a call."""
    _count(conn, model_use(conn, now), kind, Use(0, tokens))


def _count(conn: sa.Connection, made: ModelUse, kind: JobKind, more: Use) -> None:
    today = {**made.today, kind: total((made.today.get(kind, Use()), more))}
    set_meta(conn, MODEL_USE, json.dumps({"day": made.day, "today": today}))


# What becomes of jobs, inside a transaction, if what they are about is erased, moved or merged.

ERASED_NOTES = "what was noted on it was erased by a purge"
ERASED_MEANWHILE = "some of its messages were erased meanwhile"


def erase(conn: sa.Connection, user_id: str, owner_ids: Sequence[str]) -> None:
    """Take messages and memories out of the jobs of a user, and all text that may quote them.

    A job that was about nothing else goes too.
    """
    conn.execute(sa.delete(jobs).where(jobs.c.user_id == user_id, jobs.c.state == "done", jobs.c.reported.is_(True)))
    erased = set(owner_ids)
    for row in conn.execute(sa.select(jobs).where(jobs.c.user_id == user_id)).all():
        payload = _with_ids(row.payload, lambda ids: [item for item in ids if item not in erased], with_texts=False)
        is_row = jobs.c.seq == row.seq
        if _is_about_owners(row.payload) and not _is_about_owners(payload):
            conn.execute(sa.delete(jobs).where(is_row))
            continue
        notes = [ERASED_NOTES] if row.result.get(NOTES) else []
        result = {LEARNED: row.result.get(LEARNED, 0), NOTES: notes}
        error = ERASED_MEANWHILE if row.error else ""
        conn.execute(sa.update(jobs).where(is_row).values(payload=payload, error=error, result=result))


def move(conn: sa.Connection, user_id: str, old: str, new: str) -> None:
    """Move the jobs of a project to another. One that waits joins the one that waits there."""
    in_project = (jobs.c.user_id == user_id, jobs.c.project == old)
    for row in conn.execute(sa.select(jobs).where(*in_project, jobs.c.state != "done")).all():
        scope = replace(to_scope(row), project=new)
        there = is_scope(jobs, scope) & (jobs.c.kind == row.kind) & (jobs.c.state != "done")
        if (waiting := conn.execute(sa.select(jobs).where(there)).one_or_none()) is not None:
            payload = with_request(waiting.payload, whole_payload(row.payload), None)
            values = {"payload": payload, **tried_again(min(waiting.due_at, row.due_at))}
            conn.execute(sa.update(jobs).where(jobs.c.seq == waiting.seq).values(**values))
            conn.execute(sa.delete(jobs).where(jobs.c.seq == row.seq))
    conn.execute(sa.update(jobs).where(*in_project).values(project=new))


def replace_owner(conn: sa.Connection, user_id: str, owner_id: str, kept_id: str) -> None:
    """Let jobs that wait be about a message or memory in place of another that says the same."""

    def with_kept(ids: list[str]) -> list[str]:
        return list(dict.fromkeys(kept_id if item == owner_id else item for item in ids))

    for row in conn.execute(sa.select(jobs).where(jobs.c.user_id == user_id, jobs.c.state != "done")).all():
        payload = _with_ids(row.payload, with_kept)
        if payload != row.payload:
            conn.execute(sa.update(jobs).where(jobs.c.seq == row.seq).values(payload=payload))


def _is_about_owners(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored payload has ids of messages or memories."""
    payload = whole_payload(stored)
    return any(payload.get(key) for key in ID_LISTS)


def _with_ids(
    stored: Mapping[str, Any], change: Callable[[list[str]], list[str]], *, with_texts: bool = True
) -> dict[str, Any]:
    """Return a stored payload with its lists of ids changed, also those that an attempt began with.

    The texts that were given for context can be left out.
    """
    changed: dict[str, Any] = {key: change(value) if key in ID_LISTS else value for key, value in stored.items()}
    if not with_texts and CONTEXT in changed:
        changed[CONTEXT] = []
    if TAKEN in changed:
        changed[TAKEN] = _with_ids(changed[TAKEN], change, with_texts=with_texts)
    return changed


# Attempts at jobs, inside a transaction: they begin, make progress, end, fail, and are tried again.

# How many jobs of a user are kept that are done: `palimpsest jobs` shows them, and replies are to tell of some.
KEPT_DONE = 50


def take(conn: sa.Connection, kinds: Sequence[JobKind], now: datetime) -> Job | None:
    """Return the job of these kinds that is next, and begin an attempt at it; None if none is due.

    It is the first by `ORDER` and the time it is due; before that, whatever is overdue. What is added to it from now on
    is left to a job of its own.
    """
    is_due = (jobs.c.state == "waiting", jobs.c.due_at <= now, jobs.c.kind.in_(kinds))
    by_kind = sa.case({kind: number for number, kind in enumerate(ORDER)}, value=jobs.c.kind)
    rank = sa.case((jobs.c.due_at <= now - OVERDUE, -1), else_=by_kind)
    row = conn.execute(sa.select(jobs).where(*is_due).order_by(rank, jobs.c.due_at, jobs.c.seq).limit(1)).one_or_none()
    if row is None:
        return None
    job = to_job(row)
    taken: dict[str, Any] = {key: value for key, value in job.payload.items() if isinstance(value, list)}
    rest = {key: value for key, value in job.payload.items() if key not in taken}
    conn.execute(sa.update(jobs).where(jobs.c.seq == row.seq).values(payload={**rest, TAKEN: taken}))
    return job


def progress(conn: sa.Connection, job: Job, learned: int, notes: Sequence[str]) -> None:
    """Record from how many more messages a job has learned, and what its caller should know.

    After progress the failures are counted from the first again.
    """
    if (row := _under_way(conn, job)) is None:
        return
    told = notes if _is_whole(row, job) else ()
    notes = list(dict.fromkeys((*row.result.get(NOTES, ()), *told)))
    result = {LEARNED: row.result.get(LEARNED, 0) + learned, NOTES: notes}
    attempts = {"attempts": 0} if learned else {}
    conn.execute(sa.update(jobs).where(jobs.c.seq == job.seq).values(result=result, **attempts))


def finish(conn: sa.Connection, job: Job, error: str, again_at: datetime | None, now: datetime) -> None:
    """Record how an attempt at a job ended: with an error, or done if it is "".

    What was asked for meanwhile, or is to be done at `again_at`, waits as a job of its own.
    """
    if (row := _under_way(conn, job)) is None:
        return
    if error:
        error = error if _is_whole(row, job) else ERASED_MEANWHILE
        conn.execute(sa.update(jobs).where(jobs.c.seq == job.seq).values(error=error, **failed(row, now)))
        return
    added = {key: value for key, value in row.payload.items() if key not in (TAKEN, ASKED)}
    is_told = job.kind in TOLD_KINDS and bool(row.result.get(LEARNED) or row.result.get(NOTES))
    done = {"payload": {**added, **row.payload.get(TAKEN, {})}, "state": "done", "error": "", "finished_at": now}
    conn.execute(sa.update(jobs).where(jobs.c.seq == job.seq).values(**done, reported=not is_told))
    times = [] if again_at is None else [again_at]
    if ASKED in row.payload:
        asked = row.payload[ASKED]
        times.append(now + DEBOUNCE if asked == SOON else datetime.fromisoformat(asked))
    if times:
        insert_job(conn, job.kind, to_scope(row), added, min(times), now)
    _drop_oldest_done(conn, job.scope.user_id)


def interrupt(conn: sa.Connection, job: Job, now: datetime) -> None:
    """Let the rest of a job wait until others had their turn."""
    conn.execute(sa.update(jobs).filter_by(seq=job.seq, state="waiting").values(due_at=now, attempts=0, error=""))


def _under_way(conn: sa.Connection, job: Job) -> sa.Row[Any] | None:
    """Return the row of a job that is being worked on, or None if a purge erased it."""
    return conn.execute(sa.select(jobs).where(jobs.c.seq == job.seq, jobs.c.state == "waiting")).one_or_none()


def _is_whole(row: sa.Row[Any], job: Job) -> bool:
    """Return whether nothing that a job is about was erased while it was worked on. Else its notes may quote it."""
    left = whole_payload(row.payload)
    return all(set(job.payload.get(key, ())) <= set(left.get(key, ())) for key in ID_LISTS)


def postpone(conn: sa.Connection, job: Job, reason: str, due_at: datetime) -> None:
    """Let a job wait until a time, which is no failure. `reason` is what `palimpsest jobs` says of it."""
    conn.execute(sa.update(jobs).filter_by(seq=job.seq, state="waiting").values(due_at=due_at, error=reason))


def retry(conn: sa.Connection, user_id: str, kinds: Sequence[JobKind], now: datetime) -> int:
    """Make all jobs of a user of these kinds due that wait or have failed, and return how many there are.

    Those that wait for their time alone, such as the end of a day, go on waiting.
    """
    unfinished = (jobs.c.user_id == user_id, jobs.c.state != "done", jobs.c.kind.in_(kinds))
    due = sa.update(jobs).where(*unfinished, ~is_later(now + MAX_DELAY)).values(**tried_again(now))
    return conn.execute(due).rowcount


def mark_reported(conn: sa.Connection, told: Sequence[Job]) -> None:
    """Record that a reply has told of jobs, unless something else has become of them since.

    The results of those that have ended are kept as they are given here.
    """
    for job in told:
        same = sa.update(jobs).filter_by(seq=job.seq, state=job.state, due_at=job.due_at)
        result = {} if job.state == "waiting" else {"result": dict(job.result)}
        conn.execute(same.values(reported=True, **result))


def _drop_oldest_done(conn: sa.Connection, user_id: str) -> None:
    of_user = (jobs.c.user_id == user_id, jobs.c.state == "done")
    newest = sa.select(jobs.c.seq).where(*of_user).order_by(jobs.c.seq.desc()).limit(KEPT_DONE)
    conn.execute(sa.delete(jobs).where(*of_user, jobs.c.seq.not_in(newest)))
