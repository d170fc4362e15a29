"""Find the memories that resemble a text, and those that a new one repeats or contradicts."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.models import Kind, Memory, Message, Scope
from palimpsest.core.protocols import Vector
from palimpsest.recall import features
from palimpsest.recall.features import CandidateRequest, Candidates, Column, Matrix, PoolSize, Ranked, Weights
from palimpsest.recall.hits import same_words_key
from palimpsest.recall.retrieve import Searchable, retrieve
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.text.relation_updates import is_about_another, says_another_amount
from palimpsest.text.stopwords import ALL_FUNCTION_WORDS
from palimpsest.text.tokenizer import search_tokens

_Owner = TypeVar("_Owner", Memory, Message)

# How many entries the index is asked for. Messages are among them, and only memories are kept.
NEAREST = 50

# How many candidates of each retrieval are kept for every requested memory: the first by words may be the second by
# likeness.
CANDIDATES_PER_RESULT = 2


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    """A memory and how much it resembles a text: 0 if unrelated, about 0.3 for the same subject, 1 for the same.

    For a near-duplicate, `same` is how much it looks as if both say the same, and `replaced` how probable it is that
    the newer text replaces it; each is 0 if it is too little to be named. `likeness` is the greater of the two, and of
    one that is only near the cosine.
    """

    memory: Memory
    likeness: float
    same: float = 0.0
    replaced: float = 0.0

    @property
    def is_only_near(self) -> bool:
        """Return whether nothing but its nearness says that it has to do with the text."""
        return not self.same and not self.replaced


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
    similar = _similar(searchable, scope, vectors, limit, "memory", memory_queries.memories_by_id)
    return {text: [SimilarMemory(memory, likeness) for memory, likeness in found] for text, found in similar.items()}


def similar_messages(
    searchable: Searchable, scope: Scope, vectors: Mapping[str, Vector | None], limit: int
) -> dict[str, list[tuple[Message, float]]]:
    """Return for each text the messages that resemble it most, with their likeness; see `similar_memories`."""
    return _similar(searchable, scope, vectors, limit, "message", message_queries.messages_by_id)


def _similar(
    searchable: Searchable,
    scope: Scope,
    vectors: Mapping[str, Vector | None],
    limit: int,
    kind: Kind,
    read: Callable[[Connection, Sequence[str]], Mapping[str, _Owner]],
) -> dict[str, list[tuple[_Owner, float]]]:
    """Return for each text what resembles it most, with the likeness. `read` returns the owners of entries by id.

    Pages of documents are left out: nobody said them.
    """
    kept = CANDIDATES_PER_RESULT * limit
    pool = PoolSize(by_meaning=NEAREST, by_words=kept, kept=kept)
    ranked: dict[str, list[Ranked]] = {}
    for text, vector in vectors.items():
        best = features.rank(_candidates(searchable, scope, text, vector, pool, kind), likeness_parts)
        ranked[text] = [item for item in best if not item.candidate.is_page][:limit]
    owners = searchable.ledger.read_with(read, sorted({one.candidate.owner_id for of in ranked.values() for one in of}))
    living = {owner_id: owner for owner_id, owner in owners.items() if owner.deleted_at is None}
    return {
        text: [(living[each.candidate.owner_id], each.score) for each in found if each.candidate.owner_id in living]
        for text, found in ranked.items()
    }


def _candidates(
    searchable: Searchable, scope: Scope, text: str, vector: Vector | None, pool: PoolSize, kind: Kind
) -> Candidates:
    """Return what a text is compared with. Raises LedgerError, also for a damaged full text."""
    queries = None if vector is None else vector[np.newaxis]
    request = CandidateRequest(scope, search_tokens(text), queries, pool, kind=kind, whole_texts=True)
    candidates = retrieve(searchable, request)
    for error in candidates.errors:
        raise error
    return candidates


def likeness_among(searchable: Searchable, scope: Scope, texts: Sequence[str], vectors: Mapping[str, Vector]) -> Column:
    """Return how much texts resemble each other: shape (n, n). Texts without a vector are compared by their words."""
    words = features.shared_words([frozenset(search_tokens(text)) for text in texts]) if texts else np.zeros((0, 0))
    matrix, has_vector = features.stacked([vectors.get(text) for text in texts])
    if matrix is None:
        return words
    _, centre = searchable.ledger.read_with(features.stored_centre, searchable.embedder.fingerprint, scope)
    unit = features.centred(matrix, centre.passage)
    both = np.logical_and.outer(has_vector, has_vector)
    return np.where(both, (unit @ unit.T + words) / 2, words)


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


# How many memories a new one is compared with: what it replaces is nearly always among the nearest three, and the
# others say how near is near. Messages are among the nearest too; only memories are kept.
COMPARED = PoolSize(by_meaning=50, by_words=10, kept=40)

# Two texts with at least this cosine say the same in other words: the nearest update has 0.69.
SAME_MEANING = 0.8


# How much common words count beside the cosine in what is nearest to a new text. Of two that are about as near, the one
# of the same person or thing shares a name.
WORDS_OF_NEAR = 0.5


# The share of the cosine from which on two texts may tell states of one thing that is near at least. Chosen with
# `NEARLY_AS_NEAR` on benchmarks/change_pairs.json: nine in ten of what a text changes are shown, in one or two lines.
NEAR = 0.7

# How much less near than the nearest one another may be and still be shown.
NEARLY_AS_NEAR = 0.15


# How many of what a text is compared with may have a word that it shares with what is near to it: nearly all have the
# name of the user. Among a FEW it is fewer.
RARE, FEW = 4, 8

# How many of the next nearest are given that are not near, with a likeness of 0: a text may tell that one has ended.
FAR = 12


# How many of the nearest memories a new one with hints may change. What it changes is the nearest in 98 of 100.
CHANGED_BY_HINTED = 5


def near_duplicates(
    searchable: Searchable, scope: Scope, new: Memory, vector: Vector | None, limit: int, *, nearest: int = 0
) -> list[SimilarMemory]:
    """Return the memories visible to the scope that a new one repeats or probably replaces, the likeliest first.

    `vector`, of shape (dims,), is that of its key, and None if it could not be embedded. Punctuation, case and white
    space make no difference. If there are fewer than `nearest`, those follow that are nearest to it, and some that are
    not near, with a likeness of 0. Blocking. Raises LedgerError; a damaged full text is one too.
    """
    candidates = _candidates(searchable, scope, new.text, vector, COMPARED, "memory")
    row = next((row for row, entry in enumerate(candidates.entries) if entry.owner_id == new.id), None)
    if row is None or len(candidates.entries) == 1:
        return []
    weights = features.weights_for(searchable.embedder.fingerprint)
    same, replaced = _likeness(candidates, row, weights)
    cosines = np.zeros_like(same) if candidates.vectors is None else candidates.vectors @ candidates.vectors[row]
    cosines[row] = -1.0
    if candidates.vectors is not None and new.keywords:
        replaced = np.maximum(replaced, _changed_by_hinted(searchable, candidates, cosines, new, weights.change))
    likeness = np.maximum(same, replaced)
    likeness[row] = 0.0
    # Of several that a text ends, the nearest counts most.
    numbers = [number for number in features.best_first(likeness + cosines / NEAREST)[:limit] if likeness[number] > 0]
    if candidates.vectors is not None and len(numbers) < nearest:
        near = cosines + WORDS_OF_NEAR * features.shared_words(candidates.words)[row]
        others = [number for number in features.best_first(near) if number not in (row, *numbers)]
        known = Counter(word for words in candidates.words for word in words - ALL_FUNCTION_WORDS if word.isalpha())
        rare = RARE if len(candidates.entries) >= FEW else RARE - 1
        shared = [known.keys() & candidates.words[row] & words for words in candidates.words]
        close = [number for number in others if min(map(known.__getitem__, shared[number]), default=0) <= rare]
        close = [number for number in close if cosines[number] >= NEAR * weights.alike][: nearest - len(numbers)]
        close = [number for number in close if near[number] >= near[close[0]] - NEARLY_AS_NEAR]
        likeness[close] = cosines[close]
        numbers += [*close, *(number for number in others[:FAR] if number not in close)]
    chosen = {candidates.entries[number].owner_id: number for number in numbers}
    memories = searchable.ledger.read_with(memory_queries.memories_by_id, sorted(chosen))
    return [
        SimilarMemory(memories[owner], float(likeness[number]), float(same[number]), float(replaced[number]))
        for owner, number in chosen.items()
        if owner in memories and memories[owner].deleted_at is None
    ]


def _likeness(candidates: Candidates, new: int, weights: Weights) -> tuple[Matrix, Matrix]:
    """Return for each candidate how much it says the same as the new one, and how probably that replaces it.

    Both have the shape (n,), with 0 for what is too little to be named. Between two memories with hints only the words
    count here, because their vectors are near as soon as they answer the same question.
    """
    texts = [entry.text for entry in candidates.entries]
    is_same = np.array([key == same_words_key(texts[new]) for key in map(same_words_key, texts)], dtype=np.float32)
    if candidates.vectors is None:
        return is_same, np.zeros_like(is_same)
    # All others are older than the new one.
    times = [(number == new, entry.at, entry.seq) for number, entry in enumerate(candidates.entries)]
    is_older = np.array([[older < newer for older in times] for newer in times])
    words, fitted = candidates.words, weights.replacement
    replaced: Column = features.replacement_probability(candidates.vectors, words, texts, is_older, fitted)[new]
    is_hinted = np.array([entry.has_hints for entry in candidates.entries])
    by_words = features.replaced_by_words(words, texts, is_older)[new]
    replaced = np.where(is_hinted & is_hinted[new], by_words, replaced)
    is_counted = np.array([says_another_amount(texts[new], text) for text in texts])
    replaced = np.where(is_counted, np.maximum(replaced, features.OTHER_VALUE), replaced)
    cosines = candidates.vectors @ candidates.vectors[new]
    for number in np.flatnonzero((replaced >= fitted[features.THRESHOLD]) | (cosines >= SAME_MEANING)).tolist():
        if is_about_another(texts[new], texts[number]):
            replaced[number] = cosines[number] = 0.0
    same = np.maximum(is_same, np.where(cosines >= SAME_MEANING, cosines, 0.0))
    return same, np.where(replaced >= fitted[features.THRESHOLD], replaced, 0.0)


def _changed_by_hinted(
    searchable: Searchable, candidates: Candidates, cosines: Column, new: Memory, weights: Mapping[str, float]
) -> Column:
    """Return how probably a new memory with hints changes each candidate. Shape (n,); 0 is too little to be named.

    `cosines` are those of the keys; the new one's own is -1.
    """
    entries, changed = candidates.entries, np.zeros(len(cosines))
    nearest = [number for number in features.best_first(cosines)[:CHANGED_BY_HINTED] if cosines[number] > -1]
    owners = [entries[number].owner_id for number in nearest]
    known = searchable.ledger.read_with(memory_queries.memories_by_id, owners)
    nearest = [number for number in nearest if entries[number].owner_id in known]
    older = [known[entries[number].owner_id] for number in nearest]
    chances = features.probability(features.change_features(cosines[nearest], new, older), weights)
    for number, memory, chance in zip(nearest, older, chances.tolist(), strict=True):
        if memory.keywords and chance >= weights[features.THRESHOLD] and not is_about_another(new.text, memory.text):
            changed[number] = chance
    return changed
