"""Read the history: versions of a memory, and what was stored at an earlier time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Text, and_, cast, func, or_, select

from palimpsest.core.models import Event, Memory, Message, Predecessor, Scope, Version, has_expired
from palimpsest.store.mapping import chunks, listed, sees, to_history, to_memory, to_message, with_state
from palimpsest.store.queries.messages import sources_of
from palimpsest.store.schema import history, memories, memory_sources, message_history, messages, project_aliases


def versions_of(conn: Connection, memory_id: str) -> list[Version]:
    """Return every version of a memory, oldest first, with the ids by which callers know its source messages."""
    sources: dict[str, list[str]] = {}
    query = (
        select(memory_sources.c.history_id, messages.c.id, messages.c.external_id)
        .join(messages, messages.c.id == memory_sources.c.message_id)
        .where(memory_sources.c.memory_id == memory_id)
        .order_by(messages.c.seq)
    )
    for row in conn.execute(query):
        sources.setdefault(row.history_id, []).append(row.external_id or row.id)
    rows = conn.execute(select(history).where(history.c.memory_id == memory_id).order_by(history.c.seq))
    return [to_history(row, tuple(sources.get(row.id, ()))) for row in rows]


def predecessors(conn: Connection, memory_id: str) -> list[Predecessor]:
    """Return the memories whose place a memory took, oldest first, without those that are forgotten."""
    is_shown = (memories.c.superseded_by == memory_id, memories.c.is_forgotten.is_(False))
    query = select(memories).where(*is_shown).order_by(memories.c.seq)
    replaced = [to_memory(row) for row in conn.execute(query)]
    sources = sources_of(conn, [memory.id for memory in replaced])
    return [Predecessor(old, tuple(message.source for message in sources.get(old.id, ()))) for old in replaced]


def memories_at(
    conn: Connection, scope: Scope, instant: datetime, memory_ids: Sequence[str] | None = None
) -> list[Memory]:
    """Return the memories that the scope sees and that were living at an instant, as they were then.

    One that had expired by then was not living, even if it was closed later. With `memory_ids` only these are read.
    """
    is_read = sees(memories, scope)
    if memory_ids is not None:
        is_read = and_(is_read, history.c.memory_id.in_(listed("ids")))
    newest = (
        select(func.max(history.c.seq).label("seq"))
        .join(memories, memories.c.id == history.c.memory_id)
        .where(is_read, history.c.updated_at <= instant)
        .group_by(history.c.memory_id)
        .subquery()
    )
    query = (
        select(memories, history.c.new_memory, history.c.state, history.c.updated_at.label("changed_at"))
        .join(history, history.c.memory_id == memories.c.id)
        .join(newest, newest.c.seq == history.c.seq)
        .where(history.c.is_deleted.is_(False))
    )
    rows = conn.execute(query, {} if memory_ids is None else {"ids": memory_ids})
    then = (with_state(to_memory(row), row.new_memory, row.state, row.changed_at) for row in rows)
    return [memory for memory in then if not has_expired(memory.metadata, instant)]


def messages_at(conn: Connection, scope: Scope, instant: datetime) -> list[Message]:
    """Return the messages that the scope sees and that were stored and not deleted at an instant, oldest first."""
    newest = (
        select(func.max(message_history.c.seq).label("seq"))
        .join(messages, messages.c.id == message_history.c.message_id)
        .where(sees(messages, scope), message_history.c.updated_at <= instant)
        .group_by(message_history.c.message_id)
        .subquery()
    )
    query = (
        select(messages)
        .join(message_history, message_history.c.message_id == messages.c.id)
        .join(newest, newest.c.seq == message_history.c.seq)
        .where(message_history.c.event == Event.ADD.value)
        .order_by(messages.c.seq)
    )
    return [to_message(row) for row in conn.execute(query)]


def owners_of_passage(conn: Connection, scope: Scope, passage: str) -> tuple[list[str], int]:
    """Return the ids of the scope's memories and messages that have a passage now or in their history.

    Also return how many others have it. Living and deleted ones are searched.
    """
    owners: set[str] = set()
    labels = (
        cast(memories.c[name], Text) for name in ("keywords", "tags", "metadata", "entities", "relations", "links")
    )
    for table, owner_id, columns in (
        (memories, memories.c.id, (memories.c.text, memories.c.context, *labels)),
        (
            history,
            history.c.memory_id,
            (history.c.old_memory, history.c.new_memory, cast(history.c.state, Text)),
        ),
        (messages, messages.c.id, (messages.c.content, messages.c.name)),
    ):
        # Unlike LIKE, replace compares exactly and has no wildcards. Every database has it.
        contains = or_(*(func.replace(column, passage, "") != column for column in columns))
        owners.update(conn.execute(select(owner_id).select_from(table).where(contains)).scalars())
    of_scope: set[str] = set()
    for table in (memories, messages):
        for chunk in chunks(sorted(owners)):
            query = select(table.c.id).where(table.c.id.in_(chunk), sees(table, scope))
            of_scope.update(conn.execute(query).scalars())
    return sorted(of_scope), len(owners - of_scope)


def is_in_names(conn: Connection, passage: str) -> bool:
    """Return whether the name of a user, project, agent or run has a passage, or what a project is known by."""
    columns = [table.c[part] for table in (memories, messages) for part in ("user_id", "project", "agent_id", "run_id")]
    columns += [project_aliases.c.alias, project_aliases.c.project]
    queries = (select(column).where(func.replace(column, passage, "") != column).limit(1) for column in columns)
    return any(conn.execute(query).first() is not None for query in queries)
