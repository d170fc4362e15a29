"""Find the memories that resemble a text: decisions are made on them, and agents are warned of near-duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from palimpsest.core.models import Kind, Memory, Message, Scope
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.recall.retrieval.candidates import NearestEntries, retrieve
from palimpsest.recall.retrieval.features import (
    CandidateRequest,
    Candidates,
    Centre,
    PoolSize,
    centred,
    stacked,
)
from palimpsest.recall.scoring.ranking import Column, rank
from palimpsest.recall.scoring.replacement import shared_words
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.text.tokenizer import search_tokens

NEAREST = 50
"""How many entries the index is asked for. Messages are among them, and only memories are kept. Set by hand."""

CANDIDATES_PER_RESULT = 2
"""How many candidates of each retrieval are kept for every requested memory: the first by words may be the second by
likeness. Set by hand."""


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    """A memory and how much it resembles a text: 0 if unrelated, about 0.3 for the same subject, 1 for the same."""

    memory: Memory
    likeness: float


@dataclass(frozen=True, slots=True)
class LikenessScoring:
    """The scoring of whole texts: the mean of the cosine and of the share of the words in common.

    A candidate without a vector is scored by its words alone.
    """

    def parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return the two halves of the likeness."""
        shared = np.array([_shared_words(candidates.weights, words) for words in candidates.words])
        if candidates.vectors is None or candidates.query_vector is None:
            return {"words": shared}
        cosines = candidates.vectors @ candidates.query_vector
        return {"meaning": cosines / 2, "words": np.where(candidates.has_vector, shared / 2, shared)}


def similar_memories(
    ledger: Ledger,
    embedder: Embedder,
    index: NearestEntries,
    scope: Scope,
    vectors: Mapping[str, Vector | None],
    limit: int,
) -> dict[str, list[SimilarMemory]]:
    """Return for each text the memories visible to the scope that resemble it most, best first.

    `vectors` maps each text to its vector, of shape (dims,), or to None if it could not be embedded. Blocking. Raises
    LedgerError; a damaged full text is one too, because a likeness without words is no basis for a decision.
    """
    ranked = _ranked(ledger, embedder, index, scope, vectors, "memory", limit)
    with ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, _ids(ranked))
    living = {memory_id: memory for memory_id, memory in memories.items() if memory.deleted_at is None}
    return {
        text: [SimilarMemory(living[owner], likeness) for owner, likeness in found if owner in living]
        for text, found in ranked.items()
    }


def similar_messages(
    ledger: Ledger,
    embedder: Embedder,
    index: NearestEntries,
    scope: Scope,
    vectors: Mapping[str, Vector | None],
    limit: int,
) -> dict[str, list[tuple[Message, float]]]:
    """Return for each text the messages that resemble it most, with their likeness; see `similar_memories`."""
    ranked = _ranked(ledger, embedder, index, scope, vectors, "message", limit)
    with ledger.read() as conn:
        messages = message_queries.messages_by_id(conn, _ids(ranked))
    living = {message_id: message for message_id, message in messages.items() if message.deleted_at is None}
    return {
        text: [(living[owner], likeness) for owner, likeness in found if owner in living]
        for text, found in ranked.items()
    }


def likeness_among(
    ledger: Ledger, embedder: Embedder, scope: Scope, texts: Sequence[str], vectors: Mapping[str, Vector]
) -> Column:
    """Return how much texts resemble each other: shape (n, n). Texts without a vector are compared by their words."""
    words = shared_words([frozenset(search_tokens(text)) for text in texts]) if texts else np.zeros((0, 0))
    matrix, has_vector = stacked([vectors.get(text) for text in texts])
    if matrix is None:
        return words
    with ledger.read() as conn:
        stored = vector_queries.centre(conn, scope.user_id, embedder.fingerprint)
    unit = centred(matrix, Centre.of(embedder.fingerprint, stored.entries, stored.mean).passage)
    both = np.logical_and.outer(has_vector, has_vector)
    return np.where(both, (unit @ unit.T + words) / 2, words)


def _ids(ranked: Mapping[str, Sequence[tuple[str, float]]]) -> list[str]:
    return sorted({owner for found in ranked.values() for owner, _ in found})


def _ranked(
    ledger: Ledger,
    embedder: Embedder,
    index: NearestEntries,
    scope: Scope,
    vectors: Mapping[str, Vector | None],
    kind: Kind,
    limit: int,
) -> dict[str, list[tuple[str, float]]]:
    """Return for each text the ids of the entries of a kind that resemble it most, with their likeness.

    Pages of documents are left out: nobody said them.
    """
    kept = CANDIDATES_PER_RESULT * limit
    pool = PoolSize(by_meaning=NEAREST, by_words=kept, kept=kept)
    found: dict[str, list[tuple[str, float]]] = {}
    for text, vector in vectors.items():
        request = CandidateRequest(scope, search_tokens(text), vector, pool, kind=kind, whole_texts=True)
        candidates = retrieve(ledger, embedder, index, request)
        for error in candidates.errors:
            raise error
        best = [item for item in rank(candidates, LikenessScoring()) if not item.candidate.is_page][:limit]
        found[text] = [(item.candidate.owner_id, item.score) for item in best]
    return found


def _shared_words(weights: Mapping[str, float], words: AbstractSet[str]) -> float:
    """Return the weight of the common words over the weight of the lighter text; between 0 and 1.

    `weights` are the inverse document frequencies of one text's words. The other text's own words get the mean of
    them, because looking up the frequency of each would take longer than everything else.
    """
    if not weights or not words:
        return 0.0
    total = sum(weights.values())
    common = [weights[word] for word in weights.keys() & words]
    rest = (len(words) - len(common)) * total / len(weights)
    return sum(common) / min(total, sum(common) + rest)
