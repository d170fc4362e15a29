"""Give every unit a vector of the present embedder: after a change of embedder, and after its failures."""

from __future__ import annotations

from collections.abc import Callable

from palimpsest.ledger import searching
from palimpsest.ledger.ledger import Ledger
from palimpsest.ledger.units import Embedded
from palimpsest.ports import Embedder
from palimpsest.projection import Progress

BATCH = 64


def embed_waiting(
    ledger: Ledger,
    embedder: Embedder,
    *,
    only_failed: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> int:
    """Embed what has no vector of this embedder, oldest first, and return how many units that were.

    `only_failed` leaves vectors of other embedders alone: two processes with different ones would otherwise embed
    each other's units for ever. Blocking. Raises EmbedderError; what was embedded until then is kept.
    """
    with ledger.read() as conn:
        total = searching.count_waiting(conn, embedder.fingerprint, only_failed=only_failed)
    done = 0
    while not stopped():
        with ledger.read() as conn:
            batch = searching.waiting(conn, embedder.fingerprint, BATCH, only_failed=only_failed)
        if not batch:
            break
        vectors = embedder.embed([unit.text for unit in batch])
        found = [Embedded(unit.seq, unit.text, vector) for unit, vector in zip(batch, vectors, strict=True)]
        ledger.give_vectors(embedder.fingerprint, found)
        done += len(batch)
        if progress is not None:
            progress(done, max(total, done))
    return done
