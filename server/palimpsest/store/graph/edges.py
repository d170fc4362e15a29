"""Read relations between entities, with the times of the memories that state them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, select, union

from palimpsest.core.clock import parse_date, shown_date
from palimpsest.core.entities import KnownRelation, name_key
from palimpsest.core.models import Memory, Scope
from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.names import as_shown, is_shown
from palimpsest.store.graph.tables import mentions, relations
from palimpsest.store.mapping import (
    is_seen,
    listed,
    listed_numbers,
    scope_parts,
    scope_values,
    sees_named,
    to_relations,
    to_scope,
)
from palimpsest.store.queries import history as history_queries
from palimpsest.store.schema import memories
from palimpsest.text.relations import since_of

MAX_PAST_MEMORIES = 2_000
"""How many memories of an entity are read back to an earlier state: a tenth of a second of work. Set by hand."""


FIRST_LOOK = 30
"""Among how many of the memories relations are looked for first. Set by hand: of well-known names the best candidates
of a search state enough, and all of them together more than a hundred."""


class _Stated(NamedTuple):
    """A relation between entities as they were stored, and the memory that states it or a row with its times.

    `since` is since when the relation holds, as ISO 8601; "" if that is not known.
    """

    source_id: str
    name: str
    destination_id: str
    memory: Memory | Row[Any]
    since: str


def relations_of(
    conn: Connection,
    scope: Scope,
    entity_ids: Iterable[str],
    *,
    as_of: datetime | None = None,
    current_only: bool = True,
    limit: int,
) -> list[KnownRelation]:
    """Return up to `limit` relations that begin or end at entities, the ones stored last first.

    What is merged with an entity counts as the entity. Only memories that the scope sees state relations: the living
    ones, with `current_only=False` also those that were replaced or ended, and with `as_of` those living then.
    """
    ids = _groups(conn, entity_ids)
    if as_of is not None:
        return _known(conn, scope, _stated_at(conn, scope, ids, as_of)[:limit])
    values = {"ids": ids, "limit": limit, **scope_values(scope)}
    rows = conn.execute(_of_entities(scope_parts(scope), current_only), values).all()
    return _known(conn, scope, _of_rows(rows))


def relations_found(
    conn: Connection, scope: Scope, root_ids: Sequence[str], memory_ids: Sequence[str], *, limit: int, with_newest: bool
) -> list[KnownRelation]:
    """Return about `limit` relations of entities, which are not merged: those that some memories state, in their order.

    If these state fewer, the newest relations of the entities follow `with_newest`; some may then come twice. The
    memories must be living, and the scope must see them.
    """
    ids = list(members_of(conn, root_ids))
    rows = _stated(conn, scope, ids, memory_ids[:FIRST_LOOK], limit)
    if len(rows) < limit and len(memory_ids) > FIRST_LOOK:
        rows = _stated(conn, scope, ids, memory_ids, limit)
    if len(rows) < limit and with_newest:
        values = {"ids": ids, "limit": limit, **scope_values(scope)}
        rows += conn.execute(_of_entities(scope_parts(scope), current_only=True), values).all()
    return _known(conn, scope, _of_rows(rows))


def _stated(
    conn: Connection, scope: Scope, ids: Sequence[str], memory_ids: Sequence[str], limit: int
) -> list[Row[Any]]:
    """Return the rows of up to `limit` relations that memories state, in the order of the memories."""
    stated = conn.execute(_STATED, {"ids": ids, "memories": memory_ids})
    place = {memory_id: number for number, memory_id in enumerate(memory_ids)}
    first = sorted((place[memory_id], seq) for seq, memory_id in stated)[:limit]
    if not first:
        return []
    rows = {row.seq: row for row in conn.execute(_BY_SEQ, {"seqs": [seq for _, seq in first]})}
    return [rows[seq] for _, seq in first if seq in rows and is_seen(scope, to_scope(rows[seq]))]


def _of_rows(rows: Iterable[Row[Any]]) -> list[_Stated]:
    return [_Stated(row.source_id, row.name, row.destination_id, row, since_in(row)) for row in rows]


def since_in(row: Row[Any]) -> str:
    """Return since when the relation of a row holds: since its own time, or since that of the memory that states it."""
    stated = to_relations(row.relations)
    return since_of(stated[int(row.position)], _date(row.valid_from, row.valid_from_precision))


def _groups(conn: Connection, entity_ids: Iterable[str]) -> list[str]:
    return list(members_of(conn, {root.id for root in roots_of(conn, entity_ids).values()}))


def _known(conn: Connection, scope: Scope, stated: Sequence[_Stated]) -> list[KnownRelation]:
    """Return relations with their ends as what they are merged into, by the names they are shown by."""
    roots = roots_of(conn, {end for item in stated for end in (item.source_id, item.destination_id)})
    shown = as_shown(conn, scope, {root.id: root for root in roots.values()})
    known: list[KnownRelation] = []
    for item in stated:
        if item.source_id not in roots or item.destination_id not in roots:
            continue
        source, destination = (shown[roots[end].id] for end in (item.source_id, item.destination_id))
        memory = item.memory
        known.append(
            KnownRelation(
                source.name,
                item.name,
                destination.name,
                source.id,
                destination.id,
                memory.id,
                item.since,
                _date(memory.valid_until, memory.valid_until_precision),
                memory.created_at,
                memory.deleted_at,
                begun[0] if (begun := parse_date(item.since)) is not None else memory.stated_at,
            )
        )
    return known


def _date(instant: datetime | None, precision: Any) -> str:
    return shown_date(instant, precision) if instant is not None else ""


def _stated_at(conn: Connection, scope: Scope, ids: Sequence[str], instant: datetime) -> list[_Stated]:
    """Return the relations of entities that memories stated at an instant, by the newest memory first."""
    values = {"ids": ids, "instant": instant, "limit": MAX_PAST_MEMORIES, **scope_values(scope)}
    meant: dict[str, dict[str, str]] = {}
    for row in conn.execute(_MEANT_BY, values):
        meant.setdefault(row.owner_id, {})[row.key] = row.entity_id
    wanted = set(ids)
    stated: list[_Stated] = []
    for memory in history_queries.memories_at(conn, scope, instant, list(meant)):
        names = meant[memory.id]
        for relation in memory.relations:
            source, destination = (names.get(name_key(end)) for end in (relation.source, relation.destination))
            if source is not None and destination is not None and not wanted.isdisjoint((source, destination)):
                since = since_of(relation, memory.since)
                stated.append(_Stated(source, relation.name, destination, memory, since))
    return sorted(stated, key=lambda item: item.memory.created_at, reverse=True)


_TIMES = ("id", "valid_from", "valid_from_precision", "valid_until", "valid_until_precision", "created_at")
_COLUMNS = (
    *(relations.c[name] for name in ("position", "source_id", "name", "destination_id")),
    *(memories.c[name] for name in (*_TIMES, "deleted_at", "stated_at", "relations")),
)


@cache
def _of_entities(scope: tuple[bool, bool, bool], current_only: bool) -> Any:  # noqa: FBT001 - a key of the cache
    ends = union(
        select(relations.c.seq).where(relations.c.source_id.in_(listed("ids"))),
        select(relations.c.seq).where(relations.c.destination_id.in_(listed("ids"))),
    )
    is_known = and_(sees_named(memories, scope), memories.c.deleted_at.is_(None)) if current_only else is_shown(scope)
    return (
        select(*_COLUMNS)
        .join(memories, memories.c.id == relations.c.memory_id)
        .where(relations.c.seq.in_(ends), is_known)
        .order_by(relations.c.seq.desc())
        .limit(bindparam("limit"))
    )


_STATED = select(relations.c.seq, relations.c.memory_id).where(
    relations.c.memory_id.in_(listed("memories")),
    relations.c.source_id.in_(listed("ids")) | relations.c.destination_id.in_(listed("ids")),
)

_BY_SEQ = (
    select(relations.c.seq, *_COLUMNS, *(memories.c[name] for name in ("user_id", "project", "agent_id", "run_id")))
    .join(memories, memories.c.id == relations.c.memory_id)
    .where(relations.c.seq.in_(listed_numbers("seqs")), memories.c.deleted_at.is_(None))
)


def _meant_by() -> Any:
    """Return what the names of the newest memories mean that had mentioned entities by an instant."""
    owners = (
        select(mentions.c.owner_id)
        .join(memories, memories.c.id == mentions.c.owner_id)
        .where(
            mentions.c.kind == "memory",
            mentions.c.entity_id.in_(listed("ids")),
            memories.c.created_at <= bindparam("instant"),
            memories.c.user_id == bindparam("user_id"),
        )
        .order_by(memories.c.seq.desc())
        .limit(bindparam("limit"))
    )
    return select(mentions.c.owner_id, mentions.c.key, mentions.c.entity_id).where(
        mentions.c.kind == "memory", mentions.c.owner_id.in_(owners)
    )


_MEANT_BY = _meant_by()
