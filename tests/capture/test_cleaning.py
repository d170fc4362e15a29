"""What of a text is kept."""

from __future__ import annotations

import json
from pathlib import Path

from palimpsest.hooks.intake import clean_text

KEPT_OF_USERS = {
    "plain words": "plain words",
    "a <private>b <private>c</private> d</private> e": "a  e",
    "a <PRIVATE>hides the rest": "a",
    "why does <command-name> appear?": "why does <command-name> appear?",
    "<system-reminder>x</system-reminder>\nreal words": "real words",
    "<bash-stdout foo='1'>x</bash-stdout><bash-stderr>y</bash-stderr>": "",
    "<command-message>review</command-message>\n<command-name>/review</command-name>": "",
    "[Request interrupted by user for tool use]": "",
    "/compact": "",
    "/review the login page": "/review the login page",
    "zero width \u200b only": "zero width \u200b only",
    "\u200b": "",
    "Ärger mit <ide_selection>code</ide_selection>Umlauten — 日本語も": "Ärger mit Umlauten — 日本語も",
}
BLOCKS: list[dict[str, str]] = json.loads((Path(__file__).parent / "recalled_blocks.json").read_text("utf-8"))
"""Texts with blocks that memory tools put into them, and texts that only look so: what goes and what stays."""

RECALLED_TAGS = ("recalled-memories", "auto-memory", "userMemories", "past-conversations", "mem0-context")
CLIENT_TAGS = ("permissions instructions", "plugins_instructions", "local-command-caveat", "ide_opened_file")


def test_what_a_person_said_is_kept() -> None:
    for text, kept in KEPT_OF_USERS.items():
        assert clean_text("user", text) == kept, text
    for text in ("/etc", "!important is a CSS keyword."):
        assert clean_text("assistant", text) == text
    for tag in CLIENT_TAGS:
        assert clean_text("user", f"<{tag}>\nx\n</{tag}>\nHello") == "Hello", tag


def test_what_memory_tools_recalled_was_not_said() -> None:
    """Guards the memory from learning again what it, or another one, put into the session."""
    for block in BLOCKS:
        kept = clean_text("user", block["text"])
        assert not block["gone"] or block["gone"] not in kept, block
        assert block["kept"] in kept, block
    for tag in (*RECALLED_TAGS, "letta_memory", "memory"):
        assert clean_text("assistant", f"<{tag}>\n- User likes tea\n</{tag}>\nHello") == "Hello", tag
    for tag in ("in-memory-cache", "memory-limit", "MemoryList", "context"):
        assert "tea" in clean_text("user", f"<{tag}>\n- tea\n</{tag}>\nHello"), tag


def test_many_tags_take_linear_time() -> None:
    """Guards the server against a text made to keep it busy; this takes minutes if every tag is searched an end for."""
    assert len(clean_text("assistant", "<system-reminder>" * 100_000)) == 100_000 * len("<system-reminder>")
    assert clean_text("user", "<memory_context> " * 50_000).startswith("<memory_context>")
