"""Find which entity a name means: the one of the scope that has that name, else a new one.

A memory of a project may name an entity of the project or a global one of the user; a global memory names global ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Row, bindparam, or_, select

from palimpsest.core.entities import SELF_NAMES, EntityType, NamedEntity
from palimpsest.core.models import Memory, Scope
from palimpsest.store.graph.groups import users_own
from palimpsest.store.graph.identity import aliases
from palimpsest.store.graph.identity.creation import new_entity
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.tables import entities, entity_aliases
from palimpsest.store.mapping import Query, listed

USER = "User"
"""The name of the user's own entity until the user's name is known."""


def resolve(write: GraphWrite, memory: Memory, named: Mapping[str, NamedEntity]) -> dict[str, str]:
    """Return the id of the entity that each name of a memory means. Entities and aliases that lack are created."""
    candidates = entities_by_key(write, memory.scope, list(named))
    meant: dict[str, str] = {}
    for key, entity in named.items():
        if key in SELF_NAMES:
            meant[key] = _users_own(write)
        else:
            fitting = [row for row in candidates.get(key, ()) if _may_be(row.type, entity.type)]
            meant[key] = fitting[0].id if fitting else new_entity(write, memory.scope.project, entity.name, entity.type)
        aliases.add(write.conn, meant[key], key, entity.name)
    return meant


def entities_by_key(write: GraphWrite, scope: Scope, keys: list[str]) -> dict[str, list[Row[tuple[str, str, str]]]]:
    """Return the entities that a scope sees by each key of a name, those of its own project first."""
    values = {"user_id": scope.user_id, "project": scope.project, "keys": keys}
    found: dict[str, list[Row[tuple[str, str, str]]]] = {}
    for row in write.conn.execute(_BY_KEY, values):
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


def _users_own(write: GraphWrite) -> str:
    known = users_own(write.conn, write.scope.user_id)
    return new_entity(write, "", USER, "person", is_user=True) if known is None else known
