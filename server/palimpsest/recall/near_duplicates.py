"""Find the memories that a new one repeats or contradicts, which an agent is told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from palimpsest.core.models import Memory, Scope
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.core.search.hits import Candidate
from palimpsest.recall.fitted.weights import THRESHOLD, weights_for
from palimpsest.recall.folding import same_words_key
from palimpsest.recall.retrieval.candidates import NearestEntries, retrieve
from palimpsest.recall.retrieval.features import CandidateRequest, Candidates, PoolSize
from palimpsest.recall.scoring.replacement import Matrix, replacement_probability
from palimpsest.recall.similar import SimilarMemory
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.text.tokenizer import search_tokens

COMPARED = PoolSize(by_meaning=50, by_words=10, kept=40)
"""How many memories a new one is compared with. Set by hand: what it replaces is nearly always among the nearest
three, and the others say how near is near. Messages are among the nearest too; only memories are kept."""

SAME_MEANING = 0.8
"""Two texts with at least this cosine say the same in other words. Set by hand: the nearest update has 0.69."""


@dataclass(frozen=True, slots=True)
class NewText:
    """The text that a memory was just given, and its vector, of shape (dims,), if it could be embedded."""

    memory_id: str
    text: str
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class AlikeMemory:
    """A memory that a newer text may make superfluous.

    `same` is how much it looks as if both say the same, `replaced` how probable it is that the newer one replaces it;
    each is 0 if it is too little to be named.
    """

    memory: Memory
    same: float
    replaced: float

    @property
    def likeness(self) -> float:
        """Return how probable it is that only one of the two is needed."""
        return max(self.same, self.replaced)


def near_duplicates(
    ledger: Ledger, embedder: Embedder, index: NearestEntries, scope: Scope, new: NewText, limit: int
) -> list[SimilarMemory]:
    """Return the memories visible to the scope that a new text repeats or probably replaces, the likeliest first.

    Blocking. Raises as `alike`.
    """
    return [SimilarMemory(item.memory, item.likeness) for item in alike(ledger, embedder, index, scope, new, limit)]


def alike(
    ledger: Ledger, embedder: Embedder, index: NearestEntries, scope: Scope, new: NewText, limit: int
) -> list[AlikeMemory]:
    """Return the same memories, each with what makes it one of them.

    Punctuation, case and white space make no difference. Blocking. Raises LedgerError; a damaged full text is one too.
    """
    request = CandidateRequest(scope, search_tokens(new.text), new.vector, COMPARED, kind="memory", whole_texts=True)
    candidates = retrieve(ledger, embedder, index, request)
    for error in candidates.errors:
        raise error
    row = next((row for row, entry in enumerate(candidates.entries) if entry.owner_id == new.memory_id), None)
    if row is None or len(candidates.entries) == 1:
        return []
    weights = weights_for(embedder.fingerprint).replacement
    same, replaced = _likeness(candidates, row, weights)
    replaced = np.where(replaced >= weights[THRESHOLD], replaced, 0.0)
    likeness = np.maximum(same, replaced)
    likeness[row] = 0.0
    order = cast("list[int]", np.argsort(-likeness, kind="stable").tolist())[:limit]
    chosen = {
        candidates.entries[number].owner_id: (float(same[number]), float(replaced[number]))
        for number in order
        if likeness[number] > 0
    }
    with ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, sorted(chosen))
    return [AlikeMemory(memories[owner], *parts) for owner, parts in chosen.items() if _lives(memories.get(owner))]


def _lives(memory: Memory | None) -> bool:
    return memory is not None and memory.deleted_at is None


def _likeness(candidates: Candidates, new: int, weights: Mapping[str, float]) -> tuple[Matrix, Matrix]:
    """Return for each candidate how much it says the same as the new one, and how probably that replaces it.

    Both have the shape (n,).
    """
    entries = candidates.entries
    texts = [entry.text for entry in entries]
    is_same = np.array([key == same_words_key(texts[new]) for key in map(same_words_key, texts)], dtype=np.float32)
    if candidates.vectors is None:
        return is_same, np.zeros_like(is_same)
    is_older = _is_older(entries, new)
    replaced = replacement_probability(candidates.vectors, candidates.words, texts, is_older, weights)[new]
    cosines = candidates.vectors @ candidates.vectors[new]
    return np.maximum(is_same, np.where(cosines >= SAME_MEANING, cosines, 0.0)), replaced


def _is_older(entries: Sequence[Candidate], new: int) -> Matrix:
    """Return whether the memory of a column is older than that of a row; all are older than the new one."""
    times = [(number == new, entry.at, entry.seq) for number, entry in enumerate(entries)]
    return np.array([[older < newer for older in times] for newer in times])
