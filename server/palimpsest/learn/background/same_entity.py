"""Say whether two names may be those of one entity, as far as their words tell."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet
from functools import lru_cache

NAMES_KEPT = 16_384
"""How many names are kept with their words. Set by hand: a new name is compared with all of a user, time and again."""

_WORD = re.compile(r"\w+")


def may_be_one(first: str, second: str) -> bool:
    """Return whether two names may be one: Zürich and Zurich, Siemens and Siemens AG, Москва and Moscow.

    Names of which each has a word of its own in the same script are two, such as Tom Baker and Tom Smith, and so are
    those that differ in a number: iPhone 14 and iPhone 15. Vectors do not tell these apart.
    """
    words, other_words = _words(first), _words(second)
    own, others = words - other_words, other_words - words
    if any(map(_has_digit, own | others)):
        return False
    return not _scripts(own) & _scripts(others)


@lru_cache(maxsize=NAMES_KEPT)
def spelling(name: str) -> frozenset[str] | None:
    """Return what is equal for names in Latin letters that differ in accents, punctuation and the order of words only.

    It is None for names in other scripts, in which marks make other letters.
    """
    words = _words(name)
    return words if words and _scripts(words) == {"LATIN"} else None


@lru_cache(maxsize=NAMES_KEPT)
def _words(name: str) -> frozenset[str]:
    """Return the words of a name without accents."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    return frozenset(_WORD.findall("".join(letter for letter in plain if not unicodedata.combining(letter))))


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _scripts(words: AbstractSet[str]) -> set[str]:
    """Return the scripts of words, as the Unicode names of their first letters begin."""
    letters = (next(filter(str.isalpha, word), "") for word in words)
    return {unicodedata.name(letter, "").split(" ")[0] for letter in letters if letter}
