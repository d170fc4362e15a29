"""Split a text into words for finding names: each with its place, and whether it begins a sentence."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from palimpsest.core.models import EntityType

# A part of a text, and what it names.


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that names something, or with the name "" one that holds no names, such as a command."""

    start: int
    end: int
    name: str = ""
    type: EntityType = "other"


def first_group(match: re.Match[str], kind: EntityType) -> Span:
    """Return the part of a match that its first group with text has."""
    number = next(number for number in range(1, len(match.groups()) + 1) if match[number])
    return Span(match.start(number), match.end(number), match[number], kind)


MAX_CHARS = 4_000
"""How much of a text is searched for names. A fact is one or two sentences. A page names what it is about at its
beginning, and reading 4,000 characters takes a few milliseconds. Set by hand."""

_APOSTROPHES = "'\u2018\u2019\u02bc"
_HYPHENS = r"\-\u2010\u2011"
_MARKS = "\u0300-\u036f\u0900-\u0903\u093a-\u094d\u0591-\u05c7\u064b-\u0652"
_WORD = re.compile(rf"[^\W_](?:[\w{_MARKS}]|[{_APOSTROPHES}{_HYPHENS}&·\u00ad\u200b\u200c\u200d](?=[^\W_]))*")
_UNCASED = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_ONE_SCRIPT = re.compile(rf"[{_UNCASED}]+|[^{_UNCASED}]+")
"""Words in Han, Kana and Hangul are often written next to Latin ones without a space: "用Notion记", "OPAL에"."""
_SENTENCE_END = re.compile(r"[.!?…:;。！？：；\n][\s\"')\]»“”’]*$|[.!?…:;]?\s*[\"“„«(\[•—]\s*$|\n\s*[-*]\s*$")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text. `is_first` says that it begins the text, a sentence, a list item or a quotation."""

    text: str
    start: int
    end: int
    is_first: bool = False

    @property
    def has_capital(self) -> bool:
        """Return whether the word begins with a capital letter."""
        return self.text[0].isupper() or self.text[0].istitle()


def beginning(text: str) -> str:
    """Return the part of a text that is searched for names, with composed characters (NFC)."""
    return unicodedata.normalize("NFC", text[:MAX_CHARS])


def words_of(text: str) -> list[Word]:
    """Return the words of a text, in order.

    A hyphen or an apostrophe inside a word belongs to it. A word ends where Latin letters meet Han, Kana or Hangul.
    """
    found = [place for match in _WORD.finditer(text) for place in _parts(match)]
    if not found:
        return []
    start, end = found[0]
    words = [Word(text[start:end], start, end, is_first=True)]
    for (_, before), (start, end) in pairwise(found):
        between = text[before:start]
        is_first = between not in ("", " ") and _SENTENCE_END.search(between) is not None
        words.append(Word(text[start:end], start, end, is_first))
    return words


def _parts(match: re.Match[str]) -> list[tuple[int, int]]:
    """Return where the parts of a word are that are each in a script with spaces, or in one without."""
    if match[0].isascii():
        return [match.span()]
    return [(match.start() + part.start(), match.start() + part.end()) for part in _ONE_SCRIPT.finditer(match[0])]


def is_adjacent(text: str, word: Word, following: Word) -> bool:
    """Return whether nothing but a space is between two words."""
    return text[word.end : following.start] in (" ", "\u00a0")
