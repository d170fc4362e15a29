"""Read and write the state of entities, aliases and mentions that an edit of entities changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select, update

from palimpsest.store.graph.identity import aliases
from palimpsest.store.graph.identity.history import State, state
from palimpsest.store.graph.statements import put_relations
from palimpsest.store.graph.tables import entities, mentions
from palimpsest.store.mapping import listed, to_memory
from palimpsest.store.schema import memories


def present(conn: Connection, places: State) -> State:
    """Return the state now of what `places` names. What was erased since is left out."""
    now = state()
    columns = places["entities"]
    known = {row.id: row for row in conn.execute(_ENTITIES, {"ids": [*columns, *places["aliases"]]})}
    for entity_id, values in columns.items():
        if entity_id in known:
            now["entities"][entity_id] = {name: getattr(known[entity_id], name) for name in values}
    for entity_id, keys in places["aliases"].items():
        if entity_id in known:
            given = aliases.given(conn, entity_id)
            now["aliases"][entity_id] = {key: given.get(key) for key in keys}
    for kind, owners in places["mentions"].items():
        for owner_id, keys in owners.items():
            meant = {row.key: row.entity_id for row in _mentions(conn, kind, owner_id) if row.key in keys}
            if meant:
                now["mentions"].setdefault(kind, {})[owner_id] = meant
    return now


def is_present(conn: Connection, past: State) -> bool:
    """Return whether entities and mentions are still as a state says, as far as they exist."""
    now = present(conn, past)
    columns = [
        (past["entities"][entity_id][name], value)
        for entity_id, values in now["entities"].items()
        for name, value in values.items()
    ]
    meant = [
        (past["mentions"][kind][owner][key], entity_id)
        for kind, owners in now["mentions"].items()
        for owner, keys in owners.items()
        for key, entity_id in keys.items()
    ]
    return bool(columns or meant) and all(then == value for then, value in (*columns, *meant))


def restore(conn: Connection, target: State) -> None:
    """Bring entities, aliases and mentions into a state. What was erased since stays so."""
    for entity_id, values in target["entities"].items():
        conn.execute(update(entities).where(entities.c.id == entity_id).values(**values))
    for kind, owners in target["mentions"].items():
        for owner_id, meant in owners.items():
            _move(conn, kind, owner_id, meant)
        if kind == "memory":
            _restate(conn, owners)
    for entity_id, keys in target["aliases"].items():
        for key, name in keys.items():
            aliases.give(conn, entity_id, key, name)


def _move(conn: Connection, kind: str, owner_id: str, meant: dict[str, str]) -> None:
    """Let the keys of a memory or message mean other entities."""
    for row in _mentions(conn, kind, owner_id):
        entity_id = meant.get(row.key, str(row.entity_id))
        if entity_id != row.entity_id:
            conn.execute(update(mentions).where(mentions.c.seq == row.seq).values(entity_id=entity_id))
            aliases.add(conn, entity_id, row.key, row.name)
            aliases.drop_unused(conn, row.entity_id, row.key)


def _restate(conn: Connection, memory_ids: Iterable[str]) -> None:
    """Write the relations of memories again, between the entities that their names mean now."""
    for row in conn.execute(_MEMORIES, {"ids": list(memory_ids)}).all():
        put_relations(
            conn, to_memory(row), {mention.key: mention.entity_id for mention in _mentions(conn, "memory", row.id)}
        )


def _mentions(conn: Connection, kind: str, owner_id: str) -> list[Any]:
    query = select(mentions).where(mentions.c.kind == kind, mentions.c.owner_id == owner_id)
    return list(conn.execute(query).all())


_ENTITIES = select(entities).where(entities.c.id.in_(listed("ids")))
_MEMORIES = select(memories).where(memories.c.id.in_(listed("ids")))
