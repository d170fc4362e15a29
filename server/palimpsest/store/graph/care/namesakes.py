"""Find entities of a user's project by their name and type: those that an import or a move takes for the same."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from palimpsest.core.entities import name_key
from palimpsest.store.graph.tables import entities, entity_aliases
from palimpsest.store.mapping import Query


def namesakes(conn: Connection, user_id: str, project: str, name: str, entity_type: str) -> list[Row[Any]]:
    """Return the entities of exactly this project that have a name and a type that fits, oldest first.

    "other" fits every type, because it is not known then. Entities that were merged are left out, and the user's own.
    """
    values = {"user_id": user_id, "project": project, "key": name_key(name)}
    rows = conn.execute(_BY_NAME, values)
    return [row for row in rows if row.type == entity_type or "other" in (row.type, entity_type)]


_BY_NAME: Query = (
    select(entities.c.id, entities.c.type)
    .join(entity_aliases, entity_aliases.c.entity_id == entities.c.id)
    .where(
        entity_aliases.c.user_id == bindparam("user_id"),
        entity_aliases.c.key == bindparam("key"),
        entities.c.project == bindparam("project"),
        entities.c.merged_into.is_(None),
        entities.c.is_user.is_(False),
    )
    .order_by(entities.c.seq)
)
