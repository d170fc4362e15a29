"""Find which entity a name means: the one of the scope that has that name, else a new one.

A memory of a project may name an entity of the project or a global one of the user; a global memory names global ones.
What is doubtful stays apart, because a merge is easily made later, and two that were mixed up are hard to part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import update

from palimpsest.core.entities import RESOLVE, SELF_NAMES, NamedEntity, name_key
from palimpsest.core.models import USER_NAME, Memory, Scope
from palimpsest.store.graph.groups import roots_of, users_own
from palimpsest.store.graph.identity import aliases
from palimpsest.store.graph.identity.candidates import Candidate, candidates_of, may_be, mentioned, was_edited
from palimpsest.store.graph.identity.creation import new_entity
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.identity.lookalikes import lookalikes
from palimpsest.store.graph.identity.merging import merge
from palimpsest.store.graph.identity.namesakes import choose, is_unclear, unclear
from palimpsest.store.graph.tables import entities
from palimpsest.store.queries.memories import name_of_user
from palimpsest.text.names.namesakes import bare_name, qualifier, says_another

USER = "User"
"""The name of the user's own entity until the user's name is known."""


def resolve(
    write: GraphWrite, memory: Memory, named: Mapping[str, NamedEntity], mentioned_already: Iterable[str]
) -> dict[str, str]:
    """Return the id of the entity that each name of a memory means. Entities and aliases that lack are created.

    A name that several entities have is left out if nothing says which is meant, and the caller is told so.
    `mentioned_already` are the entities that other names of the memory mean.
    """
    known = candidates_of(write.conn, memory.scope, named)
    told = name_key(name_of_user(write.conn, Scope(memory.scope.user_id, memory.scope.project)))
    meant = {key: own_entity(write) for key in named if key in SELF_NAMES or key == told}
    created: list[tuple[str, str]] = []
    fitting = {key: _fitting(write, memory, key, named[key], known.get(key, ())) for key in named.keys() - meant.keys()}
    # A name that only one entity has is clear, and helps with those that several have.
    for key in sorted(fitting, key=lambda key: (len(fitting[key]) > 1, list(named).index(key))):
        others = {*mentioned_already, *meant.values()}
        chosen = choose(write, memory, named[key], fitting[key], others) if fitting[key] else None
        if chosen is None and is_unclear(memory.text, named[key].name, fitting[key]):
            if write.scope.with_general:  # the others may be known from what is general
                write.notes.append(unclear(write, memory, named[key], fitting[key]))
            continue
        if chosen is None:
            is_first = not fitting[key]
            meant[key] = _create(write, memory, named[key], is_first=is_first, known=known.get(key, ()))
            created += [(meant[key], named[key].name)] if is_first else []
        else:
            meant[key] = chosen.entity_id  # which has the name already
            _learn_type(write, chosen, named[key])
            continue
        aliases.add(write.conn, meant[key], key, named[key].name)
    if told in named:
        aliases.add(write.conn, meant[told], told, named[told].name)
    _propose(write, memory, created, {*mentioned_already, *meant.values()})
    return meant


def _propose(write: GraphWrite, memory: Memory, created: Sequence[tuple[str, str]], beside: AbstractSet[str]) -> None:
    """Tell the caller which entities new ones may be. The others that their memory names are none of them.

    Nobody reads what is told of names that are looked for in the background. Who does not see what is general is told
    nothing, because these may be known from there.
    """
    if write.provenance.stage == RESOLVE or not write.scope.with_general:
        return
    roots = roots_of(write.conn, [entity_id for entity_id, _ in created])
    for entity_id, name in created:
        for other in lookalikes(write.conn, memory.scope, roots[entity_id], [name]):
            if other.id not in beside:
                write.notes.append(
                    f"{name} may be the same as {other.name} [{other.id[:8]}]; if so: palimpsest entity merge "
                    f"{entity_id[:8]} {other.id[:8]}"
                )


def tell_name(write: GraphWrite, memory: Memory) -> None:
    """Merge the person of the name that a memory tells into the user's own entity, if it is the first to tell it.

    If two are called so, or one is known to be somebody else, such as "Tom (plumber)", nothing is merged.
    """
    key = name_key(str(memory.metadata.get(USER_NAME) or ""))
    if not key or key in SELF_NAMES or memory.deleted_at is not None:
        return
    own_id = own_entity(write)
    known = candidates_of(write.conn, memory.scope, [key]).get(key, [])
    if mentioned(write.conn, [candidate for candidate in known if candidate.root.id == own_id], key):
        return
    others = [candidate for candidate in known if candidate.root.id != own_id]
    may_be_user = (one for one in others if may_be(one.root.type, "person") and not bare_name(one.root.name))
    _merge_each(write, list(may_be_user), own_id)


def own_entity(write: GraphWrite) -> str:
    """Return the id of the user's own entity, which is created if it lacks."""
    known = users_own(write.conn, write.scope.user_id)
    return new_entity(write, "", USER, "person", is_user=True) if known is None else known


def _fitting(
    write: GraphWrite, memory: Memory, key: str, entity: NamedEntity, known: Sequence[Candidate]
) -> list[Candidate]:
    """Return the candidates that a memory may mean by a name: of its project or global, and of a type that fits."""
    seen = [candidate for candidate in known if candidate.root.project in {"", memory.scope.project}]
    return [
        candidate
        for candidate in seen
        if (may_be(candidate.root.type, entity.type) or not _has_type(write, candidate))
        and (not candidate.root.is_user or _is_users_name(write, candidate, key))
    ]


def _has_type(write: GraphWrite, candidate: Candidate) -> bool:
    """Return whether the type of an entity counts: a living memory mentions it, or an edit changed it."""
    return bool(mentioned(write.conn, [candidate])) or was_edited(write.conn, candidate.root.id)


def _is_users_name(write: GraphWrite, candidate: Candidate, key: str) -> bool:
    """Return whether the user is called so: by an edit, or in a living memory, but not only in one that was undone."""
    is_merged = candidate.entity_id != candidate.root.id
    return is_merged or candidate.is_given or bool(mentioned(write.conn, [candidate], key))


def _create(
    write: GraphWrite, memory: Memory, entity: NamedEntity, *, is_first: bool, known: Sequence[Candidate]
) -> str:
    """Create the entity of a name. A new global one takes in what the user's projects know by its name."""
    apart = qualifier(memory.text, entity.name)
    name = entity.name if is_first or not apart else f"{entity.name} ({apart})"
    entity_id = new_entity(write, memory.scope.project, name, entity.type)
    if memory.scope.project == "" and not apart and not says_another(memory.text, entity.name):
        of_projects = [candidate for candidate in known if candidate.root.project]
        _merge_each(write, [one for one in of_projects if may_be(one.root.type, entity.type)], entity_id)
    return entity_id


def _merge_each(write: GraphWrite, candidates: Sequence[Candidate], into_id: str) -> None:
    """Merge the candidates of each project into an entity, unless a project has several: then it is not clear which."""
    projects = [candidate.root.project for candidate in candidates]
    for candidate in candidates:
        if projects.count(candidate.root.project) == 1:
            merge(write, candidate.root, roots_of(write.conn, [into_id])[into_id])


def _learn_type(write: GraphWrite, chosen: Candidate, entity: NamedEntity) -> None:
    if entity.type not in {"other", chosen.root.type} and not chosen.root.is_user:
        is_root = entities.c.id == chosen.root.id
        write.conn.execute(update(entities).where(is_root).values(type=entity.type))
