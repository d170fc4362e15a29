"""Read and write the state of entities, aliases and mentions that an edit of entities changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from palimpsest.store.graph.identity import aliases
from palimpsest.store.graph.identity.history import ALIAS, ENTITY, State
from palimpsest.store.graph.statements import put_relations
from palimpsest.store.graph.tables import entities, entity_aliases, mentions
from palimpsest.store.mapping import Query, listed, to_memory
from palimpsest.store.schema import memories


def present(conn: Connection, places: Iterable[tuple[str, ...]]) -> State:
    """Return the state now of these places. What was erased since is left out."""
    now: State = {}
    for place in places:
        match place:
            case (part, entity_id, column) if part == ENTITY:
                found = conn.execute(select(entities.c[column]).where(entities.c.id == entity_id)).first()
            case (part, entity_id, key) if part == ALIAS:
                found = conn.execute(_GIVEN, {"entity": entity_id, "of": key}).first()
            case (_, kind, owner_id, key):
                found = conn.execute(_MEANT, {"of_kind": kind, "owner": owner_id, "of": key}).first()
            case _:
                raise ValueError(f"no place of the graph: {place}")
        if found is not None:
            now[place] = found[0]
    return now


def is_present(conn: Connection, past: State) -> bool:
    """Return whether entities and mentions are still as a state says, as far as they exist."""
    now = present(conn, [place for place in past if place[0] != ALIAS])
    return bool(now) and all(past[place] == value for place, value in now.items())


def restore(conn: Connection, target: State) -> None:
    """Bring entities, aliases and mentions into a state."""
    restated: set[str] = set()
    for place, value in target.items():
        match place:
            case (part, entity_id, column) if part == ENTITY:
                conn.execute(update(entities).where(entities.c.id == entity_id).values({column: value}))
            case (_, kind, owner_id, key) if value is not None:
                _move(conn, conn.execute(_MENTION, {"of_kind": kind, "owner": owner_id, "of": key}).first(), value)
                restated |= {owner_id} if kind == "memory" else set()
            case _:
                continue
    for (part, *names), value in target.items():
        if part == ALIAS:
            aliases.give(conn, *names, name=value)
    _restate(conn, restated)


def _move(conn: Connection, mention: Row[Any] | None, entity_id: str) -> None:
    """Let a mention mean another entity. Names that only mentions gave follow it."""
    if mention is None or mention.entity_id == entity_id:
        return
    conn.execute(update(mentions).where(mentions.c.seq == mention.seq).values(entity_id=entity_id))
    aliases.add(conn, entity_id, mention.key, mention.name)
    aliases.drop_unused(conn, mention.entity_id, mention.key)


def _restate(conn: Connection, memory_ids: set[str]) -> None:
    """Write the relations of memories again, between the entities that their names mean now."""
    for row in conn.execute(_MEMORIES, {"ids": sorted(memory_ids)}).all():
        of_memory = conn.execute(select(mentions).where(mentions.c.kind == "memory", mentions.c.owner_id == row.id))
        put_relations(conn, to_memory(row), {mention.key: mention.entity_id for mention in of_memory})


# Nothing for an entity that was erased, and NULL for a name that no edit gave.
_GIVEN: Query = (
    select(entity_aliases.c.name)
    .select_from(entities)
    .join(
        entity_aliases,
        (entity_aliases.c.entity_id == entities.c.id)
        & (entity_aliases.c.key == bindparam("of"))
        & entity_aliases.c.given,
        isouter=True,
    )
    .where(entities.c.id == bindparam("entity"))
)
_MENTION: Query = select(mentions).where(
    mentions.c.kind == bindparam("of_kind"),
    mentions.c.owner_id == bindparam("owner"),
    mentions.c.key == bindparam("of"),
)
_MEANT: Query = _MENTION.with_only_columns(mentions.c.entity_id)
_MEMORIES: Query = select(memories).where(memories.c.id.in_(listed("ids")))
