"""Find the words of a case in a text, however it is phrased."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_FIRST_UNSPACED = "\u2e80"
"""The first of the characters of Chinese and Japanese, whose words no space separates."""


def has_words(text: str, words: Sequence[str]) -> bool:
    """Return whether every word, or one of its alternatives, begins a word of the text."""
    return all(_has(_folded(text), word) for word in words)


def has_any_word(text: str, words: Sequence[str]) -> bool:
    """Return whether any of the words begins a word of the text."""
    return any(_has(_folded(text), word) for word in words)


def _has(text: str, word: str) -> bool:
    return any(re.search(_pattern(_folded(option)), text) for option in word.split("|"))


def _pattern(word: str) -> str:
    before = r"(?<!\d)" if word[0].isdigit() else "" if word[0] >= _FIRST_UNSPACED else r"(?<![^\W_])"
    return before + re.escape(word) + (r"(?!\d)" if word[-1].isdigit() else "")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
