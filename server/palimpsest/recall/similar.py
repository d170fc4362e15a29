"""Which memories a new fact resembles: what a decision is shown, and what an agent is warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Scope
from palimpsest.core.protocols import Vector
from palimpsest.recall import ranking
from palimpsest.recall.candidates import NearestUnits, Sought, is_wide, nearest_units
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries.entries import Centre
from palimpsest.store.sqlite import full_text
from palimpsest.text.tokenizer import search_tokens

NEAR = 50
"""Units asked of the index: turns are among them, and what changed lately comes besides."""

PRIOR_UNITS = 10
"""The mean of fewer units than about this many says little; it is shrunk as if as many others lay at zero."""


@dataclass(frozen=True, slots=True)
class Similar:
    """Hold a memory and how much it is like a text: 0 for unrelated, about 0.3 for one subject, 1 for the same."""

    memory: Memory
    likeness: float


def similar_memories(
    ledger: Ledger,
    index: NearestUnits,
    fingerprint: str,
    scope: Scope,
    texts: Mapping[str, Vector | None],
    limit: int,
) -> dict[str, list[Similar]]:
    """Return for each text the memories the scope sees that are most like it, nearest first.

    Likeness is the mean of the cosine of the texts' own vectors, centred, and of the share of the words that both
    have, rare words counting more (inverse document frequency); words that only the other has count as this text's
    do in the mean, for looking up each would take longer than all the rest.
    """
    with ledger.read() as conn:
        centre = entry_queries.centre(conn, scope.user_id, fingerprint)
        mean = _shrunk(centre)
        loosely = entry_queries.loosened(conn, scope, centre.units)
        found: dict[str, list[Similar]] = {}
        for text, vector in texts.items():
            asked = None if vector is None else ranking.centred(vector, mean)
            near: list[int] = []
            if asked is not None:
                near = nearest_units(conn, index, scope, Sought(fingerprint, asked, mean, NEAR, "memory"))
            words = search_tokens(text)
            spread = full_text.spread(conn, words)
            by_words = list(full_text.search(conn, loosely, words, 2 * limit, spread))
            if loosely != scope and not is_wide(by_words, len(entry_queries.seen(conn, scope, by_words)), 2 * limit):
                by_words = list(full_text.search(conn, scope, words, 2 * limit, spread))
            units = entry_queries.units(conn, scope, [*near[: 2 * limit], *by_words])
            ids = [unit.owner_id for unit in units.values() if unit.kind == "memory"]
            weights = ranking.rarity(spread, words, centre.units)
            scored = _scored(conn, fingerprint, weights, asked, ids, mean)
            found[text] = sorted(scored, key=lambda item: -item.likeness)[:limit]
    return found


def _scored(
    conn: Connection,
    fingerprint: str,
    weights: Mapping[str, float],
    asked: Vector | None,
    ids: Sequence[str],
    mean: Vector | None,
) -> list[Similar]:
    memories = memory_queries.memories_by_id(conn, ids)
    own = entry_queries.own_vectors(conn, fingerprint, "memory", ids)
    scored: list[Similar] = []
    for memory in memories.values():
        shared = _shared(weights, set(search_tokens(memory.text)))
        if asked is not None and memory.id in own:
            cosine = float(ranking.centred(own[memory.id], mean) @ asked)
            scored.append(Similar(memory, (cosine + shared) / 2))
        else:
            scored.append(Similar(memory, shared))
    return scored


def _shared(weights: Mapping[str, float], theirs: AbstractSet[str]) -> float:
    """Return the weight of the words in both over the weight of the lighter text; between 0 and 1."""
    if not weights or not theirs:
        return 0.0
    mine = sum(weights.values())
    both = [weights[word] for word in weights.keys() & theirs]
    others = (len(theirs) - len(both)) * mine / len(weights)
    return sum(both) / min(mine, sum(both) + others)


def _shrunk(centre: Centre) -> Vector | None:
    return None if centre.mean is None else centre.mean * (centre.units / (centre.units + PRIOR_UNITS))
