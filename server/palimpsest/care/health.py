"""The state of an open memory, in one word for each part and without any content."""

from __future__ import annotations

from palimpsest.core.errors import LedgerError
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import vectors as vector_queries


def health(ledger: Ledger, embedder: str, index: str) -> dict[str, str]:
    """Return the state of the ledger, the vectors of an embedder and the index, whose state is given. Blocking."""
    try:
        with ledger.read() as conn:
            waiting = vector_queries.has_missing_vectors(conn, embedder)
            waiting = waiting or vector_queries.has_partial_vectors(conn, embedder)
    except LedgerError:
        return {"status": "failed", "ledger": "unreadable"}
    degraded = waiting or index == "broken"
    vectors = "waiting" if waiting else "complete"
    return {"status": "degraded" if degraded else "ok", "ledger": "ok", "vectors": vectors, "index": index}
