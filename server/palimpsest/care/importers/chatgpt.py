"""ChatGPT's export of conversations: a list of trees, in which `current_node` names the end of what was last shown."""

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

_TEXTS = ("text", "multimodal_text")
_REASONING = ("thoughts", "reasoning_recap")
_CITATION = re.compile(r"\ue200(?:cite|filecite)\ue202[^\ue200\ue201]{0,500}\ue201")
"""A mark that the page draws as a link to a source; the source itself is not in the text."""


def is_conversation(value: Any) -> bool:
    """Say whether a JSON value is a conversation of ChatGPT's."""
    return isinstance(fields(value).get("mapping"), dict)


def read_conversations(conversations: Sequence[Any], now: datetime) -> Foreign:
    """Return what user and assistant said on the branch last shown of each conversation, and what was left out."""
    left = Left()
    turns = in_order([_turns(fields(each), now, left) for each in conversations])
    return Foreign("chatgpt", turns=turns, notes=notes_of(left))


def _turns(conversation: dict[str, Any], now: datetime, left: Left) -> list[ForeignTurn]:
    if not is_conversation(conversation):
        left[OTHER_FORM] += 1
        return []
    nodes = fields(conversation["mapping"])
    turns: list[ForeignTurn] = []
    at = instant(conversation.get("create_time"))
    for node in _shown(nodes, plain(conversation.get("current_node")), left):
        message = fields(fields(nodes[node]).get("message"))
        at = instant(message.get("create_time")) or at  # some have none: said after what they answer
        if message and (content := _said(message, left)):
            author, turn_id = fields(message["author"]), plain(message.get("id")) or plain(node)
            turns.append(ForeignTurn(turn_id, author["role"], content, sensible(at, now), plain(author.get("name"))))
    return turns


def _shown(nodes: dict[str, Any], current: str, left: Left) -> list[str]:
    """Return the branch last shown: that of the current node, or where none is named, the newest."""
    parents = {name: plain(fields(node).get("parent")) or None for name, node in nodes.items()}
    leaves = leaves_of(parents)
    if current not in nodes:
        current = max(reversed(leaves), key=lambda leaf: _made(nodes[leaf]), default=next(reversed(nodes), ""))
    branch = branch_to(current, parents)
    left[BRANCHES] += len({*leaves} - {*branch})
    return branch


def _made(node: Any) -> datetime:
    return instant(fields(fields(node).get("message")).get("create_time")) or OLDEST


def _said(message: dict[str, Any], left: Left) -> str:
    """Return what a message says to the other side; nothing, and counts it, where it says nothing to them."""
    reason = _passed_over(message)
    if reason:
        left[reason] += 1
        return ""
    parts = items(fields(message.get("content")).get("parts"))
    texts = [part if isinstance(part, str) else fields(part).get("text") for part in parts]
    # a picture stands in both lists, a document among the attachments only
    attached = items(fields(message.get("metadata")).get("attachments"))
    left[NO_TEXT] += max(len(attached), sum(1 for text in texts if not isinstance(text, str)))
    content = plain(_CITATION.sub("", "\n".join(text for text in texts if isinstance(text, str))))
    if not content:
        left[EMPTY] += 1
    return content


def _passed_over(message: dict[str, Any]) -> str:
    """Return why a message is none of the conversation that was seen; nothing where it is."""
    role = fields(message.get("author")).get("role")
    content_type = fields(message.get("content")).get("content_type") or "text"
    if role == "system":
        return "messages of the system"
    if content_type in _REASONING:
        return REASONING
    if role == "tool" or (role == "assistant" and message.get("recipient") not in (None, "all")):
        return TOOLS
    if fields(message.get("metadata")).get("is_visually_hidden_from_conversation") or message.get("weight") == 0:
        return "hidden messages"
    if role not in ("user", "assistant") or content_type not in _TEXTS:
        return "messages of other kinds than text"
    return ""
