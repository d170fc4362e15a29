"""Claude's export of conversations: lists of messages, in which newer exports name the message each one answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from palimpsest.care.importers.records import (
    BRANCHES,
    EMPTY,
    NO_TEXT,
    OLDEST,
    OTHER_FORM,
    REASONING,
    TOOLS,
    Foreign,
    ForeignTurn,
    Left,
    branch_to,
    fields,
    in_order,
    instant,
    items,
    leaves_of,
    notes_of,
    plain,
    sensible,
)

_ROLES = {"human": "user", "assistant": "assistant"}
_KINDS = {"thinking": REASONING, "redacted_thinking": REASONING, "tool_use": TOOLS, "tool_result": TOOLS}
_ROOT = "00000000-0000-"
"""How the id begins that a first message names as what it answers."""

_PLACEHOLDER = re.compile(
    r"```\n(?:This block is not supported on your current device yet\."
    r"|Viewing artifacts created via the Analysis Tool web feature preview isn.t yet supported on mobile\.)\n```"
)
"""What stands in a text for a part that is none."""


def is_conversation(value: Any) -> bool:
    """Say whether a JSON value is a conversation of Claude's."""
    return isinstance(fields(value).get("chat_messages"), list)


def read_conversations(conversations: Sequence[Any], now: datetime) -> Foreign:
    """Return what human and assistant said on the newest branch of each conversation, and what was left out."""
    left = Left()
    turns = in_order([_turns(fields(each), now, left) for each in conversations])
    return Foreign("claude", turns=turns, notes=notes_of(left))


def _turns(conversation: dict[str, Any], now: datetime, left: Left) -> list[ForeignTurn]:
    if not is_conversation(conversation):
        left[OTHER_FORM] += 1
        return []
    messages = {
        plain(fields(message).get("uuid")) or f"#{number}": fields(message)
        for number, message in enumerate(items(conversation["chat_messages"]))
    }
    turns: list[ForeignTurn] = []
    at = instant(conversation.get("created_at"))
    for name in _newest(messages, plain(conversation.get("current_leaf_message_uuid")), left):
        message = messages[name]
        at = instant(message.get("created_at")) or at
        content = _said(message, left)
        if content:
            role = _ROLES[plain(message["sender"])]
            turns.append(ForeignTurn(plain(message.get("uuid")), role, content, sensible(at, now)))
    return turns


def _newest(messages: dict[str, dict[str, Any]], current: str, left: Left) -> list[str]:
    """Return the branch that is named as the last, or that ends in the newest message."""
    parents: dict[str, str | None] = {}
    before: str | None = None
    for name, message in messages.items():
        parent = plain(message.get("parent_message_uuid"))
        # older exports name none; then a message answers the one above it
        parents[name] = parent if parent in messages else None if parent.startswith(_ROOT) else before
        before = name
    leaves = leaves_of(parents)
    if current not in messages:
        current = max(reversed(leaves), key=lambda leaf: _made(messages[leaf]), default=before or "")
    branch = branch_to(current, parents)
    left[BRANCHES] += len({*leaves} - {*branch})
    return branch


def _made(message: dict[str, Any]) -> datetime:
    return instant(message.get("created_at")) or OLDEST


def _said(message: dict[str, Any], left: Left) -> str:
    """Return what a message says; nothing, and counts it, where it says nothing or is by neither side."""
    if plain(message.get("sender")) not in _ROLES:
        left["messages of neither side"] += 1
        return ""
    left[NO_TEXT] += len(items(message.get("attachments"))) + len(items(message.get("files")))
    blocks = [fields(block) for block in items(message.get("content"))]
    for block in blocks:
        if block.get("type") != "text":
            left[_KINDS.get(plain(block.get("type")), NO_TEXT)] += 1
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    # `text` is all there was once; where there are blocks, it repeats them, with placeholders for those without text
    whole = "\n".join(text for text in texts if isinstance(text, str)) if blocks else plain(message.get("text"))
    content = plain(_PLACEHOLDER.sub("", whole))
    if not content:
        left[EMPTY] += 1
    return content
