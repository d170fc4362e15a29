"""Find the memories that speak of the entities of a new fact: what it may contradict.

Only living memories of the scope's own project are found, because a project's fact does not change the user's global
memories.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, bindparam, or_, select

from palimpsest.core.entities import EntityType
from palimpsest.core.models import Scope
from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.names import LAST_CHARACTER, ids_by_key
from palimpsest.store.graph.tables import entities, entity_aliases, mentions, relations
from palimpsest.store.mapping import Query, listed, scope_parts, scope_values, sees_named
from palimpsest.store.schema import memories

NEWEST = 500
"""How many rows a query returns, those of the newest memories. Set by hand: comparing so many takes milliseconds, and
few entities but the user's own have more."""

LONGER_NAMES = 5
"""How many names are found that begin with a shorter one. Set by hand: a name with more of them says little."""


class StatedRelation(NamedTuple):
    """A relation that a living memory states."""

    memory_id: str
    source_id: str
    name: str
    key: str
    destination: str
    destination_type: EntityType


class RelationRow(NamedTuple):
    """A relation that a memory states, by the entities at its ends as they were stored."""

    memory_id: str
    source_id: str
    name: str
    key: str
    destination_id: str


def groups_named(conn: Connection, scope: Scope, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the ids of the entities that each name may mean, with all that were merged with them, by `name_key`."""
    ids = ids_by_key(conn, scope, names)
    roots = roots_of(conn, [entity_id for of_key in ids.values() for entity_id in of_key])
    members = members_of(conn, {root.id for root in roots.values()})
    by_root: dict[str, set[str]] = {}
    for entity_id, root_id in members.items():
        by_root.setdefault(root_id, set()).add(entity_id)
    return {
        key: frozenset(member for one in of_key if one in roots for member in by_root[roots[one].id])
        for key, of_key in ids.items()
    }


def names_extending(conn: Connection, scope: Scope, keys: Iterable[str]) -> list[str]:
    """Return the keys of names that begin with one of these and go on with another word: "tom baker" for "tom"."""
    extending: list[str] = []
    for key in keys:
        first = f"{key} "
        values = {"user_id": scope.user_id, "project": scope.project, "first": first, "last": first + LAST_CHARACTER}
        extending += conn.execute(_EXTENDING, values).scalars()
    return extending


def relations_from(conn: Connection, scope: Scope, source_ids: Iterable[str]) -> list[StatedRelation]:
    """Return the relations that begin at entities, those of the newest memories first, at most `NEWEST`."""
    rows = conn.execute(_relations_from(scope_parts(scope)), _values(scope, source_ids))
    return [StatedRelation(*row) for row in rows]


def same_relations_from(
    conn: Connection, scope: Scope, source_ids: Iterable[str], keys: Iterable[str]
) -> list[StatedRelation]:
    """Return the same, but only relations with one of these keys."""
    values = _values(scope, source_ids) | {"keys": sorted(keys)}
    return [StatedRelation(*row) for row in conn.execute(_same_relations_from(scope_parts(scope)), values)]


def relations_named(conn: Connection, user_id: str, keys: Iterable[str], limit: int) -> list[RelationRow]:
    """Return up to `limit` relations of a user with one of these keys, the newest first, also of deleted memories.

    The query goes by the entities. With the scope of the memories in it, it would go through all of these.
    """
    values = {"keys": sorted(keys), "limit": limit, "user_id": user_id}
    return [RelationRow(*row) for row in conn.execute(_NAMED, values)]


def relations_like(conn: Connection, memory_id: str, keys: Iterable[str], limit: int) -> list[RelationRow]:
    """Return up to `limit` relations of the sources and keys that a memory states, with its own, the newest first.

    These are the ones with one of `keys`, also of deleted memories. What was merged with a source counts as it.
    """
    stated = conn.execute(_STATED, {"memory": memory_id, "keys": sorted(keys)}).all()
    roots = roots_of(conn, {row.source_id for row in stated})
    members = members_of(conn, {root.id for root in roots.values()})
    values = {"ids": sorted(members), "keys": sorted({row.key for row in stated}), "limit": limit}
    return [RelationRow(*row) for row in conn.execute(_LIKE, values)]


def merged_into(conn: Connection, user_id: str) -> dict[str, str]:
    """Return what each entity of a user that was merged was merged into, by id."""
    return {row.id: row.merged_into for row in conn.execute(_MERGED, {"user_id": user_id})}


def memories_naming(conn: Connection, scope: Scope, entity_ids: Iterable[str]) -> list[str]:
    """Return the ids of memories that name one of these entities, the newest first, at most `NEWEST`."""
    return list(conn.execute(_naming(scope_parts(scope)), _values(scope, entity_ids)).scalars())


def _values(scope: Scope, entity_ids: Iterable[str]) -> dict[str, Any]:
    return {"ids": sorted(entity_ids), **scope_values(scope)}


_EXTENDING = (
    select(entity_aliases.c.key)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.user_id == bindparam("user_id"),
        entity_aliases.c.key >= bindparam("first"),
        entity_aliases.c.key <= bindparam("last"),
        or_(entities.c.project == "", entities.c.project == bindparam("project")),
    )
    .limit(LONGER_NAMES)
)


@cache
def _relations_from(scope: tuple[bool, bool, bool]) -> Query:
    columns = relations.c
    query = (
        select(columns.memory_id, columns.source_id, columns.name, columns.key, entities.c.name, entities.c.type)
        .join(entities, entities.c.id == columns.destination_id)
        .join(memories, memories.c.id == columns.memory_id)
        .where(columns.source_id.in_(listed("ids")))
    )
    return _newest(query, scope)


@cache
def _same_relations_from(scope: tuple[bool, bool, bool]) -> Query:
    return _relations_from(scope).where(relations.c.key.in_(listed("keys")))


_STATED: Query = select(relations.c.source_id, relations.c.key).where(
    relations.c.memory_id == bindparam("memory"), relations.c.key.in_(listed("keys"))
)
_LIKE: Query = (
    select(relations.c.memory_id, relations.c.source_id, relations.c.name, relations.c.key, relations.c.destination_id)
    .where(relations.c.source_id.in_(listed("ids")), relations.c.key.in_(listed("keys")))
    .order_by(relations.c.seq.desc())
    .limit(bindparam("limit"))
)
_MERGED = select(entities.c.id, entities.c.merged_into).where(
    entities.c.user_id == bindparam("user_id"), entities.c.merged_into.is_not(None)
)

_NAMED = (
    select(relations.c.memory_id, relations.c.source_id, relations.c.name, relations.c.key, relations.c.destination_id)
    .join(entities, entities.c.id == relations.c.source_id)
    .where(entities.c.user_id == bindparam("user_id"), relations.c.key.in_(listed("keys")))
    .order_by(relations.c.seq.desc())
    .limit(bindparam("limit"))
)


@cache
def _naming(scope: tuple[bool, bool, bool]) -> Query:
    query = (
        select(mentions.c.owner_id)
        .join(memories, memories.c.id == mentions.c.owner_id)
        .where(mentions.c.kind == "memory", mentions.c.current, mentions.c.entity_id.in_(listed("ids")))
    )
    return _newest(query, scope)


def _newest(query: Query, scope: tuple[bool, bool, bool]) -> Query:
    is_own = memories.c.project == bindparam("project")
    own = query.where(and_(sees_named(memories, scope), is_own, memories.c.deleted_at.is_(None)))
    return own.order_by(memories.c.seq.desc()).limit(NEWEST)
