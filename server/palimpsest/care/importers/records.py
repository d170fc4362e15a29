"""What every reader returns: the memories and messages of another tool's file, and notes about what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from palimpsest.core.models import Event
from palimpsest.core.validation import MAX_TEXT_CHARS

Skipped: TypeAlias = Counter[str]
"""How many items a reader left out, by reason."""

TOO_LONG = f"memories longer than {MAX_TEXT_CHARS:,} characters"
EMPTY = "messages without text"
TOOLS = "tool calls and their results"
REASONING = "model reasoning"
NO_TEXT = "images, recordings, attachments and pasted files"
BRANCHES = "other branches of conversations (edited messages, regenerated answers)"
UNKNOWN_CONVERSATION = "conversations in an unknown format"


@dataclass(frozen=True, slots=True)
class ImportedVersion:
    """One version of a memory in another tool. `text` is None if the version is a deletion."""

    event: Event
    text: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """A memory of another tool, with at least one version, oldest first. The last version is the current one.

    `metadata` holds the tool's name under "imported_from", and what identifies the memory in that tool.
    """

    versions: tuple[ImportedVersion, ...]
    metadata: Mapping[str, Any]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message of a conversation in another tool.

    `id` is the tool's own id, or "" if it has none. `role` is "user" or "assistant".
    """

    id: str
    role: str
    content: str
    said_at: datetime
    name: str = ""


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The contents of another tool's file.

    `format` is "server-memory", "mem0-history", "mem0-export", "chatgpt" or "claude". Messages are grouped by
    conversation; the conversation that began first comes first. `notes` say what was left out, one note per reason.
    """

    format: str
    memories: tuple[ImportedMemory, ...] = ()
    messages: tuple[ImportedMessage, ...] = ()
    notes: tuple[str, ...] = ()


def skipped_notes(skipped: Skipped) -> tuple[str, ...]:
    """Return one note for each reason why something was left out."""
    return tuple(f"left out: {reason} ({count:,})" for reason, count in skipped.items() if count)
