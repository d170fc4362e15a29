"""Find names in a text that are known already, in any script and spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from palimpsest.core.entities import EntityType, name_key
from palimpsest.text.names.words import Word, beginning, words_of
from palimpsest.text.stopwords import FUNCTION_WORDS

MAX_WORDS = 5
"""How many words a known name has at most. Longer ones are found by their other names only. Set by hand."""

MAX_UNSPACED = 8
"""How many characters a known name has at most in a script without spaces between words. Set by hand."""

MAX_CANDIDATES = 2_000
"""How many sequences of words are looked up for a text. A fact has about a hundred. Set by hand."""

_UNSPACED = re.compile(
    r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1780-\u17ff]+"
)
_HANGUL = re.compile(r"[\uac00-\ud7af]{2,}$")
_COMMON = frozenset(word for words in FUNCTION_WORDS.values() for word in words)


_ARTICLES = frozenset(("the", "der", "die", "das", "la", "le", "el", "les", "los", "las", "il", "o", "a"))
"""Function words with which names begin."""

_BETWEEN = ("", " ", "\u00a0", ". ", " & ", "\n")
"""What may be between two words of a name. Nothing is where Latin letters meet Han, Kana or Hangul."""


@dataclass(frozen=True, slots=True)
class Place:
    """A name at its place in a text. `name` is the text there, without an ending that does not belong to it."""

    start: int
    end: int
    name: str


def name_candidates(text: str) -> list[str]:
    """Return the keys of the names that a text may have in it: of its sequences of words, without repetitions.

    The list is bounded, and in the order of the text.
    """
    keys: dict[str, None] = {}
    for place in _places(beginning(text)):
        if key := _key(place.name):
            keys.setdefault(key)
        if len(keys) >= MAX_CANDIDATES:
            break
    return list(keys)


def known_names(text: str, known: Mapping[str, EntityType]) -> list[Place]:
    """Return where a text has names that are known by their keys, the longest first, overlaps included."""
    if not known:
        return []
    places = [place for place in _places(text) if _key(place.name) in known and not _is_common(place.name)]
    return sorted(places, key=lambda place: (place.start - place.end, place.start))


def _key(name: str) -> str:
    """Return the key of some words. They begin and end with a letter or a digit, so mostly case is all that differs."""
    return name.casefold() if name.isascii() and "\n" not in name else name_key(name)


def _is_common(name: str) -> bool:
    return name in _COMMON


def _places(text: str) -> Iterator[Place]:
    words = words_of(text)
    for number, word in enumerate(words):
        yield from _in_unspaced(word)
        is_unspaced = _UNSPACED.fullmatch(word.text) is not None
        if is_unspaced and number + 1 < len(words):
            yield from _into_next(text, word, words[number + 1])
        if is_unspaced or (word.text in _COMMON and word.text not in _ARTICLES):
            continue
        end = word.start
        for following in words[number : number + MAX_WORDS]:
            if following is not word and text[end : following.start] not in _BETWEEN:
                break
            if following is not word and _UNSPACED.fullmatch(following.text):
                for last in range(following.start + 1, min(following.end, following.start + MAX_UNSPACED) + 1):
                    yield Place(word.start, last, text[word.start : last])
                break
            end = following.end
            if following.text not in _COMMON:  # a name ends with none
                for name_end in _ends(following):
                    yield Place(word.start, name_end, text[word.start : name_end])


def _in_unspaced(word: Word) -> Iterator[Place]:
    for run in _UNSPACED.finditer(word.text):
        for start in range(run.start(), run.end() - 1):
            for end in range(start + 2, min(start + MAX_UNSPACED, run.end()) + 1):
                yield Place(word.start + start, word.start + end, word.text[start:end])


def _into_next(text: str, word: Word, following: Word) -> Iterator[Place]:
    """Yield what begins in a word without spaces and ends with the Latin word after it, such as a brand and a model."""
    if text[word.end : following.start] in ("", " ") and not _UNSPACED.fullmatch(following.text):
        for start in range(max(word.start, word.end - MAX_UNSPACED), word.end):
            yield Place(start, following.end, text[start : following.end])


def _ends(word: Word) -> Iterator[int]:
    """Yield where a name that ends with a word may end: with it, or before an ending such as a genitive's."""
    if word.text.endswith(("'s", "\u2019s")):
        yield word.end - 2
        return
    yield word.end
    if len(word.text) > 3 and word.text[-1] == "s" and word.text[-2] != "s":  # noqa: PLR2004 - "Annas", "Jos"
        yield word.end - 1
    elif hangul := _HANGUL.search(word.text):  # a name and its particles
        yield from range(word.end - 1, word.start + hangul.start() + 1, -1)
