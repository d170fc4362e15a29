"""What is kept of a text, what the memory is asked, and what may go before a model."""

from __future__ import annotations

import pytest

from palimpsest.hooks import spool


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("The door code is <private>4711</private>, and I live in Lisbon.", "The door code is , and I live in Lisbon."),
        ("<private>all of it</private>", ""),
        ("a <PRIVATE>b</Private> c", "a  c"),
        ("a <private>b <private>c</private> d</private> e", "a  e"),
        ("a <private>b", "a"),
        ("a </private> b", "a </private> b"),
        ("<private>a</private> b <private>c</private> d", "b  d"),
        ("<palimpsest-memory>\nold\n</palimpsest-memory>\nI moved.", "I moved."),
        ("What does <palimpsest-memory> mean?", "What does <palimpsest-memory> mean?"),
        ("<palimpsest-memory><private></palimpsest-memory> b", "b"),
        ("1 < 2 and <b>bold</b>", "1 < 2 and <b>bold</b>"),
        ("  \n ", ""),
    ],
)
def test_private_parts_and_our_own_blocks_are_left_out(said: str, kept: str) -> None:
    assert spool.kept_part(said) == kept


@pytest.mark.parametrize(
    "prompt",
    [
        "/clear",
        "/palimpsest:recall",
        "!ls -l",
        "<task-notification>\n<task-id>b1</task-id>\n</task-notification>",
        "<command-name>/model</command-name>",
        "<local-command-stdout>done</local-command-stdout>",
        "<system-reminder>Do not…</system-reminder>",
        "[Request interrupted by user]",
    ],
)
def test_commands_and_notifications_are_not_kept(prompt: str) -> None:
    assert spool.kept_part(prompt) == ""


@pytest.mark.parametrize("prompt", ["/plan We use Postgres from now on.", "/etc/hosts is wrong", "yes"])
def test_words_of_people_are_kept(prompt: str) -> None:
    assert spool.kept_part(prompt) == prompt


def test_a_very_long_text_is_cut_with_its_length() -> None:
    kept = spool.kept_part("a" * 250_000)
    assert len(kept) < 100_100
    assert kept.endswith("a… (250000 characters)")


def test_a_text_full_of_tags_is_read_once() -> None:
    """Guards the watchdog: it cannot end the process while one call of a regular expression runs for minutes."""
    count = 200_000
    assert spool.without_private("<private>" * count) == ""
    assert spool.without_private("<palimpsest-memory>" * count) == "<palimpsest-memory>" * count


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("Which database do we use?", "Which database do we use?"),
        ("a" * 19, ""),
        ("a" * 20, "a" * 20),
        ("/plan the move to Postgres", ""),
        ("!git log --oneline --graph", ""),
        ("a" * 9_000, "a" * 4_000),
    ],
)
def test_short_prompts_and_commands_are_not_asked_for(prompt: str, asked: str) -> None:
    assert spool.question(prompt) == asked


def test_an_absurdly_long_brief_is_cut_at_a_line_and_closed() -> None:
    text = spool.injected("<palimpsest-memory>\n" + "Ada lives in Lisbon.\n" * 1_000 + "</palimpsest-memory>")
    assert len(text) < 8_100
    assert text.endswith("\nAda lives in Lisbon.\n</palimpsest-memory>")


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("<palimpsest-memory>\nx\n</palimpsest-memory>", True),
        ("x", False),
        ("<palimpsest-memory>\nx", False),
        ("<palimpsest-memory>" + "x" * 9_000 + "</palimpsest-memory>", False),
    ],
)
def test_an_answer_is_a_block_of_ours(text: str, is_ours: bool) -> None:  # noqa: FBT001 - a parameter of the table
    assert spool.is_block(text) is is_ours
