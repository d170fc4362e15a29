"""Name what memories speak of that were stored before names were looked for: older ones, and imported ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, exists, select, update

from palimpsest.core.entities import RESOLVE, EntityType, NamedEntity, name_key
from palimpsest.core.models import Provenance, Scope
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.names import with_keys
from palimpsest.store.graph.statements import put
from palimpsest.store.graph.tables import entity_aliases, mentions
from palimpsest.store.mapping import Query, to_memory, to_scope
from palimpsest.store.queries.memories import name_of_user
from palimpsest.store.schema import memories

_IS_NULL = memories.c.entities.is_(None)


@dataclass(frozen=True, slots=True)
class UnnamedMemory:
    """A memory whose names were not looked for yet. `seq` is its number in the order in which memories were stored."""

    seq: int
    id: str
    scope: Scope
    text: str


def known_types(conn: Connection, scope: Scope, keys: Sequence[str]) -> dict[str, EntityType]:
    """Return the types of the entities that a scope knows by these keys of names. The user's told name is a person."""
    known: dict[str, EntityType] = {}
    for row in with_keys(conn, scope, keys):
        known.setdefault(row.key, row.type)
    told = name_key(name_of_user(conn, scope))
    if told in keys:
        known[told] = "person"
    return known


def unnamed_memories(conn: Connection, after: int, limit: int) -> list[UnnamedMemory]:
    """Return memories of all users whose names were not looked for, those with the lowest numbers above `after`."""
    rows = conn.execute(_UNNAMED, {"after": after, "limit": limit})
    return [UnnamedMemory(row.seq, row.id, to_scope(row), row.text) for row in rows]


def outdated_keys(conn: Connection) -> list[tuple[str, str]]:
    """Return the keys of names that were made by older rules, each with its entity."""
    rows = conn.execute(select(entity_aliases.c.entity_id, entity_aliases.c.key))
    return [(row.entity_id, row.key) for row in rows if not row.key.isascii() and name_key(row.key) != row.key]


def renew_keys(conn: Connection, outdated: Sequence[tuple[str, str]]) -> None:
    """Give names the keys that they have today. Where something is known under both, one of the two stays."""
    for entity_id, key in outdated:
        new = name_key(key)
        for table, owner in ((entity_aliases, ("entity_id",)), (mentions, ("kind", "owner_id"))):
            is_old = and_(table.c.entity_id == entity_id, table.c.key == key)
            same = table.alias()
            is_known = exists().where(*(same.c[name] == table.c[name] for name in owner), same.c.key == new)
            conn.execute(delete(table).where(is_old, is_known))
            conn.execute(update(table).where(is_old).values(key=new))


_UNNAMED: Query = (
    select(memories)
    .where(memories.c.seq > bindparam("after"), _IS_NULL)
    .order_by(memories.c.seq)
    .limit(bindparam("limit"))
)


def give_names(
    conn: Connection, named: Mapping[UnnamedMemory, Sequence[NamedEntity]], now: datetime, edit: int
) -> None:
    """Store what memories name. It is no edit of theirs: their texts say the same as before.

    What is merged by it, such as the person of the user's name into the user, is an edit with the number `edit`. A
    memory that was named or got another text meanwhile is left as it is.
    """
    for memory, entities in named.items():
        values = {"entities": [[entity.name, entity.type] for entity in entities], "relations": []}
        is_as_read = (memories.c.id == memory.id, memories.c.text == memory.text, _IS_NULL)
        if conn.execute(update(memories).where(*is_as_read).values(**values)).rowcount:
            new = to_memory(conn.execute(select(memories).where(memories.c.id == memory.id)).one())
            put(GraphWrite(conn, memory.scope, Provenance(RESOLVE), now, edit, {}, "", [], []), new)
