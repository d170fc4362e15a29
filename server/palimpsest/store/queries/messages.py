"""Read messages, who wrote them, and what was learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache

from sqlalchemy import ColumnElement, Connection, bindparam, case, func, select

from palimpsest.core.models import PAGE, Message, Scope
from palimpsest.store.mapping import (
    Query,
    chunks,
    is_scope,
    listed,
    scope_parts,
    scope_values,
    sees,
    sees_named,
    to_message,
)
from palimpsest.store.queries.memories import learned_memories
from palimpsest.store.schema import memories, memory_sources, messages

MAX_SPEAKERS = 1_000
"""How many names of speakers are read for a user."""

LAST_MESSAGES = 200
"""Among how many of the messages stored last the last conversation is looked for. Set by hand: a few milliseconds."""

_BY_ID = select(messages).where(messages.c.id.in_(listed("ids")))


def is_said() -> ColumnElement[bool]:
    """Return the condition for messages of conversations. The others are pages of documents, which nobody said."""
    return messages.c.role != PAGE


def messages_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Message]:
    """Return messages, living or deleted, by id."""
    return {row.id: to_message(row) for chunk in chunks(ids) for row in conn.execute(_BY_ID, {"ids": chunk}).all()}


def messages_of(conn: Connection, scope: Scope) -> list[Message]:
    """Return the living messages of a scope, oldest first. A project's scope does not include the global ones."""
    query = select(messages).where(
        sees(messages, scope), messages.c.project == scope.project, messages.c.deleted_at.is_(None)
    )
    return [to_message(row) for row in conn.execute(query.order_by(messages.c.seq))]


def messages_before(conn: Connection, scope: Scope, message_id: str, limit: int) -> list[Message]:
    """Return the living messages of exactly this scope that were stored before a message, the last `limit`, in order.

    Those with a forgotten fact are left out.
    """
    first = select(messages.c.seq).where(messages.c.id == message_id).scalar_subquery()
    query = (
        select(messages)
        .where(is_scope(messages, scope), messages.c.deleted_at.is_(None), messages.c.seq < first, is_said())
        .order_by(messages.c.seq.desc())
        .limit(limit)
    )
    return without_forgotten(conn, [to_message(row) for row in conn.execute(query)][::-1])


def messages_since(conn: Connection, scope: Scope, since: datetime, limit: int) -> list[Message]:
    """Return the newest living messages that the scope sees and that were said since a time, oldest first.

    Messages with a forgotten fact are left out.
    """
    query = (
        select(messages)
        .where(sees(messages, scope), messages.c.said_at >= since, messages.c.deleted_at.is_(None), is_said())
        .order_by(messages.c.seq.desc())
        .limit(limit)
    )
    return without_forgotten(conn, [to_message(row) for row in conn.execute(query)][::-1])


def last_conversation(conn: Connection, scope: Scope) -> list[Message]:
    """Return the messages of the last conversation of the scope's project, oldest first, as far as they are read.

    Deleted messages, and those with a forgotten fact, are left out.
    """
    query = (
        select(messages)
        .where(sees(messages, scope), messages.c.project == scope.project, messages.c.deleted_at.is_(None), is_said())
        .order_by(messages.c.seq.desc())
        .limit(LAST_MESSAGES)
    )
    newest = without_forgotten(conn, [to_message(row) for row in conn.execute(query)][::-1])
    newest.sort(key=lambda message: message.said_at)  # an import stores old conversations last
    return [message for message in newest if message.session_id == newest[-1].session_id]


def sources_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, list[Message]]:
    """Return the messages that each memory was learned from, oldest first."""
    by_memory: dict[str, list[Message]] = {}
    for chunk in chunks(memory_ids):
        for row in conn.execute(_SOURCES, {"ids": chunk}).all():
            by_memory.setdefault(row.memory_id, []).append(to_message(row))
    return by_memory


_SOURCES = (
    select(memory_sources.c.memory_id, messages)
    .join(messages, messages.c.id == memory_sources.c.message_id)
    .where(memory_sources.c.memory_id.in_(listed("ids")))
    .order_by(messages.c.seq)
)


def awaiting_extraction(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Return the ids of those living messages that no facts were extracted from yet."""
    return {
        message_id
        for chunk in chunks(message_ids)
        for message_id in conn.execute(_AWAITING_EXTRACTION, {"ids": chunk}).scalars()
    }


_AWAITING_EXTRACTION = select(messages.c.id).where(
    messages.c.id.in_(listed("ids")), messages.c.learnt.is_(False), messages.c.deleted_at.is_(None), is_said()
)


def outdated_or_forgotten(conn: Connection, message_ids: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the messages whose memories are all closed, and those of which at least one memory was forgotten.

    A closed memory was replaced, or has ended. A forgotten one was deleted, and so was what its messages say about it.
    Memories that only an undo deleted do not count.
    """
    outdated: set[str] = set()
    forgotten: set[str] = set()
    for chunk in chunks(message_ids):
        for message_id, living, gone in conn.execute(_STATES_OF_MEMORIES, {"ids": chunk}).all():
            if gone:
                forgotten.add(message_id)
            elif not living:
                outdated.add(message_id)
    return outdated, forgotten


_STATES_OF_MEMORIES = (
    select(
        memory_sources.c.message_id,
        func.sum(case((memories.c.deleted_at.is_(None), 1), else_=0)),
        func.sum(case((memories.c.is_forgotten.is_(True), 1), else_=0)),
    )
    .join(memories, memories.c.id == memory_sources.c.memory_id)
    .where(memory_sources.c.message_id.in_(listed("ids")), learned_memories())
    .group_by(memory_sources.c.message_id)
)


def without_forgotten(conn: Connection, found: Sequence[Message]) -> list[Message]:
    """Return the messages that say nothing that was forgotten."""
    _, forgotten = outdated_or_forgotten(conn, [message.id for message in found])
    return [message for message in found if message.id not in forgotten]


def sessions_with_forgotten(conn: Connection, session_ids: Sequence[str]) -> set[str]:
    """Return those of some sessions in which something was said that was forgotten."""
    return {row for chunk in chunks(session_ids) for row in conn.execute(_FORGETFUL, {"ids": chunk}).scalars()}


_FORGETFUL = (
    select(messages.c.session_id)
    .join(memory_sources, memory_sources.c.message_id == messages.c.id)
    .join(memories, memories.c.id == memory_sources.c.memory_id)
    .where(messages.c.session_id.in_(listed("ids")), memories.c.is_forgotten.is_(True), learned_memories())
    .distinct()
)


def speakers(conn: Connection, user_id: str) -> list[str]:
    """Return the names of the speakers in a user's messages of all projects.

    The query makes one step in an index for each name, however many messages there are.
    """
    return list(conn.execute(_SPEAKERS, {"user_id": user_id}).scalars().all())


def _speakers() -> Query:
    first = select(func.min(messages.c.name).label("name")).where(messages.c.user_id == bindparam("user_id"))
    names = first.where(messages.c.name != "").cte(recursive=True)
    following = first.where(messages.c.name > names.c.name).scalar_subquery()
    names = names.union_all(select(following).where(names.c.name.is_not(None)))
    return select(names.c.name).where(names.c.name.is_not(None)).limit(MAX_SPEAKERS)


_SPEAKERS = _speakers()


def has_speaker(conn: Connection, scope: Scope, name: str) -> bool:
    """Return whether the scope sees a message of a speaker of this name."""
    return conn.execute(_by_speaker(scope_parts(scope)), {**scope_values(scope), "name": name}).first() is not None


@cache
def _by_speaker(parts: tuple[bool, ...]) -> Query:
    is_speaker = messages.c.name == bindparam("name")
    return select(messages.c.seq).where(sees_named(messages, parts), is_speaker).limit(1)
