"""What every reader of a transcript returns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError

LeftOut: TypeAlias = Counter[str]
"""How much of a transcript was left out, by reason."""

TOOLS = "tool calls and their results"
THINKING = "thinking"
ADDED = "what the client added: reminders, commands and their output"
SUBAGENTS = "what subagents said"
SUMMARIES = "summaries of compactions"
NO_TEXT = "images and other things without text"


@dataclass(frozen=True, slots=True)
class SaidLine:
    """A line of a transcript that says something. `message_id` is the client's, or made of what the line holds.

    `text` is as it stands in the transcript. `session` is the one that the line names, or "".
    """

    message_id: str
    session: str
    role: str
    text: str
    at: datetime | None
    cwd: str = ""


@dataclass(slots=True)
class Notes:
    """What a reader noticed: what it left out, what it does not know by type, and what holds for the whole file.

    `title` is the name of the session, `session` its id, and `is_subagent` says that nobody spoke in it.
    """

    left_out: LeftOut = field(default_factory=Counter[str])
    unknown: LeftOut = field(default_factory=Counter[str])
    title: str = ""
    session: str = ""
    cwd: str = ""
    origin: str = ""
    is_subagent: bool = False


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON object, and an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a JSON list, and an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a JSON text, and "" for anything else."""
    return value if isinstance(value, str) else ""


def instant_of(value: Any) -> datetime | None:
    """Return the instant of an ISO 8601 text in UTC, or None."""
    try:
        return parse_instant(value, "the time").astimezone(UTC) if isinstance(value, str) else None
    except InputError:
        return None
