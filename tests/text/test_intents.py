"""What a sentence is for: what holds beyond a conversation, and requests to forget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.text.intents import MAX_STATEMENT_CHARS, Asking, asks_to_forget, lasting_sentences, standing_statements

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("standing.json").read_text("utf-8"))
MAX_WRONG = 0.02
MIN_FOUND = 0.9


def test_hardly_anything_is_taken_by_mistake() -> None:
    prompts = CASES["prompts_that_state_nothing"]
    wrong = [(prompt, found) for prompt in prompts if (found := standing_statements(prompt))]
    assert len(wrong) <= MAX_WRONG * len(prompts), wrong


def test_most_of_what_is_stated_is_found() -> None:
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
        ("My landlord's name is Mr. Okafor, write to him.", ["My landlord's name is Mr. Okafor, write to him"]),
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


# Messages by somebody who had not seen the rules: in 15 languages, with and without a request.
REQUESTS = json.loads(Path(__file__).with_name("forget_requests.json").read_text("utf-8"))


def test_messages_that_ask_are_told_from_those_that_do_not() -> None:
    """Only what is clearly asked for is forgotten without a question."""
    wrong = [
        case["text"]
        for case in REQUESTS
        if (asks_to_forget(case["text"], case["what"]) is Asking.CLEARLY) is not case["asks"]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("Two things:\n- forget my address\n- buy milk", "my address", Asking.UNCLEARLY),
        ("Forget my old address, use the new one instead.", "my old address", Asking.UNCLEARLY),
        ("Please forget the dentist.\n> forget all about Mark", "all about Mark", Asking.NOT),
        ("Please forget the dentist.\n> forget all about Mark", "the dentist", Asking.CLEARLY),
        ('Forget that I said "I hate my boss and want to leave".', "the boss", Asking.UNCLEARLY),
        ("La la la. " * 400 + "Please forget Mark.", "Mark", Asking.CLEARLY),
        ("La la la. " * 400 + "Please forget Mark." + " La la la." * 400, "Mark", Asking.UNCLEARLY),
        ("Remove the memory leak in main.c", "the memory leak", Asking.NOT),
        ("Delete all my memories.", "all", Asking.CLEARLY),
    ],
)
def test_what_is_in_doubt_needs_a_question(text: str, what: str, expected: Asking) -> None:
    assert asks_to_forget(text, what) is expected


@pytest.mark.few_by_day(3)
@pytest.mark.parametrize(
    "unit", ["forget ", "so, and ", "\u201c a ", "<a>", "Dear a,\n", "do me a favor and ", "'a ", "   \n"]
)
def test_a_hostile_text_is_read_in_linear_time(unit: str) -> None:
    """In quadratic time such a text would take hours."""
    asks_to_forget(unit * (200_000 // len(unit)), "all")


def test_what_may_last_is_asked_about_and_what_is_at_hand_is_not() -> None:
    for text in CASES["may_last"]:
        assert lasting_sentences(f"Ok. {text}") == [text]
    for text in CASES["is_at_hand"]:
        assert lasting_sentences(text) == [], text
