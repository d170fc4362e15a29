"""What of a text is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.hooks.captured import said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain words", "plain words"),
        ("a <private>b <private>c</private> d</private> e", "a  e"),
        ("a <PRIVATE>hides the rest", "a"),
        ("why does <command-name> appear?", "why does <command-name> appear?"),
        ("<system-reminder>x</system-reminder>\nreal words", "real words"),
        ("<bash-stdout foo='1'>x</bash-stdout><bash-stderr>y</bash-stderr>", ""),
        ("<command-message>review</command-message>\n<command-name>/review</command-name>", ""),
        ("[Request interrupted by user for tool use]", ""),
        ("/compact", ""),
        ("/review the login page", "/review the login page"),
        ("zero width \u200b only", "zero width \u200b only"),
        ("\u200b", ""),
        ("Ärger mit <ide_selection>code</ide_selection>Umlauten — 日本語も", "Ärger mit Umlauten — 日本語も"),
    ],
)
def test_what_a_person_said_is_kept(text: str, kept: str) -> None:
    """Blocks of clients and private parts go, words stay, in every language."""
    assert said("user", text) == kept


def test_the_assistants_words_are_no_commands() -> None:
    """An exclamation mark or a path begins an answer too."""
    assert said("assistant", "/etc") == "/etc"
    assert said("assistant", "!important is a CSS keyword.") == "!important is a CSS keyword."


def test_many_open_tags_take_linear_time() -> None:
    """Guards the server against a text made to keep it busy; this takes minutes if every tag is searched an end for."""
    assert len(said("assistant", "<system-reminder>" * 200_000)) == 200_000 * len("<system-reminder>")


BLOCKS: list[dict[str, str]] = json.loads((Path(__file__).parent / "recalled_blocks.json").read_text("utf-8"))
"""Texts with blocks that memory tools put into them, and texts that only look so: what goes and what stays."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: ascii(block["text"][:40]))
def test_what_memory_tools_recalled_was_not_said(block: dict[str, str]) -> None:
    """Guards the memory from learning again what it, or another one, put into the session."""
    kept = said("user", block["text"])
    assert not block["gone"] or block["gone"] not in kept
    assert block["kept"] in kept


@pytest.mark.parametrize(
    "tag",
    [
        "recalled-memories",
        "auto-memory",
        "userMemories",
        "past-conversations",
        "mem0-context",
        "letta_memory",
        "memory",
    ],
)
def test_any_tag_that_frames_recalled_text_is_known(tag: str) -> None:
    assert said("assistant", f"<{tag}>\n- User likes tea\n</{tag}>\nHello") == "Hello"


@pytest.mark.parametrize("tag", ["in-memory-cache", "memory-limit", "MemoryList", "context"])
def test_tags_of_other_documents_stay(tag: str) -> None:
    assert "tea" in said("user", f"<{tag}>\n- tea\n</{tag}>\nHello")


def test_many_tags_of_recalled_text_take_linear_time() -> None:
    assert said("user", "<memory_context> " * 100_000).startswith("<memory_context>")
