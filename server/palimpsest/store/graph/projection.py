"""What a graph database outside shows of the ledger: the nodes and edges of some memories, and what changed them.

It shows what memories mention that are living or closed. What a deleted memory mentions is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Row, and_, exists, func, select, text

from palimpsest.core.clock import parse_date
from palimpsest.core.models import SELF_NAMES, EntityType, Scope
from palimpsest.store.graph.identity import USER, members_of, roots_of
from palimpsest.store.graph.relations import since_in
from palimpsest.store.memories import learned_memories, name_of_user
from palimpsest.store.rows import Query, among
from palimpsest.store.schema import (
    IS_USER,
    entities,
    entity_aliases,
    entity_history,
    index_log,
    memories,
    mentions,
    relations,
)


@dataclass(frozen=True, slots=True)
class Node:
    """An entity that memories mention, with all the names that they give it apart from its own."""

    id: str
    user_id: str
    project: str
    name: str
    type: EntityType
    aliases: tuple[str, ...]
    is_user: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation that a memory states, with its own beginning, if it has one, and the times of the memory.

    It holds from `valid_from` until `valid_until`, and the ledger knew it from `created_at` until `expired_at`.
    """

    id: str
    source_id: str
    destination_id: str
    name: str
    memory_id: str
    text: str
    valid_from: datetime
    valid_until: datetime | None
    created_at: datetime
    expired_at: datetime | None


@dataclass(frozen=True, slots=True)
class Part:
    """All edges of some memories, and the entities they mention: those that are shown, and the ids of the others."""

    memory_ids: tuple[str, ...]
    nodes: tuple[Node, ...]
    hidden: tuple[str, ...]
    edges: tuple[Edge, ...]


def part_of(conn: Connection, memory_ids: Sequence[str], entity_ids: Iterable[str] = ()) -> Part:
    """Return what is shown of memories, and of entities besides those that they mention."""
    of_memories = (mentions.c.kind == "memory", among(mentions.c.owner_id, memory_ids))
    named = set(entity_ids) | set(conn.execute(select(mentions.c.entity_id).distinct().where(*of_memories)).scalars())
    users = select(memories.c.user_id).where(among(memories.c.id, memory_ids))
    own = select(entities.c.id).where(text(IS_USER), entities.c.user_id.in_(users))  # in the words of the index
    named |= set(conn.execute(own).scalars())  # its name may be told anywhere
    roots = {entity_id: root.id for entity_id, root in roots_of(conn, named).items()}
    nodes = _nodes(conn, set(roots.values()))
    shown = {node.id for node in nodes}
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
        *(
            memories.c[name]
            for name in (
                *("text", "valid_from", "valid_from_precision", "stated_at", "valid_until", "created_at"),
                *("deleted_at", "relations"),
            )
        ),
    )
    .join(memories, memories.c.id == relations.c.memory_id)
    .where(_IS_SHOWN)
    .order_by(relations.c.memory_id, relations.c.position)
)


def _edge(row: Row[Any], source_id: str, destination_id: str) -> Edge:
    return Edge(
        f"{row.memory_id}:{row.position}",
        source_id,
        destination_id,
        row.name,
        row.memory_id,
        row.text,
        begun[0] if (begun := parse_date(since_in(row))) is not None else row.stated_at,
        row.valid_until,
        row.created_at,
        row.deleted_at,
    )


def _nodes(conn: Connection, roots: Iterable[str]) -> tuple[Node, ...]:
    """Return the nodes of those entities that a memory which is shown mentions, by their own name or a merged one."""
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


def _node(conn: Connection, row: Row[Any], names: Mapping[str, str]) -> Node:
    name = (name_of_user(conn, Scope(row.user_id)) or USER) if row.is_user else row.name
    aliases = {alias for key, alias in names.items() if alias != name and key not in SELF_NAMES}
    return Node(row.id, row.user_id, row.project, name, row.type, tuple(sorted(aliases)), row.is_user)


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The newest rows that a graph database outside follows: of the index log, the history of entities, and mentions.

    A memory whose names were looked for later has new mentions, and no row in the index log.
    """

    log_number: int
    edit_number: int
    mention_number: int


def ledger_end(conn: Connection) -> LedgerEnd:
    """Return the newest rows there are."""
    numbers = conn.execute(_NEWEST).one()
    return LedgerEnd(*(int(number or 0) for number in numbers))


_NEWEST = select(*(select(func.max(table.c.seq)).scalar_subquery() for table in (index_log, entity_history, mentions)))


def changed_memories(conn: Connection, log_number: int, limit: int) -> tuple[list[str], int]:
    """Return the memories of the next `limit` rows of the index log that name one, and the number of the last row.

    If there are no such rows, it is the number of the newest row of all.
    """
    query = select(index_log.c.seq, index_log.c.memory_id).order_by(index_log.c.seq).limit(limit)
    rows = conn.execute(query.where(index_log.c.seq > log_number, index_log.c.memory_id.is_not(None))).all()
    if not rows:
        return [], ledger_end(conn).log_number
    return list(dict.fromkeys(row.memory_id for row in rows)), rows[-1].seq


def newly_naming_memories(conn: Connection, mention_number: int, limit: int) -> tuple[list[str], int]:
    """Return the memories of the next `limit` mentions after a number, and the number of the last of these.

    If there are none, it is the number itself.
    """
    query = select(mentions).where(mentions.c.seq > mention_number).order_by(mentions.c.seq).limit(limit)
    rows = conn.execute(query).all()
    owners = dict.fromkeys(row.owner_id for row in rows if row.kind == "memory")
    return list(owners), rows[-1].seq if rows else mention_number


def edited_entities(conn: Connection, edit_number: int) -> list[str]:
    """Return the ids in the rows of the history of entities after a number: of entities that are other ones now."""
    found: dict[str, None] = {}
    query = select(entity_history).where(entity_history.c.seq > edit_number).order_by(entity_history.c.seq)
    for row in conn.execute(query):
        found.update(dict.fromkeys((row.entity_id, *_strings(row.before), *_strings(row.after))))
    known = select(entities.c.id).where(among(entities.c.id, found)).order_by(entities.c.seq)
    return list(conn.execute(known).scalars())


def _strings(value: Any) -> list[str]:
    """Return every string in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    return [text for part in cast("list[Any]", value) for text in _strings(part)] if isinstance(value, list) else []


def memories_of(conn: Connection, entity_ids: Sequence[str]) -> list[str]:
    """Return the memories that mention one of these entities, or one that is the same as one of them."""
    group = members_of(conn, {root.id for root in roots_of(conn, entity_ids).values()})
    query = select(mentions.c.owner_id).distinct()
    return list(conn.execute(query.where(mentions.c.kind == "memory", among(mentions.c.entity_id, group))).scalars())


_MENTIONS_ANYTHING = exists().where(mentions.c.kind == "memory", mentions.c.owner_id == memories.c.id)


def memories_that_mention(conn: Connection, after: int, limit: int) -> list[tuple[int, str]]:
    """Return number and id of the next `limit` memories after a number that mention anything, and are shown."""
    query = select(memories.c.seq, memories.c.id).where(memories.c.seq > after, _MENTIONS_ANYTHING, _IS_SHOWN)
    return [(row.seq, row.id) for row in conn.execute(query.order_by(memories.c.seq).limit(limit))]


def count_memories_that_mention(conn: Connection) -> int:
    """Return the number of memories that mention anything, and are shown."""
    query = select(func.count()).select_from(memories).where(_MENTIONS_ANYTHING, _IS_SHOWN)
    return conn.execute(query).scalar_one()
