"""Codex's rollouts: JSON lines `{timestamp, type, payload}`; until the summer of 2025 the payload alone.

The types are those of `RolloutItem` and `ResponseItem` in codex-rs/protocol, until version 0.160. What was said is in
`response_item` lines of type `message`, in every version; events repeat some of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palimpsest.capture.transcripts.said import (
    ADDED,
    NO_TEXT,
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
from palimpsest.hook.paths import hashed

_SILENT = frozenset({"event_msg", "turn_context", "world_state", "token_usage_record", "ghost_snapshot"})
"""Types of lines that say nothing."""

_ITEMS = {
    "reasoning": THINKING,
    "compaction": SUMMARIES,
    "compaction_summary": SUMMARIES,
    "local_shell_call": TOOLS,
    "function_call": TOOLS,
    "function_call_output": TOOLS,
    "custom_tool_call": TOOLS,
    "custom_tool_call_output": TOOLS,
    "tool_search_call": TOOLS,
    "tool_search_output": TOOLS,
    "web_search_call": TOOLS,
    "mcp_call": TOOLS,
    "image_generation_call": NO_TEXT,
    "ghost_snapshot": ADDED,
}
"""What items other than messages are."""

_ADDED = (
    "# AGENTS.md instructions",
    "These AGENTS.md instructions",
    "The previously provided AGENTS.md instructions",
    "<user_instructions>",
    "<environment_context>",
    "<skill>",
    "<codex_internal_context",
)
"""How texts begin that Codex adds to what the user said."""

_REQUEST = "## My request for Codex:"
"""What an editor puts before the user's own words, after the files that are open."""

_CONTEXT = "# Context from my IDE setup:"


def files_in(folder: Path) -> list[Path]:
    """Return the rollouts of all sessions."""
    return sorted(folder.rglob("rollout-*.jsonl"))


def lines_of(line: dict[str, Any], notes: Notes) -> Iterator[SaidLine]:
    """Yield what a line of a rollout says, and note the rest."""
    kind = text_of(line.get("type"))
    payload = object_of(line.get("payload"))
    if kind == "session_meta":
        _begin(payload, notes)
    elif kind == "compacted":
        notes.left_out[SUMMARIES] += 1
    elif kind == "response_item":
        yield from _item(payload, text_of(line.get("timestamp")), notes)
    elif kind == "message" or kind in _ITEMS:
        yield from _item(line, text_of(line.get("timestamp")), notes)
    elif not kind and "id" in line and "timestamp" in line:
        _begin(line, notes)  # the first line of old rollouts
    elif kind not in _SILENT and line.get("record_type") != "state":
        notes.unknown[kind or "no type"] += 1


def _begin(meta: dict[str, Any], notes: Notes) -> None:
    """Note what the first line says of the session. A fork also has that of the session it was made from."""
    if notes.session:
        return
    notes.session = text_of(meta.get("id")) or text_of(meta.get("session_id"))
    notes.cwd = text_of(meta.get("cwd"))
    notes.origin = text_of(meta.get("forked_from_id"))
    notes.is_subagent = bool(object_of(meta.get("source")).keys() & {"subagent", "internal"})


def _item(item: dict[str, Any], timestamp: str, notes: Notes) -> Iterator[SaidLine]:
    kind, role = text_of(item.get("type")), text_of(item.get("role"))
    if kind in _ITEMS:
        notes.left_out[_ITEMS[kind]] += 1
    elif kind != "message":
        notes.unknown[f"response_item: {kind or 'no type'}"] += 1
    elif role not in ("user", "assistant"):
        notes.left_out[ADDED] += 1
    else:
        text = "\n".join(text for part in list_of(item.get("content")) if (text := _text(object_of(part), notes)))
        if text:
            message_id = text_of(item.get("id")) or hashed(role, text, timestamp)
            yield SaidLine(message_id, "", role, text, instant_of(timestamp))


def _text(part: dict[str, Any], notes: Notes) -> str:
    """Return the text of a part of a message; "" if it has none, or if Codex added it."""
    kind, text = text_of(part.get("type")), text_of(part.get("text"))
    if kind not in ("input_text", "output_text", "text"):
        if kind in ("input_image", "input_file", "input_audio"):
            notes.left_out[NO_TEXT] += 1
        else:
            notes.unknown[f"message: {kind or 'no type'}"] += 1
        return ""
    if text.lstrip().startswith(_CONTEXT):
        text = text.partition(_REQUEST)[2]
    if text.lstrip().startswith(_ADDED):
        notes.left_out[ADDED] += 1
        return ""
    return text
