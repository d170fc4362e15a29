"""Find entities whose names look like another's: García and Garcia, Acme Corp and Acme Corporation.

They are proposed, and never merged: that is for whoever knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

from sqlalchemy import Connection, bindparam, exists, func, or_, select

from palimpsest.core.entities import Entity, name_key
from palimpsest.core.models import Scope
from palimpsest.store.graph.groups import members_of, to_entity
from palimpsest.store.graph.identity.candidates import may_be
from palimpsest.store.graph.tables import entities, entity_aliases, entity_history, mentions
from palimpsest.store.mapping import Query, listed, scope_parts, scope_values, sees_named
from palimpsest.store.schema import memories
from palimpsest.text.names.lookalikes import BEGINNINGS, first_letters, may_be_same

MOST = 3
"""How many are proposed for one entity. With more of them, none is likely."""


def lookalikes(conn: Connection, scope: Scope, entity: Entity, names: Iterable[str]) -> list[Entity]:
    """Return the entities of living memories of a scope that one with these names may be, the oldest first.

    Those that a memory names beside it, or that an edit has parted from it, are others.
    """
    if entity.is_user:
        return []
    called = {name_key(name): name for name in names}
    values = {
        "letters": sorted({letter for name in called.values() for letter in first_letters(name)}),
        "titles": list(BEGINNINGS),
        **scope_values(scope),
    }
    found: dict[str, Entity] = {}
    for row in conn.execute(_alike(scope_parts(scope)), values):
        is_other = row.id != entity.id and row.key not in called and may_be(row.type, entity.type)
        if is_other and any(may_be_same(row.alias, name) for name in called.values()):
            found.setdefault(row.id, to_entity(row))
    return [other for other in found.values() if not _are_told_apart(conn, entity.id, other.id)][:MOST]


def _are_told_apart(conn: Connection, first_id: str, second_id: str) -> bool:
    """Return whether one memory names both entities, or an edit has parted them: a split, or a merge taken back.

    A message does not count: it has the names of every memory that was learned from it.
    """
    first, second = (list(members_of(conn, [entity_id])) for entity_id in (first_id, second_id))
    if "memory" in conn.execute(_TOGETHER, {"first": first, "second": second}).scalars():
        return True
    edits = conn.execute(_EDITS, {"ids": [*first, *second]}).all()
    changed = [json.dumps([row.entity_id, row.before, row.after]) for row in edits]
    return any(any(one in ids for one in first) and any(one in ids for one in second) for ids in changed)


@cache
def _alike(scope: tuple[bool, bool, bool]) -> Query:
    is_mentioned = exists().where(
        mentions.c.entity_id == entities.c.id,
        mentions.c.kind == "memory",
        mentions.c.current,
        memories.c.id == mentions.c.owner_id,
        memories.c.deleted_at.is_(None),
        sees_named(memories, scope),
    )
    begins_alike = or_(
        func.substr(entity_aliases.c.key, 1, 1).in_(listed("letters")),
        func.substr(entity_aliases.c.key, 1, 3).in_(listed("titles")),
    )
    return (
        select(entity_aliases.c.key, entity_aliases.c.name.label("alias"), entities)
        .join(entities, entities.c.id == entity_aliases.c.entity_id)
        .where(
            entity_aliases.c.user_id == bindparam("user_id"),
            begins_alike,
            entities.c.merged_into.is_(None),
            entities.c.is_user.is_(False),
            or_(entities.c.project == "", entities.c.project == bindparam("project")),
            is_mentioned,
        )
        .order_by(entities.c.seq)
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
