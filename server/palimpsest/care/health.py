"""The state of an open memory, in a word or a number for each part and without any content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from palimpsest.core.errors import LedgerError
from palimpsest.index.sync import Projection
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import jobs as job_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.queries.jobs import JobKind, JobState, ModelUse


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


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many rows an index lags behind, the jobs of all users that are not done, and the use of the model."""

    index_lag: int
    jobs: Mapping[tuple[JobKind, JobState], int]
    model_use: ModelUse


def numbers(ledger: Ledger, now: datetime, index: Projection) -> Numbers:
    """Return the numbers of a ledger and of an index that follows it. Blocking. Raises LedgerError."""
    with ledger.read() as conn:
        newest = log_queries.newest_log_number(conn)
        jobs = job_queries.count_unfinished(conn)
        use = job_queries.model_use(conn, now)
    return Numbers(index.lag(newest), jobs, use)
