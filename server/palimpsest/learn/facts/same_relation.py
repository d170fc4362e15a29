"""Find the memories that say of an entity what a new fact says of it, however they are worded.

"Ana's new flat in Lyon is bright" and "Ana rents a room in Porto" have no word in common but the name. Both say where
Ana lives, and at most one of them is true. The model is shown such memories beside the nearest ones. It says what
contradicts what, and the times decide which of the two holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum

from sqlalchemy import Connection

from palimpsest.core.entities import SELF_NAMES, EntityType, name_key, relation_key
from palimpsest.core.models import Fact, Memory, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.engine import Engine
from palimpsest.recall.similar import likeness_among
from palimpsest.store.graph.matching import conflicts
from palimpsest.store.graph.matching.conflicts import StatedRelation
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.text.stopwords import without_function_words
from palimpsest.text.tokenizer import search_tokens

MAX_COMPARED = 200
"""How many memories are compared with one fact. Set by hand: it takes milliseconds, and a fact has room for few."""

MAX_BEGINNING_WORDS = 3
"""How many words the beginning of a name has at most by which its bearer may be called. Set by hand."""

USERS_NAME = "user"
"""The name by which the user's own entity is asked for."""

_NOBODY = frozenset[str]()


class Nearness(IntEnum):
    """How near what a memory says of an entity is to what a fact says of it, the nearest first."""

    SAME_RELATION = 0
    SIMILAR_RELATION = 1
    SAME_ENTITY = 2


@dataclass(frozen=True, slots=True)
class RelatedMemory:
    """A memory that speaks of an entity of a fact, and how much its text resembles the fact's."""

    memory: Memory
    nearness: Nearness
    likeness: float


@dataclass(frozen=True, slots=True)
class _Statement:
    """A relation of a fact: the entities that its source may mean, its key, and the words and type it is told by."""

    source_ids: frozenset[str]
    key: str
    name_words: frozenset[str]
    destination_words: frozenset[str]
    destination_type: EntityType

    def nearness(self, other: StatedRelation) -> Nearness | None:
        """Return how near the relation of a memory is, or None if it is about something else."""
        if other.source_id not in self.source_ids:
            return None
        if other.key == self.key:
            return Nearness.SAME_RELATION
        name_words, words = _words(other.name), _words(other.destination)
        shares_words = self.name_words & (name_words | words) or name_words & self.destination_words
        has_type = self.destination_type == other.destination_type != "other"
        return Nearness.SIMILAR_RELATION if shares_words or has_type else None


def related_memories(
    engine: Engine, scope: Scope, fact: Fact, user_name: str, vectors: Mapping[str, Vector]
) -> list[RelatedMemory]:
    """Return the memories of the scope's project that speak of what a fact speaks of, the nearest first.

    First come those that state the same relation of the same source; then those of the same source that state a
    relation with a similar name, or to a destination of the same type; then those that name another entity of the
    fact. Among these, those first that resemble the fact most. Blocking. Raises LedgerError.
    """
    with engine.ledger.read() as conn:
        found = _found(conn, scope, fact, user_name)
        ids = sorted(found, key=lambda memory_id: found[memory_id])[:MAX_COMPARED]
        memories = list(memory_queries.memories_by_id(conn, ids).values())
        stored = vector_queries.own_vectors(conn, engine.embedder.fingerprint, "memory", ids)
    if not memories:
        return []
    known = {memory.text: stored[memory.id] for memory in memories if memory.id in stored}
    texts = [fact.text, *(memory.text for memory in memories)]
    likeness = likeness_among(engine.ledger, engine.embedder, scope, texts, {**known, **vectors})[0, 1:]
    related = [
        RelatedMemory(memory, found[memory.id], float(alike)) for memory, alike in zip(memories, likeness, strict=True)
    ]
    return sorted(related, key=lambda item: (item.nearness, -item.likeness))


def _found(conn: Connection, scope: Scope, fact: Fact, user_name: str) -> dict[str, Nearness]:
    """Return how near memories are to a fact, by their ids, those of the newest memories first."""
    names = [entity.name for entity in fact.entities]
    names += [end for relation in fact.relations for end in (relation.source, relation.destination)]
    keys = {name_key(name) for name in names} - {""}
    if not keys:
        return {}
    own_keys = keys & {*SELF_NAMES, name_key(user_name)}
    similar = _similar_names(conn, scope, keys - own_keys)
    groups = conflicts.groups_named(conn, scope, [*keys, *similar, USERS_NAME])
    own = groups.pop(USERS_NAME, _NOBODY)
    others = {entity_id for key in groups.keys() - own_keys for entity_id in groups[key]} - own
    stated = _stated(fact, {**groups, **{key: groups.get(key, _NOBODY) | own for key in own_keys}})
    sources = {entity_id for item in stated for entity_id in item.source_ids}
    found: dict[str, Nearness] = {}
    for relation in (
        *conflicts.same_relations_from(conn, scope, sources, {item.key for item in stated}),
        *conflicts.relations_from(conn, scope, sources),
    ):
        near = [nearness for item in stated if (nearness := item.nearness(relation)) is not None]
        if near:
            found[relation.memory_id] = min(*near, found.get(relation.memory_id, Nearness.SAME_ENTITY))
    for memory_id in conflicts.memories_naming(conn, scope, others):
        found.setdefault(memory_id, Nearness.SAME_ENTITY)
    return found


def _similar_names(conn: Connection, scope: Scope, keys: AbstractSet[str]) -> list[str]:
    """Return longer names that begin with one of these, and beginnings of these: a person is called by either."""
    shorter = {
        " ".join(words[:count])
        for words in (key.split() for key in keys)
        for count in range(1, min(len(words), MAX_BEGINNING_WORDS + 1))
    }
    return [*conflicts.names_extending(conn, scope, keys), *(shorter - SELF_NAMES)]


def _stated(fact: Fact, groups: Mapping[str, frozenset[str]]) -> list[_Statement]:
    types: dict[str, EntityType] = {name_key(entity.name): entity.type for entity in fact.entities}
    return [
        _Statement(
            groups.get(name_key(relation.source), _NOBODY),
            relation_key(relation.name),
            _words(relation.name),
            _words(relation.destination),
            types.get(name_key(relation.destination), "other"),
        )
        for relation in fact.relations
    ]


def _words(name: str) -> frozenset[str]:
    """Return the words of a name that say something."""
    return frozenset(without_function_words(search_tokens(name.replace("_", " "))))
