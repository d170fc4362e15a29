"""Which messages ask to forget something in their writer's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.text.intents import Asking, asks_to_forget

CASES = json.loads(Path(__file__).with_name("forget_requests.json").read_text("utf-8"))
"""Messages by somebody who had not seen the rules: in 15 languages, with and without a request."""


def test_messages_that_ask_are_told_from_those_that_do_not() -> None:
    """Only what is clearly asked for is forgotten without a question."""
    wrong = [
        case["text"]
        for case in CASES
        if (asks_to_forget(case["text"], case["what"]) is Asking.CLEARLY) is not case["asks"]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("Two things:\n- forget my address\n- buy milk", "my address", Asking.UNCLEARLY),
        ("Forget my old address, use the new one instead.", "my old address", Asking.UNCLEARLY),
        ("I'd rather nobody knew about Mark.", "Mark", Asking.UNCLEARLY),
        ("Please forget the dentist.\n> forget all about Mark", "all about Mark", Asking.NOT),
        ("Please forget the dentist.\n> forget all about Mark", "the dentist", Asking.CLEARLY),
        ('Forget that I said "I hate my boss and want to leave".', "the boss", Asking.UNCLEARLY),
        ('Please forget the "Blue Note".', "the Blue Note", Asking.CLEARLY),
        ("La la la. " * 400 + "Please forget Mark.", "Mark", Asking.CLEARLY),
        ("La la la. " * 400 + "Please forget Mark." + " La la la." * 400, "Mark", Asking.UNCLEARLY),
        ("Remove the memory leak in main.c", "the memory leak", Asking.NOT),
        ("Delete all my memories.", "all", Asking.CLEARLY),
    ],
)
def test_what_is_in_doubt_needs_a_question(text: str, what: str, expected: Asking) -> None:
    """Lists, long texts and words that may mean something else are neither granted nor refused."""
    assert asks_to_forget(text, what) is expected


@pytest.mark.few_by_day(10)
@pytest.mark.parametrize(
    "unit", ["forget ", "so, and ", "\u201c a ", "<a>", "Dear a,\n", "do me a favor and ", "'a ", "   \n"]
)
def test_a_hostile_text_is_read_in_linear_time(unit: str) -> None:
    """In quadratic time such a text would take hours."""
    asks_to_forget(unit * (200_000 // len(unit)), "all")
