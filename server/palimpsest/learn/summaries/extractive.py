"""Choose the texts that say most of many, without a model: the most central and the most recent of them.

Central is what many others resemble: degree centrality in the graph of likeness, as in LexRank (Erkan & Radev 2004,
"LexRank: Graph-based Lexical Centrality as Salience in Text Summarization", section 3.1). The first text chosen is the
most central one, and each further one resembles most of what no chosen text resembles yet: the greedy maximum of the
coverage of Lin & Bilmes 2011 ("A Class of Submodular Functions for Document Summarization", section 4.1). Chosen by
centrality alone, a few subjects fill the room.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from palimpsest.core.protocols import Vector
from palimpsest.recall.features import TINY, Column, Matrix, stacked
from palimpsest.text.relation_updates import may_end, says_ended
from palimpsest.text.tokenizer import count_tokens, query_tokens, search_tokens

ALIKE = 0.1
"""Likeness below this is none: any two texts of a person have some words in common. The threshold of the paper."""

REDUNDANT = 0.7
"""How much of a text the chosen ones may have said: of "Mara's dog is named Rex" the text "Mara has a dog
named Rex" says all, and "Rex the dog sleeps" says half."""

LEAST_RECENCY = 0.3
"""What an old text counts for where recency counts; a new one counts for 1: of two equally central facts
the newer one comes first, and last week's chatter does not displace what a life is about."""


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
    words = _Words.of([passage.text for passage in passages])
    cosines = _cosines([passage.vector for passage in passages])
    resemblance, said = _mean_of(words.cosines, cosines), _mean_of(words.covered, cosines)
    worth = np.array([passage.weight for passage in passages], dtype=np.float64)
    if now is not None and half_life is not None:
        worth *= LEAST_RECENCY + (1 - LEAST_RECENCY) * _recency(passages, now, half_life)
    costs = np.array([passage.tokens or count_tokens(passage.text) for passage in passages])
    is_open = ~ended([(passage.text, passage.at) for passage in passages])
    covered = np.zeros(len(passages))
    chosen: list[int] = []
    while np.any(is_open := is_open & (costs <= max_tokens)):
        gains: Column = (np.maximum(resemblance - covered, 0.0) * worth).sum(axis=1) * worth
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


def centrality(resemblance: Matrix) -> Column:
    """Return how central each text is, from 0 to 1 for the most central one: shape (n,).

    `resemblance` is what `likeness` returns. If no text resembles another, all are equally central.
    """
    degree: Column = np.where(resemblance >= ALIKE, resemblance, 0.0).sum(axis=1)
    return (degree / max(float(degree.max(initial=0.0)), 1.0)).round(6)  # the same on every machine


def likeness(texts: Sequence[str], vectors: Sequence[Vector | None]) -> Matrix:
    """Return how much each text resembles each other one, from 0 to 1: shape (n, n).

    It is the mean of the cosine of their words and of that of their centred unit vectors, of shape (dims,). Texts
    without a vector are compared by their words.
    """
    return _mean_of(_Words.of(texts).cosines, _cosines(vectors))


@dataclass(frozen=True, slots=True)
class _Words:
    """How n texts compare by their words, of which those that fewer texts have weigh more: both of shape (n, n).

    `covered[i, j]` is how much of text i text j says, and `cosines` are alike from both sides.
    """

    cosines: Matrix
    covered: Matrix

    @classmethod
    def of(cls, texts: Sequence[str]) -> _Words:
        words = [frozenset(query_tokens(text) or search_tokens(text)) for text in texts]
        frequency = Counter(word for of_text in words for word in of_text)
        columns = {word: column for column, word in enumerate(frequency)}
        has_word = np.zeros((len(words), len(columns)))
        for row, of_text in enumerate(words):
            has_word[row, [columns[word] for word in of_text]] = 1.0
        weights = np.array([math.log(1 + len(words) / (1 + count)) for count in frequency.values()])
        common = (has_word * weights) @ has_word.T
        totals = np.maximum(common.diagonal(), TINY)[:, np.newaxis]
        return cls(common / np.sqrt(totals * totals.T), common / totals)


def _cosines(vectors: Sequence[Vector | None]) -> Matrix:
    """Return the cosine of each pair, at least 0, and NaN where one has no vector: shape (n, n)."""
    matrix, has_vector = stacked(vectors)
    if matrix is None:
        return np.full((len(vectors), len(vectors)), np.nan)
    return np.where(np.logical_and.outer(has_vector, has_vector), np.maximum(matrix @ matrix.T, 0.0), np.nan)


def _mean_of(words: Matrix, cosines: Matrix) -> Matrix:
    return np.where(np.isnan(cosines), words, (words + cosines) / 2)


def _recency(passages: Sequence[Passage], now: datetime, half_life: timedelta) -> Column:
    """Return how recent each text is, from 1 for a new one towards 0: shape (n,). Without a time it is 0."""
    ages = [None if passage.at is None else max(now - passage.at, timedelta()) for passage in passages]
    return np.array([0.0 if age is None else 2.0 ** -(age / half_life) for age in ages], dtype=np.float64)
