"""Embed entries that have no vector of the current embedder, after a change of embedder or a failure."""

from __future__ import annotations

from collections.abc import Callable

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Embedder, Progress
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.writes.entries import Embedded

BATCH = 64

MAX_CONSECUTIVE_REFUSALS = 2
"""If this many single texts fail one after the other, the cause is taken to be the embedder and not the texts."""


def embed_missing(
    ledger: Ledger,
    embedder: Embedder,
    *,
    only_failed: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> int:
    """Embed the entries that have no vector of this embedder, oldest first, and return how many were embedded.

    `only_failed` skips entries that have a vector of another embedder. Without it, two processes with different
    embedders would keep replacing each other's vectors. A text that the embedder refuses is skipped. No ledger
    connection is open while the embedder is called. Blocking.

    Raises EmbedderError at the end if texts were refused, or at once if the embedder seems to be unavailable, and
    LedgerError. The vectors stored so far are kept.
    """
    with ledger.read() as conn:
        total = vector_queries.count_missing_vectors(conn, embedder.fingerprint, only_failed=only_failed)
    done, last, batch_size = 0, 0, BATCH
    refused, consecutive_refusals = 0, 0
    last_error: EmbedderError | None = None
    while not stopped():
        with ledger.read() as conn:
            batch = vector_queries.missing_vectors(
                conn, embedder.fingerprint, batch_size, after=last, only_failed=only_failed
            )
        if not batch:
            break
        try:
            vectors = embedder.embed_passages([entry.text for entry in batch])
        except EmbedderError as error:
            if len(batch) == 1:
                last, last_error = batch[0].seq, error
                refused, consecutive_refusals = refused + 1, consecutive_refusals + 1
                if consecutive_refusals == MAX_CONSECUTIVE_REFUSALS:
                    raise
            batch_size = 1  # find out whether one text or the embedder is the cause
            continue
        embedded = [Embedded(entry.seq, entry.text, vector) for entry, vector in zip(batch, vectors, strict=True)]
        ledger.give_vectors(embedder.fingerprint, embedded)
        last, batch_size, consecutive_refusals = batch[-1].seq, min(2 * batch_size, BATCH), 0
        done += len(batch)
        if progress is not None:
            progress(done, max(total, done))
    if last_error is not None:
        raise EmbedderError(f"{refused} texts were refused and have no vector: {last_error}") from last_error
    return done
