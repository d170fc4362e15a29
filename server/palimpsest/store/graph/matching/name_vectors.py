"""Read and store the vectors of the names of entities, and what else tells whether two entities are one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, select, update

from palimpsest.core.entities import EntityType
from palimpsest.core.protocols import Vector
from palimpsest.store.graph.groups import members_of
from palimpsest.store.graph.tables import entities, entity_history, mentions
from palimpsest.store.mapping import listed, packed, unpacked_rows
from palimpsest.store.schema import memories

FACTS_READ = 20
"""How many memories of an entity make its context, the newest ones. Set by hand: with more, their mean hardly
changes."""


class ComparableEntity(NamedTuple):
    """An entity that may turn out to be the same as another one of its user and type."""

    seq: int
    id: str
    user_id: str
    project: str
    name: str
    type: EntityType


def names_without_vector(
    conn: Connection, embedder: str, limit: int, *, after: int, only_new: bool
) -> list[ComparableEntity]:
    """Return entities above number `after` without a vector of the embedder, the oldest first.

    With `only_new` these are the ones that have no vector of another embedder either.
    """
    values = {"embedder": embedder, "after": after, "limit": limit}
    rows = conn.execute(_NEW if only_new else _NOT_OF_EMBEDDER, values)
    return [ComparableEntity._make(row) for row in rows]


def give_name_vectors(conn: Connection, embedder: str, vectors: Mapping[str, Vector]) -> None:
    """Store the vectors of names, each of shape (dims,), by the ids of their entities."""
    values = [{"entity": key, "blob": packed(vector), "of": embedder} for key, vector in vectors.items()]
    conn.execute(_GIVE, values)


def entities_with_vector(conn: Connection, user_id: str, embedder: str) -> tuple[list[ComparableEntity], Vector]:
    """Return the entities of a user, the oldest first, and the vectors of their names, of shape (n, dims)."""
    rows = conn.execute(_OF_USER, {"user_id": user_id, "embedder": embedder}).all()
    found = [ComparableEntity._make(row[:-1]) for row in rows]
    return found, unpacked_rows([row.vector for row in rows]) if rows else np.zeros((0, 0), np.float32)


def memories_mentioning(conn: Connection, entity_id: str) -> list[str]:
    """Return the ids of the newest living memories that mention an entity or what was merged into it."""
    return list(conn.execute(_MENTIONING, {"ids": list(members_of(conn, [entity_id]))}).scalars())


def are_told_apart(conn: Connection, first_id: str, second_id: str) -> bool:
    """Return whether one memory names both entities, or an edit has parted them: a split, or a merge taken back.

    A message does not count: it has the names of every memory that was learned from it.
    """
    first, second = (list(members_of(conn, [entity_id])) for entity_id in (first_id, second_id))
    if "memory" in conn.execute(_TOGETHER, {"first": first, "second": second}).scalars():
        return True
    edits = conn.execute(_EDITS, {"ids": [*first, *second]}).all()
    changed = [json.dumps([row.entity_id, row.before, row.after]) for row in edits]
    return any(any(one in ids for one in first) and any(one in ids for one in second) for ids in changed)


_COLUMNS = tuple(entities.c[name] for name in ComparableEntity._fields)

_IS_COMPARABLE = (
    entities.c.merged_into.is_(None),
    entities.c.is_user.is_(False),
)

_WAITING = (
    select(*_COLUMNS)
    .where(*_IS_COMPARABLE, entities.c.seq > bindparam("after"))
    .order_by(entities.c.seq)
    .limit(bindparam("limit"))
)
_NEW = _WAITING.where(entities.c.embedder == "")
_NOT_OF_EMBEDDER = _WAITING.where(entities.c.embedder != bindparam("embedder"))

_OF_USER = (
    select(*_COLUMNS, entities.c.vector)
    .where(
        *_IS_COMPARABLE,
        entities.c.user_id == bindparam("user_id"),
        entities.c.embedder == bindparam("embedder"),
        entities.c.vector.is_not(None),
    )
    .order_by(entities.c.seq)
)

_GIVE = (
    update(entities)
    .where(entities.c.id == bindparam("entity"))
    .values(vector=bindparam("blob"), embedder=bindparam("of"))
)

_MENTIONING = (
    select(mentions.c.owner_id)
    .join(memories, memories.c.id == mentions.c.owner_id)
    .where(
        mentions.c.kind == "memory",
        mentions.c.current,
        mentions.c.entity_id.in_(listed("ids")),
        memories.c.deleted_at.is_(None),
    )
    .order_by(memories.c.seq.desc())
    .limit(FACTS_READ)
)

_EDITS = select(entity_history.c.entity_id, entity_history.c.before, entity_history.c.after).where(
    entity_history.c.entity_id.in_(listed("ids")), entity_history.c.event.in_(("merge", "split", "undo"))
)

_other = mentions.alias("other")
_TOGETHER = (
    select(mentions.c.kind)  # with a condition on the kind, SQLite would go through all mentions of that kind
    .join(_other, (_other.c.kind == mentions.c.kind) & (_other.c.owner_id == mentions.c.owner_id))
    .where(mentions.c.entity_id.in_(listed("first")), _other.c.entity_id.in_(listed("second")))
    .distinct()
)
