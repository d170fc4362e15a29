"""Say what condition an index on a server is in, for `palimpsest doctor`. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.index.checkpoint import Checkpoint
from palimpsest.index.shared.collections import SharedIndex
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.text.counting import counted


@dataclass(frozen=True, slots=True)
class Condition:
    """What was found. `ok` is False if something is the matter that does not pass by itself."""

    text: str
    ok: bool = True


def condition(ledger: Ledger, index: SharedIndex, initial: Checkpoint) -> Condition:
    """Compare the checkpoint on the server and the number of vectors with the ledger.

    `initial` is the checkpoint of an empty index of these settings. Raises VectorIndexError and LedgerError.
    """
    place = f"Chroma server {index.server.address}"
    state = index.read(is_search=True)
    if state is None:
        return Condition(f"{place}: no index yet; a server builds it at its first search")
    count = index.open(state.build).count()
    checkpoint = state.checkpoint
    if checkpoint is None:
        text = f"a server is building it, or was interrupted, and the next one builds it; {counted(count, 'vector')}"
        return Condition(f"{place}: not complete: {text} so far. Until then searches scan the ledger's vectors")
    with ledger.read() as conn:
        is_ours = checkpoint.is_valid(initial, conn)
        is_outdated = not is_ours and not checkpoint.can_follow(initial.ledger, conn)
        behind = log_queries.newest_log_number(conn) - checkpoint.log_number
        expected = vector_queries.count_indexed(conn, initial.embedder)
    if is_outdated:
        return Condition(f"{place}: of an earlier state of the ledger; the next server rebuilds it")
    if not is_ours:
        text = f"of the embedder {checkpoint.embedder}, or of another version; a server with these settings rebuilds it"
        return Condition(f"{place}: {text}. All servers of a ledger need the same embedder", ok=False)
    if not behind and count != expected:
        text = f"{counted(count, 'vector')}, but the ledger has {expected}; the next server that starts rebuilds it"
        return Condition(f"{place}: {text}", ok=False)
    return Condition(f"{place}: {counted(count, 'vector')}, {counted(behind, 'change')} behind")
