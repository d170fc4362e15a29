"""What a graph database outside shows of the ledger: the nodes and edges of some memories, and what changed them.

It shows what memories mention that are living or closed. What a deleted memory mentions is not shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, and_, exists, func, select, text

from palimpsest.core.clock import exact_iso, parse_date
from palimpsest.core.models import SELF_NAMES, Scope
from palimpsest.store.graph.identity import USER, group_of, members_of, roots_of, told
from palimpsest.store.graph.relations import since_in, stated_by
from palimpsest.store.memories import learned_memories, name_of_user
from palimpsest.store.rows import Query, among
from palimpsest.store.schema import IS_USER, entities, entity_aliases, entity_history, memories, mentions, relations

# A node or an edge as a graph database has it. Times are ISO 8601 in UTC; None is no property at all.
Properties: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """All edges of some memories, and the entities they mention: those that are shown, and the ids of the others."""

    memory_ids: tuple[str, ...] = ()
    nodes: tuple[Properties, ...] = ()
    hidden: tuple[str, ...] = ()
    edges: tuple[Properties, ...] = ()


def part_of(conn: Connection, memory_ids: Sequence[str], entity_ids: Iterable[str] = ()) -> Part:
    """Return what is shown of memories, and of entities besides those that they mention."""
    of_memories = (mentions.c.kind == "memory", among(mentions.c.owner_id, memory_ids))
    named = set(entity_ids) | set(conn.execute(select(mentions.c.entity_id).distinct().where(*of_memories)).scalars())
    users = select(memories.c.user_id).where(among(memories.c.id, memory_ids))
    own = select(entities.c.id).where(text(IS_USER), entities.c.user_id.in_(users))  # in the words of the index
    named |= set(conn.execute(own).scalars())  # its name may be told anywhere
    roots = {entity_id: root.id for entity_id, root in roots_of(conn, named).items()}
    nodes = _nodes(conn, set(roots.values()))
    shown = {node["id"] for node in nodes}
    edges = tuple(
        _edge(row, roots[row.source_id], roots[row.destination_id])
        for row in conn.execute(_RELATIONS.where(among(relations.c.memory_id, memory_ids)))
        if row.source_id in roots and row.destination_id in roots
    )
    return Part(tuple(memory_ids), nodes, tuple(sorted((named | set(roots.values())) - shown)), edges)


_IS_SHOWN = and_(learned_memories(), memories.c.is_forgotten.is_(False))

_RELATIONS: Query = (
    select(
        *(relations.c[name] for name in ("memory_id", "position", "source_id", "name", "destination_id")),
        *(memories.c[name] for name in ("text", "valid_from", "valid_from_precision", "stated_at", "valid_until")),
        *(memories.c[name] for name in ("created_at", "deleted_at", "relations")),
    )
    .join(memories, memories.c.id == relations.c.memory_id)
    .where(_IS_SHOWN)
    .order_by(relations.c.memory_id, relations.c.position)
)


def _edge(row: Row[Any], source_id: str, destination_id: str) -> Properties:
    """Return a relation that a memory states, with its own times, if it has such, and the times of the memory.

    It holds from `valid_from` until `valid_until`, and the ledger knew it from `created_at` until `expired_at`.
    """
    stated = stated_by(row)
    begun, ended = parse_date(since_in(stated, row)), parse_date(stated.until or "")
    times = {
        "valid_from": row.stated_at if begun is None else begun[0],
        "valid_until": row.valid_until if ended is None else min(ended[0], row.valid_until or ended[0]),
        "created_at": row.created_at,
        "expired_at": row.deleted_at,
    }
    return {
        "id": f"{row.memory_id}:{row.position}",
        "source_id": source_id,
        "destination_id": destination_id,
        **{name: getattr(row, name) for name in ("name", "memory_id", "text")},
        "is_current": row.deleted_at is None,
        **{name: None if at is None else exact_iso(at) for name, at in times.items()},
    }


def _nodes(conn: Connection, roots: Iterable[str]) -> tuple[Properties, ...]:
    """Return those entities that a memory which is shown mentions, by their own name or a merged one.

    Each has all the names that memories give it as `aliases`, apart from its own.
    """
    root_of = members_of(conn, roots)
    is_named = (mentions.c.kind == "memory", mentions.c.current, among(mentions.c.entity_id, root_of))
    is_in_shown = exists().where(memories.c.id == mentions.c.owner_id, _IS_SHOWN)
    names: dict[str, dict[str, str]] = {}
    for row in conn.execute(select(mentions).where(*is_named, is_in_shown).order_by(mentions.c.seq)):
        names.setdefault(root_of[row.entity_id], {}).setdefault(row.key, row.name)
    given = select(entity_aliases).where(entity_aliases.c.given, among(entity_aliases.c.entity_id, root_of))
    for row in conn.execute(given.order_by(entity_aliases.c.entity_id, entity_aliases.c.key)):
        if (known := names.get(root_of[row.entity_id])) is not None:
            known.setdefault(row.key, row.name)
    rows = conn.execute(select(entities).where(among(entities.c.id, names)).order_by(entities.c.seq)).all()
    return tuple(_node(conn, row, names[row.id]) for row in rows)


def _node(conn: Connection, row: Row[Any], names: Mapping[str, str]) -> Properties:
    name = (name_of_user(conn, Scope(row.user_id)) or USER) if row.is_user else row.name
    aliases = {alias for key, alias in names.items() if alias != name and key not in SELF_NAMES}
    own = {column: getattr(row, column) for column in ("id", "user_id", "project", "type", "is_user")}
    return {**own, "name": name, "aliases": sorted(aliases)}


def newest_edit(conn: Connection) -> int:
    """Return the number of the newest row of the history of entities, or 0 if there is none."""
    return conn.execute(select(func.max(entity_history.c.seq))).scalar_one() or 0


def edited_entities(conn: Connection, edit_number: int) -> list[str]:
    """Return the ids in the rows of the history of entities after a number: of entities that are other ones now."""
    rows = conn.execute(select(entity_history).where(entity_history.c.seq > edit_number))
    found = {text for row in rows for text in told(row)}
    return list(conn.execute(select(entities.c.id).where(among(entities.c.id, found))).scalars())


def memories_of(conn: Connection, entity_ids: Sequence[str]) -> list[str]:
    """Return the memories that mention one of these entities, or one that is the same as one of them."""
    is_of = (mentions.c.kind == "memory", among(mentions.c.entity_id, group_of(conn, entity_ids)))
    return list(conn.execute(select(mentions.c.owner_id).distinct().where(*is_of)).scalars())


_MENTIONS_ANYTHING = exists().where(mentions.c.kind == "memory", mentions.c.owner_id == memories.c.id)


def memories_that_mention(conn: Connection, after: int, limit: int) -> list[tuple[int, str]]:
    """Return number and id of the next `limit` memories after a number that mention anything, and are shown."""
    query = select(memories.c.seq, memories.c.id).where(memories.c.seq > after, _MENTIONS_ANYTHING, _IS_SHOWN)
    return [(row.seq, row.id) for row in conn.execute(query.order_by(memories.c.seq).limit(limit))]


def count_memories_that_mention(conn: Connection) -> int:
    """Return the number of memories that mention anything, and are shown."""
    return conn.execute(select(func.count()).select_from(memories).where(_MENTIONS_ANYTHING, _IS_SHOWN)).scalar_one()
