"""Read memories as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from sqlalchemy import ColumnElement, Connection, Text, bindparam, cast, func, or_, select, text

from palimpsest.core.models import CAPTURED, ORIGIN, USER_NAME, Memory, Scope
from palimpsest.store.mapping import Query, chunks, listed, scope_parts, scope_values, sees, sees_named, to_memory
from palimpsest.store.schema import TELLS_A_NAME, memories, memory_sources, messages, vectors

_BY_ID = select(memories).where(memories.c.id.in_(listed("ids")))


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


def count_before(conn: Connection, scope: Scope, row: int) -> int:
    """Return how many living memories that the scope sees are older than a row."""
    is_older = (sees(memories, scope), memories.c.deleted_at.is_(None), memories.c.seq < row)
    return conn.execute(select(func.count()).select_from(memories).where(*is_older)).scalar_one()


def metadata_keys(conn: Connection, scope: Scope, *, deleted: bool | None) -> Iterator[str]:
    """Yield every key of the metadata of the memories that the scope sees; a key once for each memory that has it.

    `deleted`: of deleted memories, of living ones, or with None of both.
    """
    stored = memories.c.metadata
    query = select(stored).where(sees(memories, scope), func.length(cast(stored, Text)) > len("{}"))
    if deleted is not None:
        query = query.where(memories.c.deleted_at.is_not(None) if deleted else memories.c.deleted_at.is_(None))
    for metadata in conn.execute(query).scalars():
        yield from metadata


def count_memories(conn: Connection, scope: Scope) -> int:
    """Return how many living memories the scope sees."""
    query = select(func.count()).where(sees(memories, scope), memories.c.deleted_at.is_(None))
    return conn.execute(query).scalar_one()


def count_living(conn: Connection, user_id: str) -> int:
    """Return how many living memories a user has in all scopes. It reads an index of living memories alone."""
    return conn.execute(_COUNT_LIVING, {"user_id": user_id}).scalar_one()


_COUNT_LIVING = select(func.count()).where(memories.c.user_id == bindparam("user_id"), memories.c.deleted_at.is_(None))


def memories_of(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of a scope, oldest first. A project's scope does not include the global ones."""
    query = select(memories).where(
        sees(memories, scope), memories.c.project == scope.project, memories.c.deleted_at.is_(None)
    )
    return [to_memory(row) for row in conn.execute(query.order_by(memories.c.seq))]


def newest_of_project(conn: Connection, scope: Scope, limit: int) -> list[Memory]:
    """Return up to `limit` living memories of the scope's own project, the one that was stated last first."""
    query = select(memories).where(
        sees(memories, scope), memories.c.project == scope.project, memories.c.deleted_at.is_(None)
    )
    newest = query.order_by(memories.c.stated_at.desc(), memories.c.seq.desc()).limit(limit)
    return [to_memory(row) for row in conn.execute(newest)]


def projects_of(conn: Connection, user_id: str) -> list[str]:
    """Return the projects in which a user has living memories. "" stands for no project."""
    query = (
        select(memories.c.project)
        .where(memories.c.user_id == user_id, memories.c.deleted_at.is_(None))
        .distinct()
        .order_by(memories.c.project)
    )
    return list(conn.execute(query).scalars())


def memories_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Memory]:
    """Return memories, living or deleted, by id."""
    return {row.id: to_memory(row) for chunk in chunks(ids) for row in conn.execute(_BY_ID, {"ids": chunk}).all()}


def rows_of(conn: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the row numbers of memories, living or deleted, by id. The larger one is that of the newer memory."""
    return {row.id: row.seq for chunk in chunks(ids) for row in conn.execute(_ROWS, {"ids": chunk})}


_ROWS = select(memories.c.id, memories.c.seq).where(memories.c.id.in_(listed("ids")))


def memories_from(conn: Connection, message_ids: Sequence[str]) -> dict[str, list[Memory]]:
    """Return the memories, living or deleted, that were learned from each message.

    Memories that only an undo deleted are left out.
    """
    by_message: dict[str, list[Memory]] = {}
    for chunk in chunks(message_ids):
        for row in conn.execute(_FROM_MESSAGES, {"ids": chunk}):
            by_message.setdefault(row.message_id, []).append(to_memory(row))
    return by_message


def messages_of(conn: Connection, memory_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ids of the memories with those of the messages they were learned from: (memory, message)."""
    return [
        (row.memory_id, row.message_id) for chunk in chunks(memory_ids) for row in conn.execute(_OF, {"ids": chunk})
    ]


_OF = select(memory_sources.c.memory_id, memory_sources.c.message_id).where(
    memory_sources.c.memory_id.in_(listed("ids"))
)


def name_of_user(conn: Connection, scope: Scope) -> str:
    """Return the user's name as the newest memory that tells it does, or "" if none does."""
    return str(conn.execute(_told_name(scope_parts(scope)), scope_values(scope)).scalar() or "")


def memories_telling_name(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that tell the user's name, the newest first."""
    return [to_memory(row) for row in conn.execute(_telling_name(scope_parts(scope)), scope_values(scope))]


@cache
def _told_name(scope: tuple[bool, bool, bool]) -> Query:
    name = memories.c.metadata[USER_NAME].as_string()
    return _telling_name(scope).with_only_columns(name).limit(1)


@cache
def _telling_name(scope: tuple[bool, bool, bool]) -> Query:
    name = memories.c.metadata[USER_NAME].as_string()
    may_tell = text(TELLS_A_NAME)  # in the words of the index
    told = (sees_named(memories, scope), may_tell, memories.c.deleted_at.is_(None), name.is_not(None))
    return select(memories).where(*told).order_by(memories.c.seq.desc())


def hashes_known(conn: Connection, user_id: str, hashes: Sequence[str]) -> set[str]:
    """Return which of these hashes of texts a memory of a user has, living or deleted, of whatever scope."""
    query = select(memories.c.content_hash).where(
        memories.c.user_id == user_id, memories.c.content_hash.in_(listed("ids"))
    )
    return {digest for chunk in chunks(hashes) for digest in conn.execute(query, {"ids": chunk}).scalars()}


def captured_memories(conn: Connection, scope: Scope, limit: int) -> list[Memory]:
    """Return the living memories that the scope sees and that were captured and not confirmed, the newest first."""
    is_captured = memories.c.metadata[ORIGIN].as_string() == CAPTURED
    query = select(memories).where(sees(memories, scope), memories.c.deleted_at.is_(None), is_captured)
    return [to_memory(row) for row in conn.execute(query.order_by(memories.c.seq.desc()).limit(limit))]


def learned_memories() -> ColumnElement[bool]:
    """Return the condition for memories that are living, forgotten, replaced or ended: not those of an undone add."""
    columns = memories.c
    was_closed = or_(columns.superseded_by.is_not(None), columns.valid_until.is_not(None))
    return or_(columns.deleted_at.is_(None), columns.is_forgotten.is_(True), was_closed)


_FROM_MESSAGES = (
    select(memory_sources.c.message_id, memories)
    .join(memories, memories.c.id == memory_sources.c.memory_id)
    .where(memory_sources.c.message_id.in_(listed("ids")), learned_memories())
)


def counts(conn: Connection, scope: Scope) -> dict[str, int]:
    """Return the number of living memories, deleted memories and messages of the scope, and of users of the ledger."""
    queries = {
        "memories": select(func.count()).where(sees(memories, scope), memories.c.deleted_at.is_(None)),
        "deleted": select(func.count()).where(sees(memories, scope), memories.c.deleted_at.is_not(None)),
        "messages": select(func.count()).where(sees(messages, scope), messages.c.deleted_at.is_(None)),
        "users": select(func.count(vectors.c.user_id.distinct())),
    }
    return {name: conn.execute(query).scalar_one() for name, query in queries.items()}
