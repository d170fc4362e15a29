"""Read which memories and messages mention the entities of some names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, select

from palimpsest.core.models import Scope
from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.names import ids_by_key
from palimpsest.store.graph.statements import stated_names
from palimpsest.store.graph.tables import mentions
from palimpsest.store.mapping import listed
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries import memories as memory_queries


def owners_mentioning(
    conn: Connection, scope: Scope, names: Iterable[str], as_of: datetime | None = None
) -> dict[str, set[str]]:
    """Return the ids of the memories and messages that mention the entities of each name, by `name_key`.

    Memories count by their present text, or with `as_of` by the one they had then. A message counts if it mentions the
    entity itself, or if a memory that was learned from it does. Owners outside the scope may be among them.
    """
    by_key = ids_by_key(conn, scope, names)
    roots = roots_of(conn, [entity_id for ids in by_key.values() for entity_id in ids])
    wanted = {key: {roots[entity_id].id for entity_id in ids if entity_id in roots} for key, ids in by_key.items()}
    members = members_of(conn, {root for of_key in wanted.values() for root in of_key})
    rows = conn.execute(_OF_ENTITIES, {"ids": list(members)}).all()
    memories: dict[str, dict[str, str]] = {}
    messages: dict[str, set[str]] = {}
    for row in rows:
        if row.kind == "message":
            messages.setdefault(row.owner_id, set()).add(members[row.entity_id])
        elif row.current or as_of is not None:
            memories.setdefault(row.owner_id, {})[row.key] = members[row.entity_id]
    mentioned = _now(memories) if as_of is None else _then(conn, scope, memories, as_of)
    for memory_id, message_id in memory_queries.messages_of(conn, list(mentioned)):
        messages.setdefault(message_id, set()).update(mentioned[memory_id])
    owners = [*mentioned.items(), *messages.items()]
    return {key: {owner for owner, found in owners if found & of_key} for key, of_key in wanted.items()}


def _now(memories: Mapping[str, Mapping[str, str]]) -> dict[str, set[str]]:
    return {memory_id: set(meant.values()) for memory_id, meant in memories.items()}


def _then(
    conn: Connection, scope: Scope, memories: Mapping[str, Mapping[str, str]], instant: datetime
) -> dict[str, set[str]]:
    """Return the entities that memories mentioned at an instant."""
    return {
        memory.id: {memories[memory.id][key] for key in stated_names(memory) if key in memories[memory.id]}
        for memory in history_queries.memories_at(conn, scope, instant, list(memories))
    }


_OF_ENTITIES = select(
    mentions.c.kind, mentions.c.owner_id, mentions.c.key, mentions.c.entity_id, mentions.c.current
).where(mentions.c.entity_id.in_(listed("ids")))
