"""Find the memories that resemble a text, and those that a new one repeats or contradicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import cast

import numpy as np

from palimpsest.core.models import Kind, Memory, Message, Scope
from palimpsest.core.protocols import Vector
from palimpsest.recall.features import (
    THRESHOLD,
    CandidateRequest,
    Candidates,
    Column,
    Matrix,
    PoolSize,
    centred,
    rank,
    replacement_probability,
    shared_words,
    stacked,
    weights_for,
)
from palimpsest.recall.fold import same_words_key
from palimpsest.recall.retrieve import Searchable, retrieve, stored_centre
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.text.tokenizer import search_tokens

NEAREST = 50
"""How many entries the index is asked for. Messages are among them, and only memories are kept."""

CANDIDATES_PER_RESULT = 2
"""How many candidates of each retrieval are kept for every requested memory: the first by words may be the second by
likeness."""


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    """A memory and how much it resembles a text: 0 if unrelated, about 0.3 for the same subject, 1 for the same.

    For a near-duplicate, `same` is how much it looks as if both say the same, and `replaced` how probable it is that
    the newer text replaces it; each is 0 if it is too little to be named. `likeness` is the greater of the two.
    """

    memory: Memory
    likeness: float
    same: float = 0.0
    replaced: float = 0.0


def likeness_parts(candidates: Candidates) -> dict[str, Column]:
    """Return the two halves of the likeness of whole texts: of the cosine and of the share of the words in common.

    A candidate without a vector is scored by its words alone.
    """
    shared = np.array([_shared_words(candidates.weights, words) for words in candidates.words])
    if candidates.vectors is None or candidates.queries is None:
        return {"words": shared}
    cosines = candidates.vectors @ candidates.queries[0]
    return {"meaning": cosines / 2, "words": np.where(candidates.has_vector, shared / 2, shared)}


def similar_memories(
    searchable: Searchable, scope: Scope, vectors: Mapping[str, Vector | None], limit: int
) -> dict[str, list[SimilarMemory]]:
    """Return for each text the memories visible to the scope that resemble it most, best first.

    `vectors` maps each text to its vector, of shape (dims,), or to None if it could not be embedded. Blocking. Raises
    LedgerError; a damaged full text is one too, because a likeness without words is no basis for a decision.
    """
    ranked = _ranked(searchable, scope, vectors, "memory", limit)
    with searchable.ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, _ids(ranked))
    living = {memory_id: memory for memory_id, memory in memories.items() if memory.deleted_at is None}
    return {
        text: [SimilarMemory(living[owner], likeness) for owner, likeness in found if owner in living]
        for text, found in ranked.items()
    }


def similar_messages(
    searchable: Searchable, scope: Scope, vectors: Mapping[str, Vector | None], limit: int
) -> dict[str, list[tuple[Message, float]]]:
    """Return for each text the messages that resemble it most, with their likeness; see `similar_memories`."""
    ranked = _ranked(searchable, scope, vectors, "message", limit)
    with searchable.ledger.read() as conn:
        messages = message_queries.messages_by_id(conn, _ids(ranked))
    living = {message_id: message for message_id, message in messages.items() if message.deleted_at is None}
    return {
        text: [(living[owner], likeness) for owner, likeness in found if owner in living]
        for text, found in ranked.items()
    }


def likeness_among(searchable: Searchable, scope: Scope, texts: Sequence[str], vectors: Mapping[str, Vector]) -> Column:
    """Return how much texts resemble each other: shape (n, n). Texts without a vector are compared by their words."""
    words = shared_words([frozenset(search_tokens(text)) for text in texts]) if texts else np.zeros((0, 0))
    matrix, has_vector = stacked([vectors.get(text) for text in texts])
    if matrix is None:
        return words
    with searchable.ledger.read() as conn:
        _, centre = stored_centre(conn, searchable, scope)
    unit = centred(matrix, centre.passage)
    both = np.logical_and.outer(has_vector, has_vector)
    return np.where(both, (unit @ unit.T + words) / 2, words)


def _ids(ranked: Mapping[str, Sequence[tuple[str, float]]]) -> list[str]:
    return sorted({owner for found in ranked.values() for owner, _ in found})


def _ranked(
    searchable: Searchable, scope: Scope, vectors: Mapping[str, Vector | None], kind: Kind, limit: int
) -> dict[str, list[tuple[str, float]]]:
    """Return for each text the ids of the entries of a kind that resemble it most, with their likeness.

    Pages of documents are left out: nobody said them.
    """
    kept = CANDIDATES_PER_RESULT * limit
    pool = PoolSize(by_meaning=NEAREST, by_words=kept, kept=kept)
    found: dict[str, list[tuple[str, float]]] = {}
    for text, vector in vectors.items():
        request = CandidateRequest(scope, search_tokens(text), _as_queries(vector), pool, kind=kind, whole_texts=True)
        candidates = _retrieve_all(searchable, request)
        best = [item for item in rank(candidates, likeness_parts) if not item.candidate.is_page][:limit]
        found[text] = [(item.candidate.owner_id, item.score) for item in best]
    return found


def _as_queries(vector: Vector | None) -> Vector | None:
    return None if vector is None else vector[np.newaxis]


def _retrieve_all(searchable: Searchable, request: CandidateRequest) -> Candidates:
    """Return the candidates of a request. Raises LedgerError, also for a damaged full text."""
    candidates = retrieve(searchable, request)
    for error in candidates.errors:
        raise error
    return candidates


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


COMPARED = PoolSize(by_meaning=50, by_words=10, kept=40)
"""How many memories a new one is compared with: what it replaces is nearly always among the nearest three, and the
others say how near is near. Messages are among the nearest too; only memories are kept."""

SAME_MEANING = 0.8
"""Two texts with at least this cosine say the same in other words: the nearest update has 0.69."""


@dataclass(frozen=True, slots=True)
class NewText:
    """The text that a memory was just given, and its vector, of shape (dims,), if it could be embedded."""

    memory_id: str
    text: str
    vector: Vector | None


def near_duplicates(searchable: Searchable, scope: Scope, new: NewText, limit: int) -> list[SimilarMemory]:
    """Return the memories visible to the scope that a new text repeats or probably replaces, the likeliest first.

    Punctuation, case and white space make no difference. Blocking. Raises LedgerError; a damaged full text is one too.
    """
    words, queries = search_tokens(new.text), _as_queries(new.vector)
    request = CandidateRequest(scope, words, queries, COMPARED, kind="memory", whole_texts=True)
    candidates = _retrieve_all(searchable, request)
    row = next((row for row, entry in enumerate(candidates.entries) if entry.owner_id == new.memory_id), None)
    if row is None or len(candidates.entries) == 1:
        return []
    weights = weights_for(searchable.embedder.fingerprint).replacement
    same, replaced = _likeness(candidates, row, weights)
    replaced = np.where(replaced >= weights[THRESHOLD], replaced, 0.0)
    likeness = np.maximum(same, replaced)
    likeness[row] = 0.0
    order = cast("list[int]", np.argsort(-likeness, kind="stable").tolist())[:limit]
    chosen = {candidates.entries[number].owner_id: number for number in order if likeness[number] > 0}
    with searchable.ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, sorted(chosen))
    return [
        SimilarMemory(memories[owner], float(likeness[number]), float(same[number]), float(replaced[number]))
        for owner, number in chosen.items()
        if owner in memories and memories[owner].deleted_at is None
    ]


def _likeness(candidates: Candidates, new: int, weights: Mapping[str, float]) -> tuple[Matrix, Matrix]:
    """Return for each candidate how much it says the same as the new one, and how probably that replaces it.

    Both have the shape (n,).
    """
    texts = [entry.text for entry in candidates.entries]
    is_same = np.array([key == same_words_key(texts[new]) for key in map(same_words_key, texts)], dtype=np.float32)
    if candidates.vectors is None:
        return is_same, np.zeros_like(is_same)
    # All others are older than the new one.
    times = [(number == new, entry.at, entry.seq) for number, entry in enumerate(candidates.entries)]
    is_older = np.array([[older < newer for older in times] for newer in times])
    replaced = replacement_probability(candidates.vectors, candidates.words, texts, is_older, weights)[new]
    cosines = candidates.vectors @ candidates.vectors[new]
    return np.maximum(is_same, np.where(cosines >= SAME_MEANING, cosines, 0.0)), replaced
