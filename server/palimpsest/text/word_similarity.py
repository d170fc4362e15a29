"""Compare a question with texts word by word, by the meaning of the words or by their spelling.

A text that mentions a "dentist" answers a question about "teeth", although the two share no word and the mean vector of
a long text hides one word among thirty. So each word of the question is compared with every word of the text, and only
its best match counts. This is the late interaction of ColBERT (Khattab & Zaharia 2020) with static vectors of single
words. For languages that a small embedder hardly knows, the spelling is compared instead. It relates word forms that no
stemmer does, such as "Häuser" and "Haus".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain

import numpy as np

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.text.tokenizer import (
    differ_by_fleeting_vowel,
    fold_case_and_marks,
    is_cyrillic,
    query_words,
    search_tokens,
)

UNRELATED_COSINE = 0.2
"""Lower cosines count as this one. 99 % of the pairs of unrelated English words lie below it; differences there say
nothing."""

MIN_SHARED_TRIGRAMS = 0.4
"""The smallest Dice coefficient at which a word can be a form of another. "geschwommen" and "schwimmen" have 0.5; of
two words picked at random, fewer than 3 in 1,000 reach it."""

MIN_TOKEN_COVERAGE = MIN_SHARED_TRIGRAMS / (2 - MIN_SHARED_TRIGRAMS)
"""The share of a token's trigrams that every word with `MIN_SHARED_TRIGRAMS` contains.

If a word shares the part s of the token's trigrams, the Dice coefficient is at most 2s / (1 + s)."""

MAX_WORDS = 60
"""The number of words of a text that are compared. It bounds the work for each candidate of a search."""

TINY = 1e-9
"""A vector shorter than this has no direction."""

_WORD = re.compile(r"[^\W_]+")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())[:MAX_WORDS] or [""]


def _starts(words: Sequence[Sequence[str]]) -> list[int]:
    """Return where the words of each text begin among those of all."""
    return list(accumulate((len(some) for some in words[:-1]), initial=0))


def gist_similarity(embedder: Embedder, question: str, texts: Sequence[str]) -> Vector | None:
    """Return how similar each text is to the question as a whole, as an array of shape (n,).

    The similarity is the cosine of the mean vectors of their words. It sees other things than an embedder of sentences
    does, so the two together find more. Return None if the embedder has no word vectors.
    """
    words = [_words(text) for text in (question, *texts)]
    vectors = embedder.embed_words(list(chain.from_iterable(words)))
    if vectors is None:
        return None
    sums = np.add.reduceat(vectors, _starts(words), axis=0)
    means = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), TINY)
    return np.asarray(means[1:] @ means[0], dtype=np.float32)


def meaning_similarity(
    embedder: Embedder, question: str, texts: Sequence[str], weights: Mapping[str, float]
) -> Vector | None:
    """Return how similar each text is to the question in the meaning of its words, as an array of shape (n,).

    The similarity is the weighted mean, over the words of the question, of the highest cosine with a word of the text.
    `weights` maps the search tokens of the question to their weights. Return None if the embedder has no word vectors,
    or if no word of the question has a weight.
    """
    word_weights = {
        word: weight
        for word, tokens in query_words(question).items()
        if (weight := max(weights.get(token, 0.0) for token in tokens)) > 0
    }
    text_words = [_words(text) for text in texts]
    if not word_weights or not text_words:
        return None
    vectors = embedder.embed_words([*word_weights, *chain.from_iterable(text_words)])
    if vectors is None:
        return None
    question_vectors, text_vectors = vectors[: len(word_weights)], vectors[len(word_weights) :]
    cosines = np.maximum(text_vectors @ question_vectors.T, UNRELATED_COSINE)
    best_cosines = np.maximum.reduceat(cosines, _starts(text_words), axis=0)
    weight = np.array(list(word_weights.values()), dtype=np.float32)
    return np.asarray(best_cosines @ weight / weight.sum(), dtype=np.float32)


def least_similar_word(embedder: Embedder, question: str, text: str) -> float | None:
    """Return the cosine with its nearest word of the text for the word of the question that has the lowest one.

    A word with a search token of the text counts as 1. Return None if the embedder has no word vectors, or if the
    question has no words.
    """
    tokens = set(search_tokens(text))
    words = query_words(question)
    missing = [word for word, word_tokens in words.items() if tokens.isdisjoint(word_tokens)]
    if not words or not missing:
        return 1.0 if words else None
    vectors = embedder.embed_words([*missing, *_words(text)])
    if vectors is None:
        return None
    return float((vectors[: len(missing)] @ vectors[len(missing) :].T).max(axis=1).min())


def spelling_similarity(weights: Mapping[str, float], texts: Sequence[str]) -> Vector | None:
    """Return how similar each text is to the question in the spelling of its words, as an array of shape (n,).

    The similarity is the weighted mean, over the search tokens of the question, of the similarity to the nearest word
    of the text. `weights` maps these tokens to their weights. Return None if there are none.
    """
    if not weights:
        return None
    spelled_texts = [_SpelledText(text) for text in texts]
    sums = [sum(weight * text.similarity(token) for token, weight in weights.items()) for text in spelled_texts]
    return np.array(sums, dtype=np.float32) / np.float32(sum(weights.values()))


class _SpelledText:
    """A text whose spelling is compared. It is split into words only if one of them can be similar to a token."""

    def __init__(self, text: str) -> None:
        self._text = fold_case_and_marks(text)

    def similarity(self, token: str) -> float:
        """Return the similarity of a token to the nearest word, between 0 and 1."""
        trigrams = _trigrams(token)
        if is_cyrillic(token):
            if any(differ_by_fleeting_vowel(token, text_token) for text_token in self._search_tokens):
                return 1.0
        elif sum(trigram in self._text for trigram in trigrams) < MIN_TOKEN_COVERAGE * len(trigrams):
            return 0.0  # the whole text has fewer of the trigrams than a similar word alone would have
        return max((_word_similarity(token, trigrams, word) for word in self._words), default=0.0) if trigrams else 0.0

    @cached_property
    def _words(self) -> list[str]:
        return _WORD.findall(self._text)[:MAX_WORDS]

    @cached_property
    def _search_tokens(self) -> list[str]:
        return search_tokens(self._text)


@lru_cache(maxsize=8_192)
def _trigrams(word: str) -> frozenset[str]:
    return frozenset(word[start : start + 3] for start in range(len(word) - 2))


def _word_similarity(token: str, trigrams: frozenset[str], word: str) -> float:
    """Return the Dice coefficient of the trigrams of a token and a word, or 0 if they are too different."""
    if token == word:
        return 1.0
    word_trigrams = _trigrams(word)
    dice = 2 * len(trigrams & word_trigrams) / (len(trigrams) + len(word_trigrams))
    return dice if dice >= MIN_SHARED_TRIGRAMS else 0.0
