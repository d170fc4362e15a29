"""Sentences that state a rule, a preference, a decision, a name or a place are recognized, and hardly anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.text.intents import MAX_STATEMENT_CHARS, standing_statements

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("standing.json").read_text("utf-8"))
MAX_WRONG = 0.02
MIN_FOUND = 0.9


def test_hardly_anything_is_taken_by_mistake() -> None:
    """Tasks, questions, complaints, quotations, texts to work on, code and what holds for once state nothing."""
    prompts = CASES["prompts_that_state_nothing"]
    wrong = [(prompt, found) for prompt in prompts if (found := standing_statements(prompt))]
    assert len(wrong) <= MAX_WRONG * len(prompts), wrong


def test_most_of_what_is_stated_is_found() -> None:
    """A prompt says it beside its task; what is taken is that sentence, not the task."""
    prompts = [(text, gist) for text, gist in CASES["prompts_that_state"]]
    prompts += [(f"Fix the login page. {text}.", text) for text in CASES["statements"]]
    missed = [
        text
        for text, gist in prompts
        if not any(
            gist.casefold()[:12] in found.text.casefold() and len(found.text) <= 2 * len(gist) + 20
            for found in standing_statements(text)
        )
    ]
    assert len(missed) <= (1 - MIN_FOUND) * len(prompts), missed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "Never use time.Sleep in tests, use the fake clock. thanks",
            ["Never use time.Sleep in tests, use the fake clock"],
        ),
        ("I'm vegetarian, what can I order in a Styrian inn?", ["I'm vegetarian"]),
        ("My landlord's name is Mr. Okafor, write to him.", ["My landlord's name is Mr. Okafor"]),
        (
            "- always answer briefly\n- the deploy token lies in 1Password",
            ["Always answer briefly", "The deploy token lies in 1Password"],
        ),
        ("```\nalways free it\n```\n> We always ship on Tuesday\nis that so?", []),
        ("Translate: my name is Anna.\nI live in Rome.", []),
        ("We never deploy on Fridays. " * (MAX_STATEMENT_CHARS // 20), []),
    ],
)
def test_what_is_taken_is_the_sentence_as_it_was_said(text: str, found: list[str]) -> None:
    assert [statement.text for statement in standing_statements(text)] == found
