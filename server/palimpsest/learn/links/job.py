"""Link new memories: hold each against its nearest, and write what connects them as edits of the stage "link"."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from palimpsest.core.errors import StaleDecisionError
from palimpsest.core.models import LINK, Annotation, Memory, Provenance
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.apply import apply_write
from palimpsest.learn.engine import Engine
from palimpsest.learn.links.by_rule import links_by_rule
from palimpsest.learn.links.nearest import Neighbourhood, memories_of, neighbourhoods
from palimpsest.llm.views.links import Shown, links
from palimpsest.store.queries.jobs import Job, JobEnd
from palimpsest.store.views.links import without_annotation
from palimpsest.store.writes.apply import Write

logger = logging.getLogger(__name__)

AT_ONCE = 6
"""How many new memories one call of the model is about. Set by hand: with their neighbours they are at most 36, which
is about a thousand tokens."""

PIECES = 5
"""After how many pieces another job has its turn. Set by hand: with a model, about ten seconds."""

MAX_TRIES = 3
"""How often a piece is looked at again if memories change meanwhile. Set by hand, as for decisions."""

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
