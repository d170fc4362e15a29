"""The relations that a search shows beside its hits: those of the entities that the question names.

There are two ways to them: from these entities along the relations that hold, and from the question's own ranking, as
the memory that states a relation is its text. The ranking orders them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from palimpsest.core.entities import Entity, KnownRelation, relation_key
from palimpsest.core.models import Scope
from palimpsest.store.graph.edges import relations_found, relations_of
from palimpsest.store.graph.groups import roots_of
from palimpsest.text.control_characters import visible
from palimpsest.text.tokenizer import count_tokens

MAX_RELATIONS = 5
"""How many relations a search shows. Mem0 showed as many."""

MAX_READ = {1: 2 * MAX_RELATIONS, 2: 100}
"""How many relations are read by the number of hops: for one twice as many as are shown, because several memories may
state the same; for two those that lead on. Set by hand."""

MAX_PAST = 1_000
"""How many relations of an earlier time are read. Set by hand."""

ROOM_SHARE = 8
"""Relations have the room that the hits leave, and at least one part in so many of it. At the default of 800 tokens
five of them need about a hundred."""


@dataclass(frozen=True, slots=True)
class RelationRequest:
    """What to find relations for: the entities that a question names, and what the search found.

    `memory_ids` are the memories among its candidates and `shown_ids` those among its hits, best first. With `hops=2`
    the relations of what is related to the entities count too. If `is_filtered`, only candidates may state a relation,
    because the others have not passed the filter.
    """

    scope: Scope
    entities: Sequence[Entity]
    memory_ids: Sequence[str]
    shown_ids: Sequence[str]
    as_of: datetime | None = None
    hops: int = 1
    is_filtered: bool = False


def find_relations(conn: Connection, request: RelationRequest) -> tuple[KnownRelation, ...]:
    """Return the relations to show, first those whose memory the ranking puts first, then the newest.

    Nearly everything is about the user. So only the hits state relations of the user's own entity.
    """
    own = [entity.id for entity in request.entities if entity.is_user]
    others = [entity.id for entity in request.entities if not entity.is_user]
    hits = replace(request, memory_ids=request.shown_ids, is_filtered=True)
    near = [*_relations(conn, request, others), *_relations(conn, hits, own)]
    far = _relations(conn, request, _neighbours(conn, near, {*own, *others})) if request.hops > 1 else []
    return _first((near, far), request.memory_ids)


def merged(relations: Iterable[KnownRelation], memory_ids: Sequence[str]) -> tuple[KnownRelation, ...]:
    """Return the relations of several searches as those of one, given their hits."""
    return _first((list(relations),), memory_ids)


def fitting(relations: Sequence[KnownRelation], max_tokens: int) -> tuple[KnownRelation, ...]:
    """Return the relations that fit `max_tokens` together."""
    kept: list[KnownRelation] = []
    for relation in relations:
        if relation_tokens([*kept, relation]) <= max_tokens:
            kept.append(relation)
    return tuple(kept)


def relation_tokens(relations: Iterable[KnownRelation]) -> int:
    """Return what relations cost in a reply, in tokens: a line each."""
    return sum(count_tokens(visible(relation.line)) + 1 for relation in relations)


def _relations(conn: Connection, request: RelationRequest, entity_ids: Sequence[str]) -> list[KnownRelation]:
    """Return relations of entities: those that candidates state, and then the newest."""
    if not entity_ids:
        return []
    scope, memory_ids, limit = request.scope, request.memory_ids, MAX_READ[request.hops]
    if request.as_of is not None:
        past = relations_of(conn, scope, entity_ids, as_of=request.as_of, limit=MAX_PAST)
        candidates = set(memory_ids)
        return [found for found in past if not request.is_filtered or found.memory_id in candidates]
    return relations_found(conn, scope, entity_ids, memory_ids, limit=limit, with_newest=not request.is_filtered)


def _neighbours(conn: Connection, relations: Iterable[KnownRelation], entity_ids: AbstractSet[str]) -> list[str]:
    """Return what is at the other ends of relations. The user is not among them, who is related to everything."""
    ends = {end for found in relations for end in (found.source_id, found.destination_id)} - entity_ids
    return sorted(entity.id for entity in roots_of(conn, ends).values() if not entity.is_user)


def _first(hops: Sequence[Sequence[KnownRelation]], memory_ids: Sequence[str]) -> tuple[KnownRelation, ...]:
    """Return the first relations of each hop, each once, though several memories may state it."""
    rank = {memory_id: number for number, memory_id in enumerate(memory_ids)}
    numbered = [(number, found) for number, relations in enumerate(hops) for found in relations]
    numbered.sort(key=lambda item: item[1].holds_from, reverse=True)
    numbered.sort(key=lambda item: (rank.get(item[1].memory_id, len(rank)), item[0]))
    distinct: dict[tuple[str, str, str], KnownRelation] = {}
    for _, found in numbered:
        distinct.setdefault((found.source_id, relation_key(found.relationship), found.destination_id), found)
    return tuple(distinct.values())[:MAX_RELATIONS]
