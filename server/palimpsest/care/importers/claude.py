"""Claude's conversation export: lists of messages. In newer exports each message names the one it answers."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from palimpsest.care.importers.conversations import branch_to, in_order, leaves_of
from palimpsest.care.importers.records import (
    BRANCHES,
    EMPTY,
    NO_TEXT,
    REASONING,
    TOOLS,
    UNKNOWN_CONVERSATION,
    ImportedFile,
    ImportedMessage,
    Skipped,
    skipped_notes,
)
from palimpsest.care.importers.source import SourceFile
from palimpsest.care.importers.values import OLDEST, instant_of, list_of, object_of, plausible_instant, text_of

_ROLES = {"human": "user", "assistant": "assistant"}
_SKIPPED_BLOCKS = {"thinking": REASONING, "redacted_thinking": REASONING, "tool_use": TOOLS, "tool_result": TOOLS}
_ROOT = "00000000-0000-"
"""The beginning of the parent id of a first message."""

_PLACEHOLDER = re.compile(
    r"```\n(?:This block is not supported on your current device yet\."
    r"|Viewing artifacts created via the Analysis Tool web feature preview isn.t yet supported on mobile\.)\n```"
)
"""What a text has in place of a block that is not text."""


def read(source: SourceFile, now: datetime) -> ImportedFile | None:
    """Return the human's and assistant's messages on the newest branch of each conversation.

    Return None if the file has no Claude conversation.
    """
    if not any(_is_conversation(item) for item in source.items):
        return None
    skipped = Skipped()
    messages = in_order([_messages(object_of(item), now, skipped) for item in source.items])
    return ImportedFile("claude", messages=messages, notes=skipped_notes(skipped))


def _is_conversation(value: Any) -> bool:
    return isinstance(object_of(value).get("chat_messages"), list)


def _messages(conversation: dict[str, Any], now: datetime, skipped: Skipped) -> list[ImportedMessage]:
    if not _is_conversation(conversation):
        skipped[UNKNOWN_CONVERSATION] += 1
        return []
    by_name = {
        text_of(object_of(message).get("uuid")) or f"#{number}": object_of(message)
        for number, message in enumerate(list_of(conversation["chat_messages"]))
    }
    messages: list[ImportedMessage] = []
    at = instant_of(conversation.get("created_at"))
    for name in _newest_branch(by_name, text_of(conversation.get("current_leaf_message_uuid")), skipped):
        message = by_name[name]
        at = instant_of(message.get("created_at")) or at
        content = _content(message, skipped)
        if content:
            role, said_at = _ROLES[text_of(message["sender"])], plausible_instant(at, now)
            messages.append(ImportedMessage(text_of(message.get("uuid")), role, content, said_at))
    return messages


def _newest_branch(messages: dict[str, dict[str, Any]], current: str, skipped: Skipped) -> list[str]:
    """Return the branch that ends in the current leaf, or in the newest message if no current leaf is named."""
    parents: dict[str, str | None] = {}
    previous: str | None = None
    for name, message in messages.items():
        parent = text_of(message.get("parent_message_uuid"))
        # Older exports name no parents. There, a message answers the one before it.
        parents[name] = parent if parent in messages else None if parent.startswith(_ROOT) else previous
        previous = name
    leaves = leaves_of(parents)
    if current not in messages:
        current = max(reversed(leaves), key=lambda leaf: _created_at(messages[leaf]), default=previous or "")
    branch = branch_to(current, parents)
    skipped[BRANCHES] += len({*leaves} - {*branch})
    return branch


def _created_at(message: dict[str, Any]) -> datetime:
    return instant_of(message.get("created_at")) or OLDEST


def _content(message: dict[str, Any], skipped: Skipped) -> str:
    """Return the text of a message. Return "" and count the message if it has no text or an unknown sender."""
    if text_of(message.get("sender")) not in _ROLES:
        skipped["messages from an unknown sender"] += 1
        return ""
    skipped[NO_TEXT] += len(list_of(message.get("attachments"))) + len(list_of(message.get("files")))
    blocks = [object_of(block) for block in list_of(message.get("content"))]
    for block in blocks:
        if block.get("type") != "text":
            skipped[_SKIPPED_BLOCKS.get(text_of(block.get("type")), NO_TEXT)] += 1
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    # Old exports have only `text`. Where there are blocks, `text` repeats them, with placeholders for non-text blocks.
    whole = "\n".join(text for text in texts if isinstance(text, str)) if blocks else text_of(message.get("text"))
    content = text_of(_PLACEHOLDER.sub("", whole))
    if not content:
        skipped[EMPTY] += 1
    return content
