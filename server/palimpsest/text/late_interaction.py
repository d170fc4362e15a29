"""How near the words of a text are to those of a question, word by word.

A text that speaks of a "dentist" answers a question about "teeth" though neither its words nor, among thirty others,
their mean say so. Each word that is asked for is held against every word of the text, and the nearest counts: the late
interaction of ColBERT (Khattab & Zaharia 2020), here with the static vectors of single words, and in languages that a
small embedder hardly knows with the spelling, which tells what no stemmer does: "Haus" from "Häuser".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain

import numpy as np

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.text.tokenizer import folded, is_cyrillic, is_inflected, query_words, search_tokens

KIN = 0.2
"""Below this cosine two words have nothing to do with each other."""

AKIN = 0.4
"""Below this share of letters in threes in common two words are not forms of one."""

LEAST = AKIN / (2 - AKIN)
"""The share of a token's threes that a word as like as `AKIN` has at least."""

MAX_WORDS = 60
"""So many words of a text are looked at."""

_WORD = re.compile(r"[^\W_]+")


def meaning_similarity(
    embedder: Embedder, question: str, weights: Mapping[str, float], texts: Sequence[str]
) -> Vector | None:
    """Return for each text the mean likeness of the asked words to their nearest in it, shape (n,), by weight.

    `weights` are those of the question's search tokens. None where the embedder has no vectors of words, or nothing
    is asked for.
    """
    asked = {word: max(weights.get(token, 0.0) for token in tokens) for word, tokens in query_words(question).items()}
    asked = {word: weight for word, weight in asked.items() if weight > 0}
    said = [_WORD.findall(text.lower())[:MAX_WORDS] or [""] for text in texts]
    vectors = embedder.embed_words([*asked, *chain.from_iterable(said)]) if asked and said else None
    if vectors is None:
        return None
    likeness = np.maximum(vectors[len(asked) :] @ vectors[: len(asked)].T, KIN)
    starts = list(accumulate((len(words) for words in said[:-1]), initial=0))
    nearest = np.maximum.reduceat(likeness, starts, axis=0)
    weight = np.array(list(asked.values()), dtype=np.float32)
    return np.asarray(nearest @ weight / weight.sum(), dtype=np.float32)


def spelling_similarity(weights: Mapping[str, float], texts: Sequence[str]) -> Vector | None:
    """Return for each text the mean likeness in spelling of the asked words to their nearest in it, shape (n,).

    `weights` are those of the question's search tokens. None where nothing is asked for.
    """
    if not weights:
        return None
    said = [_Spelt(text) for text in texts]
    nearest = [sum(weight * text.nearest(token) for token, weight in weights.items()) for text in said]
    return np.array(nearest, dtype=np.float32) / np.float32(sum(weights.values()))


class _Spelt:
    """Hold a text as it is spelt; its words are taken apart only where one of them can be a form of what is asked."""

    def __init__(self, text: str) -> None:
        self._text = folded(text)

    def nearest(self, token: str) -> float:
        """Return the likeness of a token to the nearest word, between 0 and 1."""
        threes = _threes(token)
        if is_cyrillic(token):
            if any(is_inflected(token, each) for each in self._tokens):
                return 1.0
        elif sum(three in self._text for three in threes) < LEAST * len(threes):
            return 0.0  # what `AKIN` wants of one word, the whole text has not
        return max((_akin(token, threes, word) for word in self._words), default=0.0) if threes else 0.0

    @cached_property
    def _words(self) -> list[str]:
        return _WORD.findall(self._text)[:MAX_WORDS]

    @cached_property
    def _tokens(self) -> list[str]:
        return search_tokens(self._text)


@lru_cache(maxsize=8_192)
def _threes(word: str) -> frozenset[str]:
    return frozenset(word[at : at + 3] for at in range(len(word) - 2))


def _akin(token: str, threes: frozenset[str], word: str) -> float:
    """Return how likely a word is a form of a token, 0 to 1: Dice's coefficient over threes of letters."""
    if token == word:
        return 1.0
    theirs = _threes(word)
    share = 2 * len(threes & theirs) / (len(threes) + len(theirs))
    return share if share >= AKIN else 0.0
