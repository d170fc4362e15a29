"""Questions about memories, messages, history and summaries. Each takes a connection of `Ledger.read`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache

from sqlalchemy import ColumnElement, Connection, bindparam, exists, func, or_, select

from palimpsest.core.models import UNDO, Event, Memory, Message, Scope, Summary, Version
from palimpsest.store.mapping import (
    Query,
    chunks,
    is_scope,
    listed,
    sees,
    to_history,
    to_memory,
    to_message,
    to_summary,
    with_state,
)
from palimpsest.store.schema import (
    history,
    index_log,
    memories,
    memory_sources,
    message_history,
    messages,
    summaries,
    vectors,
)

_BY_ID = {table: select(table).where(table.c.id.in_(listed("ids"))) for table in (memories, messages)}

MAX_NAMES = 1_000


def head(conn: Connection) -> int:
    """Return the newest number of the change log; 0 when nothing has been written."""
    return conn.execute(select(func.max(index_log.c.seq))).scalar_one() or 0


def list_memories(
    conn: Connection, scope: Scope, limit: int, *, before: int | None = None, deleted: bool = False
) -> list[tuple[int, Memory]]:
    """Return up to `limit` memories with their row numbers, newest first, from below row `before`."""
    query = (
        select(memories)
        .where(
            sees(memories, scope),
            memories.c.deleted_at.is_not(None) if deleted else memories.c.deleted_at.is_(None),
        )
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(memories.c.seq < before)
    return [(row.seq, to_memory(row)) for row in conn.execute(query)]


def count_memories(conn: Connection, scope: Scope) -> int:
    """Return how many living memories the scope sees."""
    query = select(func.count()).where(sees(memories, scope), memories.c.deleted_at.is_(None))
    return conn.execute(query).scalar_one()


def stored_in(conn: Connection, scope: Scope) -> tuple[list[Memory], list[Message]]:
    """Return the living memories and turns of a scope itself, without the global ones that a project sees besides."""
    of_memories, of_messages = (
        select(table).where(sees(table, scope), table.c.project == scope.project, table.c.deleted_at.is_(None))
        for table in (memories, messages)
    )
    return (
        [to_memory(row) for row in conn.execute(of_memories.order_by(memories.c.seq))],
        [to_message(row) for row in conn.execute(of_messages.order_by(messages.c.seq))],
    )


def projects_of(conn: Connection, user_id: str) -> list[str]:
    """Return the projects in which a user has living memories; "" is none in particular."""
    mine = (memories.c.user_id == user_id, memories.c.deleted_at.is_(None))
    query = select(memories.c.project).where(*mine).distinct().order_by(memories.c.project)
    return list(conn.execute(query).scalars())


def memories_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Memory]:
    """Return memories, living or deleted, by id."""
    return {
        row.id: to_memory(row) for chunk in chunks(ids) for row in conn.execute(_BY_ID[memories], {"ids": chunk}).all()
    }


def messages_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Message]:
    """Return messages by id."""
    return {
        row.id: to_message(row) for chunk in chunks(ids) for row in conn.execute(_BY_ID[messages], {"ids": chunk}).all()
    }


def sources_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, list[Message]]:
    """Return the messages behind each memory, oldest first."""
    found: dict[str, list[Message]] = {}
    for chunk in chunks(memory_ids):
        for row in conn.execute(_SOURCES, {"ids": chunk}).all():
            found.setdefault(row.memory_id, []).append(to_message(row))
    return found


_SOURCES = (
    select(memory_sources.c.memory_id, messages)
    .join(messages, messages.c.id == memory_sources.c.message_id)
    .where(memory_sources.c.memory_id.in_(listed("ids")))
    .order_by(messages.c.seq)
)


def citing(conn: Connection, message_ids: Sequence[str]) -> dict[str, list[Memory]]:
    """Return the memories that came from each message, living and deleted; not those that an undo made unlearnt."""
    found: dict[str, list[Memory]] = {}
    for chunk in chunks(message_ids):
        query = (
            select(memory_sources.c.message_id, memories)
            .join(memories, memories.c.id == memory_sources.c.memory_id)
            .where(memory_sources.c.message_id.in_(chunk), _learnt())
        )
        for row in conn.execute(query):
            found.setdefault(row.message_id, []).append(to_memory(row))
    return found


def history_of(conn: Connection, memory_id: str) -> list[Version]:
    """Return every change of a memory, oldest first, with the caller's ids of the messages behind each."""
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


def recent_messages(conn: Connection, scope: Scope, limit: int) -> list[Message]:
    """Return the newest messages of just this scope, oldest first."""
    living = (is_scope(messages, scope), messages.c.deleted_at.is_(None))
    query = select(messages).where(*living).order_by(messages.c.seq.desc()).limit(limit)
    return [to_message(row) for row in conn.execute(query)][::-1]


def messages_since(conn: Connection, scope: Scope, since: datetime, limit: int) -> list[Message]:
    """Return the newest messages the scope sees that were said since an instant, oldest first."""
    query = (
        select(messages)
        .where(sees(messages, scope), messages.c.said_at >= since, messages.c.deleted_at.is_(None))
        .order_by(messages.c.seq.desc())
        .limit(limit)
    )
    return [to_message(row) for row in conn.execute(query)][::-1]


def messages_until(conn: Connection, scope: Scope, instant: datetime) -> list[Message]:
    """Return the messages the scope sees that were kept, and not forgotten, up to an instant, oldest first."""
    last = (
        select(func.max(message_history.c.seq).label("seq"))
        .join(messages, messages.c.id == message_history.c.message_id)
        .where(sees(messages, scope), message_history.c.updated_at <= instant)
        .group_by(message_history.c.message_id)
        .subquery()
    )
    query = (
        select(messages)
        .join(message_history, message_history.c.message_id == messages.c.id)
        .join(last, last.c.seq == message_history.c.seq)
        .where(message_history.c.event == Event.ADD.value)
        .order_by(messages.c.seq)
    )
    return [to_message(row) for row in conn.execute(query)]


def unlearnt(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Return those of the turns in which no facts were looked for yet and which are not forgotten."""
    fresh = (messages.c.learnt.is_(False), messages.c.deleted_at.is_(None))
    return {
        found
        for chunk in chunks(message_ids)
        for found in conn.execute(select(messages.c.id).where(messages.c.id.in_(chunk), *fresh)).scalars()
    }


def latest_summary(conn: Connection, scope: Scope, kind: str) -> Summary | None:
    """Return the newest summary of just this scope and kind."""
    query = (
        select(summaries)
        .where(is_scope(summaries, scope), summaries.c.kind == kind)
        .order_by(summaries.c.id.desc())
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else to_summary(row)


def changes_since(conn: Connection, scope: Scope, seq: int) -> int:
    """Return how many changes of memories the scope has seen after number `seq` of the log."""
    query = (
        select(func.count())
        .select_from(index_log.join(memories, memories.c.id == index_log.c.memory_id))
        .where(index_log.c.user_id == scope.user_id, index_log.c.seq > seq, sees(memories, scope))
    )
    return conn.execute(query).scalar_one()


def believed_at(conn: Connection, scope: Scope, instant: datetime) -> list[Memory]:
    """Return the memories that were believed at an instant, as they were then."""
    last = (
        select(func.max(history.c.seq).label("seq"))
        .join(memories, memories.c.id == history.c.memory_id)
        .where(sees(memories, scope), history.c.updated_at <= instant)
        .group_by(history.c.memory_id)
        .subquery()
    )
    query = (
        select(memories, history.c.new_memory, history.c.state, history.c.updated_at.label("changed_at"))
        .join(history, history.c.memory_id == memories.c.id)
        .join(last, last.c.seq == history.c.seq)
        .where(history.c.is_deleted.is_(False))
    )
    return [with_state(to_memory(row), row.new_memory, row.state, row.changed_at) for row in conn.execute(query)]


def deleted_since(conn: Connection, scope: Scope, seq: int) -> bool:
    """Say whether a memory the scope sees was deleted or superseded, or a turn forgotten, after number `seq`."""
    query = (
        select(index_log.c.seq)
        .join(memories, memories.c.id == index_log.c.memory_id)
        .where(
            index_log.c.user_id == scope.user_id,
            index_log.c.seq > seq,
            memories.c.deleted_at.is_not(None),
            sees(memories, scope),
        )
    )
    turn = (
        select(index_log.c.seq)
        .join(vectors, vectors.c.seq == index_log.c.unit_seq)
        .where(
            index_log.c.user_id == scope.user_id,
            index_log.c.seq > seq,
            index_log.c.op == "delete",
            vectors.c.kind == "message",
            sees(vectors, scope),
        )
    )
    return any(conn.execute(each.limit(1)).first() is not None for each in (query, turn))


def names(conn: Connection, user_id: str) -> list[str]:
    """Return the names of those who spoke to a user, in all projects; by index, a step a name."""
    return list(conn.execute(_NAMES, {"user_id": user_id}).scalars().all())


def _names() -> Query:
    mine = select(func.min(messages.c.name).label("name")).where(messages.c.user_id == bindparam("user_id"))
    step = mine.where(messages.c.name != "").cte(recursive=True)
    following = mine.where(messages.c.name > step.c.name).scalar_subquery()
    step = step.union_all(select(following).where(step.c.name.is_not(None)))
    return select(step.c.name).where(step.c.name.is_not(None)).limit(MAX_NAMES)


_NAMES = _names()


def speaks(conn: Connection, scope: Scope, name: str) -> bool:
    """Say whether somebody of that name spoke in what the scope sees."""
    query = select(messages.c.seq).where(sees(messages, scope), messages.c.name == name)
    return conn.execute(query.limit(1)).first() is not None


def unheld(conn: Connection, message_ids: Sequence[str]) -> dict[str, bool]:
    """Return those messages no fact of which is believed any more: whether at least one of them was superseded.

    Messages that no fact ever came from are left out, and so are facts that an undo made unlearnt.
    """
    return {
        message_id: bool(superseded)
        for chunk in chunks(message_ids)
        for message_id, superseded in conn.execute(_unheld(), {"ids": chunk}).all()
    }


@cache
def _unheld() -> Query:
    return (
        select(memory_sources.c.message_id, func.max(memories.c.superseded_by.is_not(None)))
        .join(memories, memories.c.id == memory_sources.c.memory_id)
        .where(memory_sources.c.message_id.in_(listed("ids")), _learnt())
        .group_by(memory_sources.c.message_id)
        .having(func.sum(memories.c.deleted_at.is_(None)) == 0)
    )


def _learnt() -> ColumnElement[bool]:
    """Return the condition for memories but those that only an undo deleted: they were never learnt, so to say."""
    deleted = exists().where(
        history.c.memory_id == memories.c.id, history.c.is_deleted.is_(True), history.c.stage.not_like(f"{UNDO}%")
    )
    return or_(memories.c.deleted_at.is_(None), deleted)


def counts(conn: Connection, scope: Scope) -> dict[str, int]:
    """Return how much there is: for the scope, and in the whole ledger."""
    alive = memories.c.deleted_at.is_(None)
    queries = {
        "memories": select(func.count()).where(sees(memories, scope), alive),
        "deleted": select(func.count()).where(sees(memories, scope), or_(memories.c.deleted_at.is_not(None))),
        "messages": select(func.count()).where(sees(messages, scope), messages.c.deleted_at.is_(None)),
        "units": select(func.count()).where(vectors.c.live.is_(True)),
        "users": select(func.count(vectors.c.user_id.distinct())),
    }
    return {name: conn.execute(query).scalar_one() for name, query in queries.items()}


def holders(conn: Connection, scope: Scope, passage: str) -> tuple[list[str], int]:
    """Return which memories and turns of the scope, living or not, ever held a passage; and how many others did."""
    mine: set[str] = set()
    every: set[str] = set()
    for table, owner, columns in (
        (memories, memories.c.id, (memories.c.text,)),
        (history, history.c.memory_id, (history.c.old_memory, history.c.new_memory)),
        (messages, messages.c.id, (messages.c.content,)),
    ):
        holds = or_(*(func.instr(column, passage) > 0 for column in columns))
        every.update(conn.execute(select(owner).select_from(table).where(holds)).scalars())
    for table in (memories, messages):
        for chunk in chunks(sorted(every)):
            mine.update(conn.execute(select(table.c.id).where(table.c.id.in_(chunk), sees(table, scope))).scalars())
    return sorted(mine), len(every - mine)
