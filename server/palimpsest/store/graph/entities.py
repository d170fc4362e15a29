"""Read entities: the groups they form, their names, and what is known of one."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, FromClause, and_, bindparam, exists, func, or_, select

from palimpsest.core.clock import LATEST
from palimpsest.core.models import SELF_NAMES, Entity, EntityType, Memory, Scope, name_key
from palimpsest.store import history
from palimpsest.store import memories as memory_queries
from palimpsest.store import rows as sql
from palimpsest.store.graph import identity
from palimpsest.store.graph.statements import stated_names
from palimpsest.store.memories import learned_memories, name_of_user
from palimpsest.store.schema import entities, entity_aliases, memories, mentions, messages
from palimpsest.text.names.known_names import Span, beginning, known_names, name_candidates

# Read entities by their names: in a scope, in a text, and as a list.
#
# A scope sees an entity if it sees a memory or a message that mentions it. The memory is living, or was replaced or
# ended; what is forgotten mentions nobody.

# Among how many names a beginning is completed, the first ones. A client shows a hundred at most.
NAMES_READ = 1_000


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
    if not (named := roots_named(conn, scope, names)):
        return {}
    roots = {root.id: root for found in named.values() for root in found}
    seen = seen_roots(conn, scope, roots, as_of=as_of)
    shown = as_shown(conn, scope, {root_id: root for root_id, root in roots.items() if root_id in seen})
    known = {key: [shown[root.id] for root in found if root.id in shown] for key, found in named.items()}
    return {key: found for key, found in known.items() if found}


def roots_named(conn: Connection, scope: Scope, names: Iterable[str]) -> dict[str, list[Entity]]:
    """Return the entities of a scope by the keys of names, whether something mentions them or not.

    What was merged counts as what it was merged into. The user's own entity has every name that stands for the user,
    and the one that a memory tells.
    """
    keys = sorted({name_key(name) for name in names} - {""})
    known = identity.candidates_of(conn, scope, keys, with_projects=False)
    named = {key: [candidate.root for candidate in found] for key, found in known.items()}
    if (own := identity.users_own(conn, scope.user_id)) is not None:
        told = name_key(name_of_user(conn, scope))
        own_keys = (key for key in keys if key in SELF_NAMES or key == told)
        named |= {key: [own, *(other for other in named.get(key, ()) if other.id != own.id)] for key in own_keys}
    return named


def entities_in_text(conn: Connection, scope: Scope, text: str, *, as_of: datetime | None = None) -> list[Entity]:
    """Return the entities that a text names and the scope sees, each once, in the order of their names in the text.

    Of names that overlap the longest one counts.
    """
    if not identity.knows_any(conn, scope.user_id):
        return []
    if not (named := entities_named(conn, scope, name_candidates(text), as_of=as_of)):
        return []
    known: dict[str, EntityType] = {key: found[0].type for key, found in named.items()}
    places: list[Span] = []
    for place in known_names(beginning(text), known):
        if all(place.end <= other.start or other.end <= place.start for other in places):
            places.append(place)
    places.sort(key=lambda place: place.start)
    found = (entity for place in places for entity in named[name_key(place.name)])
    return list({entity.id: entity for entity in found}.values())


def list_entities(
    conn: Connection, scope: Scope, limit: int, *, of_type: EntityType | None = None
) -> list[ListedEntity]:
    """Return up to `limit` entities that living memories of the scope mention, the one mentioned last first."""
    is_mentioned = and_(mentions.c.kind == "memory", mentions.c.owner_id == memories.c.id, mentions.c.current)
    newest = func.max(memories.c.stated_at).label("newest")
    # The outer join makes the database begin with the scope's memories, and not with the mentions of all users.
    columns = (mentions.c.entity_id, func.count(mentions.c.owner_id.distinct()).label("memories"), newest)
    query = select(*columns).outerjoin_from(memories, mentions, is_mentioned).where(sql.is_living(memories, scope))
    rows = [row for row in conn.execute(query.group_by(mentions.c.entity_id)) if row.entity_id is not None]
    roots = identity.roots_of(conn, [row.entity_id for row in rows])
    mentioned: dict[str, tuple[int, datetime]] = {}
    for row in rows:
        if row.entity_id in roots:
            root_id = roots[row.entity_id].id
            count, newest = mentioned.get(root_id, (0, row.newest))
            mentioned[root_id] = (count + row.memories, max(newest, row.newest))
    by_id = {root.id: root for root in roots.values() if of_type in (None, root.type)}
    order = sorted(by_id, key=lambda root_id: (by_id[root_id].name.casefold(), root_id))
    order.sort(key=lambda root_id: mentioned[root_id][1], reverse=True)
    shown = as_shown(conn, scope, {root_id: by_id[root_id] for root_id in order[:limit]})
    return [ListedEntity(shown[root_id], *mentioned[root_id]) for root_id in order[:limit]]


def namesakes(conn: Connection, scope: Scope, called: Collection[str]) -> list[Entity]:
    """Return the people of the user, in any project, who share one of some beginnings of names."""
    named = identity.names_of_user(conn, scope.user_id, [*called])
    roots = set(identity.roots_of(conn, [row.entity_id for row in named]).values())
    keys = {root: name_key(root.name) for root in roots if root.type == "person" and not root.is_user}
    groups = ([root for root, key in keys.items() if key.startswith(each)] for each in called)
    people = {root for group in groups if len(group) > 1 for root in group}
    there = {replace(scope, project=person.project or scope.project) for person in people}
    seen = set[str]().union(*(seen_roots(conn, each, [person.id for person in people]) for each in there))
    return [person for person in people if person.id in seen] if len(seen) > 1 else []


def names_beginning(conn: Connection, scope: Scope, beginning: str, limit: int) -> list[str]:
    """Return up to `limit` names of entities that the scope sees and that begin so, in any case, sorted."""
    named = identity.names_of_user(conn, scope.user_id, [name_key(beginning)])
    pairs = sorted((row.key, row.entity_id) for row in named if row.project in ("", scope.project))[:NAMES_READ]
    roots = identity.roots_of(conn, [entity_id for _, entity_id in pairs])
    seen = seen_roots(conn, scope, {root.id for root in roots.values()})
    known = _known_aliases(conn, scope, [entity_id for entity_id, root in roots.items() if root.id in seen])
    return list(dict.fromkeys(known[pair[::-1]] for pair in pairs if pair[::-1] in known))[:limit]


def seen_roots(conn: Connection, scope: Scope, root_ids: Iterable[str], *, as_of: datetime | None = None) -> set[str]:
    """Return those roots of which a memory or a message that the scope sees mentions something in their group.

    With `as_of` it is a memory or a message of that time, whether it was forgotten since or not.
    """
    members = identity.members_of(conn, root_ids)
    query = _mentioned(sql.scope_parts(scope), then=as_of is not None)
    seen = conn.execute(query, {"ids": list(members), "instant": as_of, **sql.scope_values(scope)})
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
    known = _known_aliases(conn, scope, list(identity.members_of(conn, [root.id])))
    key = name_key(root.name)
    is_own = not identity.is_called(conn, root.id, key)  # "Tom (the baker)" is nobody's alias
    if is_own or not known or key in {of_alias for _, of_alias in known}:
        return root.name
    return next(iter(known.values()))


def _known_aliases(conn: Connection, scope: Scope, entity_ids: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the names of entities that an edit gave or something that the scope sees uses, by entity and key."""
    values = {"ids": list(entity_ids), **sql.seen_values(scope)}
    return {(row.entity_id, row.key): row.name for row in conn.execute(_aliases(sql.scope_parts(scope)), values)}


def is_shown(scope: tuple[bool, ...]) -> ColumnElement[bool]:
    """Return the condition for memories that a scope sees and that are living, or were replaced or ended."""
    return and_(sql.sees_named(memories, scope), learned_memories(), memories.c.is_forgotten.is_(False))


def _owners(scope: tuple[bool, ...], *, then: bool = False) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions for memories and for messages that a scope sees now, or that were there at an instant."""
    if then:
        instant = bindparam("instant", type_=memories.c.created_at.type)
        there = [and_(sql.sees_named(of, scope), of.c.created_at <= instant) for of in (memories, messages)]
        return there[0], there[1]
    return is_shown(scope), and_(messages.c.deleted_at.is_(None), sql.sees_named(messages, scope))


@cache
def _mentioned(scope: tuple[bool, ...], *, then: bool) -> Any:
    """Return the query for those of some entities that something that a scope sees mentions."""
    is_it = mentions.c.entity_id == entities.c.id
    is_mentioned = _is_mentioned(is_it, *_owners(scope, then=then))
    return select(entities.c.id).where(entities.c.id.in_(sql.listed("ids")), is_mentioned)


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
def _aliases(scope: tuple[bool, ...]) -> Any:
    is_it = and_(mentions.c.entity_id == entity_aliases.c.entity_id, mentions.c.key == entity_aliases.c.key)
    return (
        select(entity_aliases)
        .join(entities, entities.c.id == entity_aliases.c.entity_id)
        .where(
            entity_aliases.c.entity_id.in_(sql.listed("ids")),
            or_(entities.c.project == bindparam("beside"), entities.c.project == bindparam("project")),
            or_(entity_aliases.c.given, _is_mentioned(is_it, *_owners(scope))),
        )
        .order_by(entities.c.seq, entity_aliases.c.key)
    )


_MERGED = select(entities.c.merged_into).where(entities.c.merged_into.in_(sql.listed("ids"))).distinct()


# Read which memories and messages mention the entities of some names.


def owners_mentioning(
    conn: Connection, scope: Scope, names: Iterable[str], as_of: datetime | None = None
) -> dict[str, set[str]]:
    """Return the ids of the memories and messages that mention the entities of each name, by `name_key`.

    Memories count by their present text, or with `as_of` by the one they had then. A message counts if it mentions the
    entity itself, or if a memory that was learned from it does. Owners outside the scope may be among them.
    """
    wanted = {key: {root.id for root in found} for key, found in roots_named(conn, scope, names).items()}
    members = identity.members_of(conn, {root_id for of_key in wanted.values() for root_id in of_key})
    rows = conn.execute(_OF_ENTITIES, {"ids": list(members)}).all()
    meant = identity.meanings(row for row in rows if row.kind == "memory" and (row.current or as_of is not None))
    if as_of is not None:
        meant = {memory.id: then for memory, then in named_at(conn, scope, as_of, meant)}
    owners = {owner: {members[one] for one in names.values()} for owner, names in meant.items()}
    for memory_id, message_id in memory_queries.messages_of(conn, list(owners)):
        owners.setdefault(message_id, set()).update(owners[memory_id])
    for row in rows:
        if row.kind == "message":
            owners.setdefault(row.owner_id, set()).add(members[row.entity_id])
    return {key: {owner for owner, found in owners.items() if found & of_key} for key, of_key in wanted.items()}


def named_at(
    conn: Connection, scope: Scope, instant: datetime, meant: Mapping[str, Mapping[str, str]]
) -> list[tuple[Memory, dict[str, str]]]:
    """Return those of some memories that were living at an instant, as they were, with what they named then.

    `meant` are the entities that each of them means by names, by key. So is what is returned.
    """
    return [
        (memory, {key: meant[memory.id][key] for key in stated_names(memory) if key in meant[memory.id]})
        for memory in history.memories_at(conn, scope, instant, list(meant))
    ]


_OF_ENTITIES = select(mentions).where(mentions.c.entity_id.in_(sql.listed("ids")))


# Read what memories name, and how many others name the same.


def entities_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, dict[Entity, int]]:
    """Return what memories name in their present versions, by their ids, and how many living memories name it.

    The user, who is in nearly all, is not among them.
    """
    meant = [(row.owner_id, row.entity_id) for row in conn.execute(_NAMED, {"ids": memory_ids})]
    roots = identity.roots_of(conn, [entity_id for _, entity_id in meant])
    members = identity.members_of(conn, [root.id for root in roots.values()])
    counts: Counter[str] = Counter()
    for entity_id, count in conn.execute(_COUNTS, {"ids": list(members)}).all():
        counts[members[entity_id]] += count
    others = {entity_id: root for entity_id, root in roots.items() if not root.is_user}
    named = sql.grouped((memory_id, others[entity_id]) for memory_id, entity_id in meant if entity_id in others)
    return {memory_id: {root: counts[root.id] for root in found} for memory_id, found in named.items()}


_NAMED = select(mentions.c.owner_id, mentions.c.entity_id).where(
    mentions.c.kind == "memory", mentions.c.current, mentions.c.owner_id.in_(sql.listed("ids"))
)
_COUNTS = (
    identity.select_named(mentions.c.entity_id, func.count())
    .where(memories.c.deleted_at.is_(None), mentions.c.entity_id.in_(sql.listed("ids")))
    .group_by(mentions.c.entity_id)
)


# Read what is known about one entity: the memories that mention it, its other names, and who is named beside it.


def memories_about(
    conn: Connection, scope: Scope, root_id: str, limit: int, *, oldest: int = 0
) -> tuple[list[Memory], int]:
    """Return the newest `limit` living memories that mention an entity, the newest first, and how many there are.

    If there are more, the `oldest` ones follow.
    """
    shown = _naming(scope, identity.members_of(conn, [root_id]), is_living=True)
    return _newest(conn, shown, shown.c.stated_at, limit, oldest)


def about_user(conn: Connection, scope: Scope, key: str) -> str | None:
    """Return the id of a living memory of exactly this project that is about the user, if there is one.

    One that calls the user by the name with this key comes first, then the newest.
    """
    if (own := identity.users_own(conn, scope.user_id)) is None:
        return None
    is_about_user = mentions.c.entity_id.in_(list(identity.members_of(conn, [own.id])))
    in_project = (sql.owns(memories, scope), memories.c.deleted_at.is_(None))
    query = identity.select_named(memories.c.id).where(is_about_user, *in_project)
    return conn.execute(query.order_by((mentions.c.key == key).desc(), memories.c.seq.desc()).limit(1)).scalar()


def former_memories_about(
    conn: Connection, scope: Scope, root_id: str, limit: int, *, as_of: datetime | None = None
) -> tuple[list[Memory], int]:
    """Return the same of memories that were replaced or ended, the one that ended last first.

    With `as_of` these are the ones that had ended by then.
    """
    shown = _naming(scope, identity.members_of(conn, [root_id]), is_living=False, as_of=as_of or LATEST)
    return _newest(conn, shown, func.coalesce(shown.c.valid_until, shown.c.deleted_at), limit)


def _newest(
    conn: Connection, shown: FromClause, at: ColumnElement[datetime], limit: int, oldest: int = 0
) -> tuple[list[Memory], int]:
    query = select(shown)
    found = [sql.to_memory(row) for row in conn.execute(query.order_by(at.desc(), shown.c.seq.desc()).limit(limit))]
    count = conn.execute(select(func.count()).select_from(shown)).scalar_one()
    if rest := min(count - len(found), oldest):
        first = conn.execute(query.order_by(at, shown.c.seq).limit(rest))
        found += [sql.to_memory(row) for row in first][::-1]
    return found, count


def memories_about_at(conn: Connection, scope: Scope, root_id: str, instant: datetime) -> list[Memory]:
    """Return the memories that were living at an instant and mentioned an entity, as they were, the newest first."""
    ever = (mentions.c.kind == "memory", sql.among(mentions.c.entity_id, identity.members_of(conn, [root_id])))
    meant = identity.meanings(conn.execute(select(mentions).where(*ever)))
    found = [memory for memory, names in named_at(conn, scope, instant, meant) if names]
    return sorted(found, key=lambda memory: (memory.stated_at, memory.created_at, memory.id), reverse=True)


def other_names(conn: Connection, scope: Scope, entity: Entity) -> list[str]:
    """Return the other names of an entity: those that memories of the scope use, and those that an edit gave it.

    A name that only a forgotten memory uses is not among them.
    """
    members = identity.members_of(conn, [entity.id])
    is_shown = mentions.c.owner_id.in_(select(_naming(scope, members).c.id))
    is_used = (sql.among(mentions.c.entity_id, members), mentions.c.current, is_shown)
    used = select(mentions.c.key, mentions.c.name).where(*is_used).group_by(mentions.c.key, mentions.c.name)
    # What was given in a project is known there, also if the entity is part of a global one.
    is_given = (sql.among(entity_aliases.c.entity_id, members), entity_aliases.c.given)
    aliases = select(entity_aliases.c.key, entity_aliases.c.name).where(*is_given)
    given = aliases.join(entities, entities.c.id == entity_aliases.c.entity_id)
    given = given.where(entities.c.project.in_((scope.beside, scope.project)))
    by_age = conn.execute(used.order_by(func.min(mentions.c.seq)))
    names = {row.key: row.name for row in reversed([*by_age, *conn.execute(given)])}
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
    stated = (mentions.c.kind == "memory", sql.among(mentions.c.owner_id, [memory.id for memory in read]))
    meant = identity.meanings(conn.execute(select(mentions).where(*stated)))
    roots = identity.roots_of(conn, {entity_id for names in meant.values() for entity_id in names.values()})
    of_memory: dict[str, list[str]] = {}
    for memory in read:
        ids = [meant.get(memory.id, {}).get(key, "") for key in stated_names(memory)]
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
    query = identity.select_named(mentions.c.owner_id, mentions.c.entity_id).where(sql.is_living(memories, scope))
    query = query.order_by(memories.c.seq.desc(), mentions.c.seq).limit(limit)
    if about is not None:
        query = query.where(mentions.c.owner_id.in_(_naming_one_of(about)))
    return [(row.owner_id, row.entity_id) for row in conn.execute(query)]


def entities_by_id(conn: Connection, scope: Scope, beginning: str) -> list[Entity]:
    """Return up to two roots of a scope's user and project whose id begins so. What the scope sees is not asked."""
    query = select(entities.c.id).where(_belongs_to(scope), sql.begins(entities.c.id, beginning))
    found = identity.roots_of(conn, conn.execute(query.limit(2)).scalars())
    return list({root.id: root for root in found.values()}.values())


def _belongs_to(scope: Scope) -> ColumnElement[bool]:
    return and_(entities.c.user_id == scope.user_id, entities.c.project.in_(("", scope.project)))


def entities_with_ids(conn: Connection, scope: Scope, root_ids: Iterable[str]) -> list[Entity]:
    """Return roots by their ids, with the names they are shown by."""
    roots = {root.id: root for root in identity.roots_of(conn, root_ids).values()}
    return list(as_shown(conn, scope, roots).values())


def all_ids(conn: Connection, scope: Scope) -> list[str]:
    """Return the ids of all entities of a scope's user and project. What the scope sees is not asked."""
    return list(conn.execute(select(entities.c.id).where(_belongs_to(scope))).scalars())


def _naming_one_of(entity_ids: Iterable[str]) -> sql.Query:
    """Return the ids of the memories that name an entity in their present version, or the last one they had."""
    # No message has the id of a memory. With the kind, the planner goes through the mentions of all memories.
    return select(mentions.c.owner_id).where(sql.among(mentions.c.entity_id, entity_ids), mentions.c.current)


def _naming(
    scope: Scope, entity_ids: Iterable[str], *, is_living: bool | None = None, as_of: datetime = LATEST
) -> FromClause:
    """Return the memories that name one of some entities and that a scope is shown.

    These are the living ones, or those that were replaced or had ended by then, or with None both.
    """
    # OFFSET keeps the scope out of the inner query. With it, the planner goes through all memories of the scope.
    found = select(memories).where(memories.c.id.in_(_naming_one_of(entity_ids))).offset(0).subquery("named")
    columns = found.c
    was_closed = or_(columns.superseded_by.is_not(None), columns.valid_until.is_not(None))
    ended = and_(columns.deleted_at <= as_of, columns.is_forgotten.is_(False), was_closed)
    living = columns.deleted_at.is_(None)
    state = or_(living, ended) if is_living is None else living if is_living else ended
    return select(found).where(sql.sees(found, scope), state).subquery("shown")
