"""Claude Code's transcripts: JSON lines of `user`, `assistant`, `attachment` and much else.

The form is internal to Claude Code and is read as it was seen until version 2.1. `content` is a text, or a list of
blocks. An assistant's message has a line for each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palimpsest.capture.transcripts.said import (
    ADDED,
    NO_TEXT,
    SUBAGENTS,
    SUMMARIES,
    THINKING,
    TOOLS,
    Notes,
    SaidLine,
    instant_of,
    list_of,
    object_of,
    text_of,
)
from palimpsest.hook.options import PROGRAM_ENTRYPOINT
from palimpsest.hook.paths import hashed

_SILENT = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "cost-state",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "saved_hook_context",
        "speculation-accept",
        "summary",
        "system",
        "tag",
        "task-summary",
        "worktree-state",
    }
)
"""Types of lines that say nothing."""

_TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines with the title of the session, and their keys."""

_BLOCKS = {
    "thinking": THINKING,
    "redacted_thinking": THINKING,
    "tool_use": TOOLS,
    "tool_result": TOOLS,
    "tool_reference": TOOLS,
    "server_tool_use": TOOLS,
    "web_search_tool_result": TOOLS,
    "image": NO_TEXT,
    "document": NO_TEXT,
}


def files_in(folder: Path) -> list[Path]:
    """Return the transcripts of all sessions, without those of subagents."""
    return sorted(path for path in folder.glob("*/*.jsonl") if not path.name.startswith("agent-"))


def lines_of(line: dict[str, Any], notes: Notes) -> Iterator[SaidLine]:
    """Yield what a line of a transcript says, and note the rest."""
    kind = text_of(line.get("type"))
    notes.cwd = notes.cwd or text_of(line.get("cwd"))
    notes.session = notes.session or text_of(line.get("sessionId"))
    if kind in _TITLES:
        notes.title = text_of(line.get(_TITLES[kind])) or notes.title
    elif kind in ("user", "assistant"):
        text = _text(line, kind, notes)
        if text:
            yield _said(line, kind, text)
    elif kind == "attachment":
        text = _queued_prompt(object_of(line.get("attachment")))
        if text and not line.get("isSidechain"):
            yield _said(line, "user", text)
    elif kind not in _SILENT:
        notes.unknown[kind or "no type"] += 1


def _said(line: dict[str, Any], role: str, text: str) -> SaidLine:
    message_id = text_of(line.get("uuid")) or hashed(role, text, text_of(line.get("timestamp")))
    origin = text_of(object_of(line.get("forkedFrom")).get("sessionId"))
    session = origin or text_of(line.get("sessionId"))
    return SaidLine(message_id, session, role, text, instant_of(line.get("timestamp")), text_of(line.get("cwd")))


def _text(line: dict[str, Any], role: str, notes: Notes) -> str:
    """Return the text of a line of the user or the assistant; "" if they did not say it."""
    reason = _not_said(line)
    if reason:
        notes.left_out[reason] += 1
        return ""
    content = object_of(line.get("message")).get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        notes.unknown[f"{role} without content"] += 1
        return ""
    blocks = [object_of(block) for block in list_of(content)]
    for block in blocks:
        kind = text_of(block.get("type"))
        if kind in _BLOCKS:
            notes.left_out[_BLOCKS[kind]] += 1
        elif kind != "text":
            notes.unknown[f"{role}: {kind or 'no type'}"] += 1
    if any(block.get("type") == "tool_result" for block in blocks):
        return ""  # what stands beside a result was added by the client
    return "\n".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")


def _not_said(line: dict[str, Any]) -> str:
    """Return the reason why nobody said a line, or ""."""
    message, origin = object_of(line.get("message")), object_of(line.get("origin"))
    if line.get("isSidechain"):
        return SUBAGENTS
    if line.get("isCompactSummary"):
        return SUMMARIES
    if (
        line.get("isMeta")
        or line.get("isVisibleInTranscriptOnly")
        or line.get("isApiErrorMessage")
        or message.get("model") == "<synthetic>"
        or text_of(line.get("entrypoint")).startswith(PROGRAM_ENTRYPOINT)
        or origin.get("kind", "human") != "human"
    ):
        return ADDED
    return ""


def _queued_prompt(attachment: dict[str, Any]) -> str:
    """Return what the user typed while the assistant worked; other attachments say nothing."""
    origin = object_of(attachment.get("origin")).get("kind", "human")
    is_prompt = attachment.get("type") == "queued_command" and attachment.get("commandMode") == "prompt"
    if not is_prompt or origin != "human":
        return ""
    prompt = attachment.get("prompt")
    if isinstance(prompt, str):
        return prompt
    blocks = [object_of(block) for block in list_of(prompt)]
    return "\n".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")
