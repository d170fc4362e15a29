"""Word lists for names: given names, surnames, places, ordinary words, cues and well-known products."""

from __future__ import annotations

import gzip
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - it ships none

from palimpsest.core.models import EntityType
from palimpsest.text.word_lists import LazyPattern, word_lists

_LISTS = word_lists("palimpsest.text.names", "lexicon.txt")

# Words that show that a name is beside them and of what, and capitalized words that are no names.

CueType: TypeAlias = EntityType | Literal["pet"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TITLES = _set(_LISTS["titles"])
"""Words that stand before the name of a person, and are left out before a full name."""

PERSON = TITLES | _set(_LISTS["person"])

PETS = _set(_LISTS["pets"])

_ORGANIZATION = _set(_LISTS["organization"])

_PLACE = _set(_LISTS["place"])

_DOCUMENT = _set(_LISTS["document"])

_PROJECT = _set("""project codename projekt projet proyecto progetto projeto project проект проекта проекте""")

_PRODUCT = _set(_LISTS["product"])

_EVENT = _set(
    """conference festival fair tournament race marathon meetup workshop konferenz messe turnier conférence conferencia"""
)

CUES: dict[str, CueType] = {
    **dict.fromkeys(_PRODUCT, "product"),
    **dict.fromkeys(_EVENT, "event"),
    **dict.fromkeys(_PLACE, "place"),
    **dict.fromkeys(_DOCUMENT, "document"),
    **dict.fromkeys(_ORGANIZATION, "organization"),
    **dict.fromkeys(_PROJECT, "project"),
    **dict.fromkeys(PERSON, "person"),
    **dict.fromkeys(PETS, "pet"),
}
"""What a word says about the name that follows it, by the word in lower case."""

INTRODUCING = _set(_LISTS["introducing"])
"""Words after which a name stands. What it is of, the noun before them says."""

LAST_WORDS: dict[str, EntityType] = {
    **dict.fromkeys(
        _set(_LISTS["last words organization"]),
        "organization",
    ),
    **dict.fromkeys(
        _set(_LISTS["last words place"]),
        "place",
    ),
    **dict.fromkeys(
        _set("""marathon festival conference summit cup olympics championship championships awards con fest expo"""),
        "event",
    ),
}
"""What the last word of a name says about it, by the word in lower case."""

LAST_PARTS: dict[str, EntityType] = {
    "straße": "place",
    "strasse": "place",
    "platz": "place",
    "torget": "place",
    "gatan": "place",
    "gymnasium": "organization",
    "grundschule": "organization",
}
"""What the end of a compound says about the name that it is."""

CUES_AFTER: dict[str, EntityType] = {
    **dict.fromkeys(_set("app library router database dashboard server topics cluster code"), "product"),
    **dict.fromkeys(_set("team office staff"), "organization"),
    **dict.fromkeys(_set("lives likes wants loves hates prefers moved married works plays studies"), "person"),
}
"""What a word says about the name before it."""

FIRST_WORDS: dict[str, EntityType] = {
    **dict.fromkeys(
        _set(_LISTS["first words organization"]),
        "organization",
    ),
    **dict.fromkeys(
        _set(
            """calle avenida plaza rue avenue place via piazza rua praça lake mount mt cape isle port san santa saint-"""
        ),
        "place",
    ),
}
"""What the first word of a name says about it, by the word in lower case."""

NUMBERED = _set(_LISTS["numbered"])
"""Nouns that are written with a capital before a number or a letter, and then are no names."""

PLACE_PREPOSITIONS = _set(
    """in at from near to towards around outside leaving nach aus bei in à en de desde a em da di do из в во под около na w
    z do naar uit"""
)

NEVER = _set(_LISTS["never"])
"""Capitalized words that are no names: dates, languages, nations, currencies, and acronyms of general things."""

PERSON_VERBS = _set(_LISTS["person verbs"])
"""What a person does and a thing seldom: after it, a word such as Mark or Rose at the beginning is a person."""

JOINING = _set("van von der den de del della di da dos do du des la le el al bin ibn ten ter zu y")
"""Words inside of a name, which are in lower case."""


# Lists of names and words, which tell a name from a word where the spelling does not.
#
# `benchmarks/fitting/word_lists.py` wrote them. Each says in its first line what it was made from. A list is
# unpacked when it is first needed, and searched as it is: making sets of all lists would take 60 ms, and unpacking
# them takes 5.

_FOLDER = Path(__file__).parent / "data"


_LOCK = Lock()
"""A stemmer keeps the word it works on."""

_STEMMERS = {language: cast("Any", snowballstemmer).stemmer(language) for language in ("english", "german")}

_ALSO_WORDS = _set(_LISTS["also words"])
"""Given names and places that are also words, in lower case. They are names only where something else shows it. Set by
hand: what is common as a word, in sentences about everyday life."""


_ENGLISH_WORDS = _set(_LISTS["english words"])
_GERMAN_WORDS = _set(_LISTS["german words"])
"""Given names and places somewhere that are frequent words of a language, so that the lists of words leave them out. They
were read from the most frequent 12,000 words, and those left out that are mostly names."""

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
    return folded in _ALSO_WORDS or folded in _ENGLISH_WORDS or folded in _GERMAN_WORDS


_NEWER_WORDS = _set(_LISTS["newer words"])
"""English words that are rare in the subtitles of films, which the list was made from."""

_GERMAN_NOUN = LazyPattern(
    r"(?:ung|heit|keit|schaft|tion|tät|ment|ling|chen|nis|ismus|iat|thie|nie|gie|phie|trie|lie|enz|anz|innen|rei|erin|arin|orin|eur|gramm"
    r"|ik|iker|ismus|ium|är|logie|loge|eile|itis|ur|ler|thekar|thekarin)(?:e?[ns])?$"
)
"""How German nouns end, and names seldom do."""


@lru_cache(maxsize=8_192)
def is_english_word(word: str, *, compounds: bool = False) -> bool:
    """Return whether a word is a form of an English word, or, with `compounds`, of two of them."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or folded in _ENGLISH_WORDS or _is_listed("english", folded):
        return True
    return compounds and any(
        _is_listed("english", folded[:middle]) and _is_listed("english", folded[middle:])
        for middle in range(3, len(folded) - 3)
    )


@lru_cache(maxsize=8_192)
def is_german_word(word: str, *, compounds: bool = True) -> bool:
    """Return whether a word is a form of a German word, or, with `compounds`, of one that ends with one."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or folded in _GERMAN_WORDS or _is_listed("german", folded):
        return True
    if not compounds:
        return False
    if folded.endswith(_SHORT_ENDS) or _GERMAN_NOUN.search(folded):
        return True
    return any(folded[n:] in _GERMAN_WORDS or _is_listed("german", folded[n:]) for n in range(2, len(folded) - 3))


def _is_listed(language: str, word: str) -> bool:
    with _LOCK:
        stem = str(_STEMMERS[language].stemWord(word))
    return _has(language, stem) or _has(language, word)


# Products and companies that everybody knows by name, so that a text need not say what they are.


def _names(words: str) -> frozenset[str]:
    return frozenset(name.strip() for name in words.replace("\n", ",").split(",") if name.strip())


_PRODUCTS = _names(_LISTS["products"])
_ORGANIZATIONS = _names(_LISTS["organizations"])

_UNCASED_PRODUCTS = _names(_LISTS["uncased products"])
_UNCASED_ORGANIZATIONS = _names(_LISTS["uncased organizations"])
WELL_KNOWN_UNCASED: dict[str, EntityType] = {
    **dict.fromkeys(_UNCASED_PRODUCTS, "product"),
    **dict.fromkeys(_UNCASED_ORGANIZATIONS, "organization"),
}
"""The type of each name in a script without capitals. None of them is also a common word, or part of one."""

WELL_KNOWN: dict[str, EntityType] = {
    **dict.fromkeys(_PRODUCTS, "product"),
    **dict.fromkeys(_ORGANIZATIONS, "organization"),
}
"""The type of each name, as it is written."""

UNMISTAKABLE = frozenset(name.lower() for name in _names(_LISTS["unmistakable"]))
"""Names of programs that are nothing else in lower case, in which they are often written."""
