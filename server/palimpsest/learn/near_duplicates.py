"""Name the memories that resemble what was just written, so that an agent can settle conflicts and duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Event, Outcome, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.engine import Engine
from palimpsest.recall.similar import SimilarMemory, similar_memories

MAX_SHOWN = 3
"""How many near-duplicates are named for each memory. Set by hand: each costs a line of the agent's context."""

MIN_LIKENESS = 0.25
"""The smallest likeness at which a memory is named. Set by hand, a little below that of two facts on one subject."""


async def with_near_duplicates(
    engine: Engine, scope: Scope, result: WriteResult, vectors: Mapping[str, Vector]
) -> WriteResult:
    """Return the result of a write with the memories that the new texts resemble.

    `vectors` are those the texts were written with. A failure does not undo the write; it is noted.
    """
    try:
        return replace(result, similar=await engine.run(lambda: _similar(engine, scope, result.outcomes, vectors)))
    except LedgerError as error:
        return replace(result, notes=(*result.notes, f"stored, but not compared with what is known: {error}"))


def _similar(
    engine: Engine, scope: Scope, outcomes: Sequence[Outcome], vectors: Mapping[str, Vector]
) -> dict[str, list[SimilarMemory]]:
    """Return for each memory with a new text the others that resemble it. Blocking."""
    ids = {outcome.memory.text: outcome.memory.id for outcome in outcomes if _has_new_text(outcome)}
    if not ids:
        return {}
    texts = {text: vectors.get(text) for text in ids}
    # The memory itself is among the results, and is dropped.
    similar = similar_memories(engine.ledger, engine.embedder, engine.index, scope, texts, MAX_SHOWN + 1)
    return {
        ids[text]: [item for item in items if item.memory.id != ids[text] and item.likeness >= MIN_LIKENESS][:MAX_SHOWN]
        for text, items in similar.items()
    }


def _has_new_text(outcome: Outcome) -> bool:
    changed = outcome.event is Event.UPDATE and outcome.previous != outcome.memory.text
    return outcome.event is Event.ADD or changed
