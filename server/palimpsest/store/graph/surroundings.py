"""Read what is known about one entity: the memories that mention it, its other names, and who is named beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, Table, and_, bindparam, func, or_, select

from palimpsest.core.entities import Entity, name_key
from palimpsest.core.models import Memory, Scope
from palimpsest.store.graph.groups import members_of, roots_of, users_own
from palimpsest.store.graph.names import as_shown
from palimpsest.store.graph.statements import stated_names
from palimpsest.store.graph.tables import entities, entity_aliases, entity_history, mentions, relations
from palimpsest.store.mapping import listed, scope_parts, scope_values, seen_values, sees, sees_named, to_memory
from palimpsest.store.queries.history import memories_at
from palimpsest.store.schema import memories


def memories_about(
    conn: Connection, scope: Scope, root_id: str, limit: int, *, oldest: int = 0
) -> tuple[list[Memory], int]:
    """Return the newest `limit` living memories that mention an entity, the newest first, and how many there are.

    If there are more, the `oldest` ones follow.
    """
    values = _values(conn, scope, root_id)
    parts = scope_parts(scope)
    found = [to_memory(row) for row in conn.execute(_about(parts, is_living=True), {**values, "limit": limit})]
    count = conn.execute(_count_about(parts, is_living=True), values).scalar_one()
    if rest := min(count - len(found), oldest):
        first = conn.execute(_about(parts, is_living=True, is_newest_first=False), {**values, "limit": rest})
        found += [to_memory(row) for row in first][::-1]
    return found, count


def about_user(conn: Connection, scope: Scope, key: str) -> str | None:
    """Return the id of a living memory of exactly this project that is about the user, if there is one.

    One that calls the user by the name with this key comes first, then the newest.
    """
    own = users_own(conn, scope.user_id)
    if own is None:
        return None
    query = (
        select(memories.c.id)
        .join(mentions, mentions.c.owner_id == memories.c.id)
        .where(
            mentions.c.kind == "memory",
            mentions.c.current,
            mentions.c.entity_id.in_(list(members_of(conn, [own]))),
            memories.c.deleted_at.is_(None),
            memories.c.project == scope.project,
            sees(memories, scope),
        )
        .order_by((mentions.c.key == key).desc(), memories.c.seq.desc())
        .limit(1)
    )
    return conn.execute(query).scalar()


def former_memories_about(
    conn: Connection, scope: Scope, root_id: str, limit: int, *, as_of: datetime | None = None
) -> tuple[list[Memory], int]:
    """Return the same of memories that were replaced or ended, the one that ended last first.

    With `as_of` these are the ones that had ended by then.
    """
    values = {**_values(conn, scope, root_id), "instant": as_of or datetime.max.replace(tzinfo=UTC)}
    parts = scope_parts(scope)
    found = [to_memory(row) for row in conn.execute(_about(parts, is_living=False), {**values, "limit": limit})]
    return found, conn.execute(_count_about(parts, is_living=False), values).scalar_one()


def memories_about_at(conn: Connection, scope: Scope, root_id: str, instant: datetime) -> list[Memory]:
    """Return the memories that were living at an instant and mentioned an entity, as they were, the newest first."""
    rows = conn.execute(_EVER, _values(conn, scope, root_id)).all()
    keys: dict[str, set[str]] = {}
    for row in rows:
        keys.setdefault(row.owner_id, set()).add(row.key)
    found = [
        memory
        for memory in memories_at(conn, scope, instant, list(keys))
        if not keys[memory.id].isdisjoint(stated_names(memory))
    ]
    return sorted(found, key=lambda memory: (memory.stated_at, memory.created_at, memory.id), reverse=True)


def memories_naming(conn: Connection, scope: Scope, root_ids: Iterable[str]) -> dict[str, int]:
    """Return the living, replaced and ended memories that name one of several entities, by id with their revision."""
    ids = list(members_of(conn, root_ids))
    values = {"ids": ids, "instant": datetime.max.replace(tzinfo=UTC), **scope_values(scope)}
    return {row.id: row.revision for row in conn.execute(_shown(scope_parts(scope)), values)}


def other_names(conn: Connection, scope: Scope, entity: Entity) -> list[str]:
    """Return the other names of an entity: those that memories of the scope use, and those that an edit gave it.

    A name that only a forgotten memory uses is not among them.
    """
    values = {**_values(conn, scope, entity.id), "instant": datetime.max.replace(tzinfo=UTC)}
    rows = [*conn.execute(_used(scope_parts(scope)), values), *conn.execute(_GIVEN, values)]
    names = {row.key: row.name for row in reversed(rows)}
    names.pop(name_key(entity.name), None)
    return sorted(names.values(), key=lambda name: (name.casefold(), name))


def named_beside(conn: Connection, scope: Scope, root_id: str, read: Sequence[Memory]) -> list[tuple[Entity, int]]:
    """Return the other entities that memories name, and how many of them do, those that most name first.

    The user is not among them, because nearly everything is about the user.
    """
    named = entities_named_by(conn, scope, read)
    shown = {entity.id: entity for of_memory in named.values() for entity in of_memory}
    counts = Counter(entity.id for of_memory in named.values() for entity in of_memory if entity.id != root_id)
    order = sorted(counts, key=lambda other_id: (-counts[other_id], shown[other_id].name.casefold(), other_id))
    return [(shown[other_id], counts[other_id]) for other_id in order]


def entities_named_by(conn: Connection, scope: Scope, read: Sequence[Memory]) -> dict[str, list[Entity]]:
    """Return the entities that each memory names in its present version, by its id. The user is not among them."""
    meant = {
        (row.owner_id, row.key): row.entity_id for row in conn.execute(_MEANT, {"ids": [memory.id for memory in read]})
    }
    roots = roots_of(conn, meant.values())
    of_memory: dict[str, list[str]] = {}
    for memory in read:
        ids = [meant.get((memory.id, key), "") for key in stated_names(memory)]
        found = [roots[entity_id] for entity_id in ids if entity_id in roots]
        of_memory[memory.id] = list(dict.fromkeys(root.id for root in found if not root.is_user))
    wanted = {root_id for ids in of_memory.values() for root_id in ids}
    shown = as_shown(conn, scope, {root.id: root for root in roots.values() if root.id in wanted})
    return {memory_id: [shown[root_id] for root_id in ids] for memory_id, ids in of_memory.items()}


def owners_and_entities(
    conn: Connection, scope: Scope, limit: int, about: Sequence[str] | None = None
) -> list[tuple[str, str]]:
    """Return up to `limit` pairs of a living memory and an entity that it names, by id, the newest memory first.

    With `about` these are memories that name one of some entities. An entity may be one that was merged into another.
    """
    query = (
        select(mentions.c.owner_id, mentions.c.entity_id)
        .join(memories, memories.c.id == mentions.c.owner_id)
        .where(mentions.c.kind == "memory", mentions.c.current, sees(memories, scope), memories.c.deleted_at.is_(None))
        .order_by(memories.c.seq.desc(), mentions.c.seq)
        .limit(limit)
    )
    if about is None:
        return [(row.owner_id, row.entity_id) for row in conn.execute(query)]
    named = query.where(mentions.c.owner_id.in_(_of_entity()))
    return [(row.owner_id, row.entity_id) for row in conn.execute(named, {"ids": list(about)})]


def entities_by_id(conn: Connection, scope: Scope, beginning: str) -> list[Entity]:
    """Return up to two roots of a scope's user and project whose id begins so. What the scope sees is not asked."""
    query = select(entities.c.id).where(
        entities.c.user_id == scope.user_id,
        entities.c.project.in_(("", scope.project)),
        entities.c.id >= beginning,
        entities.c.id < f"{beginning}g",  # it comes after every hexadecimal digit
    )
    found = roots_of(conn, conn.execute(query.limit(2)).scalars())
    return list({root.id: root for root in found.values()}.values())


def entities_with_ids(conn: Connection, scope: Scope, root_ids: Iterable[str]) -> list[Entity]:
    """Return roots by their ids, with the names they are shown by."""
    roots = {root.id: root for root in roots_of(conn, root_ids).values()}
    return list(as_shown(conn, scope, roots).values())


def texts_of_edit(conn: Connection, edit: int) -> list[str]:
    """Return in words what an edit changed of entities."""
    query = select(entity_history.c.text).where(entity_history.c.change == edit).order_by(entity_history.c.seq)
    return list(conn.execute(query).scalars())


def count_graph(conn: Connection, scope: Scope) -> tuple[int, int]:
    """Return how many entities the living memories of a scope mention, and how many relations they state."""
    living = and_(sees(memories, scope), memories.c.deleted_at.is_(None))
    mentioned = (
        select(mentions.c.entity_id)
        .join(memories, memories.c.id == mentions.c.owner_id)
        .where(mentions.c.kind == "memory", mentions.c.current, living)
        .distinct()
    )
    roots = roots_of(conn, conn.execute(mentioned).scalars())
    stated = select(func.count()).select_from(relations.join(memories, memories.c.id == relations.c.memory_id))
    return len({root.id for root in roots.values()}), conn.execute(stated.where(living)).scalar_one()


def all_ids(conn: Connection, scope: Scope) -> list[str]:
    """Return the ids of all entities of a scope's user and project. What the scope sees is not asked."""
    query = select(entities.c.id).where(
        entities.c.user_id == scope.user_id, entities.c.project.in_(("", scope.project))
    )
    return list(conn.execute(query).scalars())


def _values(conn: Connection, scope: Scope, root_id: str) -> Mapping[str, Any]:
    return {"ids": list(members_of(conn, [root_id])), **seen_values(scope)}


def _of_entity() -> Any:
    """Return the ids of the memories that name an entity in their present version, or the last one they had."""
    # No message has the id of a memory. With the kind, the planner goes through the mentions of all memories.
    is_named = and_(mentions.c.entity_id.in_(listed("ids")), mentions.c.current)
    return select(mentions.c.owner_id).where(is_named)


@cache
def _shown(parts: tuple[bool, bool, bool], is_living: bool | None = None) -> Any:  # noqa: FBT001 - a key of the cache
    """Return the memories that name an entity and that a scope is shown: the living ones, those that ended, or both."""
    # OFFSET keeps the scope out of the inner query. With it, the planner goes through all memories of the scope.
    found = select(memories).where(memories.c.id.in_(_of_entity())).offset(0).subquery("named")
    columns = found.c
    ended = and_(
        columns.deleted_at <= bindparam("instant", type_=columns.deleted_at.type),
        columns.is_forgotten.is_(False),
        or_(columns.superseded_by.is_not(None), columns.valid_until.is_not(None)),
    )
    living = columns.deleted_at.is_(None)
    state = or_(living, ended) if is_living is None else living if is_living else ended
    return select(found).where(sees_named(cast("Table", found), parts), state)


@cache
def _about(parts: tuple[bool, bool, bool], *, is_living: bool, is_newest_first: bool = True) -> Any:
    found = _shown(parts, is_living).subquery("shown")
    columns = found.c
    newest = columns.stated_at if is_living else func.coalesce(columns.valid_until, columns.deleted_at)
    order = (newest.desc(), columns.seq.desc()) if is_newest_first else (newest, columns.seq)
    return select(found).order_by(*order).limit(bindparam("limit"))


@cache
def _count_about(parts: tuple[bool, bool, bool], *, is_living: bool) -> Any:
    return select(func.count()).select_from(_shown(parts, is_living).subquery("shown"))


@cache
def _used(parts: tuple[bool, bool, bool]) -> Any:
    shown = select(_shown(parts).subquery("shown").c.id)
    return (
        select(mentions.c.key, mentions.c.name)
        .where(mentions.c.entity_id.in_(listed("ids")), mentions.c.current, mentions.c.owner_id.in_(shown))
        .group_by(mentions.c.key, mentions.c.name)
        .order_by(func.min(mentions.c.seq))
    )


# What was given in a project is known there, also if the entity is part of a global one.
_GIVEN = (
    select(entity_aliases.c.key, entity_aliases.c.name)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.entity_id.in_(listed("ids")),
        entity_aliases.c.given,
        or_(entities.c.project == bindparam("beside"), entities.c.project == bindparam("project")),
    )
)

_EVER = select(mentions.c.owner_id, mentions.c.key).where(
    mentions.c.kind == "memory", mentions.c.entity_id.in_(listed("ids"))
)

_MEANT = select(mentions.c.owner_id, mentions.c.key, mentions.c.entity_id).where(
    mentions.c.kind == "memory", mentions.c.owner_id.in_(listed("ids"))
)
