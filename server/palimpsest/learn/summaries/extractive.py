"""Choose the texts that say most of many, without a model: central, recent, and not contradicted by a newer one.

Central is what many others resemble: degree centrality in the graph of likeness, as in LexRank (Erkan & Radev 2004,
"LexRank: Graph-based Lexical Centrality as Salience in Text Summarization", section 3.1). The first text chosen is the
most central one, and each further one resembles most of what no chosen text resembles yet: the greedy maximum of the
coverage of Lin & Bilmes 2011 ("A Class of Submodular Functions for Document Summarization", section 4.1). Chosen by
centrality alone, a few subjects fill the room.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from palimpsest.core.models import SELF_NAMES, Memory, Scope, name_key, relation_key
from palimpsest.core.protocols import Vector
from palimpsest.learn.summaries.portrait_signs import PEOPLE, POLARITY, is_safety
from palimpsest.recall import features
from palimpsest.store import memories as memory_queries
from palimpsest.text.relation_updates import BESIDES, SINGLE_VALUED, may_end, says_ended
from palimpsest.text.stopwords import change_words, is_denial
from palimpsest.text.tokenizer import count_tokens, query_tokens, search_tokens

# How much of a text the chosen ones may have said: of "Mara's dog is named Rex" the text "Mara has a dog named Rex"
# says all, and "Rex the dog sleeps" says half.
REDUNDANT = 0.7

# What an old text counts for where recency counts; a new one counts for 1: of two equally central facts the newer one
# comes first, and last week's chatter does not displace what a life is about.
LEAST_RECENCY = 0.3


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to choose from, `at` which time it was said, and what showing it costs in tokens; 0: those of its text.

    `vector` is a centred unit vector of shape (dims,), or None. A text with twice the `weight` is worth twice as much.
    """

    text: str
    at: datetime | None = None
    vector: Vector | None = None
    weight: float = 1.0
    tokens: int = 0


def most_telling(
    passages: Sequence[Passage], max_tokens: int, *, now: datetime | None = None, half_life: timedelta | None = None
) -> list[int]:
    """Return the positions of the texts that say most and fit a token count together, the most telling first.

    With `now` and `half_life`, a text that was said so long ago has half the recency of a new one; else time does not
    count. A text is left out if it repeats a chosen one, if a later one says that it has ended, or if it does not fit;
    shorter ones may follow that.
    Of equals the first comes first. `sorted` brings the result into the order of the passages.
    """
    if not passages:
        return []
    cosines = _cosines([passage.vector for passage in passages])
    by_words, covered_by_words = _by_words([passage.text for passage in passages])
    resemblance, said = _mean_of(by_words, cosines), _mean_of(covered_by_words, cosines)
    worth = np.array([passage.weight for passage in passages], dtype=np.float64)
    if now is not None and half_life is not None:
        worth *= LEAST_RECENCY + (1 - LEAST_RECENCY) * _recency(passages, now, half_life)
    costs = np.array([passage.tokens or count_tokens(passage.text) for passage in passages])
    is_open = ~ended([(passage.text, passage.at) for passage in passages])
    covered = np.zeros(len(passages))
    chosen: list[int] = []
    while np.any(is_open := is_open & (costs <= max_tokens)):
        gains: features.Column = (np.maximum(resemblance - covered, 0.0) * worth).sum(axis=1) * worth
        best = int(np.where(is_open, gains.round(6), -1.0).argmax())  # rounded: the same on every machine
        chosen.append(best)
        max_tokens -= int(costs[best])
        covered = np.maximum(covered, resemblance[best])
        is_open &= said[:, best] < REDUNDANT
        is_open[best] = False
    return chosen


def ended(texts: Sequence[tuple[str, datetime | None]]) -> npt.NDArray[np.bool_]:
    """Return for each text whether one that was said later says that it has ended: shape (n,)."""
    has_ended = np.zeros(len(texts), dtype=np.bool_)
    for later, until in texts:
        if until is not None and may_end(later):
            for place, (text, at) in enumerate(texts):
                if at is not None and at < until and not has_ended[place]:
                    has_ended[place] = says_ended(later, text)
    return has_ended


def _by_words(texts: Sequence[str]) -> tuple[features.Matrix, features.Matrix]:
    """Return how n texts compare by their words, of which those that fewer texts have weigh more: both of shape (n, n).

    The first are cosines, alike from both sides. The second has for i and j how much of text i text j says.
    """
    words = [frozenset(query_tokens(text) or search_tokens(text)) for text in texts]
    frequency = Counter(word for of_text in words for word in of_text)
    has_word = features.word_matrix(words, frequency)
    weights = np.array([math.log(1 + len(words) / (1 + count)) for count in frequency.values()])
    common = (has_word * weights) @ has_word.T
    totals = np.maximum(common.diagonal(), features.TINY)[:, np.newaxis]
    return common / np.sqrt(totals * totals.T), common / totals


def _cosines(vectors: Sequence[Vector | None]) -> features.Matrix:
    """Return the cosine of each pair, at least 0, and NaN where one has no vector: shape (n, n)."""
    matrix, has_vector = features.stacked(vectors)
    if matrix is None:
        return np.full((len(vectors), len(vectors)), np.nan)
    return np.where(np.logical_and.outer(has_vector, has_vector), np.maximum(matrix @ matrix.T, 0.0), np.nan)


def _mean_of(words: features.Matrix, cosines: features.Matrix) -> features.Matrix:
    return np.where(np.isnan(cosines), words, (words + cosines) / 2)


def _recency(passages: Sequence[Passage], now: datetime, half_life: timedelta) -> features.Column:
    """Return how recent each text is, from 1 for a new one towards 0: shape (n,). Without a time it is 0."""
    ages = [None if passage.at is None else max(now - passage.at, timedelta()) for passage in passages]
    return np.array([0.0 if age is None else 2.0 ** -(age / half_life) for age in ages], dtype=np.float64)


# Leave out what a newer memory contradicts, so that no two that contradict each other are shown side by side.

# How many memories are compared with each other: more than fit, in some milliseconds.
COMPARED = 80

# Which share of their words two texts have in common at least, of which one denies what the other says: "User drinks
# coffee" and "User no longer drinks coffee" have all, "not allergic to walnuts" and "to peanuts" half.
SAME_MATTER = 0.75

# Which share of its words the shorter text has in common with another one at least, if the two are about one matter:
# the probability alone also joins two texts that are only the least unlike of many.
ONE_MATTER = 0.3

# The same where a list of things has to stay whole: "Hanne moved to Bruges" changes nothing about "Hanne and Pieter
# broke up", though both tell of her.
CHANGED_MATTER = 0.5

_OF_USER = frozenset(search_tokens(" ".join(SELF_NAMES)))


def without_contradicted(
    conn: Connection,
    embedder: str,
    scope: Scope,
    memories: Sequence[Memory],
    now: datetime,
    *,
    only_changes: bool = False,
) -> frozenset[str]:
    """Return the ids of those of the memories that a newer one of them contradicts.

    A plan contradicts nothing. What somebody's safety depends on is contradicted only by what denies it: people have
    several allergies. With `only_changes` the newer one has to deny the older one or to tell of a change: then a list
    of things that are worded alike stays whole. `embedder` is the fingerprint of the embedder.
    """
    held = [memory for memory in memories[:COMPARED] if memory.valid_from is None or memory.valid_from <= now]
    rows = memory_queries.rows_of(conn, [memory.id for memory in held])
    held.sort(key=lambda memory: (memory.stated_at, rows.get(memory.id, 0)))
    if len(held) < 2:  # noqa: PLR2004 - a pair
        return frozenset()
    vectors = features.centred_vectors(conn, embedder, scope, "memory", list(rows))
    return _by_relations(held) | _by_texts(held, vectors, embedder, only_changes=only_changes)


def _by_relations(memories: Sequence[Memory]) -> frozenset[str]:
    """Return those that state another value of a relation with one value than a newer one. The oldest comes first."""
    newest: dict[tuple[str, str], frozenset[str]] = {}
    contradicted: set[str] = set()
    for memory in reversed(memories):
        for key, values in _relations(memory).items():
            # A relation with several destinations tells of a change.
            is_single = key[1] in SINGLE_VALUED and len(values) == 1
            if is_single and newest.setdefault(key, values).isdisjoint(values):
                contradicted.add(memory.id)
    return frozenset(contradicted)


def _relations(memory: Memory) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the destinations of what a memory states, by source and relation."""
    stated: dict[tuple[str, str], set[str]] = {}
    for relation in memory.relations:
        source = name_key(relation.source)
        key = ("user" if source in SELF_NAMES else source, relation_key(relation.name))
        stated.setdefault(key, set()).add(name_key(relation.destination))
    return {key: frozenset(names) for key, names in stated.items()}


class _Claim:
    """What decides whether a memory contradicts another one. `relations` are those that may have several values."""

    def __init__(self, memory: Memory) -> None:
        text, words = memory.text, search_tokens(memory.text)
        self.id, self.at = memory.id, memory.stated_at
        self.plain = frozenset(text.casefold().split())
        self.subject = words[0] if words else ""
        self.words = frozenset(words)
        self.matter = frozenset(query_tokens(text)) - POLARITY - _OF_USER
        self.relations = {key: names for key, names in _relations(memory).items() if key[1] not in SINGLE_VALUED}
        self.is_denial = is_denial(text)
        self.is_safety = is_safety(memory, "")
        self.is_addition = BESIDES.search(text) is not None
        self.is_change = change_words(text) > 0

    def denies(self, other: _Claim) -> bool:
        """Return whether two say the same of one matter, but one of them with a negation."""
        common = len(self.matter & other.matter)
        return self.is_denial != other.is_denial and common >= max(SAME_MATTER * len(self.matter | other.matter), 1)

    def says_otherwise(self, older: _Claim, least_common: float) -> bool:
        """Return whether this one says something else in place of an older one, and not something besides it.

        The two have that share of the words of the shorter one in common at least.
        """
        if not (self.words - older.words and older.words - self.words) or self.is_addition:
            return False
        if all(word.isdecimal() for word in self.words ^ older.words) and self.at == older.at:
            return False  # a list, not a later version
        common, fewer = self.matter & older.matter, min(self.matter, older.matter, key=len)
        if older.is_safety or len(common) < least_common * len(fewer):
            return False
        both = self.relations.keys() & older.relations.keys()
        if any(self.relations[key] != older.relations[key] for key in both):
            return False
        if self.is_change:
            return True
        return self.subject == older.subject and not PEOPLE.count(" ".join(self.plain ^ older.plain))


def _by_texts(
    memories: Sequence[Memory], vectors: Mapping[str, Vector], embedder: str, *, only_changes: bool
) -> frozenset[str]:
    """Return those that a newer one probably replaces, judged by their words and vectors. The oldest comes first."""
    texts = [memory.text for memory in memories]
    claims = [_Claim(memory) for memory in memories]
    weights = features.weights_for(embedder).replacement
    nothing = np.zeros_like(next(iter(vectors.values()), np.zeros(1, np.float32)))
    known = np.stack([vectors.get(memory.id, nothing) for memory in memories])
    is_older = np.tri(len(memories), k=-1, dtype=bool)
    words = [item.words for item in claims]
    replaced = features.replacement_probability(known, words, texts, is_older, weights) >= weights[features.THRESHOLD]
    contradicted: set[str] = set()
    for newer, item in enumerate(claims):
        replaces = replaced[newer] & (item.is_change or not only_changes)
        least_common = CHANGED_MATTER if only_changes else ONE_MATTER
        contradicted.update(
            older.id
            for place, older in enumerate(claims[:newer])
            if older.id not in contradicted
            and (item.denies(older) or (replaces[place] and item.says_otherwise(older, least_common)))
        )
    return frozenset(contradicted)
