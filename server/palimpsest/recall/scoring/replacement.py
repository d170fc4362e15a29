"""How probable it is that a newer text replaces an older one.

"The office is in Winterthur now" replaces "The office is in Zurich": the two are about one matter, they share the words
of it, each is the nearest to the other, and the newer one says that something has changed. A logistic regression over
these signs orders updates in a search and names what a new memory may contradict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from palimpsest.core.protocols import Vector
from palimpsest.recall.fitted.weights import CONSTANT
from palimpsest.text.time_words import change_words

Matrix: TypeAlias = npt.NDArray[Any]
"""One number for each pair of n texts: shape (n, n), with a row for the newer and a column for the older one."""


MAX_CHANGE_WORDS = 3
"""More words of change do not make a change more certain. Set by hand."""


OTHER_VALUE = 0.8
"""The probability if the texts differ in one word, as "User lives in Lyon" and "User lives in Nice" do. Set by hand:
the data set has no such updates, and people store them all the time."""

MIN_COMMON = 2
"""How many words such texts have in common at least. Set by hand: one word says nothing."""


def pair_features(
    vectors: Vector, words: Sequence[Set[str]], texts: Sequence[str], is_older: Matrix
) -> dict[str, Matrix]:
    """Return the features of each pair of n texts, by name.

    `vectors` of shape (n, dims) are centred unit vectors, `words` the search tokens of each text. `is_older[j, i]` is
    whether text i is older than text j.
    """
    cosines, shared = vectors @ vectors.T, shared_words(words)
    likeness = cosines + shared  # each alone often takes another text for the nearest
    changes = np.array([min(change_words(text), MAX_CHANGE_WORDS) for text in texts], dtype=np.float32)[:, np.newaxis]
    return {
        "cosine": cosines,
        "shared": shared,
        "nearest older": _is_nearest(likeness, is_older, axis=1),
        "nearest newer": _is_nearest(likeness, is_older, axis=0),
        "change words": np.broadcast_to(changes, cosines.shape),
        "changed": np.broadcast_to(np.minimum(changes, 1), cosines.shape),
    }


def replacement_probability(
    vectors: Vector, words: Sequence[Set[str]], texts: Sequence[str], is_older: Matrix, weights: Mapping[str, float]
) -> Matrix:
    """Return the probability that the newer text of each pair replaces the older one; 0 where it is not newer."""
    fitted = probability(pair_features(vectors, words, texts, is_older), weights)
    return np.where(is_older, np.maximum(fitted, OTHER_VALUE * _differ_by_one(words)), 0.0)


def probability(features: Mapping[str, Matrix], weights: Mapping[str, float]) -> Matrix:
    """Return the fitted probability that the newer text of each pair replaces the older one."""
    logits = weights[CONSTANT] + sum(weights[name] * column for name, column in features.items())
    return 1 / (1 + np.exp(-logits))


def shared_words(words: Sequence[Set[str]]) -> Matrix:
    """Return for each pair the weight of the common words over the weight of the lighter text; between 0 and 1.

    Words that fewer of the texts have weigh more.
    """
    frequency = Counter(word for text_words in words for word in text_words)
    weights = np.array([math.log(1 + len(words) / (1 + count)) for count in frequency.values()], dtype=np.float32)
    has_word = _has_word(words, list(frequency))
    common = (has_word * weights) @ has_word.T
    totals = common.diagonal()
    lighter = np.minimum(totals[:, np.newaxis], totals[np.newaxis, :])
    return np.divide(common, lighter, out=np.zeros_like(common), where=lighter > 0)


def _has_word(words: Sequence[Set[str]], columns: Sequence[str]) -> Matrix:
    """Return 1 for each text and word that the text has, else 0: shape (n, number of columns)."""
    order = {word: column for column, word in enumerate(columns)}
    has_word = np.zeros((len(words), len(order)), dtype=np.float32)
    for row, text_words in enumerate(words):
        has_word[row, [order[word] for word in text_words]] = 1.0
    return has_word


def _differ_by_one(words: Sequence[Set[str]]) -> Matrix:
    """Return 1 for each pair of texts that have all words but one in common, and two or more in common; else 0."""
    has_word = _has_word(words, list(frozenset[str]().union(*words)))
    common = has_word @ has_word.T
    sizes = common.diagonal()
    larger = np.maximum(sizes[:, np.newaxis], sizes[np.newaxis, :])
    return ((common >= MIN_COMMON) & (larger - common == 1)).astype(np.float32)


def _is_nearest(likeness: Matrix, is_older: Matrix, axis: int) -> Matrix:
    """Return 1 for each pair whose older text (axis 1) or newer text (axis 0) is the nearest of its sort, else 0."""
    comparable = np.where(is_older, likeness, -np.inf)
    return ((comparable == comparable.max(axis=axis, keepdims=True)) & is_older).astype(np.float32)
