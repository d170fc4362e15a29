"""What the background adds to memories: links between them (edits of the stage "link"), and hints for old ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeAlias

from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.errors import DailyLimitError, InputError, StaleDecisionError
from palimpsest.core.models import Annotation, Decision, Entity, Event, Fact, Link, Memory, Provenance, Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.commit import apply_write, embed_texts
from palimpsest.learn.edit import with_labels
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.llm import summarize as stages
from palimpsest.llm.summarize import Shown
from palimpsest.recall.similar import SimilarMemory, similar_memories
from palimpsest.store import entries, history
from palimpsest.store import jobs as job_queries
from palimpsest.store import memories as memory_queries
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_of
from palimpsest.store.jobs import EDIT, Job, JobEnd
from palimpsest.store.links import without_annotation
from palimpsest.text.display import counted
from palimpsest.text.redaction import is_marker

# Find what new memories are held against: the memories nearest to each.

NEAREST = 5
"""How many memories a new one is held against; k in section 3.2 of A-Mem."""


Neighbourhood: TypeAlias = tuple[Memory, Sequence[SimilarMemory]]
"""A new memory and the living ones nearest to it, the nearest first."""


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
    return [(memory, [item for item in near[memory.text] if item.memory.id != memory.id][:NEAREST]) for memory in new]


def memories_of(near: Sequence[Neighbourhood]) -> list[Memory]:
    """Return the memories of neighbourhoods, each once, the new ones first."""
    memories = [memory for memory, _ in near] + [other.memory for _, nearest in near for other in nearest]
    return list({memory.id: memory for memory in memories}.values())


# Link memories without a model: those near to each other that name the same entity, or that are much alike.

MIN_LIKENESS = 0.55
"""From which likeness two memories are linked that name no entity in common."""

MAX_MENTIONS = 12
"""How many memories an entity is named by at most to connect two of them. What everything speaks of connects nothing:
with 25, half of the answers that links bring among the first three hits stay below them (benchmarks/two_hops.py)."""


def links_by_rule(conn: Connection, neighbourhoods: Sequence[Neighbourhood]) -> list[Annotation]:
    """Return the links of new memories, as far as they have any. Contexts and tags stay as they are."""
    named = entities_of(conn, sorted(memory.id for memory in memories_of(neighbourhoods)))
    found = [
        Annotation(memory.id, memory.context, memory.tags, tuple(_links(memory, nearest, named)))
        for memory, nearest in neighbourhoods
    ]
    return [annotation for annotation in found if annotation.links]


def _links(
    memory: Memory, nearest: Sequence[SimilarMemory], named: Mapping[str, Mapping[Entity, int]]
) -> Iterator[Link]:
    own = {entity for entity, count in named.get(memory.id, {}).items() if count <= MAX_MENTIONS}
    for item in nearest:
        common = sorted({entity.name for entity in named.get(item.memory.id, ()) if entity in own})
        if common:
            yield Link(item.memory.id, f"both mention {', '.join(common)}")
        elif item.likeness >= MIN_LIKENESS:
            yield Link(item.memory.id, "they are much alike")


logger = logging.getLogger(__name__)

LINKED_AT_ONCE = 6
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
    pieces = [waiting[start : start + LINKED_AT_ONCE] for start in range(0, len(waiting), LINKED_AT_ONCE)]
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
        near = [item for item in near if item[1]]
        if not near:
            return 0
        found, provenance = await _decide(engine, model, job, near)
        known = {memory.id: memory for memory in memories_of(near)}
        annotated = [(known[each.memory_id], each) for each in found]
        changed = [(memory, each) for memory, each in annotated if each.context != memory.context]
        keys = [models.key_text(memory.text, memory.keywords, each.context) for memory, each in changed]
        vectors, _ = await embed_texts(engine, keys)  # what cannot be embedded now waits for the background
        read = {memory.id: memory.revision for memory in known.values()}
        write = Write(job.scope, provenance, annotations=tuple(found), read=read, vectors=vectors)
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
        return await engine.read(lambda conn: links_by_rule(conn, near)), Provenance(models.LINK, caller=BACKGROUND)
    prompt = engine.prompts.get("links")
    found = await stages.links(model, prompt, _shown(near, job, engine.clock()))
    return found, Provenance(models.LINK, model.name, prompt.fingerprint, BACKGROUND)


def _shown(near: Sequence[Neighbourhood], job: Job, now: datetime) -> Shown:
    """Return what the model is shown: the new memories first, then those near to them, each once.

    Of those near to them, what is stored for all projects stays as it is in a project. So does a memory that waits to
    be looked at itself, in this job or the next, because it would count as looked at.
    """
    memories = memories_of(near)
    places = {memory.id: place for place, memory in enumerate(memories)}
    waiting = frozenset(job.memory_ids)
    may_change = {
        place
        for place, memory in enumerate(memories)
        if place < len(near)
        or (memory.scope == job.scope and memory.id not in waiting and memory.updated_at <= job.created_at)
    }
    return Shown(
        tuple(memory.in_zone(now.tzinfo) for memory in memories),
        {places[memory.id]: [places[other.memory.id] for other in nearest] for memory, nearest in near},
        frozenset(may_change),
    )


# Give old memories hints: a person asks for it, and a model writes them for a few memories at once.

ENRICHED_AT_ONCE = 12
"""How many memories one call of the model is about: with their hints about a thousand tokens, so that a small model
keeps to the form."""


@dataclass(frozen=True, slots=True)
class Enrichment:
    """How many memories have no hints, how many of them get some, in how many calls of a model, and by which edit.

    `edit` is 0 if nothing was queued.
    """

    without: int
    chosen: int
    edit: int = 0

    @property
    def calls(self) -> int:
        """Return how often a model is asked, if each of its replies can be used."""
        return -(-self.chosen // ENRICHED_AT_ONCE)


async def queue_enrichment(engine: Engine, scope: Scope, limit: int | None, *, dry_run: bool) -> Enrichment:
    """Queue the newest memories that a scope sees and that have no hints, at most `limit`; with `dry_run` count them.

    Raises InputError if there is no model that the background can ask.
    """
    without = await engine.read(lambda conn: history.without_hints(conn, scope))
    chosen = without[:limit]
    if dry_run or not chosen:
        return Enrichment(len(without), len(chosen))
    if engine.own_model is None:
        raise InputError(
            "there is no language model to write hints, so nothing was queued. palimpsest setup chooses one. Without "
            "one, a connected agent can give a memory hints with update_memory"
        )
    ledger, user = engine.ledger, scope.user_id
    edit = await engine.write(lambda: ledger.run_for(user, job_queries.queue_enrichment, scope, chosen, ledger.clock()))
    return Enrichment(len(without), len(chosen), edit)


async def enrich(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Give the next memories of a job hints. What a run does is one edit, whose number the job has.

    Raises ModelError, PromptError and LedgerError; what was done so far is kept.
    """
    waiting = await engine.read(lambda conn: history.left_to_enrich(conn, job.memory_ids, int(job.payload[EDIT])))
    prompt = engine.prompts.get("enrich")
    provenance = Provenance(models.ENRICH, model.name, prompt.fingerprint, BACKGROUND)
    for start in range(0, len(waiting), ENRICHED_AT_ONCE):
        piece = waiting[start : start + ENRICHED_AT_ONCE]
        try:
            found = await stages.enrich(model, prompt, piece)
        except DailyLimitError as error:
            left = counted(len(waiting) - start, "memory")
            raise DailyLimitError(f"{error} {left} still to get hints.") from error
        hints = await engine.run(partial(_cleaned, engine, found))
        if await _give(engine, job, piece, hints, provenance):
            return JobEnd(is_unfinished=start + ENRICHED_AT_ONCE < len(waiting))
        # Without any, the next attempt would begin with the same ones.
    return JobEnd()


def _cleaned(engine: Engine, found: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return hints without secrets, and without those that were nothing else."""
    clean = Cleaner(engine).text
    cleaned = {
        memory_id: tuple(dict.fromkeys(text for text in map(clean, hints) if not is_marker(text)))
        for memory_id, hints in found.items()
    }
    return {memory_id: hints for memory_id, hints in cleaned.items() if hints}


async def _give(
    engine: Engine, job: Job, memories: Sequence[Memory], hints: Mapping[str, tuple[str, ...]], provenance: Provenance
) -> bool:
    """Give memories hints and return whether any got some. What changed since the model was asked stays as it is."""
    edit = int(job.payload[EDIT])
    keys = [models.key_text(each.text, hints[each.id], each.context) for each in memories if each.id in hints]
    vectors, _ = await embed_texts(engine, keys)  # what cannot be embedded now waits for the background
    revisions = {each.id: each.revision for each in memories}
    for _ in range(MAX_TRIES):
        present = await engine.read(lambda conn: history.left_to_enrich(conn, list(hints), edit))
        same = [each for each in present if each.revision == revisions[each.id]]
        decisions = [
            Decision(Event.UPDATE, with_labels(each, Fact(""), each.tags, hints[each.id]), each.id, sets_labels=True)
            for each in same
        ]
        if not decisions:
            return False
        read = {each.id: each.revision for each in same}
        try:
            write = Write(job.scope, provenance, decisions=tuple(decisions), vectors=vectors, read=read, edit=edit)
            await apply_write(engine, write)
        except StaleDecisionError:
            continue
        return True
    raise StaleDecisionError("memories kept changing while hints were written for them")
