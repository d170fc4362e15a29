"""Word lists for names: given names, surnames, places, ordinary words, cues and well-known products."""

from __future__ import annotations

import gzip
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, cast

from palimpsest.core.models import EntityType
from palimpsest.text.tokenizer import stem_in
from palimpsest.text.word_lists import LazyPattern, headings, word_lists, word_sets

# Words that show that a name is beside them and of what, and capitalized words that are no names.

WORDS = word_sets("palimpsest.text.names", "lexicon.txt")
_LISTS = word_lists("palimpsest.text.names", "lexicon.txt")


def _types(beginning: str) -> dict[str, EntityType]:
    """Return the type of each word in the sections that begin with a word and go on with a type."""
    return cast("dict[str, EntityType]", headings(WORDS, beginning))


CUES: dict[str, EntityType | Literal["pet"]] = {**_types("cue ")}
"""What a word says about the name that follows it, by the word in lower case."""

LAST_WORDS, FIRST_WORDS = _types("last "), _types("first ")
"""What the last or the first word of a name says about it, by the word in lower case."""

LAST_PARTS = _types("end ")
"""What the end of a compound says about the name that it is."""

CUES_AFTER = _types("after ")
"""What a word says about the name before it."""

RUSSIAN_CASES = _LISTS["russian cases"].split()
"""Endings, each with that of the nominative: the first that makes a listed name is it."""

TITLES, PERSON, PETS = WORDS["titles"], WORDS["cue person"], WORDS["cue pet"]
"""Words that stand before the name of a person, and are left out before a full name; all cues of persons; of pets."""

# Lists of names and words, which tell a name from a word where the spelling does not.
#
# `benchmarks/fitting/word_lists.py` wrote them. Each says in its first line what it was made from. A list is
# unpacked when it is first needed, and searched as it is: making sets of all lists would take 60 ms, and unpacking
# them takes 5.

_FOLDER = Path(__file__).parent / "data"


_SHORT_ENDS = tuple(_LISTS["short ends"].split())
"""German nouns of two or three letters with which compounds end."""


@cache
def _read(name: str) -> bytes:
    """Return a list: sorted lines in UTF-8, without the first one, between line ends."""
    text = gzip.decompress((_FOLDER / f"{name}.txt.gz").read_bytes())
    return text[text.index(b"\n") :]


@lru_cache(maxsize=16_384)
def _has(name: str, entry: str) -> bool:
    """Return whether a list has an entry, by halving the part where it may be."""
    lines, wanted = _read(name), entry.encode("utf-8", "surrogatepass")
    low, high = 0, len(lines) - 1  # line ends, between which the entry may be
    while low < high:
        end = lines.find(b"\n", (low + high) // 2 + 1)
        start = lines.rfind(b"\n", low, end)
        line = lines[start + 1 : end]
        if line == wanted:
            return True
        low, high = (end, high) if line < wanted else (low, start)
    return False


def is_given_name(word: str) -> bool:
    """Return whether a word is a given name in some language."""
    return _has("given", word)


def is_place(name: str) -> bool:
    """Return whether a name is that of a country or a city."""
    return _has("places", name)


def is_surname(name: str) -> bool:
    """Return whether a name is a family name in China, Korea or Japan."""
    return _has("surnames", name)


def is_also_word(word: str) -> bool:
    """Return whether a given name or a place is also a common word."""
    folded = word.casefold()
    return folded in WORDS["also words"] or folded in WORDS["english words"] or folded in WORDS["german words"]


_GERMAN_NOUN = LazyPattern(
    r"(?:ung|heit|keit|schaft|tion|tät|ment|ling|chen|nis|ismus|iat|thie|nie|gie|phie|trie|lie|enz|anz|innen|rei|erin|arin|orin|eur|gramm"
    r"|ik|iker|ismus|ium|är|logie|loge|eile|itis|ur|ler|thekar|thekarin)(?:e?[ns])?$"
)
"""How German nouns end, and names seldom do."""


@lru_cache(maxsize=8_192)
def is_english_word(word: str, *, compounds: bool = False) -> bool:
    """Return whether a word is a form of an English word, or, with `compounds`, of two of them."""
    folded = word.casefold()
    if folded in WORDS["newer words"] or folded in WORDS["english words"] or _is_listed("english", folded):
        return True
    return compounds and any(
        _is_listed("english", folded[:middle]) and _is_listed("english", folded[middle:])
        for middle in range(3, len(folded) - 3)
    )


@lru_cache(maxsize=8_192)
def is_german_word(word: str, *, compounds: bool = True) -> bool:
    """Return whether a word is a form of a German word, or, with `compounds`, of one that ends with one."""
    folded = word.casefold()
    if folded in WORDS["newer words"] or folded in WORDS["german words"] or _is_listed("german", folded):
        return True
    if not compounds:
        return False
    if folded.endswith(_SHORT_ENDS) or _GERMAN_NOUN.search(folded):
        return True
    return any(
        folded[n:] in WORDS["german words"] or _is_listed("german", folded[n:]) for n in range(2, len(folded) - 3)
    )


def _is_listed(language: str, word: str) -> bool:
    return _has(language, stem_in(language, word)) or _has(language, word)


# Products and companies that everybody knows by name, so that a text need not say what they are.


def _names(words: str) -> frozenset[str]:
    return frozenset(name.strip() for name in words.replace("\n", ",").split(",") if name.strip())


WELL_KNOWN_UNCASED: dict[str, EntityType] = {
    **dict.fromkeys(_names(_LISTS["uncased products"]), "product"),
    **dict.fromkeys(_names(_LISTS["uncased organizations"]), "organization"),
}
"""The type of each name in a script without capitals. None of them is also a common word, or part of one."""

WELL_KNOWN: dict[str, EntityType] = {
    **dict.fromkeys(_names(_LISTS["products"]), "product"),
    **dict.fromkeys(_names(_LISTS["organizations"]), "organization"),
}
"""The type of each name, as it is written."""

UNMISTAKABLE = frozenset(name.lower() for name in _names(_LISTS["unmistakable"]))
"""Names of programs that are nothing else in lower case, in which they are often written."""
