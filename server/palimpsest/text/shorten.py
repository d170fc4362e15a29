"""Cut long texts to their beginning, for replies with little room."""

from __future__ import annotations

import unicodedata

from palimpsest.text.control_characters import visible

ELLIPSIS = "…"

MAX_STEP_BACK = 30
"""How many characters a cut moves back at most to reach the end of a word. Longer than most words, and set by hand."""

_ZERO_WIDTH_JOINER = "\u200d"


def shorten(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters as it is, and of a longer one the beginning and "…"."""
    return text if len(text) <= max_chars else _beginning(text, max_chars - len(ELLIPSIS))


def shorten_to_tokens(text: str, max_tokens: int) -> str:
    """Return the same for a token count, as `count_tokens` estimates it. At least one character is kept.

    Control characters count as the escapes that `visible` shows for them.
    """
    quarters = 0  # four ASCII characters are one token, as is every other character
    last_end = 0
    for end, char in enumerate(text, start=1):
        shown = visible(char)
        quarters += len(shown) if shown.isascii() else 4
        if quarters > 4 * max_tokens:
            return _beginning(text, last_end)
        if quarters <= 4 * (max_tokens - 1):  # leaves one token for the ellipsis
            last_end = end
    return text


def _beginning(text: str, end: int) -> str:
    """Return the text up to about `end` and "…", cut at the end of a word if one is near."""
    end = max(1, end)
    lowest = max(1, end - MAX_STEP_BACK)
    at_space = next((place for place in range(end, lowest - 1, -1) if text[place].isspace()), None)
    if at_space is None:
        at_space = next((place for place in range(end, lowest - 1, -1) if not _is_joined(text, place)), end)
    return (text[:at_space].rstrip() or text[:end]) + ELLIPSIS


def _is_joined(text: str, place: int) -> bool:
    """Return whether the character at a place belongs to the one before it, as accents and parts of emoji do."""
    return unicodedata.category(text[place]).startswith("M") or _ZERO_WIDTH_JOINER in text[place - 1 : place + 1]
