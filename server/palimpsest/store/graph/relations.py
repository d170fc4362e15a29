"""Read relations between entities, and memories whose relations conflict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, delete, insert, select, union

from palimpsest.core.clock import shown_date
from palimpsest.core.models import EntityType, KnownRelation, Memory, Relation, Scope, name_key
from palimpsest.core.protocols import Vector
from palimpsest.store import rows as sql
from palimpsest.store.documents import EmbeddedText, vector_values
from palimpsest.store.graph.entities import as_shown, is_shown, named_at, roots_named
from palimpsest.store.graph.identity import LAST_CHARACTER, group_of, meanings, members_of, roots_of, select_named
from palimpsest.store.schema import (
    IS_MEMORY,
    entities,
    entity_aliases,
    memories,
    mentions,
    relation_vectors,
    relations,
    vectors,
)
from palimpsest.text.relation_updates import since_of, until_of

# Read relations between entities, with the times of the memories that state them.

# How many memories of an entity are read back to an earlier state: a tenth of a second of work.
MAX_PAST_MEMORIES = 2_000


def relations_of(
    conn: Connection, scope: Scope, ids: Iterable[str], *, limit: int, as_of: datetime | None = None, ever: bool = False
) -> list[KnownRelation]:
    """Return up to `limit` relations that begin or end at entities, the ones stored last first.

    `ids` are those of the entities, and what is merged with an entity counts as the entity. Only memories that the
    scope sees state relations: the living ones, with `ever` also those that were replaced or ended, and with `as_of`
    those living then.
    """
    ids = list(group_of(conn, ids))
    if as_of is not None:
        return _with_names(conn, scope, _stated_at(conn, scope, ids, as_of)[:limit])
    return _with_names(conn, scope, map(_stated_in, _stored_last(conn, scope, ids, limit, ever=ever)))


def _stored_last(
    conn: Connection, scope: Scope, ids: Sequence[str], limit: int, *, ever: bool = False
) -> Sequence[Row[Any]]:
    """Return the rows of up to `limit` relations that begin or end at entities, the ones stored last first."""
    values = {"ids": ids, "limit": limit, **sql.scope_values(scope)}
    return conn.execute(_of_entities(sql.scope_parts(scope), ever), values).all()


def memories_stating(conn: Connection, scope: Scope, root_ids: Sequence[str], limit: int) -> list[tuple[str, str]]:
    """Return the living memories that state relations of entities, the newest first, each with a relation's name."""
    return [(row.id, row.name) for row in _stored_last(conn, scope, list(members_of(conn, root_ids)), limit)]


def relations_found(
    conn: Connection, scope: Scope, root_ids: Sequence[str], memory_ids: Sequence[str], *, limit: int, with_newest: bool
) -> list[KnownRelation]:
    """Return about `limit` relations of entities, which are not merged: those that some memories state, in their order.

    If these state fewer, the newest relations of the entities follow `with_newest`; some may then come twice. The
    memories must be living, and the scope must see them.
    """
    ids = list(members_of(conn, root_ids))
    rows = _stated(conn, scope, ids, memory_ids, limit)
    if len(rows) < limit and with_newest:
        rows += _stored_last(conn, scope, ids, limit)
    return _with_names(conn, scope, map(_stated_in, rows))


def states_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, frozenset[tuple[str, str, str]]]:
    """Return the relations that memories state, by memory: the source, the key of the relation, the destination.

    Ends are ids of entities, of what was merged the one it was merged into.
    """
    rows = conn.execute(_STATES, {"memories": memory_ids}).all()
    roots = roots_of(conn, {end for row in rows for end in (row.source_id, row.destination_id)}) if rows else {}
    states: dict[str, set[tuple[str, str, str]]] = {}
    for memory_id, source, key, destination in rows:
        if source in roots and destination in roots:
            states.setdefault(memory_id, set()).add((roots[source].id, key, roots[destination].id))
    return {memory_id: frozenset(found) for memory_id, found in states.items()}


_STATES = select(relations.c.memory_id, relations.c.source_id, relations.c.key, relations.c.destination_id).where(
    relations.c.memory_id.in_(sql.listed("memories"))
)


def _stated(
    conn: Connection, scope: Scope, ids: Sequence[str], memory_ids: Sequence[str], limit: int
) -> list[Row[Any]]:
    """Return the rows of up to `limit` relations that memories state, in the order of the memories."""
    stated = conn.execute(_STATED, {"ids": ids, "memories": memory_ids})
    place = {memory_id: number for number, memory_id in enumerate(memory_ids)}
    if not (first := sorted((place[memory_id], seq) for seq, memory_id in stated)[:limit]):
        return []
    rows = {row.seq: row for row in conn.execute(_BY_SEQ, {"seqs": [seq for _, seq in first]})}
    return [rows[seq] for _, seq in first if seq in rows and sql.is_seen(scope, sql.to_scope(rows[seq]))]


def _stated_in(row: Row[Any]) -> KnownRelation:
    return _relation(row.source_id, stated_by(row), row.destination_id, row)


def stated_by(row: Row[Any]) -> Relation:
    """Return the relation of a row as its memory states it."""
    return sql.to_relations(row.relations)[int(row.position)]


def since_in(stated: Relation, memory: Memory | Row[Any]) -> str:
    """Return since when a relation holds: since its own time, or since that of the memory that states it."""
    return since_of(stated, _date(memory.valid_from, memory.valid_from_precision))


def _relation(source_id: str, stated: Relation, destination_id: str, memory: Memory | Row[Any]) -> KnownRelation:
    """Return a relation between entities as they were stored, without their names."""
    ended = _date(memory.valid_until, memory.valid_until_precision)
    until = until_of(stated, ended, is_over=memory.deleted_at is not None)
    times = (since_in(stated, memory), until, memory.created_at, memory.deleted_at, memory.stated_at)
    return KnownRelation("", stated.name, "", source_id, destination_id, memory.id, *times)


def _with_names(conn: Connection, scope: Scope, stated: Iterable[KnownRelation]) -> list[KnownRelation]:
    """Return relations with their ends as what they are merged into, by the names they are shown by."""
    relations = list(stated)
    roots = roots_of(conn, {end for item in relations for end in (item.source_id, item.destination_id)})
    shown = as_shown(conn, scope, {root.id: root for root in roots.values()})
    ends = {entity_id: shown[root.id] for entity_id, root in roots.items()}
    return [
        replace(item, source=source.name, destination=other.name, source_id=source.id, destination_id=other.id)
        for item in relations
        if (source := ends.get(item.source_id)) is not None and (other := ends.get(item.destination_id)) is not None
    ]


def _date(instant: datetime | None, precision: Any) -> str:
    return shown_date(instant, precision) if instant is not None else ""


def _stated_at(conn: Connection, scope: Scope, ids: Sequence[str], instant: datetime) -> list[KnownRelation]:
    """Return the relations of entities that memories stated at an instant, by the newest memory first."""
    of_entities = (mentions.c.kind == "memory", sql.among(mentions.c.entity_id, ids))
    was_stored = (memories.c.created_at <= instant, memories.c.user_id == scope.user_id)
    owners = select(mentions.c.owner_id).join(memories, memories.c.id == mentions.c.owner_id)
    owners = owners.where(*of_entities, *was_stored).order_by(memories.c.seq.desc()).limit(MAX_PAST_MEMORIES)
    of_owners = select(mentions).where(mentions.c.kind == "memory", mentions.c.owner_id.in_(owners))
    wanted = set(ids)
    stated = [
        _relation(names[source], relation, names[destination], memory)
        for memory, names in named_at(conn, scope, instant, meanings(conn.execute(of_owners)))
        for relation in memory.relations
        for source, destination in [(name_key(relation.source), name_key(relation.destination))]
        if source in names and destination in names and not wanted.isdisjoint((names[source], names[destination]))
    ]
    return sorted(stated, key=lambda item: item.created_at, reverse=True)


_TIMES = ("id", "valid_from", "valid_from_precision", "valid_until", "valid_until_precision", "created_at")
_COLUMNS = (
    *(relations.c[name] for name in ("position", "source_id", "name", "destination_id")),
    *(memories.c[name] for name in (*_TIMES, "deleted_at", "stated_at", "relations")),
)


@cache
def _of_entities(scope: tuple[bool, ...], ever: bool) -> Any:  # noqa: FBT001 - a key of the cache
    ends = union(
        select(relations.c.seq).where(relations.c.source_id.in_(sql.listed("ids"))),
        select(relations.c.seq).where(relations.c.destination_id.in_(sql.listed("ids"))),
    )
    is_current = and_(sql.sees_named(memories, scope), memories.c.deleted_at.is_(None))
    of_ends = select(*_COLUMNS).join(memories, memories.c.id == relations.c.memory_id)
    known = of_ends.where(relations.c.seq.in_(ends), is_shown(scope) if ever else is_current)
    return known.order_by(relations.c.seq.desc()).limit(bindparam("limit"))


_STATED = select(relations.c.seq, relations.c.memory_id).where(
    relations.c.memory_id.in_(sql.listed("memories")),
    relations.c.source_id.in_(sql.listed("ids")) | relations.c.destination_id.in_(sql.listed("ids")),
)

_BY_SEQ = (
    select(relations.c.seq, *_COLUMNS, *(memories.c[name] for name in ("user_id", "project", "agent_id", "run_id")))
    .join(memories, memories.c.id == relations.c.memory_id)
    .where(relations.c.seq.in_(sql.listed_numbers("seqs")), memories.c.deleted_at.is_(None))
)


# The vectors of relations: Mem0g's second search compares a question with them (section 2.2).


def without_vector(conn: Connection, embedder: str, limit: int) -> dict[int, str]:
    """Return relations that have no vector of an embedder, whose memories have one: what they say, by number."""
    rows = conn.execute(_WITHOUT_VECTOR, {"embedder": embedder, "limit": limit})
    return {row.seq: stated_by(row).in_words for row in rows}


def give_vectors(conn: Connection, embedded: Mapping[int, EmbeddedText]) -> None:
    """Store the vectors of relations that still say the same."""
    for seq, made in embedded.items():
        row = conn.execute(_ONE, {"seq": seq}).one_or_none()
        if row is not None and stated_by(row).in_words == made.text:
            conn.execute(delete(relation_vectors).where(relation_vectors.c.seq == seq))
            owner = {"seq": seq, "user_id": row.user_id, "memory_id": row.memory_id}
            conn.execute(insert(relation_vectors), {**owner, **vector_values(made)})


def relation_keys(conn: Connection, user_id: str, embedder: str, limit: int) -> tuple[list[str], Vector | None]:
    """Return the memories that state the newest relations with a vector, and these vectors, of shape (n, dims)."""
    rows = conn.execute(_VECTORS, {"user": user_id, "embedder": embedder, "limit": limit}).all()
    return [row.memory_id for row in rows], sql.unpacked_keys([row.vector for row in rows]) if rows else None


_OF_MEMORIES: sql.Query = select(
    relations.c.seq, relations.c.position, relations.c.memory_id, memories.c.user_id, memories.c.relations
).join(memories, memories.c.id == relations.c.memory_id)
_ONE = _OF_MEMORIES.where(relations.c.seq == bindparam("seq"))
_WITHOUT_VECTOR = (
    _OF_MEMORIES.join(vectors, IS_MEMORY)
    .outerjoin(relation_vectors, relation_vectors.c.seq == relations.c.seq)
    .where(
        vectors.c.embedder == bindparam("embedder"), relation_vectors.c.embedder.is_distinct_from(bindparam("embedder"))
    )
    .order_by(relations.c.seq.desc())
    .limit(bindparam("limit"))
)
_VECTORS = (
    select(relation_vectors.c.memory_id, relation_vectors.c.vector)
    .where(relation_vectors.c.user_id == bindparam("user"), relation_vectors.c.embedder == bindparam("embedder"))
    .order_by(relation_vectors.c.seq.desc())
    .limit(bindparam("limit"))
)


# Find the memories that speak of the entities of a new fact: what it may contradict.
#
# Only living memories of the scope's own project are found, because a project's fact does not change the user's
# global memories.

# How many rows a query returns, those of the newest memories: comparing so many takes milliseconds, and few entities
# but the user's own have more.
NEWEST = 500

# How many names are found that begin with a shorter one: a name with more of them says little.
LONGER_NAMES = 5


class StatedRelation(NamedTuple):
    """A relation that a living memory states."""

    memory_id: str
    source_id: str
    name: str
    key: str
    destination: str
    destination_type: EntityType


def groups_named(conn: Connection, scope: Scope, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the ids of the entities that each name may mean, with all that were merged with them, by `name_key`."""
    named = {key: {root.id for root in found} for key, found in roots_named(conn, scope, names).items()}
    members = members_of(conn, {root_id for ids in named.values() for root_id in ids})
    return {
        key: frozenset(member for member, root_id in members.items() if root_id in ids) for key, ids in named.items()
    }


def names_extending(conn: Connection, scope: Scope, keys: Iterable[str]) -> list[str]:
    """Return the keys of names that begin with one of these and go on with another word: "tom baker" for "tom"."""
    extending: list[str] = []
    for key in keys:
        first = f"{key} "
        begins = (entity_aliases.c.key >= first, entity_aliases.c.key <= first + LAST_CHARACTER)
        is_known = (entity_aliases.c.user_id == scope.user_id, entities.c.project.in_(("", scope.project)))
        names = select(entity_aliases.c.key).join(entities, entities.c.id == entity_aliases.c.entity_id)
        extending += conn.execute(names.where(*is_known, *begins).limit(LONGER_NAMES)).scalars()
    return extending


def relations_from(
    conn: Connection, scope: Scope, source_ids: Iterable[str], keys: Iterable[str] | None = None
) -> list[StatedRelation]:
    """Return the relations that begin at entities, those of the newest memories first, at most `NEWEST`.

    With `keys` they are only those with one of these.
    """
    columns = [relations.c[name] for name in ("memory_id", "source_id", "name", "key")]
    query = select(*columns, entities.c.name, entities.c.type).where(sql.among(relations.c.source_id, source_ids))
    query = query.join_from(relations, entities, entities.c.id == relations.c.destination_id)
    query = query.join(memories, memories.c.id == relations.c.memory_id)
    if keys is not None:
        query = query.where(sql.among(relations.c.key, keys))
    return [StatedRelation(*row) for row in conn.execute(_newest(query, scope))]


def relations_named(conn: Connection, user_id: str, keys: Iterable[str], limit: int) -> Sequence[Row[Any]]:
    """Return up to `limit` relations of a user with one of these keys, the newest first, also of deleted memories.

    The query goes by the entities. With the scope of the memories in it, it would go through all of these.
    """
    query = select(relations).join(entities, entities.c.id == relations.c.source_id)
    is_wanted = (entities.c.user_id == user_id, sql.among(relations.c.key, keys))
    return conn.execute(query.where(*is_wanted).order_by(relations.c.seq.desc()).limit(limit)).all()


def relations_like(conn: Connection, memory_id: str, keys: Iterable[str], limit: int) -> Sequence[Row[Any]]:
    """Return up to `limit` relations of the sources and keys that a memory states, with its own, the newest first.

    These are the ones with one of `keys`, also of deleted memories. What was merged with a source counts as it.
    """
    is_stated = (relations.c.memory_id == memory_id, sql.among(relations.c.key, keys))
    stated = conn.execute(select(relations).where(*is_stated)).all()
    members = group_of(conn, {row.source_id for row in stated})
    is_like = (sql.among(relations.c.source_id, members), sql.among(relations.c.key, {row.key for row in stated}))
    return conn.execute(select(relations).where(*is_like).order_by(relations.c.seq.desc()).limit(limit)).all()


def other_states(conn: Connection, memory_id: str) -> list[tuple[str, str, bool, bool]]:
    """Return the memories that state a relation that one does, of the same source or to the same end, the newest first.

    Each with the key of the relation, whether the source is the same, and whether the end is.
    """
    rows = conn.execute(_OTHERS, {"memory": memory_id})
    return [(row.memory_id, row.key, bool(row.has_source), bool(row.has_end)) for row in rows]


_OWN = relations.alias("own")
_HAS_SOURCE = relations.c.source_id == _OWN.c.source_id
_HAS_END = relations.c.destination_id == _OWN.c.destination_id
_OTHERS = (
    select(relations.c.memory_id, relations.c.key, _HAS_SOURCE.label("has_source"), _HAS_END.label("has_end"))
    .join(_OWN, (_OWN.c.key == relations.c.key) & (_OWN.c.memory_id == bindparam("memory")))
    .where(relations.c.memory_id != bindparam("memory"), _HAS_SOURCE | _HAS_END)
    .order_by(relations.c.seq.desc())
    .limit(NEWEST)
)


def merged_into(conn: Connection, user_id: str) -> dict[str, str]:
    """Return what each entity of a user that was merged was merged into, by id."""
    query = select(entities).where(entities.c.user_id == user_id, entities.c.merged_into.is_not(None))
    return {row.id: row.merged_into for row in conn.execute(query)}


def memories_naming(conn: Connection, scope: Scope, entity_ids: Iterable[str]) -> list[str]:
    """Return the ids of memories that name one of these entities, the newest first, at most `NEWEST`."""
    query = select_named(mentions.c.owner_id).where(sql.among(mentions.c.entity_id, entity_ids))
    return list(conn.execute(_newest(query, scope)).scalars())


def _newest(query: sql.Query, scope: Scope) -> sql.Query:
    own = query.where(sql.owns(memories, scope), memories.c.deleted_at.is_(None))
    return own.order_by(memories.c.seq.desc()).limit(NEWEST)
