"""Find entities by what people call them, and read what is known about one: its dossier. Blocking."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from palimpsest.core.clock import local_iso
from palimpsest.core.entities import MAX_NAME_CHARS, Entity, KnownRelation, name_key, relation_key
from palimpsest.core.errors import InputError
from palimpsest.core.models import Memory, Scope
from palimpsest.core.validation import one_line
from palimpsest.learn.views.kinds import revisions
from palimpsest.learn.views.portrait.ranks import is_safety
from palimpsest.store.graph import edges, names, surroundings
from palimpsest.store.graph.identity.lookalikes import lookalikes
from palimpsest.store.queries.memories import memories_telling_name
from palimpsest.store.views.ending import expired_ids

MAX_MEMORIES = 200
"""How many memories of each kind a dossier reads, of which far fewer fit into its lines. Set by hand."""

MAX_OLDEST = 20
"""How many of the oldest it reads if there are more. Set by hand: who somebody is was said first."""

MAX_LOOKED_AT = 2_000
"""Among how many it looks for what somebody's safety depends on, however long ago that was said. Set by hand: a tenth
of a second."""

MAX_RELATIONS = 200
"""How many relations a dossier reads, for the same reason."""

MAX_HOPS = 2
"""How far a dossier looks. Three steps from the user reach nearly everything."""

NEAR_NAMES = 5
"""How many names an error offers. Set by hand: what a person reads at a glance."""

MAX_COMPARED = 5_000
"""With how many names an unknown one is compared, which takes some tenths of a second."""

_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")


@dataclass(frozen=True, slots=True)
class Dossier:
    """What is known about an entity, in a scope, now or at an instant.

    `holds` are the living memories that mention it and `held` those that were replaced or ended, the newest first;
    there are `all_holds` and `all_held` of them. `relations` are its own, those that hold now before those that held,
    and `further` those of its neighbours. `beside` are entities that memories only name together with it, with how many
    do, and `lookalikes` those that it may be, judging by their names alone.
    """

    entity: Entity
    aliases: tuple[str, ...]
    holds: tuple[Memory, ...]
    held: tuple[Memory, ...]
    all_holds: int
    all_held: int
    relations: tuple[KnownRelation, ...]
    further: tuple[KnownRelation, ...] = ()
    beside: tuple[tuple[Entity, int], ...] = ()
    lookalikes: tuple[Entity, ...] = ()


def find_entities(conn: Connection, scope: Scope, name: str, *, as_of: datetime | None = None) -> list[Entity]:
    """Return the entities that a scope sees and that have a name; or the one whose id, or its beginning, it is.

    Raises InputError if there is none, with the names that come near.
    """
    key = name_key(name)
    if not key or len(name) > MAX_NAME_CHARS:
        raise InputError(f"a name has 1 to {MAX_NAME_CHARS} characters, such as Ana. Nothing was looked up")
    if found := names.entities_named(conn, scope, [name], as_of=as_of):
        return found[key]
    if _ID.fullmatch(key):
        by_id = surroundings.entities_by_id(conn, scope, key)
        seen = names.seen_roots(conn, scope, [entity.id for entity in by_id], as_of=as_of)
        shown = names.as_shown(conn, scope, {entity.id: entity for entity in by_id if entity.id in seen})
        if len(shown) == 1:
            return list(shown.values())
    if as_of is not None and names.entities_named(conn, scope, [name]):
        raise InputError(
            f"nothing was known of '{one_line(name)[:80]}' for {scope} at {local_iso(as_of)}. "
            "Leave the time out to see what is known now"
        )
    raise InputError(
        f"nobody and nothing called '{one_line(name)[:80]}' is known for {scope}. {_near(conn, scope, key)}"
    )


def _near(conn: Connection, scope: Scope, key: str) -> str:
    """Return which names come near one that is unknown."""
    known = names.list_entities(conn, scope, MAX_COMPARED)
    by_key = {name_key(listed.entity.name): listed.entity.name for listed in reversed(known)}
    words = set(key.split())
    sharing = [other for other in by_key if not words.isdisjoint(other.split())]
    near = list(dict.fromkeys([*sharing, *difflib.get_close_matches(key, by_key, NEAR_NAMES)]))[:NEAR_NAMES]
    if near:
        return f"Did you mean {' or '.join(by_key[other] for other in near)}?"
    newest = ", ".join(listed.entity.name for listed in known[:NEAR_NAMES])
    return f"Known are, for example: {newest}" if newest else "No names are known yet; they come with memories"


def read_dossier(
    conn: Connection, scope: Scope, entity: Entity, *, now: datetime, hops: int = 1, as_of: datetime | None = None
) -> Dossier:
    """Return what is known about an entity; with `as_of` what was known then. `hops` is 1 or 2."""
    expired = expired_ids(conn, scope, now) if as_of is None else set[str]()
    if as_of is None:
        holds, all_holds = surroundings.memories_about(conn, scope, entity.id, MAX_MEMORIES, oldest=MAX_OLDEST)
        all_holds -= sum(memory.id in expired for memory in holds)
        if all_holds > len(holds):
            looked_at, _ = surroundings.memories_about(conn, scope, entity.id, MAX_LOOKED_AT)
            known = {memory.id for memory in holds}
            between = [memory for memory in looked_at if memory.id not in known and is_safety(memory, "")]
            holds = [*holds[:MAX_MEMORIES], *between[:MAX_OLDEST], *holds[MAX_MEMORIES:]]
        holds = [memory for memory in holds if memory.id not in expired]
    else:
        then = surroundings.memories_about_at(conn, scope, entity.id, as_of)
        holds, all_holds = [*then[:MAX_MEMORIES], *then[MAX_MEMORIES:][-MAX_OLDEST:]], len(then)
    held, all_held = surroundings.former_memories_about(conn, scope, entity.id, MAX_MEMORIES, as_of=as_of)
    current = edges.relations_of(conn, scope, [entity.id], as_of=as_of, limit=MAX_RELATIONS)
    all_relations = edges.relations_of(conn, scope, [entity.id], current_only=False, limit=MAX_RELATIONS)
    # With `as_of` a relation of a memory that had ended by then is a former one.
    former = [item for item in all_relations if item.expired_at is not None and (not as_of or item.expired_at <= as_of)]
    relations = _each_once(item for item in (*current, *former) if item.memory_id not in expired)
    ends = {
        end for item in current if item.memory_id not in expired for end in (item.source_id, item.destination_id)
    } - {entity.id}
    further: Sequence[KnownRelation] = ()
    if hops > 1 and ends:
        found = edges.relations_of(conn, scope, ends, as_of=as_of, limit=MAX_RELATIONS)
        beyond = [item for item in found if item.memory_id not in expired]
        further = [item for item in beyond if entity.id not in (item.source_id, item.destination_id)]
    connected = {end for item in relations for end in (item.source_id, item.destination_id)}
    beside = [
        (other, count)
        for other, count in surroundings.named_beside(conn, scope, entity.id, holds)
        if other.id not in connected
    ]
    aliases = surroundings.other_names(conn, scope, entity)
    return Dossier(
        entity,
        tuple(aliases),
        tuple(memory.in_zone(now.tzinfo) for memory in holds),
        tuple(memory.in_zone(now.tzinfo) for memory in held),
        all_holds,
        all_held,
        tuple(relations),
        tuple(_each_once(further)),
        tuple(beside),
        tuple(lookalikes(conn, scope, entity, [entity.name, *aliases])),
    )


def quoted(conn: Connection, scope: Scope, dossier: Dossier) -> dict[str, int]:
    """Return the memories that a dossier may quote, by id with their revision: those that name what it names.

    The names of others come from memories, too. Of the user that is the one that tells the name.
    """
    others = {end for item in dossier.relations for end in (item.source_id, item.destination_id)}
    others |= {other.id for other, _ in dossier.beside}
    named = [entity.id for entity in surroundings.entities_with_ids(conn, scope, others) if not entity.is_user]
    return {
        **surroundings.memories_naming(conn, scope, {dossier.entity.id, *named}),
        **revisions(memories_telling_name(conn, scope)),
    }


def _each_once(relations: Iterable[KnownRelation]) -> list[KnownRelation]:
    """Return each relation once, by the first memory that states it."""
    by_key: dict[tuple[str, str, str], KnownRelation] = {}
    for item in relations:
        by_key.setdefault((item.source_id, relation_key(item.relationship), item.destination_id), item)
    return list(by_key.values())
