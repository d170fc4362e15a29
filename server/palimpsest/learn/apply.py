"""What every write of the flows shares: vectors made beforehand, one transaction, and what the caller is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from palimpsest.core.errors import EmbedderError
from palimpsest.core.models import AppliedWrite, Decision, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.engine import Engine
from palimpsest.recall.similar import SimilarMemory
from palimpsest.store.writes.apply import Write


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Hold what a write did: its changes, for each changed memory the others it resembles, and what else to tell."""

    outcomes: tuple[Outcome, ...] = ()
    similar: Mapping[str, Sequence[SimilarMemory]] = field(default_factory=dict[str, Sequence[SimilarMemory]])
    kept_messages: int = 0
    notes: tuple[str, ...] = ()


async def embedded(engine: Engine, texts: Sequence[str]) -> tuple[dict[str, Vector], list[str]]:
    """Return the vectors of texts; where the embedder fails, none and a note."""
    unique = list(dict.fromkeys(texts))
    if not unique:
        return {}, []
    try:
        found = await engine.run(lambda: engine.embedder.embed(unique))
    except EmbedderError as error:
        return {}, [f"found by words only, until it can be embedded: {error}"]
    return dict(zip(unique, found, strict=True)), []


async def apply_decisions(
    engine: Engine, scope: Scope, decisions: Sequence[Decision], provenance: Provenance, notes: Sequence[str] = ()
) -> WriteResult:
    """Carry out what a caller decided. Raises as `Ledger.apply`."""
    texts = [decision.fact.text for decision in decisions if decision.fact is not None and decision.fact.text]
    vectors, told = await embedded(engine, texts)
    write = Write(scope, provenance, decisions=tuple(decisions), vectors=vectors, embedder=engine.embedder.fingerprint)
    applied = await apply_write(engine, write)
    return WriteResult(applied.outcomes, notes=(*notes, *told, *applied.notes))


async def apply_write(engine: Engine, write: Write) -> AppliedWrite:
    """Apply a write in a worker thread."""
    return await engine.run(lambda: engine.ledger.apply(write))
