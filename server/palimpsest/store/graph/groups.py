"""Which entities are the same: an entity, and everything that was merged into it, is one group with one root."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, text

from palimpsest.core.entities import Entity
from palimpsest.store.graph.tables import IS_USER, entities
from palimpsest.store.mapping import listed


def roots_of(conn: Connection, entity_ids: Iterable[str]) -> dict[str, Entity]:
    """Return the root of each entity, which is the entity itself if it was not merged. Unknown ids are left out."""
    rows = conn.execute(_ROOTS, {"ids": sorted(set(entity_ids))})
    return {row.start: to_entity(row) for row in rows}


def members_of(conn: Connection, root_ids: Iterable[str]) -> dict[str, str]:
    """Return the ids of everything in the groups of some roots, the roots among them, each with its root's id."""
    return {row.id: row.root for row in conn.execute(_MEMBERS, {"ids": sorted(set(root_ids))})}


def users_own(conn: Connection, user_id: str) -> str | None:
    """Return the id of the user's own entity, if there is one."""
    return conn.execute(_USERS_OWN, {"user_id": user_id}).scalar()


def to_entity(row: Row[Any]) -> Entity:
    """Return a row of `entities` as a model."""
    return Entity(
        row.id, row.user_id, row.project, row.name, row.type, row.created_at, row.is_user, merged_into=row.merged_into
    )


_USERS_OWN = select(entities.c.id).where(entities.c.user_id == bindparam("user_id"), text(IS_USER))


def _roots() -> Any:
    """Go up from each id. A row is kept once, so that even a circle of merges ends; it has no root."""
    up = select(entities.c.id.label("start"), entities.c.id, entities.c.merged_into).where(
        entities.c.id.in_(listed("ids"))
    )
    chain = up.cte("chain", recursive=True)
    chain = chain.union(
        select(chain.c.start, entities.c.id, entities.c.merged_into).join(
            entities, entities.c.id == chain.c.merged_into
        )
    )
    return (
        select(chain.c.start, entities).join(entities, entities.c.id == chain.c.id).where(chain.c.merged_into.is_(None))
    )


def _members() -> Any:
    own = select(entities.c.id.label("root"), entities.c.id).where(entities.c.id.in_(listed("ids")))
    group = own.cte("members", recursive=True)
    group = group.union(select(group.c.root, entities.c.id).join(entities, entities.c.merged_into == group.c.id))
    return select(group.c.root, group.c.id)


_ROOTS = _roots()
_MEMBERS = _members()
