"""Resolve which entity a name means, and create, alias and merge entities."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import sqlalchemy as sa

from palimpsest.core.models import (
    IMPORT,
    SELF_NAMES,
    USER_NAME,
    Entity,
    EntityType,
    Memory,
    Message,
    NamedEntity,
    Scope,
    name_key,
)
from palimpsest.core.protocols import Vector
from palimpsest.store.entries import Transaction, own_vectors
from palimpsest.store.memories import memories_by_id, name_of_user
from palimpsest.store.rows import Query, among, has_row, is_living, is_seen, json_elements, listed
from palimpsest.store.schema import (
    IS_USER,
    entities,
    entity_aliases,
    entity_history,
    memories,
    memory_sources,
    mentions,
    messages,
)
from palimpsest.text.display import shorten
from palimpsest.text.names import known_names
from palimpsest.text.relation_updates import KIN, has_name, words_in

# Which entities are the same: an entity, and everything that was merged into it, is one group with one root.


def roots_of(conn: sa.Connection, entity_ids: Iterable[str]) -> dict[str, Entity]:
    """Return the root of each entity, which is the entity itself if it was not merged. Unknown ids are left out."""
    return {row.start: to_entity(row) for row in conn.execute(_ROOTS, {"ids": sorted(set(entity_ids))})}


def members_of(conn: sa.Connection, root_ids: Iterable[str]) -> dict[str, str]:
    """Return the ids of everything in the groups of some roots, the roots among them, each with its root's id."""
    return {row.id: row.root for row in conn.execute(_MEMBERS, {"ids": sorted(set(root_ids))})}


def group_of(conn: sa.Connection, entity_ids: Iterable[str]) -> dict[str, str]:
    """Return the ids of everything that is the same as some entities, these among them, each with its root's id."""
    return members_of(conn, {root.id for root in roots_of(conn, entity_ids).values()})


def users_own(conn: sa.Connection, user_id: str) -> Entity | None:
    """Return the user's own entity, if there is one."""
    row = conn.execute(_USERS_OWN, {"user_id": user_id}).first()
    return None if row is None else to_entity(row)


def knows_any(conn: sa.Connection, user_id: str) -> bool:
    """Return whether a user has any entity."""
    return has_row(conn, sa.select(entities.c.seq).where(entities.c.user_id == user_id))


def to_entity(row: sa.Row[Any]) -> Entity:
    """Return a row of `entities` as a model."""
    names = ("id", "user_id", "project", "name", "type", "created_at", "is_user", "merged_into")
    return Entity(**{name: getattr(row, name) for name in names})


_USERS_OWN = sa.select(entities).where(entities.c.user_id == sa.bindparam("user_id"), sa.text(IS_USER))


# Up from each id. A row is kept once, so that even a circle of merges ends; it has no root.
_here = (entities.c.id, entities.c.merged_into)
_start = sa.select(entities.c.id.label("start"), *_here).where(entities.c.id.in_(listed("ids")))
_below = _start.cte("chain", recursive=True)
_chain = _below.union(sa.select(_below.c.start, *_here).join(entities, entities.c.id == _below.c.merged_into))
_ends = sa.select(_chain.c.start, entities).join(entities, entities.c.id == _chain.c.id)
_ROOTS = _ends.where(_chain.c.merged_into.is_(None))

_own = sa.select(entities.c.id.label("root"), entities.c.id).where(entities.c.id.in_(listed("ids")))
_above = _own.cte("members", recursive=True)
_group = _above.union(sa.select(_above.c.root, entities.c.id).join(entities, entities.c.merged_into == _above.c.id))
_MEMBERS = sa.select(_group.c.root, _group.c.id)


# What an edit of entities changed, and the row that it leaves in their history.


ENTITY, ALIAS, MENTION = "entity", "alias", "mention"

# What an edit changed, before or after it, by place.
#
# A place is (ENTITY, id, column), (ALIAS, entity id, key) with the name as an edit gave it, or None if none did, or
# (MENTION, kind, id of the memory or message, key) with the id of the entity that the key means.
State: TypeAlias = dict[tuple[str, ...], str | None]


def to_state(stored: Sequence[Sequence[Any]]) -> State:
    """Return a state as a row of history has it: `[[*place, value], …]`."""
    return {tuple(place): value for *place, value in stored}


EditEvent: TypeAlias = Literal["merge", "split", "rename", "undo"]


def record(tx: Transaction, entity_id: str, event: EditEvent, change: tuple[State, State], text: str) -> None:
    """Insert the row of history of an edit of entities; `change` is the state before and after it."""
    row = {
        "entity_id": entity_id,
        "event": event,
        "before": [[*place, value] for place, value in change[0].items()],
        "after": [[*place, value] for place, value in change[1].items()],
        **tx.made,
        "text": text,
    }
    tx.conn.execute(sa.insert(entity_history), row)
    tx.entity_edits.append(text)


# Collect the ids and names in an entity_history row.

# A state as a row of history has it: `[[*place, value], …]`.
StoredState = Sequence[Sequence[Any]]


def told(row: sa.Row[Any]) -> set[str]:
    """Return the ids and texts in a row of history."""
    return {row.entity_id, row.text, *texts_in(row.before), *texts_in(row.after)}


def texts_in(state: StoredState) -> set[str]:
    """Return the ids and names in a state, without the words of its format."""
    texts: set[str | None] = set()
    for part, *names, value in state:
        if part == ENTITY:
            texts |= {names[0], None if names[1] == "type" else value}
        else:
            texts |= {*(names[1:] if part == MENTION else names), value}
    return {text for text in texts if text is not None}


def with_ids(state: StoredState, here: Mapping[str, str]) -> list[list[str | None]]:
    """Return a state with the ids that entities have in this ledger."""
    return [[None if part is None else here.get(part, part) for part in place] for place in state]


# The names of entities. One that an edit gave stays; the others last as long as something mentions the entity so.
#
# An entity that is called "Tom (plumber)" is also found as "Tom".


def add(conn: sa.Connection, entity_id: str, key: str, name: str) -> None:
    """Add the name by which something mentions an entity, unless it has it. What every user is called is no alias."""
    if key in SELF_NAMES or is_called(conn, entity_id, key):
        return
    user_id = conn.execute(sa.select(entities.c.user_id).where(entities.c.id == entity_id)).scalar_one()
    conn.execute(sa.insert(entity_aliases), {"entity_id": entity_id, "key": key, "name": name, "user_id": user_id})
    if bare := known_names.bare_name(name):
        add(conn, entity_id, name_key(bare), bare)


def is_called(conn: sa.Connection, entity_id: str, key: str) -> bool:
    """Return whether an entity has the name with a key."""
    return has_row(conn, sa.select(entity_aliases.c.key).where(_OF_ENTITY), {"entity": entity_id, "of": key})


def give(conn: sa.Connection, entity_id: str, key: str, name: str | None) -> None:
    """Give an entity a name that stays, or with None take it back: then it lasts as long as something uses it."""
    if name is None:
        conn.execute(_SET_GIVEN, {"entity": entity_id, "of": key, "is_given": False})
        drop_unused(conn, entity_id, key)
        return
    add(conn, entity_id, key, name)
    conn.execute(_SET_GIVEN, {"entity": entity_id, "of": key, "is_given": True})
    conn.execute(sa.update(entity_aliases).where(_OF_ENTITY).values(name=name), {"entity": entity_id, "of": key})


def drop_unused(conn: sa.Connection, entity_id: str, key: str) -> None:
    """Remove a name that no edit gave and that nothing mentions the entity by."""
    conn.execute(_DROP, {"entity": entity_id, "of": key})
    bare, bracket, _ = key.rpartition("(")
    if bracket:
        conn.execute(_DROP, {"entity": entity_id, "of": bare.strip()})


_OF_ENTITY = (entity_aliases.c.entity_id == sa.bindparam("entity")) & (entity_aliases.c.key == sa.bindparam("of"))
_SET_GIVEN = sa.update(entity_aliases).where(_OF_ENTITY).values(given=sa.bindparam("is_given"))
_LENGTH = sa.func.length(entity_aliases.c.key)
_USED = sa.exists().where(
    mentions.c.entity_id == entity_aliases.c.entity_id,
    sa.or_(
        mentions.c.key == entity_aliases.c.key,
        sa.func.substr(mentions.c.key, 1, _LENGTH + 2) == entity_aliases.c.key + " (",
        sa.func.substr(mentions.c.key, 1, _LENGTH + 1) == entity_aliases.c.key + "(",
    ),
)
_DROP = sa.delete(entity_aliases).where(_OF_ENTITY, entity_aliases.c.given.is_(False), ~_USED)


# The entities that have a name, and whether what is known of them still counts.


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity that has a name, and the `root` that it is the same as.

    `is_given` says that an edit gave the name, or a merge. A scope that sees only the root has that in place of an
    entity of a project.
    """

    entity_id: str
    root: Entity
    is_given: bool


def candidates_of(
    conn: sa.Connection, scope: Scope, keys: Iterable[str], *, with_projects: bool = True
) -> dict[str, list[Candidate]]:
    """Return the entities that have each key of a name, one of each group, those of the scope's own project first.

    For a global scope, those of the user's projects are among them `with_projects`.
    """
    in_all = with_projects and not scope.project
    values = {"user_id": scope.user_id, "project": scope.project, "keys": list(keys), "in_all": in_all}
    rows = conn.execute(_BY_KEY, values).all()
    roots = {row.id: to_entity(row) for row in rows if row.merged_into is None}
    if merged := [row.id for row in rows if row.merged_into is not None]:
        roots |= roots_of(conn, merged)
    found: dict[str, dict[str, Candidate]] = {}
    for row in rows:
        if (root := roots.get(row.id)) is not None:
            of_key = found.setdefault(row.key, {})
            sees_it = row.project in {"", scope.project} or root.project
            candidate = Candidate(row.id if sees_it else root.id, root, row.given or row.id != root.id)
            of_key[root.id] = candidate if row.id == root.id else of_key.get(root.id, candidate)
    return {key: list(of_key.values()) for key, of_key in found.items()}


_BY_KEY: Query = (
    sa.select(entity_aliases.c.key, entity_aliases.c.given, entities)
    .join(entities, entities.c.id == entity_aliases.c.entity_id)
    .where(
        entity_aliases.c.user_id == sa.bindparam("user_id"),
        entity_aliases.c.key.in_(listed("keys")),
        sa.or_(
            sa.bindparam("in_all", type_=sa.Boolean),
            entities.c.project == "",
            entities.c.project == sa.bindparam("project"),
        ),
    )
    .order_by(entities.c.project.desc(), entities.c.seq)
)


def known_types(conn: sa.Connection, scope: Scope, keys: Sequence[str]) -> dict[str, EntityType]:
    """Return the types of the entities that a scope knows by these keys of names. The user's told name is a person."""
    found = candidates_of(conn, scope, keys, with_projects=False)
    known: dict[str, EntityType] = {key: of_key[0].root.type for key, of_key in found.items()}
    told = name_key(name_of_user(conn, scope))
    if told in keys:
        known[told] = "person"
    return known


def may_be(known: EntityType, stated: EntityType) -> bool:
    """Return whether an entity of a known type may be one of a stated type. "other" is no knowledge, and fits all."""
    return "other" in (known, stated) or known == stated


def mentioned(conn: sa.Connection, candidates: Sequence[Candidate], key: str | None = None) -> list[Candidate]:
    """Return those candidates of which a living memory mentions something in their group, by this key if it is given.

    An entity that only deleted memories mention, as after an undo, is a candidate only if there is no other.
    """
    members = members_of(conn, [candidate.root.id for candidate in candidates])
    query = _MENTIONED if key is None else _MENTIONED.where(mentions.c.key == key)
    seen = {members[entity_id] for entity_id in conn.execute(query, {"ids": list(members)}).scalars()}
    return [candidate for candidate in candidates if candidate.root.id in seen]


_MENTIONED: Query = (
    sa.select(mentions.c.entity_id)
    .where(mentions.c.entity_id.in_(listed("ids")), mentions.c.kind == "memory", mentions.c.current)
    .where(sa.exists().where(memories.c.id == mentions.c.owner_id, memories.c.deleted_at.is_(None)))
    .distinct()
)


# Create entities.


def new_entity(
    tx: Transaction, project: str, name: str, kind: str, *, is_user: bool = False, merged_into: str | None = None
) -> str:
    """Create an entity without names and return its id. `kind` is its type."""
    entity_id = str(uuid.uuid4())
    row = {"id": entity_id, "user_id": tx.scope.user_id, "project": project, "name": name, "type": kind}
    row |= {"is_user": is_user, "merged_into": merged_into, "created_at": tx.now}
    tx.conn.execute(sa.insert(entities), row)
    return entity_id


# Find entities whose names look like another's: García and Garcia, Acme Corp and Acme Corporation.
#
# They are proposed, and never merged: that is for whoever knows.

# How many are proposed for one entity. With more of them, none is likely.
MOST = 3

# What comes after everything that a name may begin with.
LAST_CHARACTER = "\U0010ffff"


def lookalikes(conn: sa.Connection, scope: Scope, entity: Entity, names: Iterable[str]) -> list[Entity]:
    """Return the entities of living memories of a scope that one with these names may be, the oldest first.

    Those that a memory names beside it, or that an edit has parted from it, are others.
    """
    if entity.is_user:
        return []
    called = {name_key(name) for name in names}
    wanted = {spelling for name in called for spelling in known_names.spellings(name)}
    letters = sorted({letter for name in called for letter in known_names.first_letters(name)})
    rows = names_of_user(conn, scope.user_id, [*known_names.BEGINNINGS, *letters])
    others = [(row.entity_id, row.key) for row in rows if row.entity_id != entity.id and row.key not in called]
    alike = {other_id for other_id, key in others if not wanted.isdisjoint(known_names.spellings(key))}
    short = {other_id for other_id, key in others if any(known_names.is_short_form(name, key) for name in called)}
    if not alike | short:
        return []
    in_memory = (mentions.c.kind == "memory", mentions.c.current, memories.c.id == mentions.c.owner_id)
    is_mentioned = sa.exists().where(mentions.c.entity_id == entities.c.id, *in_memory, is_living(memories, scope))
    is_other = (among(entities.c.id, alike | short), entities.c.merged_into.is_(None), entities.c.is_user.is_(False))
    in_project = entities.c.project.in_(("", scope.project))
    rows = conn.execute(sa.select(entities).where(*is_other, in_project, is_mentioned).order_by(entities.c.seq))
    # A name from what is general is not told to who does not see that. Only people are called by their first names, and
    # "Bella (cat)" is not called Bella alone where there is "Bella (spaniel)".
    bare_name, is_told = known_names.bare_name, known_names.bare_name(entity.name) != ""
    proposed = (
        to_entity(row)
        for row in rows
        if (scope.with_general or row.project) and may_be(row.type, entity.type)
        if row.id in alike or ("person" in (row.type, entity.type) and not (is_told and bare_name(row.name)))
    )
    return [other for other in proposed if not _are_told_apart(conn, entity.id, other.id)][:MOST]


def _are_told_apart(conn: sa.Connection, first_id: str, second_id: str) -> bool:
    """Return whether one memory names both entities, or an edit has parted them: a split, or a merge taken back.

    A message does not count: it has the names of every memory that was learned from it.
    """
    first, second = (list(members_of(conn, [entity_id])) for entity_id in (first_id, second_id))
    if any(row.kind == "memory" for row in _named_together(conn, first, second)):
        return True
    parting = entity_history.c.event.in_(("merge", "split", "undo"))
    query = sa.select(entity_history).where(among(entity_history.c.entity_id, [*first, *second]), parting)
    edits = conn.execute(query).all()
    changed = [json.dumps([row.entity_id, row.before, row.after]) for row in edits]
    return any(any(one in ids for one in first) and any(one in ids for one in second) for ids in changed)


_beginnings = json_elements(sa.bindparam("beginnings", type_=sa.JSON)).table_valued("value")
_begins = sa.cast(_beginnings.c.value, sa.String)
_NAMES = (
    sa.select(entity_aliases.c.entity_id, entity_aliases.c.key, entities.c.project)
    .select_from(_beginnings)
    .join(
        entity_aliases,
        (entity_aliases.c.user_id == sa.bindparam("user_id"))
        & (entity_aliases.c.key >= _begins)
        & (entity_aliases.c.key < _begins + LAST_CHARACTER),
        isouter=True,  # so that SQLite begins with the beginnings, and looks each of them up
    )
    .join(entities, entities.c.id == entity_aliases.c.entity_id, isouter=True)
)


def names_of_user(conn: sa.Connection, user_id: str, beginnings: Sequence[str]) -> list[Any]:
    """Return the rows of a user's names whose keys begin so: the key, and the id and the project of the entity."""
    return [row for row in conn.execute(_NAMES, {"user_id": user_id, "beginnings": beginnings}) if row.key is not None]


def _named_together(conn: sa.Connection, ones: Sequence[str], others: Sequence[str]) -> Sequence[sa.Row[Any]]:
    """Return each `one` and `other` that a memory or message names together, with its kind."""
    return conn.execute(_TOGETHER, {"ones": ones, "others": others}).all()


_with = mentions.alias("other")
_TOGETHER: Query = (
    sa.select(mentions.c.kind, mentions.c.entity_id.label("one"), _with.c.entity_id.label("other"))
    .join(_with, (_with.c.kind == mentions.c.kind) & (_with.c.owner_id == mentions.c.owner_id))
    .where(mentions.c.entity_id.in_(listed("ones")), _with.c.entity_id.in_(listed("others")))
    .distinct()
)


# Merge two entities. What mentions the one keeps its id, so that the merge can be taken back.


def merge(tx: Transaction, merged: Entity, into: Entity) -> None:
    """Record that two entities, neither of which is merged, are the same. The second one is what both are now.

    The row of history belongs to the second one: whoever sees it sees what it is made of. But if a project merged its
    own entity into a global one, the row stays with the project, because it has the name.
    """
    owner = merged if merged.project and merged.project == tx.scope.project else into
    tx.conn.execute(sa.update(entities).where(entities.c.id == merged.id).values(merged_into=into.id))
    place = (ENTITY, merged.id, "merged_into")
    text = f"merged {shown(merged, into)} into {shown(into, merged)}"
    record(tx, owner.id, "merge", ({place: None}, {place: into.id}), text)


def shown(entity: Entity, beside: Entity | None = None) -> str:
    """Return the name of an entity for messages, with what tells it from one of the same name `beside` it."""
    if entity.is_user:
        return "the user"
    if beside is None or name_key(entity.name) != name_key(beside.name):
        return entity.name
    if entity.project != beside.project:
        return f"{entity.name} ({f'in {entity.project}' if entity.project else 'in all projects'})"
    return f"{entity.name} ({entity.type if entity.type != beside.type else entity.id[:8]})"


# Choose among entities of one name: by what a memory says of the name, by who is with it, by what it is about.

# How many memories of an entity are compared with a new one. What is known lately says most.
NEWEST = 20

# How many of a name a note tells apart, and how much it quotes of what is known of each.
MAX_TOLD, MAX_QUOTED = 4, 60

# The nearest is clear if its distance is at most this part of the second one's: the ratio test of Lowe (2004).
CLEARLY_NEARER = 0.8


def choose(
    tx: Transaction, memory: Memory, entity: NamedEntity, candidates: Sequence[Candidate], others: Iterable[str]
) -> Candidate | None:
    """Return which entity of a name a memory means, or None if it is a new one or that is not clear.

    `others` are the ids of the other entities that the memory mentions.
    """
    if apart := known_names.qualifier(memory.text, entity.name):
        qualified = {
            candidate: [known_names.qualifier(one.text, entity.name) for one in _memories_of(tx, candidate)]
            for candidate in candidates
        }
        return _only([candidate for candidate, found in qualified.items() if apart in found])
    if len(candidates) > 1:
        candidates = mentioned(tx.conn, candidates) or candidates
    if len(candidates) == 1:
        return None if known_names.says_another(memory.text, entity.name) else candidates[0]
    told = _described(tx, memory, entity, candidates) or _with_others(tx, candidates, others)
    return told or _nearest(tx, memory, candidates)


def is_unclear(text: str, name: str, candidates: Sequence[Candidate]) -> bool:
    """Return whether a text may mean any of several of a name, and does not say that it means another one."""
    return len(candidates) > 1 and not known_names.qualifier(text, name) and not known_names.says_another(text, name)


def unclear(tx: Transaction, memory: Memory, entity: NamedEntity, candidates: Sequence[Candidate]) -> str:
    """Return the note on a name that is not attached to any of the entities that have it.

    Only what the scope of the write sees is quoted of them.
    """

    def shown(candidate: Candidate) -> str:
        seen = (known for known in _memories_of(tx, candidate) if is_seen(tx.scope, known.scope))
        if (quoted := next((known for known in seen if known.deleted_at is None), None)) is None:
            return f"{entity.name} [{candidate.root.id[:8]}]"
        return f'{candidate.root.name} [{candidate.root.id[:8]}] ("{shorten(quoted.text, MAX_QUOTED)}")'

    known = " or ".join(shown(candidate) for candidate in candidates[:MAX_TOLD])
    return (
        f"{entity.name} is not attached to anybody, because it may be {known}; say in the text of [{memory.id[:8]}] "
        f'who is meant, as in "my cousin {entity.name}"'
    )


def _only(candidates: Sequence[Candidate]) -> Candidate | None:
    return candidates[0] if len(candidates) == 1 else None


def _described(
    tx: Transaction, memory: Memory, entity: NamedEntity, candidates: Sequence[Candidate]
) -> Candidate | None:
    """Return the candidate that is described as a memory describes it, such as "cousin", if it is one alone."""
    if not (said := known_names.describing(memory.text, entity.name)):
        return None

    def known(candidate: Candidate) -> set[str]:
        told = (memory.text for memory in _memories_of(tx, candidate))
        return {word for text in (candidate.root.name, *told) for word in known_names.describing(text, entity.name)}

    return _only([candidate for candidate in candidates if said & known(candidate)])


def _with_others(tx: Transaction, candidates: Sequence[Candidate], others: Iterable[str]) -> Candidate | None:
    """Return the candidate that memories mention together with most of the other entities, if it is one alone."""
    known = roots_of(tx.conn, others)
    context = members_of(tx.conn, {root.id for root in known.values() if not root.is_user})  # the user is with all
    members = members_of(tx.conn, [candidate.root.id for candidate in candidates])
    if not context:
        return None
    together = _named_together(tx.conn, list(members), list(context))
    pairs = {(members[row.one], context[row.other]) for row in together}
    counts = {candidate.root.id: sum(one == candidate.root.id for one, _ in pairs) for candidate in candidates}
    most = max(counts.values())
    return _only([candidate for candidate in candidates if most and counts[candidate.root.id] == most])


def _nearest(tx: Transaction, memory: Memory, candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate whose memories are clearly nearer to the text than those of all others, if all are known."""
    if (vector := tx.vectors.get(memory.text)) is None:
        return None
    known = [[one.id for one in _memories_of(tx, candidate)] for candidate in candidates]
    stored = [list(own_vectors(tx.conn, tx.embedder, "memory", ids).values()) for ids in known]
    if not all(stored):
        return None
    distances = [1 - _cosine(vector, np.mean(of_candidate, axis=0)) for of_candidate in stored]
    first, second = np.argsort(distances)[:2]
    return candidates[int(first)] if distances[first] <= CLEARLY_NEARER * distances[second] else None


def _cosine(one: Vector, other: Vector) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


def _memories_of(tx: Transaction, candidate: Candidate) -> list[Memory]:
    """Return the newest memories that mention a candidate, as far as they are not erased."""
    is_of = (among(mentions.c.entity_id, members_of(tx.conn, [candidate.root.id])), mentions.c.kind == "memory")
    query = sa.select(mentions.c.owner_id).where(*is_of).order_by(mentions.c.seq.desc()).limit(NEWEST)
    newest = list(dict.fromkeys(tx.conn.execute(query).scalars()))
    known = memories_by_id(tx.conn, newest)
    return [known[one] for one in newest if one in known]


# Find which entity a name means: the one of the scope that has that name, else a new one.
#
# A memory of a project may name an entity of the project or a global one of the user; a global memory names global
# ones. What is doubtful stays apart, because a merge is easily made later, and two that were mixed up are hard to
# part.

# The name of the user's own entity until the user's name is known.
USER = "User"


def resolve(
    tx: Transaction, memory: Memory, named: Mapping[str, NamedEntity], mentioned_already: Iterable[str]
) -> dict[str, str]:
    """Return the id of the entity that each name of a memory means. Entities and aliases that lack are created.

    A name that several entities have is left out if nothing says which is meant, and the caller is told so.
    `mentioned_already` are the entities that other names of the memory mean.
    """
    forms = {key: known_names.other_forms(memory.text, entity.name) for key, entity in named.items()}
    known = candidates_of(tx.conn, memory.scope, [*named, *(form for others in forms.values() for form in others)])
    told = name_key(name_of_user(tx.conn, Scope(memory.scope.user_id, memory.scope.project)))
    first_name = {
        key for key in named if " " not in key and not known.get(key) and known_names.is_short_form(key, told)
    }
    meant = {key: own_entity(tx) for key in named if key in SELF_NAMES or key == told or key in first_name}
    created: list[tuple[str, str]] = []
    fitting = {key: _fitting(tx, memory, key, named[key], known.get(key, ())) for key in named.keys() - meant.keys()}
    for key in [key for key, found in fitting.items() if not found]:  # "Les Tilleuls" of "aux Tilleuls"
        same = [each for form in forms[key] for each in _fitting(tx, memory, form, named[key], known.get(form, ()))]
        fitting[key] = [candidate for candidate in same if candidate.root.type != "person"]
    full_names = _full_names(memory, fitting, named, forms)
    fitting = {key: found for key, found in fitting.items() if key not in full_names}
    # A name that only one entity has is clear, and helps with those that several have.
    for key in sorted(fitting, key=lambda key: (len(fitting[key]) > 1, list(named).index(key))):
        others = {*mentioned_already, *meant.values()}
        chosen = choose(tx, memory, named[key], fitting[key], others) if fitting[key] else None
        if chosen is not None:
            meant[key] = chosen.entity_id
            add(tx.conn, chosen.entity_id, key, named[key].name)
            if named[key].type not in {"other", chosen.root.type} and not chosen.root.is_user:
                is_root = entities.c.id == chosen.root.id
                tx.conn.execute(sa.update(entities).where(is_root).values(type=named[key].type))
        elif not is_unclear(memory.text, named[key].name, fitting[key]):
            is_first = not fitting[key]
            meant[key] = _create(tx, memory, named[key], is_first=is_first, known=known.get(key, ()))
            created += [(meant[key], named[key].name)] if is_first else []
            add(tx.conn, meant[key], key, named[key].name)
        elif tx.scope.with_general:  # the others may be known from what is general
            tx.notes.append(unclear(tx, memory, named[key], fitting[key]))
    for key, full in full_names.items():
        if full in meant:
            meant[key] = meant[full]
            add(tx.conn, meant[key], key, named[key].name)
    for key in {told, *first_name} & named.keys():
        add(tx.conn, meant[key], key, named[key].name)
    _propose(tx, memory, created, {*mentioned_already, *meant.values()})
    return meant


def _full_names(
    memory: Memory, fitting: Mapping[str, object], named: Mapping[str, NamedEntity], forms: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the full names that names of a text have in its relations, by their keys.

    The text says Tom, and a relation beside it "Tom (plumber)", or of a new Tom "Tom Baker". A text that has both names
    may tell of two people. `forms` are other keys of each name, with an article or without.
    """
    words, ends = words_in(memory.text), {end for relation in memory.relations for end in relation.key[::2]}
    full = [key for key, entity in named.items() if " " in key and not has_name(words, memory.text, entity.name)]
    short = {key for key in fitting if " " not in key and key not in ends}
    found = {
        key: [other for other in named if key not in ends and name_key(known_names.bare_name(named[other].name)) == key]
        or [form for form in forms[key] if not known and form in named and len(form) > len(key)]
        or [other for other in full if not known and key in short and known_names.is_short_form(key, other)]
        for key, known in fitting.items()
    }
    return {key: others[0] for key, others in found.items() if len(others) == 1}


# How many others a note names that a new entity may be.
MAX_PROPOSED = 3


def _propose(tx: Transaction, memory: Memory, created: Sequence[tuple[str, str]], beside: AbstractSet[str]) -> None:
    """Tell the caller which entity a new one may be. The others that their memory names are none of them.

    Of many it is none. A relative who is called by the first name alone is not somebody with a surname, where
    nothing is said of a family. Nobody reads what is told of each name of an import. Who does not see what is general
    is told nothing, because these may be known from there.
    """
    if tx.provenance.stage == IMPORT or not tx.scope.with_general:
        return
    roots = roots_of(tx.conn, [entity_id for entity_id, _ in created])
    for entity_id, name in created:
        others = lookalikes(tx.conn, memory.scope, roots[entity_id], [name])
        if 1 < len(others) <= MAX_PROPOSED and beside.isdisjoint(other.id for other in others):
            names = " or ".join(f"{other.name} [{other.id[:8]}]" for other in others)
            tx.notes.append(f"{name} may be {names}; if so, use the full name")
        for other in others if len(others) == 1 and others[0].id not in beside else ():
            known = [one.text for one in _memories_of(tx, Candidate(other.id, other, is_given=False))]
            is_longer = name_key(name).startswith(f"{name_key(other.name)} ")
            if not (is_longer and any(map(_is_of_family, known)) and not _is_of_family(memory.text)):
                tx.notes.append(f"{name} may be the same as {other.name} [{other.id[:8]}]; if so, use one name")


def _is_of_family(text: str) -> bool:
    return not KIN.isdisjoint(words_in(text))


def tell_name(tx: Transaction, memory: Memory) -> None:
    """Merge the person of the name that a memory tells into the user's own entity, if it is the first to tell it.

    If two are called so, or one is known to be somebody else, such as "Tom (plumber)", nothing is merged.
    """
    key = name_key(str(memory.metadata.get(USER_NAME) or ""))
    if not key or key in SELF_NAMES or memory.deleted_at is not None:
        return
    own_id = own_entity(tx)
    known = candidates_of(tx.conn, memory.scope, [key]).get(key, [])
    if mentioned(tx.conn, [candidate for candidate in known if candidate.root.id == own_id], key):
        return
    others = [one for one in known if one.root.id != own_id and may_be(one.root.type, "person")]
    _merge_each(tx, [one for one in others if not known_names.bare_name(one.root.name)], own_id)


def own_entity(tx: Transaction) -> str:
    """Return the id of the user's own entity, which is created if it lacks."""
    known = users_own(tx.conn, tx.scope.user_id)
    return new_entity(tx, "", USER, "person", is_user=True) if known is None else known.id


def _fitting(
    tx: Transaction, memory: Memory, key: str, entity: NamedEntity, known: Sequence[Candidate]
) -> list[Candidate]:
    """Return the candidates that a memory may mean by a name: of its project or global, and of a type that fits."""

    def may_mean(candidate: Candidate) -> bool:
        root = candidate.root
        if root.project not in {"", memory.scope.project}:
            return False
        # The user is called so by an edit, or in a living memory, but not only in one that was undone.
        if root.is_user and not (candidate.is_given or mentioned(tx.conn, [candidate], key)):
            return False
        # A type counts if a living memory mentions the entity, or if an edit changed it.
        if may_be(root.type, entity.type):
            return True
        edits = sa.select(entity_history.c.seq).where(entity_history.c.entity_id == root.id)
        return not has_row(tx.conn, edits) and not mentioned(tx.conn, [candidate])

    return [candidate for candidate in known if may_mean(candidate)]


def _create(tx: Transaction, memory: Memory, entity: NamedEntity, *, is_first: bool, known: Sequence[Candidate]) -> str:
    """Create the entity of a name. A new global one takes in what the user's projects know by its name."""
    apart = known_names.qualifier(memory.text, entity.name)
    name = entity.name if is_first or not apart else f"{entity.name} ({apart})"
    entity_id = new_entity(tx, memory.scope.project, name, entity.type)
    if memory.scope.project == "" and not apart and not known_names.says_another(memory.text, entity.name):
        of_projects = [candidate for candidate in known if candidate.root.project]
        told = len(tx.entity_edits)
        _merge_each(tx, [one for one in of_projects if may_be(one.root.type, entity.type)], entity_id)
        del tx.entity_edits[told:]  # a caller who named Clausthal need not be told that projects know it too
    return entity_id


def _merge_each(tx: Transaction, candidates: Sequence[Candidate], into_id: str) -> None:
    """Merge the candidates of each project into an entity, unless a project has several: then it is not clear which."""
    projects = [candidate.root.project for candidate in candidates]
    for candidate in candidates:
        if projects.count(candidate.root.project) == 1:
            merge(tx, candidate.root, roots_of(tx.conn, [into_id])[into_id])


def select_named(*columns: Any) -> Query:
    """Select from what memories name in their present versions, with these memories."""
    query = sa.select(*columns).join_from(mentions, memories, memories.c.id == mentions.c.owner_id)
    return query.where(mentions.c.kind == "memory", mentions.c.current)


def meanings(rows: Iterable[sa.Row[Any]]) -> dict[str, dict[str, str]]:
    """Return the entity that each name means, by its key, for each memory or message of some mentions."""
    meant: dict[str, dict[str, str]] = {}
    for row in rows:
        meant.setdefault(row.owner_id, {})[row.key] = row.entity_id
    return meant


# What messages mention: who says them, and the known names in them.
#
# A message names nobody anew: only a memory that is learned from it does, and then shows which of its names are
# meant.

# How many sequences of words of one call are looked up. They cost one query, and milliseconds.
MAX_NAMES = 2_000


def mention_known(conn: sa.Connection, stored: Sequence[Message]) -> None:
    """Store which entities new messages of one scope mention: their speakers, and names that exactly one entity has.

    Of the entities of other projects they mention none.
    """
    if not stored or not knows_any(conn, stored[0].scope.user_id):
        return
    keys = {message.id: _keys(message.content, message.name) for message in stored}
    wanted = list(dict.fromkeys(key for of_message in keys.values() for key in of_message))[:MAX_NAMES]
    candidates = candidates_of(conn, stored[0].scope, wanted, with_projects=False)
    known = {key: found for key, found in candidates.items() if len(found) == 1}
    rows = [
        mention_row("message", message_id, key, of_message[key], known[key][0].entity_id)
        for message_id, of_message in keys.items()
        for key in of_message
        if key in known
    ]
    if rows:
        conn.execute(sa.insert(mentions), rows)


def _keys(text: str, speaker: str) -> dict[str, str]:
    """Return the names that a message may have, each by its key: its speaker's, and sequences of its words."""
    keys = {key: key for key in known_names.name_candidates(text)} | {name_key(speaker): speaker}
    return {key: name for key, name in keys.items() if key and key not in SELF_NAMES}


def mention_with(conn: sa.Connection, memory_id: str) -> None:
    """Let the messages behind a memory mention what it mentions, as far as their texts have its names.

    A message that was stored in another project mentions only what is general.
    What the memory means by a name counts more than what was taken to be meant when the message was stored.
    """
    meant = {row.key: row for row in conn.execute(_OF_MEMORY, {"memory": memory_id}).all()}
    meant = {key: row for key, row in meant.items() if key not in SELF_NAMES}
    if not meant:
        return
    rows = [
        mention_row("message", message.id, key, row.name, row.entity_id)
        for message in conn.execute(_SOURCES, {"memory": memory_id}).all()
        for key, row in meant.items()
        if key in _keys(message.content, message.name) and row.project in {"", message.project}
    ]
    if not rows:
        return
    of_messages = conn.execute(_OF_MESSAGES, {"ids": [row["owner_id"] for row in rows]}).all()
    known = {(row.owner_id, row.key): row for row in of_messages}
    for row in rows:
        if (stored := known.get((row["owner_id"], row["key"]))) is None:
            conn.execute(sa.insert(mentions), row)
        else:
            move_mention(conn, stored, row["entity_id"])


def move_mention(conn: sa.Connection, mention: sa.Row[Any], entity_id: str) -> None:
    """Let a mention mean another entity. Names that only mentions gave follow it."""
    if mention.entity_id == entity_id:
        return
    conn.execute(sa.update(mentions).where(mentions.c.seq == mention.seq).values(entity_id=entity_id))
    add(conn, entity_id, mention.key, mention.name)
    drop_unused(conn, mention.entity_id, mention.key)


def mention_row(kind: str, owner_id: str, key: str, name: str, entity_id: str) -> dict[str, Any]:
    """Return the row of `mentions` for a name in the present text of a memory or message."""
    return {"kind": kind, "owner_id": owner_id, "key": key, "name": name, "entity_id": entity_id, "current": True}


_OF_MEMORY: Query = (
    sa.select(mentions, entities.c.project)
    .join(entities, entities.c.id == mentions.c.entity_id)
    .where(mentions.c.kind == "memory", mentions.c.owner_id == sa.bindparam("memory"), mentions.c.current)
)
_SOURCES: Query = (
    sa.select(messages.c.id, messages.c.content, messages.c.name, messages.c.project)
    .join(memory_sources, memory_sources.c.message_id == messages.c.id)
    .where(memory_sources.c.memory_id == sa.bindparam("memory"))
)
_OF_MESSAGES: Query = sa.select(mentions).where(mentions.c.kind == "message", mentions.c.owner_id.in_(listed("ids")))
