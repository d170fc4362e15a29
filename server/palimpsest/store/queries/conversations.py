"""Read conversations: the messages of one session, and what is known of it besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, func, or_, select

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import Message, Scope
from palimpsest.store.mapping import sees, to_message
from palimpsest.store.queries.messages import sessions_with_forgotten, without_forgotten
from palimpsest.store.schema import conversations, messages

MIN_PREFIX = 8
"""The fewest characters that are accepted as the beginning of an id."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation that has living messages. `id` is their session id, and `first` the first of them.

    `client` is the program it was held in and `title` what it is called there; both are "" if that is not known.
    If something that was said in it is forgotten, `title` is "" too, because it may say the same, and `first` is None
    if that message says it.
    """

    id: str
    project: str
    client: str
    title: str
    first: Message | None
    messages: int
    began_at: datetime
    ended_at: datetime


def list_conversations(
    conn: Connection, scope: Scope, limit: int, after: tuple[datetime, str] | None = None
) -> list[ConversationSummary]:
    """Return up to `limit` conversations that the scope sees, the one with the newest message first.

    `after` is the time of the last message and the id of the conversation that a page ended with.
    """
    ended_at, session_id = func.max(messages.c.said_at), messages.c.session_id
    query = (
        select(
            session_id,
            func.count().label("messages"),
            func.min(messages.c.said_at).label("began_at"),
            ended_at.label("ended_at"),
            func.min(messages.c.seq).label("first"),
            func.max(messages.c.project).label("project"),
        )
        .where(sees(messages, scope), messages.c.deleted_at.is_(None))
        .group_by(session_id)
        .order_by(ended_at.desc(), session_id)
        .limit(limit)
    )
    if after is not None:
        at, last_id = after
        query = query.having(or_(ended_at < at, and_(ended_at == at, session_id > last_id)))
    rows = conn.execute(query).all()
    known = select(conversations).where(
        sees(conversations, scope), conversations.c.session_id.in_([r[0] for r in rows])
    )
    by_id = {row.session_id: row for row in conn.execute(known.order_by(conversations.c.seq))}
    begin = conn.execute(select(messages).where(messages.c.seq.in_([row.first for row in rows])))
    first = {message.session_id: message for message in without_forgotten(conn, [to_message(row) for row in begin])}
    titled = by_id.keys() - sessions_with_forgotten(conn, list(by_id))
    return [
        ConversationSummary(
            row.session_id,
            row.project,
            by_id[row.session_id].client if row.session_id in by_id else "",
            by_id[row.session_id].title if row.session_id in titled else "",
            first.get(row.session_id),
            row.messages,
            row.began_at,
            row.ended_at,
        )
        for row in rows
    ]


def count_conversations(conn: Connection, scope: Scope) -> tuple[int, int]:
    """Return how many conversations with living messages the scope sees, and how many messages these have."""
    counts = select(func.count(messages.c.session_id.distinct()), func.count())
    row = conn.execute(counts.where(sees(messages, scope), messages.c.deleted_at.is_(None))).one()
    return row[0], row[1]


def find_conversation(conn: Connection, scope: Scope, conversation_id: str) -> str:
    """Return the whole id of the conversation that an id, or the beginning of one, names.

    Raises MemoryNotFoundError, and InputError for a beginning that is too short or that several ids have.
    """
    prefix = conversation_id.strip().lower()
    if len(prefix) < MIN_PREFIX:
        raise InputError(f"'{prefix[:80]}' is too short for an id. Use at least its first {MIN_PREFIX} characters")
    # "g" comes after every hexadecimal digit.
    begins = and_(messages.c.session_id >= prefix, messages.c.session_id < f"{prefix}g")
    query = select(messages.c.session_id).where(begins, sees(messages, scope), messages.c.deleted_at.is_(None))
    found: Sequence[str] = conn.execute(query.distinct().limit(2)).scalars().all()
    if len(found) > 1:
        raise InputError(f"several conversations begin with '{prefix}': {', '.join(found)}. Use more characters")
    if not found:
        raise MemoryNotFoundError(f"no conversation '{prefix[:80]}' for {scope}. palimpsest conversations lists them")
    return found[0]


def messages_in(
    conn: Connection, scope: Scope, session_id: str, limit: int, after: int = 0
) -> list[tuple[int, Message]]:
    """Return up to `limit` living messages of a conversation with their row numbers, in order, after row `after`."""
    in_session = (messages.c.session_id == session_id, sees(messages, scope), messages.c.deleted_at.is_(None))
    query = select(messages).where(*in_session, messages.c.seq > after).order_by(messages.c.seq).limit(limit)
    return [(row.seq, to_message(row)) for row in conn.execute(query)]


def list_messages(
    conn: Connection, scope: Scope, limit: int, *, before: int | None = None, deleted: bool = False
) -> list[tuple[int, Message]]:
    """Return up to `limit` messages with their row numbers, newest first, from below row `before`."""
    is_deleted = messages.c.deleted_at.is_not(None) if deleted else messages.c.deleted_at.is_(None)
    query = select(messages).where(sees(messages, scope), is_deleted).order_by(messages.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(messages.c.seq < before)
    return [(row.seq, to_message(row)) for row in conn.execute(query)]
