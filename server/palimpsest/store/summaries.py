"""Read and write summaries and what they rest on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Any

import sqlalchemy as sa

from palimpsest.core.models import LINK, Memory, Message, Provenance, Scope, Summary
from palimpsest.store.entries import ERASED_AT, meta_value
from palimpsest.store.history import memories_at
from palimpsest.store.memories import LAST_STATED, NEWEST, count_by_day, memories_by_id, read_memories
from palimpsest.store.messages import LAST_SAID, newest_said, read_messages, without_forgotten
from palimpsest.store.rows import among, count, is_living, is_scope, scope_values, sees, to_summary
from palimpsest.store.schema import (
    IS_SAID,
    history,
    index_log,
    memories,
    memory_sources,
    messages,
    summaries,
    summary_sources,
)

# What summaries rest on: the memories in the version that was read, and the messages.

# How many summaries of a kind keep what they rest on. If the newest is outdated by a deletion, the next is written from
# an older one, which the deletion does not concern, and not from the beginning.
KEPT = 12


def put(conn: sa.Connection, summary: Summary, provenance: Provenance) -> None:
    """Store a summary with what it rests on, which the oldest ones lose."""
    of_kind = (is_scope(summaries, summary.scope), summaries.c.kind == summary.kind)
    newest: int = conn.execute(sa.select(sa.func.max(summaries.c.seq)).where(*of_kind)).scalar() or 0
    if max(newest, int(meta_value(conn, ERASED_AT) or 0)) > summary.seq:
        return  # another process has stored a newer summary, or erased rows that this one may quote
    said = {name: getattr(summary, name) for name in ("kind", "text", "seq", "created_at")}
    values = {**scope_values(summary.scope), **said, "model": provenance.model, "prompt": provenance.prompt}
    summary_id = conn.execute(sa.insert(summaries).returning(summaries.c.id), values).scalar_one()
    store(conn, summary_id, summary.sources, summary.message_ids)
    older = sa.select(summaries.c.id).where(*of_kind).order_by(summaries.c.id.desc()).offset(KEPT)
    surplus = conn.execute(older).scalars().all()
    conn.execute(sa.delete(summary_sources).where(among(summary_sources.c.summary_id, surplus)))


def store(conn: sa.Connection, summary_id: int, of_memories: Mapping[str, int], message_ids: Sequence[str]) -> None:
    """Store what a summary rests on, and leave older ones as they are."""
    rows = [{"kind": "message", "owner_id": owner, "revision": 0} for owner in dict.fromkeys(message_ids)]
    rows += [{"kind": "memory", "owner_id": owner, "revision": revision} for owner, revision in of_memories.items()]
    if rows:
        conn.execute(sa.insert(summary_sources).values(summary_id=summary_id), rows)


def read(conn: sa.Connection, summary_id: int) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """Return the memories that a summary rests on, by id with the revision that was read, and the ids of messages."""
    query = sa.select(summary_sources).where(summary_sources.c.summary_id == summary_id)
    rows = conn.execute(query.order_by(summary_sources.c.kind, summary_sources.c.owner_id)).all()
    of_memories = {row.owner_id: row.revision for row in rows if row.kind == "memory"}
    return of_memories, tuple(row.owner_id for row in rows if row.kind == "message")


def has_sources() -> sa.ColumnElement[bool]:
    """Return the condition for summaries of which it is known what they rest on."""
    return sa.exists().where(summary_sources.c.summary_id == summaries.c.id)


def have_changed() -> sa.ColumnElement[bool]:
    """Return the condition for summaries that rest on something that was changed, deleted, forgotten or erased since.

    A memory may have ended before a summary was written that says so; then nothing has changed.
    """
    return _rests_on(sa.and_(memories.c.revision != summary_sources.c.revision, reworded_since(summaries.c.seq)))


def have_gone() -> sa.ColumnElement[bool]:
    """Return the condition for summaries that rest on something that was deleted, forgotten or erased since.

    What was reworded, was replaced or has ended is not gone: the next summary can be written from one that has it.
    """
    was_not_closed = (memories.c.superseded_by.is_(None), memories.c.valid_until.is_(None))
    return _rests_on(sa.and_(memories.c.deleted_at.is_not(None), *was_not_closed))


def _rests_on(is_other: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition for summaries that rest on something forgotten or erased, or on a memory of a condition.

    A message is forgotten with a memory that was learned from it.
    """
    owner, kind, is_forgotten = summary_sources.c.owner_id, summary_sources.c.kind, memories.c.is_forgotten.is_(True)
    with_memory = summary_sources.outerjoin(memories, memories.c.id == owner)
    with_message = summary_sources.outerjoin(messages, messages.c.id == owner)
    learned = summary_sources.join(memory_sources, memory_sources.c.message_id == owner)
    learned = learned.join(memories, memories.c.id == memory_sources.c.memory_id)
    is_gone = sa.or_(memories.c.id.is_(None), is_forgotten, is_other)
    is_unsaid = sa.or_(messages.c.id.is_(None), messages.c.deleted_at.is_not(None))
    of_summary = sa.select(owner).where(summary_sources.c.summary_id == summaries.c.id)
    return sa.or_(
        of_summary.select_from(with_memory).where(kind == "memory", is_gone).exists(),
        of_summary.select_from(with_message).where(kind == "message", is_unsaid).exists(),
        of_summary.select_from(learned).where(kind == "message", is_forgotten).exists(),
    )


def reworded_since(log_number: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return the condition for memories with an edit after a number of the index log that changed what they say."""
    # An edit of the stage LINK only says where a memory belongs, which no summary says.
    # A mention of a memory is in the log too. What changes the memory also leaves a row of history, at the same time.
    is_same = sa.and_(index_log.c.memory_id == history.c.memory_id, index_log.c.at == history.c.updated_at)
    edited = sa.select(history.c.seq).select_from(history.join(index_log, is_same))
    of_memory = (history.c.memory_id == memories.c.id, index_log.c.user_id == memories.c.user_id)
    later = edited.where(*of_memory, history.c.stage != LINK, index_log.c.seq > log_number)
    return later.correlate(memories, summaries).exists()  # the number may be of the summary, two selects further out


def erase_of(conn: sa.Connection, summary_ids: Sequence[int]) -> None:
    """Erase summaries with what they rest on."""
    conn.execute(sa.delete(summary_sources).where(among(summary_sources.c.summary_id, summary_ids)))
    conn.execute(sa.delete(summaries).where(among(summaries.c.id, summary_ids)))


def resting_on(conn: sa.Connection, user_id: str, owner_ids: Sequence[str]) -> list[int]:
    """Return the ids of a user's summaries that may quote memories or messages.

    These are the ones that rest on them, and the ones of which it is not known what they rest on.
    """
    is_one = among(summary_sources.c.owner_id, owner_ids)
    rests_on_one = sa.exists().where(summary_sources.c.summary_id == summaries.c.id, is_one)
    query = sa.select(summaries.c.id).where(summaries.c.user_id == user_id, sa.or_(~has_sources(), rests_on_one))
    return list(conn.execute(query.order_by(summaries.c.id)).scalars())


# Read summaries, what they are written from, and what changed since one was written.


def latest_summary(conn: sa.Connection, scope: Scope, kind: str) -> Summary | None:
    """Return the newest summary of exactly this scope and kind, or None if there is none."""
    row = conn.execute(_of_kind(scope, kind).limit(1)).one_or_none()
    return None if row is None else to_summary(row)


def newest_number(conn: sa.Connection, user_id: str) -> int:
    """Return the row number of a user's newest summary of whatever scope and kind; 0 if there is none."""
    return conn.execute(sa.select(sa.func.max(summaries.c.id)).where(summaries.c.user_id == user_id)).scalar() or 0


def newest_texts(conn: sa.Connection, scope: Scope, limit: int) -> list[str]:
    """Return the texts of the newest summaries of exactly this scope, of whatever kind, newest first."""
    query = sa.select(summaries.c.text).where(is_scope(summaries, scope)).order_by(summaries.c.id.desc()).limit(limit)
    return list(conn.execute(query).scalars())


def kinds_with_passage(conn: sa.Connection, passage: str) -> list[str]:
    """Return the kinds of the summaries, of all scopes, that have a passage."""
    # Unlike LIKE, replace compares exactly and has no wildcards. Every database has it.
    query = sa.select(summaries.c.kind).where(sa.func.replace(summaries.c.text, passage, "") != summaries.c.text)
    return sorted(conn.execute(query.distinct()).scalars())


def current_summary(conn: sa.Connection, scope: Scope, kind: str, now: datetime | None = None) -> Summary | None:
    """Return the newest summary of exactly this scope and kind unless it may say what no longer holds.

    It may if something that it rests on was changed or deleted since, or has ended by `now`, or if it is not known what
    it rests on. Without `now` it is a summary of what was said on a day.
    """
    is_current = sa.and_(has_sources(), ~have_changed()).label("is_current")
    row = conn.execute(_of_kind(scope, kind, is_current).limit(1)).one_or_none()
    if row is None or not row.is_current:
        return None
    last = to_summary(row)
    behind_it = sa.select(summary_sources.c.owner_id).where(summary_sources.c.summary_id == row.id)
    ending = (memories.c.id.in_(behind_it), memories.c.valid_until.is_not(None))
    has_ended = now is not None and any(_ended_after(memory, last, now) for memory in read_memories(conn, *ending))
    return None if has_ended else last


def _ended_after(memory: Memory, summary: Summary, now: datetime) -> bool:
    return memory.has_ended(now) and not memory.has_ended(summary.created_at.astimezone(now.tzinfo))


def base_summary(conn: sa.Connection, scope: Scope, kind: str) -> tuple[int | None, Summary | None]:
    """Return the newest summary that the next one can be written from, with what it rests on, and its row number.

    That is one of which it is known what it rests on, and nothing of that was deleted. It may have changed since.
    """
    row = conn.execute(_of_kind(scope, kind).where(has_sources(), ~have_gone()).limit(1)).one_or_none()
    return (None, None) if row is None else (row.id, _with_sources(conn, row))


def _with_sources(conn: sa.Connection, row: sa.Row[Any]) -> Summary:
    of_memories, message_ids = read(conn, row.id)
    return replace(to_summary(row), sources=of_memories, message_ids=message_ids)


def changed_behind(conn: sa.Connection, scope: Scope, summary: Summary, at: datetime) -> list[tuple[Memory, str]]:
    """Return the memories that a summary rests on and that have changed by a time, each with its text before.

    Some of them have ended, or were replaced.
    """
    now = memories_by_id(conn, list(summary.sources))
    changed = [
        memory
        for memory in now.values()
        if memory.revision != summary.sources[memory.id] or _ended_after(memory, summary, at)
    ]
    if not changed:
        return []
    then = memories_at(conn, scope, summary.created_at, [memory.id for memory in changed])
    texts = {memory.id: memory.text for memory in then}
    return [(memory, texts.get(memory.id, memory.text)) for memory in changed]


def behind(conn: sa.Connection, scope: Scope, kind: str) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """Return what `read` does of the newest summary of exactly this scope and kind, if there is one."""
    row = conn.execute(_of_kind(scope, kind).limit(1)).one_or_none()
    return ({}, ()) if row is None else read(conn, row.id)


def summaries_beyond(conn: sa.Connection, scope: Scope, prefix: str, base_id: int | None, limit: int) -> list[Summary]:
    """Return the newest summaries of kinds that begin with a prefix and rest on what a summary does not rest on.

    Each is returned with what it rests on; outdated ones are left out. Those of the last kinds come first.
    """
    beyond, known = summary_sources.alias(), summary_sources.alias()
    is_known = (known.c.summary_id == base_id, known.c.kind == beyond.c.kind, known.c.owner_id == beyond.c.owner_id)
    rests_beyond = sa.exists().where(beyond.c.summary_id == summaries.c.id, ~sa.exists().where(*is_known))
    begins = sa.and_(summaries.c.kind >= prefix, summaries.c.kind < f"{prefix}\U0010ffff")
    good = (_is_of(scope), begins, rests_beyond, has_sources(), ~have_changed())
    query = sa.select(summaries).where(*good).order_by(summaries.c.kind.desc())
    return [_with_sources(conn, row) for row in conn.execute(query.limit(limit)).all()]


def _of_kind(scope: Scope, kind: str, *flags: sa.Label[bool]) -> sa.Select[Any]:
    of_kind = (_is_of(scope), summaries.c.kind == kind)
    return sa.select(summaries, *flags).where(*of_kind).order_by(summaries.c.id.desc())


def _is_of(scope: Scope) -> sa.ColumnElement[bool]:
    """Return the condition for the summaries of exactly this scope.

    The kept ones of a project rest on what is general too, so there is none for a scope that does not see that.
    """
    return is_scope(summaries, scope) if scope.with_general else sa.false()


def count_changes_since(conn: sa.Connection, scope: Scope, log_number: int) -> int:
    """Return how many memories that the scope sees changed after a number of the index log, each counted once."""
    is_later = (index_log.c.user_id == scope.user_id, index_log.c.seq > log_number)
    changed = sa.select(sa.func.count(index_log.c.memory_id.distinct())).where(*is_later)
    query = changed.join_from(index_log, memories, memories.c.id == index_log.c.memory_id)
    return conn.execute(query.where(sees(memories, scope))).scalar_one()


def memories_beyond(conn: sa.Connection, scope: Scope, base_id: int | None, limit: int) -> list[Memory]:
    """Return the newest living memories that the scope sees and a summary does not rest on, newest first."""
    is_read = (summary_sources.c.summary_id == base_id, summary_sources.c.kind == "memory")
    is_unread = ~sa.exists().where(*is_read, summary_sources.c.owner_id == memories.c.id)
    return read_memories(conn, is_living(memories, scope), is_unread, order=NEWEST, limit=limit)


def memories_said(conn: sa.Connection, scope: Scope, since: datetime, until: datetime, limit: int) -> list[Memory]:
    """Return the newest living memories that were said from a time on until before another, newest first."""
    is_read = (is_living(memories, scope), _between(memories.c.stated_at, since, until))
    return read_memories(conn, *is_read, order=LAST_STATED, limit=limit)


def memories_of_time(conn: sa.Connection, scope: Scope, since: datetime, until: datetime, limit: int) -> list[Memory]:
    """Return the living memories that were said, or of which the matter happened, in a time; the newest first.

    When they were stored does not count: an import stores what was said years ago.
    """
    is_then = sa.or_(*(_between(at, since, until) for at in (memories.c.stated_at, memories.c.happened_at)))
    return read_memories(conn, is_living(memories, scope), is_then, order=LAST_STATED, limit=limit)


def messages_said(conn: sa.Connection, scope: Scope, since: datetime, until: datetime, limit: int) -> list[Message]:
    """Return the newest living messages that were said from a time on until before another, oldest first.

    Pages of documents, and messages with a forgotten fact, are left out.
    """
    is_read = (_is_said(scope), _between(messages.c.said_at, since, until))
    return without_forgotten(conn, read_messages(conn, *is_read, order=LAST_SAID, limit=limit)[::-1])


def messages_of_session(conn: sa.Connection, scope: Scope, session_id: str, limit: int) -> list[Message]:
    """Return the newest living messages of a conversation, in order. Those with a forgotten fact are left out."""
    return newest_said(conn, limit, is_living(messages, scope), messages.c.session_id == session_id)


def last_session(conn: sa.Connection, scope: Scope) -> str:
    """Return the id of the conversation with the newest message, or "" if there is none."""
    query = sa.select(messages.c.session_id).where(_is_said(scope))
    return conn.execute(query.order_by(*LAST_SAID).limit(1)).scalar_one_or_none() or ""


def dates_with_something_said(
    conn: sa.Connection, scope: Scope, since: datetime, until: datetime, zone: tzinfo | None
) -> list[str]:
    """Return the days between two times on which a memory or message that lives was said, the last first.

    They are days in a zone.
    """
    said = ((memories.c.stated_at, is_living(memories, scope)), (messages.c.said_at, _is_said(scope)))
    days = {day for at, lives in said for day in count_by_day(conn, at, zone, lives, _between(at, since, until))}
    return sorted(days, reverse=True)


def count_said(conn: sa.Connection, scope: Scope, since: datetime, until: datetime) -> int:
    """Return how many living memories and messages were said from a time on until before another."""
    of_memories = count(conn, is_living(memories, scope), _between(memories.c.stated_at, since, until))
    return of_memories + count(conn, _is_said(scope), _between(messages.c.said_at, since, until))


def count_said_since(conn: sa.Connection, scope: Scope, last: Summary, since: datetime, until: datetime) -> int:
    """Return how many memories and messages of a time were stored or reworded after a summary was written."""
    of_time = _is_said(scope), _between(messages.c.said_at, since, until)
    return _count_newer(conn, scope, last, _between(memories.c.stated_at, since, until), *of_time)


def count_in_session_since(conn: sa.Connection, scope: Scope, last: Summary, session_id: str) -> int:
    """Return how many memories and messages of a conversation were stored or reworded after a summary was written."""
    of_session = (_is_said(scope), messages.c.session_id == session_id)
    cited = sa.select(memory_sources.c.memory_id).join(messages, messages.c.id == memory_sources.c.message_id)
    return _count_newer(conn, scope, last, memories.c.id.in_(cited.where(*of_session)), *of_session)


def _count_newer(
    conn: sa.Connection, scope: Scope, last: Summary, stated: sa.ColumnElement[bool], *said: sa.ColumnElement[bool]
) -> int:
    reworded = count(conn, is_living(memories, scope), stated, reworded_since(sa.literal(last.seq)))
    return reworded + count(conn, *said, messages.c.created_at > last.created_at)


def _is_said(scope: Scope) -> sa.ColumnElement[bool]:
    return sa.and_(is_living(messages, scope), IS_SAID)


def _between(column: sa.ColumnElement[datetime], since: datetime, until: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(column >= since, column < until)
