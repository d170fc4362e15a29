"""Find which entity a name means: the one of the scope that has that name, else a new one.

A memory of a project may name an entity of the project or a global one of the user; a global memory names global ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, Row, bindparam, insert, or_, select

from palimpsest.core.entities import SELF_NAMES, EntityType, NamedEntity
from palimpsest.core.models import Memory, Scope
from palimpsest.store.graph.groups import users_own
from palimpsest.store.graph.tables import entities, entity_aliases
from palimpsest.store.mapping import Query, listed

USER = "User"
"""The name of the user's own entity until the user's name is known."""


def resolve(conn: Connection, memory: Memory, named: Mapping[str, NamedEntity], now: datetime) -> dict[str, str]:
    """Return the id of the entity that each name of a memory means. Entities and aliases that lack are created."""
    candidates = entities_by_key(conn, memory.scope, list(named))
    meant: dict[str, str] = {}
    for key, entity in named.items():
        if key in SELF_NAMES:
            meant[key] = _users_own(conn, memory.scope, now)
            continue
        fitting = [row for row in candidates.get(key, ()) if _may_be(row.type, entity.type)]
        meant[key] = fitting[0].id if fitting else _create(conn, memory.scope, key, entity, now)
    return meant


def entities_by_key(conn: Connection, scope: Scope, keys: list[str]) -> dict[str, list[Row[tuple[str, str, str]]]]:
    """Return the entities that a scope sees by each key of a name, those of its own project first."""
    values = {"user_id": scope.user_id, "project": scope.project, "keys": keys}
    found: dict[str, list[Row[tuple[str, str, str]]]] = {}
    for row in conn.execute(_BY_KEY, values):
        found.setdefault(row.key, []).append(row)
    return found


_BY_KEY: Query = (
    select(entity_aliases.c.key, entities.c.id, entities.c.type, entities.c.project)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.user_id == bindparam("user_id"),
        entity_aliases.c.key.in_(listed("keys")),
        or_(entities.c.project == "", entities.c.project == bindparam("project")),
    )
    .order_by(entities.c.project.desc(), entities.c.seq)
)


def _may_be(known: EntityType, stated: EntityType) -> bool:
    return "other" in (known, stated) or known == stated


def _users_own(conn: Connection, scope: Scope, now: datetime) -> str:
    known = users_own(conn, scope.user_id)
    if known is not None:
        return known
    return _create(conn, Scope(scope.user_id), "user", NamedEntity(USER, "person"), now, is_user=True)


def _create(
    conn: Connection, scope: Scope, key: str, entity: NamedEntity, now: datetime, *, is_user: bool = False
) -> str:
    entity_id = str(uuid.uuid4())
    row = {
        "id": entity_id,
        "user_id": scope.user_id,
        "project": scope.project,
        "name": entity.name,
        "type": entity.type,
        "is_user": is_user,
        "created_at": now,
    }
    conn.execute(insert(entities), row)
    alias = {"entity_id": entity_id, "key": key, "name": entity.name, "user_id": scope.user_id}
    conn.execute(insert(entity_aliases), alias)
    return entity_id
