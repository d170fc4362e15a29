"""Memories as lines for a model: on one line, nothing that acts, whole sentences where there is little room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palimpsest.core.models import Memory
from palimpsest.core.validation import one_line
from palimpsest.store.views.pinned import is_pinned
from palimpsest.text.control_characters import inert, visible
from palimpsest.text.dates.finder import date_and_sense, dates_in
from palimpsest.text.tokenizer import count_tokens

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]»”’]*\s+|(?<=[。！？])")  # noqa: RUF001 - full stops are meant


def plain(text: str) -> str:
    """Return a text as one line, with visible control characters, and without markup that a model could follow."""
    return visible(one_line(inert(text)))


def dated(memory: Memory, text: str, *, is_lasting: bool = False) -> str:
    """Return the text of a memory after its date. What is pinned or lasts has one only if the text counts from it."""
    is_undated = (is_lasting or is_pinned(memory.metadata)) and memory.happened_at is None
    if is_undated and not dates_in(text, memory.at, guesses=True):
        return f"- {text}"
    return f"- {date_and_sense(memory, text)} {text}"


def sentences(text: str, max_tokens: int) -> str:
    """Return as many whole sentences from the beginning of a text as fit a token count; "" if none does."""
    if count_tokens(text) <= max_tokens:
        return text
    fitting = ""
    for match in _SENTENCE_END.finditer(text):
        longer = text[: match.start()]
        if count_tokens(longer) > max_tokens:
            break
        fitting = longer
    return fitting.rstrip()


def beginning(lines: Sequence[str], max_tokens: int) -> list[str]:
    """Return the first lines of a text that fit a token count, the last of them in whole sentences."""
    kept: list[str] = []
    for line in lines:
        shown = sentences(line, max_tokens - 1)
        kept += [shown] if shown else []
        if shown != line:
            break
        max_tokens -= count_tokens(f"{line}\n")
    return kept


def within(lines: Sequence[str], max_tokens: int) -> tuple[list[int], int]:
    """Return the positions of the lines that fit a token count together, and what they cost.

    A line that does not fit is left out, and shorter ones below it may still fit.
    """
    kept: list[int] = []
    cost = 0
    for position, line in enumerate(lines):
        tokens = count_tokens(f"{line}\n")
        if cost + tokens <= max_tokens:
            kept.append(position)
            cost += tokens
    return kept, cost
