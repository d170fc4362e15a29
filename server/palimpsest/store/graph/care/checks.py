"""Compare the graph with the memories, row by row, and mend it from them.

A memory says by names what it mentions and states. The rows of the graph must say the same by entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from palimpsest.core.models import Memory
from palimpsest.store.graph.statements import relation_rows, stated_names
from palimpsest.store.graph.tables import entities, entity_aliases, mentions, relations
from palimpsest.store.mapping import chunks, to_memory
from palimpsest.store.schema import memories, messages

RELATION = ("memory_id", "position", "source_id", "key", "name", "destination_id")

MAX_EXAMPLES = 5


@dataclass(slots=True)
class GraphFaults:
    """What does not agree in the graph.

    `memories` are those whose mentions or relations are not what they name and state, by id. `mentions` are the numbers
    of mentions without a memory or message, or of an entity that is missing or that their scope does not see;
    `relations` those of relations without a memory. `merges` are the entities that are merged into none that there is,
    or in a circle, and `aliases` the names without an entity.
    """

    memories: set[str] = field(default_factory=set[str])
    mentions: set[int] = field(default_factory=set[int])
    relations: set[int] = field(default_factory=set[int])
    merges: set[str] = field(default_factory=set[str])
    aliases: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def texts(self) -> list[str]:
        """Return the faults, one line for each kind, with examples."""
        lines: list[str] = []
        for what, ids in (
            ("have other mentions or relations than they state", sorted(self.memories)),
            ("are merged into an entity that cannot stand for them", sorted(self.merges)),
        ):
            if ids:
                lines.append(f"{len(ids)} {what}: {', '.join(each[:8] for each in ids[:MAX_EXAMPLES])}")
        for count, what in (
            (len(self.mentions), "mentions belong to no memory, message or entity of their scope"),
            (len(self.relations), "relations belong to no memory"),
            (len(self.aliases), "names belong to no entity"),
        ):
            if count:
                lines.append(f"{count} {what}")
        return lines


def compare(conn: Connection) -> GraphFaults:
    """Compare the graph with the memories and return what does not agree."""
    faults = GraphFaults()
    known = {row.id: row for row in conn.execute(select(entities))}
    faults.mentions = set(_stray_mentions(conn, known))
    faults.merges = {entity_id for entity_id in known if _is_merged_wrongly(entity_id, known)}
    faults.aliases = {
        (row.entity_id, row.key)
        for row in conn.execute(select(entity_aliases))
        if row.entity_id not in known or known[row.entity_id].user_id != row.user_id
    }
    several = {(row.user_id, row.key) for row in conn.execute(_OF_SEVERAL)}
    stored = _relations(conn)
    mentioned = _mentions(conn)
    for row in conn.execute(select(memories).order_by(memories.c.seq)):
        memory = to_memory(row)
        if not _agrees(memory, mentioned.pop(memory.id, []), stored.pop(memory.id, []), several):
            faults.memories.add(memory.id)
    faults.relations = {row.seq for rows in stored.values() for row in rows}
    return faults


_OF_SEVERAL = (
    select(entity_aliases.c.user_id, entity_aliases.c.key)
    .group_by(entity_aliases.c.user_id, entity_aliases.c.key)
    .having(func.count() > 1)
)


def _agrees(memory: Memory, own: list[Row[Any]], stated: list[Row[Any]], several: AbstractSet[tuple[str, str]]) -> bool:
    """Return whether a memory's mentions and relations are what it names and states.

    A name that several have may mean none of them.
    """
    meant = {row.key: row.entity_id for row in own}
    named, current = stated_names(memory).keys(), {row.key for row in own if row.current}
    if not current <= named or any((memory.scope.user_id, key) not in several for key in named - current):
        return False
    expected = relation_rows(memory, meant)
    return expected == [{name: getattr(row, name) for name in RELATION} for row in stated]


def _mentions(conn: Connection) -> dict[str, list[Row[Any]]]:
    by_memory: dict[str, list[Row[Any]]] = {}
    for row in conn.execute(select(mentions).where(mentions.c.kind == "memory")):
        by_memory.setdefault(row.owner_id, []).append(row)
    return by_memory


def _relations(conn: Connection) -> dict[str, list[Row[Any]]]:
    by_memory: dict[str, list[Row[Any]]] = {}
    for row in conn.execute(select(relations).order_by(relations.c.position)):
        by_memory.setdefault(row.memory_id, []).append(row)
    return by_memory


def _stray_mentions(conn: Connection, known: Mapping[str, Row[Any]]) -> Iterator[int]:
    """Yield the numbers of mentions without an owner, or of an entity that their owner's scope does not have."""
    owners = {
        kind: {row.id: row for row in conn.execute(select(table.c.id, table.c.user_id, table.c.project))}
        for kind, table in (("memory", memories), ("message", messages))
    }
    for row in conn.execute(select(mentions)):
        owner, entity = owners.get(row.kind, {}).get(row.owner_id), known.get(row.entity_id)
        if (
            owner is None
            or entity is None
            or entity.user_id != owner.user_id
            or entity.project not in ("", owner.project)
        ):
            yield row.seq


def _is_merged_wrongly(entity_id: str, known: Mapping[str, Row[Any]]) -> bool:
    """Return whether an entity is merged into a missing one, into one of another user or project, or in a circle."""
    entity = known[entity_id]
    if entity.merged_into is None:
        return False
    target = known.get(entity.merged_into)
    if target is None or target.user_id != entity.user_id or target.project not in ("", entity.project):
        return True
    seen: set[str] = set()
    while target is not None and target.id not in seen:
        if target.id == entity_id:
            return True
        seen.add(target.id)
        target = known.get(target.merged_into)
    return False


def remove_strays(conn: Connection, faults: GraphFaults) -> set[str]:
    """Remove what belongs to nothing and undo merges that cannot be, and return the memories to state anew.

    `statements.put` then writes their mentions and relations.
    """
    restated = set(faults.memories)
    for chunk in chunks(sorted(faults.mentions)):
        stray = mentions.c.seq.in_(chunk)
        of_memories = select(memories.c.id).join(mentions, mentions.c.owner_id == memories.c.id)
        restated.update(conn.execute(of_memories.where(stray, mentions.c.kind == "memory")).scalars())
        conn.execute(delete(mentions).where(stray))
    for chunk in chunks(sorted(faults.relations)):
        conn.execute(delete(relations).where(relations.c.seq.in_(chunk)))
    for chunk in chunks(sorted(faults.merges)):
        conn.execute(update(entities).where(entities.c.id.in_(chunk)).values(merged_into=None))
    for entity_id, key in sorted(faults.aliases):
        is_it = (entity_aliases.c.entity_id == entity_id, entity_aliases.c.key == key)
        owner = conn.execute(select(entities.c.user_id).where(entities.c.id == entity_id)).scalar_one_or_none()
        if owner is None:
            conn.execute(delete(entity_aliases).where(*is_it))
        else:
            conn.execute(update(entity_aliases).where(*is_it).values(user_id=owner))
    return restated
