"""Find what new memories are held against: the memories nearest to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.core.models import Annotation, Memory, Scope
from palimpsest.learn.engine import Engine
from palimpsest.recall.similar import SimilarMemory, similar_memories
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import vectors as vector_queries

NEAREST = 5
"""How many memories a new one is held against; k in section 3.2 of A-Mem."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A new memory and the living ones nearest to it, the nearest first."""

    memory: Memory
    nearest: tuple[SimilarMemory, ...]


def neighbourhoods(engine: Engine, scope: Scope, memory_ids: Sequence[str]) -> list[Neighbourhood]:
    """Return the neighbourhoods of those memories that are living and of exactly this scope, in order.

    It is the search by which a decision finds what a fact resembles. Blocking. Raises LedgerError.
    """
    with engine.ledger.read() as conn:
        found = memory_queries.memories_by_id(conn, list(memory_ids))
        stored = vector_queries.own_vectors(conn, engine.embedder.fingerprint, "memory", list(found))
    new = [found[memory_id] for memory_id in memory_ids if memory_id in found]
    new = [memory for memory in new if memory.deleted_at is None and memory.scope == scope]
    vectors = {memory.text: stored.get(memory.id) for memory in new}
    near = similar_memories(engine.ledger, engine.embedder, engine.index, scope, vectors, NEAREST + 1)
    return [
        Neighbourhood(memory, tuple(item for item in near[memory.text] if item.memory.id != memory.id)[:NEAREST])
        for memory in new
    ]


def annotation_of(memory: Memory) -> Annotation:
    """Return the annotation that a memory has."""
    return Annotation(memory.id, memory.context, memory.tags, memory.links)


def memories_of(near: Sequence[Neighbourhood]) -> list[Memory]:
    """Return the memories of neighbourhoods, each once, the new ones first."""
    memories = [item.memory for item in near] + [other.memory for item in near for other in item.nearest]
    return list({memory.id: memory for memory in memories}.values())
