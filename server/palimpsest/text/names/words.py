"""Split a text into words for finding names: each with its place, and whether it begins a sentence."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

MAX_CHARS = 4_000
"""How much of a text is searched for names. A fact is one or two sentences. A page names what it is about at its
beginning, and reading 4,000 characters takes a few milliseconds. Set by hand."""

_APOSTROPHES = "'\u2019"
_MARKS = "\u0300-\u036f\u0900-\u0903\u093a-\u094d\u0591-\u05c7\u064b-\u0652"
_WORD = re.compile(rf"[^\W_](?:[\w{_MARKS}]|[{_APOSTROPHES}\-&·\u200c\u200d](?=[^\W_]))*")
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
    """Return the words of a text, in order. A hyphen or an apostrophe inside a word belongs to it."""
    found = list(_WORD.finditer(text))
    if not found:
        return []
    first = found[0]
    words = [Word(first[0], first.start(), first.end(), is_first=True)]
    for before, match in pairwise(found):
        between = text[before.end() : match.start()]
        is_first = between != " " and _SENTENCE_END.search(between) is not None
        words.append(Word(match[0], match.start(), match.end(), is_first))
    return words


def is_adjacent(text: str, word: Word, following: Word) -> bool:
    """Return whether nothing but a space is between two words."""
    return text[word.end : following.start] in (" ", "\u00a0")
