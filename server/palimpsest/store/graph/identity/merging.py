"""Merge two entities. What mentions the one keeps its id, so that the merge can be taken back."""

from __future__ import annotations

from sqlalchemy import bindparam, update

from palimpsest.core.entities import Entity, name_key
from palimpsest.store.graph.identity.history import ENTITY, GraphWrite, record
from palimpsest.store.graph.tables import entities


def merge(write: GraphWrite, merged: Entity, into: Entity) -> None:
    """Record that two entities, neither of which is merged, are the same. The second one is what both are now.

    The row of history belongs to the second one: whoever sees it sees what it is made of. But if a project merged its
    own entity into a global one, the row stays with the project, because it has the name.
    """
    owner = merged if merged.project and merged.project == write.scope.project else into
    write.conn.execute(_MERGE, {"entity": merged.id, "into": into.id})
    place = (ENTITY, merged.id, "merged_into")
    text = f"merged {shown(merged, into)} into {shown(into, merged)}"
    record(write, owner.id, "merge", ({place: None}, {place: into.id}), text)


_MERGE = update(entities).where(entities.c.id == bindparam("entity")).values(merged_into=bindparam("into"))


def shown(entity: Entity, beside: Entity | None = None) -> str:
    """Return the name of an entity for messages, with what tells it from one of the same name `beside` it."""
    if entity.is_user:
        return "the user"
    if beside is None or name_key(entity.name) != name_key(beside.name):
        return entity.name
    if entity.project != beside.project:
        return f"{entity.name} ({f'in {entity.project}' if entity.project else 'in all projects'})"
    return f"{entity.name} ({entity.type if entity.type != beside.type else entity.id[:8]})"
