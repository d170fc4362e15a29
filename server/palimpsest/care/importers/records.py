"""What the readers of other tools' files share: the records they return, and how they take texts, times and trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import Event
from palimpsest.core.validation import MAX_TEXT_CHARS, well_formed

EXPECTED = (
    "expected the JSONL of the official MCP memory server, a mem0 history database or export, "
    "or a ChatGPT or Claude conversation export (.json or .zip)"
)
MAX_TAG_CHARS = 64
OLDEST = datetime.min.replace(tzinfo=UTC)
_FIRST_YEAR = 1970

Left: TypeAlias = Counter[str]
"""How much of a file was left out, by the reason."""

TOO_LONG = f"memories of more than {MAX_TEXT_CHARS:,} characters"
EMPTY = "turns without a text"
TOOLS = "tool calls and their results"
REASONING = "reasoning of the model"
NO_TEXT = "pictures, recordings, attached files and pastes"
BRANCHES = "other branches of conversations, edited or answered anew"
OTHER_FORM = "conversations of an unknown form"


@dataclass(frozen=True, slots=True)
class ForeignVersion:
    """Hold one change of a memory elsewhere, oldest first in a list. `text` is None where it was deleted."""

    event: Event
    text: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class ForeignMemory:
    """Hold a memory as another tool kept it; the last of its versions, of which there is one at least, is current.

    `metadata` has "imported_from", the tool's name, and what identifies the memory there.
    """

    versions: tuple[ForeignVersion, ...]
    metadata: Mapping[str, Any]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignTurn:
    """Hold one turn of a conversation elsewhere. `id` is theirs, or ""; `role` is "user" or "assistant"."""

    id: str
    role: str
    content: str
    said_at: datetime
    name: str = ""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Hold what a file of another tool holds, and what in it was left out, one note a reason with its count.

    `format` is "server-memory", "mem0-history", "mem0-export", "chatgpt" or "claude". Turns come conversation after
    conversation, the one begun first first.
    """

    format: str
    memories: tuple[ForeignMemory, ...] = ()
    turns: tuple[ForeignTurn, ...] = ()
    notes: tuple[str, ...] = ()


def notes_of(left: Left) -> tuple[str, ...]:
    """Return what to tell of what was left out."""
    return tuple(f"left out: {reason} ({number:,})" for reason, number in left.items() if number)


def plain(value: Any) -> str:
    """Return a text well-formed and without white space around it; of what is no text, an empty one."""
    return well_formed(value).strip() if isinstance(value, str) else ""


def fields(value: Any) -> dict[str, Any]:
    """Return a JSON object; in place of anything else, an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a JSON list; in place of anything else, an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def instant(value: Any) -> datetime | None:
    """Return the instant that ISO 8601 (without a zone: UTC) or seconds since 1970 name; None where they name none."""
    try:
        if isinstance(value, str):
            return parse_instant(value, "a time")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (InputError, ValueError, OverflowError, OSError):
        return None
    return None


def sensible(at: datetime | None, now: datetime) -> datetime:
    """Return an instant as it is; in place of none, one to come, or one before there were such tools, the present."""
    return now if at is None or at > now or at.year < _FIRST_YEAR else at


def tag_from(text: Any) -> tuple[str, ...]:
    """Return a tag made of a word of theirs, none of an empty one."""
    tag = " ".join(plain(text).lower().split())[:MAX_TAG_CHARS].strip()
    return (tag,) if tag else ()


def in_order(conversations: Iterable[list[ForeignTurn]]) -> tuple[ForeignTurn, ...]:
    """Return the turns of conversations, the one begun first first: exports begin with the newest."""
    begun = sorted((turns for turns in conversations if turns), key=lambda turns: turns[0].said_at)
    return tuple(turn for turns in begun for turn in turns)


def leaves_of(parents: Mapping[str, str | None]) -> list[str]:
    """Return the ends of a tree of turns, in which each names the one it answers; each is the end of one branch."""
    answered = set(parents.values())
    return [each for each in parents if each not in answered]


def branch_to(end: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return the branch of a tree that ends in a turn, from its beginning. What goes round in a circle ends there."""
    branch: dict[str, None] = {}
    at: str | None = end
    while at is not None and at in parents and at not in branch:
        branch[at] = None
        at = parents[at]
    return [*reversed(branch)]
