"""Which memories a new fact resembles: what a decision is shown, and what an agent is warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palimpsest import ranking
from palimpsest.ledger import lexical, reading, searching
from palimpsest.ledger.ledger import Ledger
from palimpsest.lexicon import tokens
from palimpsest.ports import Vector
from palimpsest.records import Memory, Scope


def similar_memories(
    ledger: Ledger, fingerprint: str, scope: Scope, texts: Mapping[str, Vector | None], limit: int
) -> dict[str, list[tuple[Memory, float]]]:
    """Return for each text the nearest memories the scope sees, with their similarity, nearest first.

    Similarity is the mean of the cosine of the texts' own vectors and the share of the shorter text's words
    that both have; between -1 and 1. It is made for short facts: exact, and the same in every process.
    """
    with ledger.read() as conn:
        seqs, keys = searching.scope_keys(conn, scope, fingerprint, kind="memory")
        found: dict[str, list[tuple[Memory, float]]] = {}
        for text, vector in texts.items():
            words = tokens(text)
            near = ranking.nearest(seqs, keys, vector, 4 * limit) if vector is not None else {}
            by_words = lexical.search(conn, scope, words, 4 * limit)
            units = searching.units(conn, scope, [*near, *by_words])
            ids = [unit.owner_id for unit in units.values() if unit.kind == "memory"]
            memories = reading.memories_by_id(conn, ids)
            own = searching.own_vectors(conn, fingerprint, "memory", ids)
            scored = [(memory, _likeness(words, vector, memory, own)) for memory in memories.values()]
            found[text] = sorted(scored, key=lambda pair: -pair[1])[:limit]
    return found


def _likeness(words: Sequence[str], vector: Vector | None, memory: Memory, own: Mapping[str, Vector]) -> float:
    theirs, mine = set(tokens(memory.text)), set(words)
    overlap = len(theirs & mine) / max(min(len(theirs), len(mine)), 1)
    if vector is None or memory.id not in own:
        return overlap
    return (float(own[memory.id] @ vector) + overlap) / 2
