"""Create entities."""

from __future__ import annotations

import uuid

from sqlalchemy import insert

from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.tables import entities


def new_entity(
    write: GraphWrite, project: str, name: str, kind: str, *, is_user: bool = False, merged_into: str | None = None
) -> str:
    """Create an entity without names and return its id. `kind` is its type."""
    entity_id = str(uuid.uuid4())
    row = {
        "id": entity_id,
        "user_id": write.scope.user_id,
        "project": project,
        "name": name,
        "type": kind,
        "is_user": is_user,
        "merged_into": merged_into,
        "created_at": write.now,
    }
    write.conn.execute(_INSERT, row)
    return entity_id


_INSERT = insert(entities)
