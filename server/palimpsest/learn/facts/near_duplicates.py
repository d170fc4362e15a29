"""Name the memories that a new one repeats or contradicts, so that an agent can settle it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Event, Outcome, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.engine import Engine
from palimpsest.recall.near_duplicates import NewText, near_duplicates
from palimpsest.recall.similar import SimilarMemory

MAX_SHOWN = 1
"""How many near-duplicates are named for each memory. Set by hand: each costs a line of the agent's context, and the
first is the likeliest."""


async def with_near_duplicates(
    engine: Engine, scope: Scope, result: WriteResult, vectors: Mapping[str, Vector]
) -> WriteResult:
    """Return the result of a write with the memories that the new texts repeat or contradict.

    `vectors` are those the texts were written with. A failure does not undo the write; it is noted.
    """
    try:
        return replace(result, similar=await engine.run(lambda: _similar(engine, scope, result.outcomes, vectors)))
    except LedgerError as error:
        return replace(result, notes=(*result.notes, f"stored, but not compared with what is known: {error}"))


def _similar(
    engine: Engine, scope: Scope, outcomes: Sequence[Outcome], vectors: Mapping[str, Vector]
) -> dict[str, list[SimilarMemory]]:
    """Return for each memory with a new text those that it repeats or contradicts. Blocking."""
    ids = {outcome.memory.text: outcome.memory.id for outcome in outcomes if _has_new_text(outcome)}
    if not ids:
        return {}
    parts = engine.ledger, engine.embedder, engine.index, scope
    return {
        memory_id: near_duplicates(*parts, NewText(memory_id, text, vectors.get(text)), MAX_SHOWN)
        for text, memory_id in ids.items()
    }


def _has_new_text(outcome: Outcome) -> bool:
    changed = outcome.event is Event.UPDATE and outcome.previous != outcome.memory.text
    return outcome.event is Event.ADD or changed
