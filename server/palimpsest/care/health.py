"""The state of an open memory, in one word for each part and without any content."""

from __future__ import annotations

from palimpsest.core.errors import LedgerError
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import vectors as vector_queries


def health(ledger: Ledger, embedder: str, index: str, graph: str | None) -> dict[str, str]:
    """Return the state of the ledger, the vectors of an embedder, the index, and the graph database if there is one.

    The states of the last two are given. Blocking.
    """
    try:
        with ledger.read() as conn:
            waiting = vector_queries.has_missing_vectors(conn, embedder)
            waiting = waiting or vector_queries.has_partial_vectors(conn, embedder)
    except LedgerError:
        return {"status": "failed", "ledger": "unreadable"}
    degraded = waiting or index == "broken" or graph == "failing"
    states = {"ledger": "ok", "vectors": "waiting" if waiting else "complete", "index": index}
    if graph is not None:
        states["graph"] = graph
    return {"status": "degraded" if degraded else "ok", **states}
