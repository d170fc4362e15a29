"""Say whether two names may be those of one entity, as far as their words tell."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet

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


def is_one_spelling(first: str, second: str) -> bool:
    """Return whether two names in Latin letters differ in nothing but accents, punctuation and the order of words."""
    words = _words(first)
    return bool(words) and words == _words(second) and _scripts(words) == {"LATIN"}


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
