"""Link new memories: hold each against its nearest, and write what connects them as edits of the stage "link"."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from palimpsest.core.errors import StaleDecisionError
from palimpsest.core.models import LINK, Annotation, Entity, Link, Memory, Provenance, Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.commit import apply_write
from palimpsest.learn.engine import Engine
from palimpsest.llm.summarize import Shown, links
from palimpsest.recall.similar import SimilarMemory, similar_memories
from palimpsest.store import entries
from palimpsest.store import memories as memory_queries
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_of
from palimpsest.store.jobs import Job, JobEnd
from palimpsest.store.links import without_annotation

# Find what new memories are held against: the memories nearest to each.

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
        stored = entries.own_vectors(conn, engine.embedder.fingerprint, "memory", list(found))
    new = [found[memory_id] for memory_id in memory_ids if memory_id in found]
    new = [memory for memory in new if memory.deleted_at is None and memory.scope == scope]
    vectors = {memory.text: stored.get(memory.id) for memory in new}
    near = similar_memories(engine, scope, vectors, NEAREST + 1)
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


# Link memories without a model: those near to each other that name the same entity, or that are much alike.

MIN_LIKENESS = 0.55
"""From which likeness two memories are linked that name no entity in common."""

MAX_MENTIONS = 12
"""How many memories an entity is named by at most to connect two of them. What everything speaks of connects nothing:
with 25, half of the answers that links bring among the first three hits stay below them (benchmarks/two_hops.py)."""


def links_by_rule(conn: Connection, neighbourhoods: Sequence[Neighbourhood]) -> list[Annotation]:
    """Return the links of new memories, as far as they have any. Contexts and tags stay as they are."""
    ids = {memory.id for near in neighbourhoods for memory in (near.memory, *(item.memory for item in near.nearest))}
    named = entities_of(conn, sorted(ids))
    found = [replace(annotation_of(near.memory), links=tuple(_links(near, named))) for near in neighbourhoods]
    return [annotation for annotation in found if annotation.links]


def _links(near: Neighbourhood, named: Mapping[str, Mapping[Entity, int]]) -> Iterator[Link]:
    own = {entity for entity, count in named.get(near.memory.id, {}).items() if count <= MAX_MENTIONS}
    for item in near.nearest:
        common = sorted({entity.name for entity in named.get(item.memory.id, ()) if entity in own})
        if common:
            yield Link(item.memory.id, f"both mention {', '.join(common)}")
        elif item.likeness >= MIN_LIKENESS:
            yield Link(item.memory.id, "they are much alike")


logger = logging.getLogger(__name__)

AT_ONCE = 6
"""How many new memories one call of the model is about: with their neighbours they are at most 36, which
is about a thousand tokens."""

PIECES = 5
"""After how many pieces another job has its turn: with a model, about ten seconds."""

MAX_TRIES = 3
"""How often a piece is looked at again if memories change meanwhile. As for decisions."""

BACKGROUND = "background"


async def link(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Link the memories of a job that were added or edited since they were last looked at.

    Each piece is an edit of its own. Raises ModelError, PromptError and LedgerError; what was done so far is kept.
    """
    waiting = await engine.read(lambda conn: without_annotation(conn, job.memory_ids))
    pieces = [waiting[start : start + AT_ONCE] for start in range(0, len(waiting), AT_ONCE)]
    annotated = 0
    for done, piece in enumerate(pieces):
        if done >= PIECES and annotated:  # without any, the next attempt would begin with the same ones
            return JobEnd(is_unfinished=True)
        annotated += await _link_piece(engine, model, job, piece)
    return JobEnd()


async def _link_piece(engine: Engine, model: LanguageModel | None, job: Job, piece: Sequence[Memory]) -> int:
    """Link some memories and return how many were annotated. A decision that memories overtook is made again."""
    for _ in range(MAX_TRIES):
        near = await engine.run(partial(neighbourhoods, engine, job.scope, [memory.id for memory in piece]))
        near = [item for item in near if item.nearest]
        if not near:
            return 0
        found, provenance = await _decide(engine, model, job, near)
        read = {memory.id: memory.revision for memory in memories_of(near)}
        write = Write(job.scope, provenance, annotations=tuple(found), read=read)
        try:
            await apply_write(engine, write)
        except StaleDecisionError:
            logger.info("linking again: memories changed meanwhile")
        else:
            return len(found)
    raise StaleDecisionError("memories kept changing while their links were looked for")


async def _decide(
    engine: Engine, model: LanguageModel | None, job: Job, near: Sequence[Neighbourhood]
) -> tuple[list[Annotation], Provenance]:
    if model is None:
        return await engine.read(lambda conn: links_by_rule(conn, near)), Provenance(LINK, caller=BACKGROUND)
    prompt = engine.prompts.get("links")
    found = await links(model, prompt, _shown(near, job, engine.clock()))
    return found, Provenance(LINK, model.name, prompt.fingerprint, BACKGROUND)


def _shown(near: Sequence[Neighbourhood], job: Job, now: datetime) -> Shown:
    """Return what the model is shown: the new memories first, then those near to them, each once."""
    memories = memories_of(near)
    places = {memory.id: place for place, memory in enumerate(memories)}
    waiting = frozenset(job.memory_ids)
    may_change = {
        place for place, memory in enumerate(memories) if place < len(near) or _may_evolve(memory, job, waiting)
    }
    return Shown(
        tuple(memory.in_zone(now.tzinfo) for memory in memories),
        {places[item.memory.id]: [places[other.memory.id] for other in item.nearest] for item in near},
        frozenset(may_change),
    )


def _may_evolve(memory: Memory, job: Job, waiting: frozenset[str]) -> bool:
    """Return whether a neighbour may change.

    What is stored for all projects stays as it is in a project. A memory that waits to be looked at itself, in this job
    or the next, would count as looked at.
    """
    return memory.scope == job.scope and memory.id not in waiting and memory.updated_at <= job.created_at
