"""Trees of messages, in which each message names the one it answers, and the order of conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from palimpsest.core.models import Event
from palimpsest.core.validation import MAX_TEXT_CHARS

# What every reader returns: the memories and messages of another tool's file, and notes about what was left out.

Skipped: TypeAlias = Counter[str]
"""How many items a reader left out, by reason."""

TOO_LONG = f"memories longer than {MAX_TEXT_CHARS:,} characters"
EMPTY = "messages without text"
TOOLS = "tool calls and their results"
REASONING = "model reasoning"
NO_TEXT = "images, recordings and files without text"
BRANCHES = "other branches of conversations (edited messages, regenerated answers)"
MAX_NAMED_FILES = 8
"""How many files that were not read are named. Set by hand: an export has up to ten, and folders of images."""

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


Memories: TypeAlias = dict[str, ImportedMemory]
"""Memories by their text, in the order of the file."""


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
class ImportedConversation:
    """A conversation in another tool, with at least one message. `id` and `title` are "" if it has none."""

    id: str
    title: str
    messages: tuple[ImportedMessage, ...]


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The contents of another tool's file.

    `format` is "server-memory", "mem0-history", "mem0-export", "chatgpt" or "claude". The conversation that began
    first comes first. `notes` say what was left out, one note per reason.
    """

    format: str
    memories: tuple[ImportedMemory, ...] = ()
    conversations: tuple[ImportedConversation, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[ImportedMessage, ...]:
        """Return the messages of all conversations."""
        return tuple(message for conversation in self.conversations for message in conversation.messages)


def skipped_notes(skipped: Skipped) -> tuple[str, ...]:
    """Return one note for each reason why something was left out."""
    return tuple(f"left out: {reason} ({count:,})" for reason, count in skipped.items() if count)


def unread_notes(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the files of an export that hold nothing to remember, if there are any."""
    named = ", ".join(names[:MAX_NAMED_FILES])
    rest = f" and {len(names) - MAX_NAMED_FILES} more" if len(names) > MAX_NAMED_FILES else ""
    return (f"left out, because nothing in it is said or known: {named}{rest}",) if names else ()


def keep_memory(
    memories: Memories, skipped: Skipped, tool: str, text: str, at: datetime, tags: tuple[str, ...] = ()
) -> None:
    """Add a memory without a history to those of a file, once. One that is too long is counted."""
    if len(text) > MAX_TEXT_CHARS:
        skipped[TOO_LONG] += 1
    elif text not in memories:
        version = ImportedVersion(Event.ADD, text, at)
        memories[text] = ImportedMemory((version,), {"imported_from": tool}, tags)


def in_order(conversations: Iterable[ImportedConversation]) -> tuple[ImportedConversation, ...]:
    """Return the conversations that have messages, the one that began first at the front.

    Exports begin with the newest conversation.
    """
    with_messages = (conversation for conversation in conversations if conversation.messages)
    return tuple(sorted(with_messages, key=lambda conversation: conversation.messages[0].said_at))


def leaves_of(parents: Mapping[str, str | None]) -> list[str]:
    """Return the messages that no other message answers: the ends of all branches."""
    answered = set(parents.values())
    return [message for message in parents if message not in answered]


def branch_to(leaf: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return the branch that ends in `leaf`, first message first. A cycle in the tree ends the branch."""
    branch: dict[str, None] = {}
    message: str | None = leaf
    while message is not None and message in parents and message not in branch:
        branch[message] = None
        message = parents[message]
    return [*reversed(branch)]
