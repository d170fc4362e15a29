"""A part of a text, and what it names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from palimpsest.core.entities import EntityType


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
