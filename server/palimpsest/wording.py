"""How near the words of a text are to those of a question, word by word.

A text that speaks of a "dentist" answers a question about "teeth" though neither its words nor, among thirty others,
their mean say so. Each word that is asked for is held against every word of the text, and the nearest counts: the late
interaction of ColBERT (Khattab & Zaharia 2020), here with the static vectors of single words, and in languages that a
small embedder hardly knows with the spelling, which tells what no stemmer does: "Haus" from "Häuser".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain

import numpy as np

from palimpsest.lexicon import is_inflected, question_words, tokens
from palimpsest.ports import Embedder, Vector

KIN = 0.2
"""Below this cosine two words have nothing to do with each other."""

AKIN = 0.4
"""Below this share of letters in threes in common two words are not forms of one."""

MAX_WORDS = 60
"""So many words of a text are looked at."""

_WORD = re.compile(r"[^\W_]+")


def wording(embedder: Embedder, question: str, weights: Mapping[str, float], texts: Sequence[str]) -> Vector | None:
    """Return for each text the mean likeness of the asked words to their nearest in it, shape (n,), by weight.

    `weights` are those of the question's search tokens. None where the embedder has no vectors of words, or nothing
    is asked for.
    """
    asked = {
        word: max(weights.get(token, 0.0) for token in tokens) for word, tokens in question_words(question).items()
    }
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


def spelling(weights: Mapping[str, float], texts: Sequence[str]) -> Vector | None:
    """Return for each text the mean likeness in spelling of the asked words to their nearest in it, shape (n,).

    `weights` are those of the question's search tokens. None where nothing is asked for.
    """
    if not weights:
        return None
    known: dict[tuple[str, str], float] = {}

    def akin(asked: str, said: str) -> float:
        found = known.get((asked, said))
        if found is None:
            found = known[asked, said] = _akin(asked, said)
        return found

    said = [frozenset(tokens(text)) for text in texts]
    nearest = [
        [weight * max((akin(word, each) for each in words), default=0.0) for word, weight in weights.items()]
        for words in said
    ]
    return np.array(nearest, dtype=np.float32).sum(axis=1) / sum(weights.values())


def _akin(one: str, other: str) -> float:
    """Return how likely two tokens are forms of one word, 0 to 1: Dice's coefficient over threes of letters."""
    if one == other or is_inflected(one, other):
        return 1.0
    threes = [{word[at : at + 3] for at in range(len(word) - 2)} for word in (one, other)]
    total = len(threes[0]) + len(threes[1])
    share = 2 * len(threes[0] & threes[1]) / total if total else 0.0
    return share if share >= AKIN else 0.0
