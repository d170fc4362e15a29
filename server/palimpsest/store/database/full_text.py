"""What the full texts of all databases have in common: weights, limits, and which words occur in a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palimpsest.store.database.protocols import FoundWords
from palimpsest.text.windows import most_words_near

COLUMN_WEIGHTS = (1.0, 0.4, 0.5)
"""The weight of a match in an entry's own text, in its context and in the facts that cite it. Measured with
benchmarks/locomo.py."""

MAX_QUERY_TOKENS = 64

MAX_SCORED = 2_000
"""About how many rows one search scores. A thousand rows take about a millisecond."""

PASSAGE_TOKENS = 60
"""How long a passage is, in search tokens. Set by hand: about 400 characters, as much as of other texts is compared."""

LONG_CHARS = 300
"""Tokens of a text that take fewer characters than this are one passage. Below 60 tokens with their spaces."""

NOTHING_AROUND = " "
"""Two empty columns, joined."""


def words_found(rows: Iterable[tuple[int, str, str]], words: frozenset[str]) -> dict[int, FoundWords]:
    """Return which of the words occur in each row: its number, its own tokens, and its context and facts, joined."""
    padded = {word: f" {word} " for word in words}
    nothing = frozenset[str]()
    found: dict[int, FoundWords] = {}
    for seq, own, around in rows:
        own_words = words_in(own, padded)
        around_words = words_in(around, padded) if around != NOTHING_AROUND else nothing
        anywhere = own_words | around_words if around_words else own_words
        is_long = len(own_words) > 1 and len(own) > LONG_CHARS
        passage = most_words_near(own.split(), own_words, PASSAGE_TOKENS) if is_long else own_words
        found[seq] = FoundWords(own_words, anywhere, passage)
    return found


def words_in(column: str, padded: Mapping[str, str]) -> frozenset[str]:
    """Return which words, given with spaces around them, stand in a column.

    Looking for a few words takes less time than splitting the column.
    """
    text = f" {column} "
    return frozenset([word for word, between_spaces in padded.items() if between_spaces in text])


def rarest(words: Iterable[str], counts: Mapping[str, int], most: int) -> list[str]:
    """Return the rarest words that together occur in about `most` rows, and at least one word."""
    chosen: list[str] = []
    rows = 0
    for word in sorted(words, key=lambda word: counts[word]):
        rows += counts[word]
        if chosen and rows > most:
            break
        chosen.append(word)
    return chosen
