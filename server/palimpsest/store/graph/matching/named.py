"""Read what memories name, and how many others name the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.tables import mentions
from palimpsest.store.mapping import listed
from palimpsest.store.schema import memories


@dataclass(frozen=True, slots=True)
class NamedIn:
    """An entity that a memory names, and how many living memories of the user do."""

    id: str
    name: str
    memories: int


def entities_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, list[NamedIn]]:
    """Return what memories name in their present versions, by their ids, without the user, who is in nearly all."""
    meant = [(row.owner_id, row.entity_id) for row in conn.execute(_NAMED, {"ids": memory_ids})]
    roots = roots_of(conn, [entity_id for _, entity_id in meant])
    members = members_of(conn, [root.id for root in roots.values()])
    counts: Counter[str] = Counter()
    for entity_id, count in conn.execute(_COUNTS, {"ids": list(members)}).all():
        counts[members[entity_id]] += count
    named: dict[str, dict[str, NamedIn]] = {}
    for memory_id, entity_id in meant:
        root = roots.get(entity_id)
        if root is not None and not root.is_user:
            named.setdefault(memory_id, {})[root.id] = NamedIn(root.id, root.name, counts[root.id])
    return {memory_id: list(entities.values()) for memory_id, entities in named.items()}


_IS_NAMED = and_(mentions.c.kind == "memory", mentions.c.current)
_NAMED = select(mentions.c.owner_id, mentions.c.entity_id).where(_IS_NAMED, mentions.c.owner_id.in_(listed("ids")))
_COUNTS = (
    select(mentions.c.entity_id, func.count())
    .join(memories, and_(memories.c.id == mentions.c.owner_id, memories.c.deleted_at.is_(None)))
    .where(_IS_NAMED, mentions.c.entity_id.in_(listed("ids")))
    .group_by(mentions.c.entity_id)
)
