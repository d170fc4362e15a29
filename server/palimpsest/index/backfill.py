"""Give every unit a vector of the present embedder: after a change of embedder, and after its failures."""

from __future__ import annotations

from collections.abc import Callable

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Embedder, Progress
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.writes.entries import Embedded

BATCH = 64

MAX_REFUSED_IN_A_ROW = 2
"""After so many single texts that failed one after the other, it is the embedder and not the texts."""


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
    each other's units for ever. A text the embedder refuses is passed over. Blocking. Raises EmbedderError, at the end
    or when the embedder seems gone; what was embedded is kept.
    """
    with ledger.read() as conn:
        total = entry_queries.count_waiting(conn, embedder.fingerprint, only_failed=only_failed)
    done, last, size = 0, 0, BATCH
    refused, in_a_row = 0, 0
    fault: EmbedderError | None = None
    while not stopped():
        with ledger.read() as conn:
            batch = entry_queries.waiting(conn, embedder.fingerprint, size, after=last, only_failed=only_failed)
        if not batch:
            break
        try:
            vectors = embedder.embed([unit.text for unit in batch])
        except EmbedderError as error:
            if len(batch) == 1:
                refused, in_a_row, last, fault = refused + 1, in_a_row + 1, batch[0].seq, error
                if in_a_row == MAX_REFUSED_IN_A_ROW:
                    raise
            size = 1  # to find out whether it is one text, or the embedder
            continue
        found = [Embedded(unit.seq, unit.text, vector) for unit, vector in zip(batch, vectors, strict=True)]
        ledger.give_vectors(embedder.fingerprint, found)
        last, size, in_a_row = batch[-1].seq, min(2 * size, BATCH), 0
        done += len(batch)
        if progress is not None:
            progress(done, max(total, done))
    if fault is not None:
        raise EmbedderError(f"{refused} texts were refused and stay without a vector: {fault}") from fault
    return done
