"""Read entities by their names: in a scope, in a text, and as a list.

A scope sees an entity if it sees a memory or a message that mentions it. The memory is living, or was replaced or
ended; what is forgotten mentions nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, exists, func, or_, select

from palimpsest.core.entities import SELF_NAMES, Entity, EntityType, name_key
from palimpsest.core.models import Scope
from palimpsest.store.graph.groups import members_of, roots_of, to_entity, users_own
from palimpsest.store.graph.tables import entities, entity_aliases, mentions
from palimpsest.store.mapping import listed, scope_parts, scope_values, seen_values, sees_named
from palimpsest.store.queries.memories import learned_memories, name_of_user
from palimpsest.store.schema import memories, messages
from palimpsest.text.names.known import Place, known_names, name_candidates
from palimpsest.text.names.words import beginning

NAMES_READ = 100
"""How many names are read at once to complete a beginning. A client shows at most as many. Set by hand."""

LAST_CHARACTER = "\U0010ffff"


class ListedEntity(NamedTuple):
    """An entity, how many living memories that the scope sees mention it, and when the newest of them was stated."""

    entity: Entity
    mentions: int
    mentioned_at: datetime


def entities_named(
    conn: Connection, scope: Scope, names: Iterable[str], *, as_of: datetime | None = None
) -> dict[str, list[Entity]]:
    """Return the entities that a scope sees by each name that some have, those of its own project first.

    The keys are `name_key` of the names. What was merged counts as what it was merged into. With `as_of` these are the
    entities that memories of that time mention.
    """
    ids, roots = _known(conn, scope, names)
    if not ids:
        return {}
    if others := {entity_id for of_key in ids.values() for entity_id in of_key} - roots.keys():
        roots |= roots_of(conn, others)
    seen = seen_roots(conn, scope, {root.id for root in roots.values()}, as_of=as_of)
    shown = as_shown(conn, scope, {root.id: root for root in roots.values() if root.id in seen})
    named: dict[str, list[Entity]] = {}
    for key, of_key in ids.items():
        of_name = {roots[entity_id].id: None for entity_id in of_key if entity_id in roots}
        if found := [shown[root_id] for root_id in of_name if root_id in shown]:
            named[key] = found
    return named


def ids_by_key(conn: Connection, scope: Scope, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids of the entities of a scope by the keys of names, whether something mentions them or not.

    The user's own entity has every name that stands for the user, and the one that a memory tells.
    """
    return _known(conn, scope, names)[0]


def with_keys(conn: Connection, scope: Scope, keys: Sequence[str]) -> Sequence[Row[Any]]:
    """Return the rows of the entities of a scope with the `key` of each name they have, those of its project first."""
    return conn.execute(_BY_KEY, {"user_id": scope.user_id, "project": scope.project, "keys": keys}).all()


def _known(conn: Connection, scope: Scope, names: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, Entity]]:
    """Return what `ids_by_key` does, and those of the entities that are not merged."""
    keys = sorted({name_key(name) for name in names} - {""})
    ids: dict[str, list[str]] = {}
    unmerged: dict[str, Entity] = {}
    for row in with_keys(conn, scope, keys):
        ids.setdefault(row.key, []).append(row.id)
        if row.merged_into is None:
            unmerged[row.id] = to_entity(row)
    own = users_own(conn, scope.user_id)
    if own is not None:
        told = name_key(name_of_user(conn, scope))
        own_keys = (key for key in keys if key in SELF_NAMES or key == told)
        ids |= {key: [own, *(other for other in ids.get(key, ()) if other != own)] for key in own_keys}
    return ids, unmerged


def entities_in_text(conn: Connection, scope: Scope, text: str, *, as_of: datetime | None = None) -> list[Entity]:
    """Return the entities that a text names and the scope sees, each once, in the order of their names in the text.

    Of names that overlap the longest one counts.
    """
    if conn.execute(_ANY, {"user_id": scope.user_id}).scalar() is None:
        return []
    named = entities_named(conn, scope, name_candidates(text), as_of=as_of)
    if not named:
        return []
    known: dict[str, EntityType] = {key: found[0].type for key, found in named.items()}
    places: list[Place] = []
    for place in known_names(beginning(text), known):
        if all(place.end <= other.start or other.end <= place.start for other in places):
            places.append(place)
    places.sort(key=lambda place: place.start)
    found = (entity for place in places for entity in named[name_key(place.name)])
    return list({entity.id: entity for entity in found}.values())


def list_entities(
    conn: Connection,
    scope: Scope,
    limit: int,
    *,
    type: EntityType | None = None,  # noqa: A002 - as an entity has it
) -> list[ListedEntity]:
    """Return up to `limit` entities that living memories of the scope mention, the one mentioned last first."""
    counted = conn.execute(_counted(scope_parts(scope)), scope_values(scope)).all()
    rows = [row for row in counted if row.entity_id is not None]
    roots = roots_of(conn, [row.entity_id for row in rows])
    mentioned: dict[str, tuple[int, datetime]] = {}
    for row in rows:
        if row.entity_id in roots:
            root_id = roots[row.entity_id].id
            count, newest = mentioned.get(root_id, (0, row.newest))
            mentioned[root_id] = (count + row.memories, max(newest, row.newest))
    by_id = {root.id: root for root in roots.values() if type in (None, root.type)}
    order = sorted(by_id, key=lambda root_id: (by_id[root_id].name.casefold(), root_id))
    order.sort(key=lambda root_id: mentioned[root_id][1], reverse=True)
    shown = as_shown(conn, scope, {root_id: by_id[root_id] for root_id in order[:limit]})
    return [ListedEntity(shown[root_id], *mentioned[root_id]) for root_id in order[:limit]]


def names_beginning(conn: Connection, scope: Scope, beginning: str, limit: int) -> list[str]:
    """Return up to `limit` names of entities that the scope sees and that begin so, in any case, sorted."""
    first = name_key(beginning)
    values = {"user_id": scope.user_id, "project": scope.project, "last": f"{first}{LAST_CHARACTER}"}
    names: dict[str, None] = {}
    skipped = 0
    while len(names) < limit:
        rows = conn.execute(_BEGINNING, {**values, "first": first, "limit": NAMES_READ, "skipped": skipped}).all()
        roots = roots_of(conn, [row.id for row in rows])
        seen = seen_roots(conn, scope, {root.id for root in roots.values()})
        seen_rows = [row for row in rows if row.id in roots and roots[row.id].id in seen]
        known = _known_aliases(conn, scope, [row.id for row in seen_rows])
        names |= {row.name: None for row in seen_rows if (row.id, row.key) in known}
        if len(rows) < NAMES_READ:
            break
        skipped += NAMES_READ
    return list(names)[:limit]


def seen_roots(conn: Connection, scope: Scope, root_ids: Iterable[str], *, as_of: datetime | None = None) -> set[str]:
    """Return those roots of which a memory or a message that the scope sees mentions something in their group.

    With `as_of` it is a memory or a message of that time, whether it was forgotten since or not.
    """
    members = members_of(conn, root_ids)
    values: dict[str, Any] = {"ids": list(members), **scope_values(scope)}
    if as_of is None:
        seen = conn.execute(_mentioned(scope_parts(scope)), values)
    else:
        seen = conn.execute(_mentioned_at(scope_parts(scope)), {**values, "instant": as_of})
    return {members[entity_id] for entity_id in seen.scalars()}


def as_shown(conn: Connection, scope: Scope, roots: Mapping[str, Entity]) -> dict[str, Entity]:
    """Return entities with the names they are shown by: the user's own by the name that a memory tells, if one does.

    An entity that others were merged into may have its name from a memory that was forgotten, or that the scope does
    not see. It is shown by a name that the scope knows.
    """
    shown = dict(roots)
    own = next((root for root in roots.values() if root.is_user), None)
    if own is not None and (told := name_of_user(conn, scope)):
        shown[own.id] = replace(own, name=told)
    others = [root.id for root in roots.values() if not root.is_user]
    for root_id in conn.execute(_MERGED, {"ids": others}).scalars():
        shown[root_id] = replace(shown[root_id], name=_known_name(conn, scope, shown[root_id]))
    return shown


def _known_name(conn: Connection, scope: Scope, root: Entity) -> str:
    """Return the name of an entity, or if the scope knows nothing that uses it, the first that it does know."""
    known = _known_aliases(conn, scope, list(members_of(conn, [root.id])))
    key = name_key(root.name)
    is_own = conn.execute(_ALIAS, {"entity": root.id, "of": key}).first() is None  # "Tom (the baker)" is nobody's alias
    if is_own or not known or key in {of_alias for _, of_alias in known}:
        return root.name
    return next(iter(known.values()))


def _known_aliases(conn: Connection, scope: Scope, entity_ids: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the names of entities that an edit gave or something that the scope sees uses, by entity and key."""
    values = {"ids": list(entity_ids), **seen_values(scope)}
    return {(row.entity_id, row.key): row.name for row in conn.execute(_aliases(scope_parts(scope)), values)}


def is_shown(scope: tuple[bool, bool, bool]) -> ColumnElement[bool]:
    """Return the condition for memories that a scope sees and that are living, or were replaced or ended."""
    return and_(sees_named(memories, scope), learned_memories(), memories.c.is_forgotten.is_(False))


_BY_KEY = (
    select(entity_aliases.c.key, entities)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.user_id == bindparam("user_id"),
        entity_aliases.c.key.in_(listed("keys")),
        or_(entities.c.project == "", entities.c.project == bindparam("project")),
    )
    .order_by(entities.c.project.desc(), entities.c.seq)
)

_BEGINNING = (
    select(entities.c.id, entity_aliases.c.key, entity_aliases.c.name)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.user_id == bindparam("user_id"),
        entity_aliases.c.key >= bindparam("first"),
        entity_aliases.c.key <= bindparam("last"),
        or_(entities.c.project == "", entities.c.project == bindparam("project")),
    )
    .order_by(entity_aliases.c.key, entities.c.seq)
    .limit(bindparam("limit"))
    .offset(bindparam("skipped"))
)

_ANY = select(entities.c.seq).where(entities.c.user_id == bindparam("user_id")).limit(1)


@cache
def _mentioned(scope: tuple[bool, bool, bool]) -> Any:
    is_told = and_(messages.c.deleted_at.is_(None), sees_named(messages, scope))
    return _mentioned_by(is_shown(scope), is_told)


@cache
def _mentioned_at(scope: tuple[bool, bool, bool]) -> Any:
    was_there = [
        and_(sees_named(table, scope), table.c.created_at <= bindparam("instant")) for table in (memories, messages)
    ]
    return _mentioned_by(*was_there)


def _mentioned_by(memory: ColumnElement[bool], message: ColumnElement[bool]) -> Any:
    """Return the query for those of some entities that such a memory or such a message mentions."""
    is_it = mentions.c.entity_id == entities.c.id
    return select(entities.c.id).where(entities.c.id.in_(listed("ids")), _is_mentioned(is_it, memory, message))


def _is_mentioned(
    mention: ColumnElement[bool], memory: ColumnElement[bool], message: ColumnElement[bool]
) -> ColumnElement[bool]:
    """Return the condition that there is such a mention in such a memory or in such a message."""
    owned = [
        exists().where(mention, mentions.c.kind == kind, table.c.id == mentions.c.owner_id, condition)
        for kind, table, condition in (("memory", memories, memory), ("message", messages, message))
    ]
    return or_(*owned)


@cache
def _aliases(scope: tuple[bool, bool, bool]) -> Any:
    is_it = and_(mentions.c.entity_id == entity_aliases.c.entity_id, mentions.c.key == entity_aliases.c.key)
    is_told = and_(messages.c.deleted_at.is_(None), sees_named(messages, scope))
    return (
        select(entity_aliases)
        .join(entities, entities.c.id == entity_aliases.c.entity_id)
        .where(
            entity_aliases.c.entity_id.in_(listed("ids")),
            or_(entities.c.project == bindparam("beside"), entities.c.project == bindparam("project")),
            or_(entity_aliases.c.given, _is_mentioned(is_it, is_shown(scope), is_told)),
        )
        .order_by(entities.c.seq, entity_aliases.c.key)
    )


_MERGED = select(entities.c.merged_into).where(entities.c.merged_into.in_(listed("ids"))).distinct()
_ALIAS = select(entity_aliases.c.key).where(
    entity_aliases.c.entity_id == bindparam("entity"), entity_aliases.c.key == bindparam("of")
)


@cache
def _counted(scope: tuple[bool, bool, bool]) -> Any:
    """Return the query for the number of memories by entity. Its row without an entity is of memories that name none.

    The outer join makes the database begin with the scope's memories, and not with the mentions of all users.
    """
    is_mentioned = and_(mentions.c.kind == "memory", mentions.c.owner_id == memories.c.id, mentions.c.current)
    return (
        select(
            mentions.c.entity_id,
            func.count(mentions.c.owner_id.distinct()).label("memories"),
            func.max(memories.c.stated_at).label("newest"),
        )
        .select_from(memories)
        .outerjoin(mentions, is_mentioned)
        .where(memories.c.deleted_at.is_(None), sees_named(memories, scope))
        .group_by(mentions.c.entity_id)
    )
