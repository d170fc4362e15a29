"""The entities that have a name, and whether what is known of them still counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, exists, or_, select

from palimpsest.core.entities import Entity, EntityType
from palimpsest.core.models import Scope
from palimpsest.store.graph.groups import members_of, roots_of, to_entity
from palimpsest.store.graph.tables import entities, entity_aliases, entity_history, mentions
from palimpsest.store.mapping import Query, listed
from palimpsest.store.schema import memories


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity that has a name, and the `root` that it is the same as. `is_given` says that an edit gave the name."""

    entity_id: str
    root: Entity
    is_given: bool


def candidates_of(conn: Connection, scope: Scope, keys: Iterable[str]) -> dict[str, list[Candidate]]:
    """Return the entities that have each key of a name, one of each group, those of the scope's own project first.

    For a global scope, those of the user's projects are among them.
    """
    values = {"user_id": scope.user_id, "project": scope.project, "keys": list(keys)}
    rows = conn.execute(_BY_KEY, values).all()
    roots = {row.id: to_entity(row) for row in rows if row.merged_into is None}
    if merged := [row.id for row in rows if row.merged_into is not None]:
        roots |= roots_of(conn, merged)
    found: dict[str, dict[str, Candidate]] = {}
    for row in rows:
        if (root := roots.get(row.id)) is not None:
            of_key = found.setdefault(row.key, {})
            candidate = Candidate(row.id, root, row.given)
            of_key[root.id] = candidate if row.id == root.id else of_key.get(root.id, candidate)
    return {key: list(of_key.values()) for key, of_key in found.items()}


_BY_KEY: Query = (
    select(entity_aliases.c.key, entity_aliases.c.given, entities)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.user_id == bindparam("user_id"),
        entity_aliases.c.key.in_(listed("keys")),
        or_(bindparam("project") == "", entities.c.project == "", entities.c.project == bindparam("project")),
    )
    .order_by(entities.c.project.desc(), entities.c.seq)
)


def may_be(known: EntityType, stated: EntityType) -> bool:
    """Return whether an entity of a known type may be one of a stated type. "other" is no knowledge, and fits all."""
    return "other" in (known, stated) or known == stated


def mentioned(conn: Connection, candidates: Sequence[Candidate], key: str | None = None) -> list[Candidate]:
    """Return those candidates of which a living memory mentions something in their group, by this key if it is given.

    An entity that only deleted memories mention, as after an undo, is a candidate only if there is no other.
    """
    members = members_of(conn, [candidate.root.id for candidate in candidates])
    query = _MENTIONED if key is None else _MENTIONED.where(mentions.c.key == key)
    seen = {members[entity_id] for entity_id in conn.execute(query, {"ids": list(members)}).scalars()}
    return [candidate for candidate in candidates if candidate.root.id in seen]


def was_edited(conn: Connection, entity_id: str) -> bool:
    """Return whether an edit ever changed an entity, such as its type."""
    return conn.execute(_EDITED, {"entity": entity_id}).first() is not None


_IS_LIVING = exists().where(memories.c.id == mentions.c.owner_id, memories.c.deleted_at.is_(None))
_MENTIONED: Query = (
    select(mentions.c.entity_id)
    .where(mentions.c.entity_id.in_(listed("ids")), mentions.c.kind == "memory", mentions.c.current, _IS_LIVING)
    .distinct()
)
_EDITED: Query = select(entity_history.c.seq).where(entity_history.c.entity_id == bindparam("entity")).limit(1)
