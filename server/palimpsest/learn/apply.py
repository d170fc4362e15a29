"""What every write shares: vectors computed beforehand, one transaction, and the result for the caller."""

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
    """What a write did: its outcomes, for each changed memory the others that resemble it, and notes for the caller."""

    outcomes: tuple[Outcome, ...] = ()
    similar: Mapping[str, Sequence[SimilarMemory]] = field(default_factory=dict[str, Sequence[SimilarMemory]])
    kept_messages: int = 0
    notes: tuple[str, ...] = ()


async def embed_texts(
    engine: Engine, texts: Sequence[str], known: Mapping[str, Vector] | None = None
) -> tuple[dict[str, Vector], list[str]]:
    """Return the vectors of texts, and a note if the embedder failed. Only texts without a known vector are embedded.

    The returned vectors include the known ones. After a failure they are the known ones only.
    """
    vectors = dict(known or {})
    missing = [text for text in dict.fromkeys(texts) if text not in vectors]
    if not missing:
        return vectors, []
    try:
        embedded = await engine.run(lambda: engine.embedder.embed_passages(missing))
    except EmbedderError as error:
        return vectors, [f"found by words only, until it can be embedded: {error}"]
    return vectors | dict(zip(missing, embedded, strict=True)), []


async def apply_decisions(
    engine: Engine,
    scope: Scope,
    decisions: Sequence[Decision],
    provenance: Provenance,
    *,
    vectors: Mapping[str, Vector] | None = None,
    notes: Sequence[str] = (),
) -> WriteResult:
    """Apply what a caller decided; `vectors` are those of the decisions' texts. Raises as `Ledger.apply`."""
    write = Write(
        scope,
        provenance,
        decisions=tuple(decisions),
        vectors=vectors or {},
        embedder=engine.embedder.fingerprint,
    )
    applied = await apply_write(engine, write)
    return WriteResult(applied.outcomes, notes=(*notes, *applied.notes))


async def apply_write(engine: Engine, write: Write) -> AppliedWrite:
    """Apply a write in a worker thread."""
    return await engine.run(lambda: engine.ledger.apply(write))
