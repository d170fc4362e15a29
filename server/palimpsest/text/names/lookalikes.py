"""Spell names loosely: two that share a spelling may be those of one, with or without accents, titles, legal forms."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from palimpsest.core.entities import plain_name

NAMES_KEPT = 16_384
"""How many names are kept with their loose spellings: a new name is compared with many of a user, time and again."""

BEGINNINGS = ("dr.", "dr ", "pro")
"""How names begin that have a title or the like before them, in their first three characters."""
_DROPPED = frozenset(("dr", "prof", "project", "projekt"))
_FORMS = frozenset(
    (
        "gmbh",
        "ag",
        "kg",
        "se",
        "inc",
        "corp",
        "corporation",
        "ltd",
        "limited",
        "llc",
        "plc",
        "co",
        "company",
        "sa",
        "srl",
    )
) | {"spa", "bv", "nv", "ab", "oy", "as", "project", "projekt"}
"""Legal forms at the end of a name, and what else may be left out there."""

_AND = frozenset(("&", "+", "und", "and", "et", "y", "e", "en", "och"))
_WORD = re.compile(r"\w+|[&+]")
_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "ß": "ss", "þ": "th"})  # noqa: RUF001 - Turkish
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_MARKS = re.compile("[\u0300-\u036f]")


def first_letters(name: str) -> set[str]:
    """Return the letters with which the keys of names begin that one may be the same as, but for titles."""
    return {letter for spelling in spellings(name) for letter in _variants().get(spelling[:1], {spelling[:1]})}


@lru_cache(maxsize=NAMES_KEPT)
def spellings(name: str) -> frozenset[str]:
    """Return the name without accents, without what may be left out, and with umlauts as one letter and as two."""
    words = ["and" if word in _AND else word for word in _WORD.findall(plain_name(name))]
    while len(words) > 1 and words[0] in _DROPPED:
        words = words[1:]
    while len(words) > 1 and (words[-1] in _FORMS or words[-1] == "and"):
        words = words[:-1]
    text = " ".join("brothers" if word == "bros" else word for word in words)
    return frozenset(filter(None, (_folded(text), _folded(text.translate(_UMLAUTS)))))


def _folded(text: str) -> str:
    return _MARKS.sub("", unicodedata.normalize("NFKD", text.translate(_LETTERS)))


@cache
def _variants() -> dict[str, set[str]]:
    """Return the letters that are each letter without its accents."""
    variants: dict[str, set[str]] = {}
    for letter in map(chr, (*range(0x61, 0x7B), *range(0xDF, 0x250), *range(0x430, 0x460), *range(0x3AC, 0x3D0))):
        variants.setdefault(_folded(letter)[:1], set()).add(letter)
    return variants
