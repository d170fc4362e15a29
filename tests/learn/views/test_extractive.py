"""What says most of many texts, without a model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from palimpsest.learn.summaries.extractive import Passage, centrality, likeness, most_telling
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

NOW = datetime(2026, 11, 20, tzinfo=UTC)
HALF_LIFE = timedelta(days=90)

DOG = [
    "Mara has a dog named Rex",
    "Rex the dog of Mara sleeps in the kitchen",
    "Mara walks the dog Rex at seven",
    "The train to Ghent was late",
]


def days_ago(days: int) -> datetime:
    """Return a time so many days before now."""
    return NOW - timedelta(days=days)


def test_what_many_resemble_is_central() -> None:
    values = centrality(likeness(DOG, [None] * len(DOG)))
    assert values.argmin() == 3
    assert values.max() == pytest.approx(1.0)


def test_central_by_meaning_where_there_are_vectors() -> None:
    texts = ["eins", "zwei", "drei", "vier"]
    near = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]], dtype=np.float32)
    assert most_telling([Passage(text, vector=row) for text, row in zip(texts, near, strict=True)], 1) == [1]


def test_the_most_telling_fit_the_token_count_and_the_best_comes_first() -> None:
    passages = [Passage(text) for text in DOG]
    best = most_telling(passages, 10_000)
    assert best[0] == 0
    assert best[1] == 3  # the other subject comes before more of the first
    assert sorted(best) == [0, 1, 2, 3]
    assert len(most_telling(passages, 15)) < len(DOG)
    assert most_telling(passages, 1) == []


def test_what_repeats_a_chosen_text_is_left_out() -> None:
    passages = [Passage("Mara has a dog named Rex"), Passage("Mara's dog is named Rex"), Passage("Rain is likely")]
    assert most_telling(passages, 1_000) == [0, 2]


def test_of_two_that_say_the_same_the_newer_one_stays() -> None:
    old, new = Passage("Mara works at Kisling", days_ago(400)), Passage("Mara works at the Kisling", days_ago(2))
    assert most_telling([old, new], 1_000, now=NOW, half_life=HALF_LIFE) == [1]


def test_recency_counts_only_where_it_is_asked_for() -> None:
    old, new = Passage("The ferry leaves at nine", days_ago(300)), Passage("Tomatoes grow in the yard", days_ago(1))
    assert most_telling([old, new], 1_000) == [0, 1]
    assert most_telling([old, new], 1_000, now=NOW, half_life=HALF_LIFE) == [1, 0]


def test_a_heavier_text_comes_first() -> None:
    assert most_telling([Passage("The ferry leaves at nine"), Passage("Tomatoes grow", weight=2.0)], 1_000) == [1, 0]


def test_the_cost_of_a_line_may_be_more_than_that_of_its_text() -> None:
    assert most_telling([Passage("Tomatoes grow", tokens=50), Passage("The ferry leaves")], 20) == [1]


def test_nothing_of_nothing() -> None:
    assert most_telling([], 100) == []
    assert most_telling([], 100, now=NOW, half_life=HALF_LIFE) == []


def test_the_order_is_the_same_every_time() -> None:
    passages = [Passage(f"Sentence {number} about Rex", days_ago(number)) for number in range(40)]
    first = most_telling(passages, 200, now=NOW, half_life=HALF_LIFE)
    assert all(most_telling(passages, 200, now=NOW, half_life=HALF_LIFE) == first for _ in range(3))


@pytest.mark.anyio
async def test_what_has_ended_is_not_summarized_beside_what_says_so(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for text in ("Mira is allergic to hazelnuts", "Mira flies to Cremona on 4 December", "Jonas works for Volvo"):
            await add_text(memory, text)
        clock.forward(days=2)
        later = ("Mira is allergic to walnuts, not hazelnuts", "The Cremona trip is cancelled", "Jonas has resigned")
        for text in later:
            await add_text(memory, text)
        summary = (await memory.summary(ALICE)).text
    assert [line.split(" ", 2)[2] for line in summary.splitlines()] == [
        "Mira is allergic to walnuts, not hazelnuts",
        "Jonas has resigned",
        "The Cremona trip is cancelled",
    ]
