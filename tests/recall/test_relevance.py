"""What a hit's relevance and a confident reply mean, in a real memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.memory import Memory
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

LIFE = (
    "User lives in a small flat in Lyon near the river",
    "User's daughter Lina plays the violin",
    "User works as a nurse on night shifts",
    "User is allergic to peanuts",
    "The dentist appointment is on 3 March 2026",
    "User's brother Tom runs a bakery in Bristol",
)


async def fill(memory: Memory) -> None:
    """Store a life."""
    for text in LIFE:
        await memory.add_text(ALICE, text, infer=False)


async def test_relevance_is_a_probability_that_falls_with_the_order(tmp_path: Path) -> None:
    """It lies between 0 and 1 and never rises from one hit to the next."""
    async with memory_in(tmp_path) as memory:
        await fill(memory)
        for question in ("Which instrument does Lina play?", "peanuts", "What is the capital of Peru?", "?"):
            relevances = [hit.relevance for hit in (await memory.search(ALICE, question)).hits]
            assert relevances == sorted(relevances, reverse=True)
            assert all(0 <= relevance <= 1 for relevance in relevances)


async def test_what_is_known_is_more_relevant_than_what_is_not(tmp_path: Path) -> None:
    """The best hit for a question with an answer is more relevant than the best for one without."""
    async with memory_in(tmp_path) as memory:
        await fill(memory)
        known = await memory.search(ALICE, "When is the dentist appointment?")
        unknown = await memory.search(ALICE, "When does Marcello's visa XK-4471 expire?")
        assert known.confident
        assert not unknown.confident
        assert known.hits[0].relevance > unknown.hits[0].relevance
        assert len(unknown.hits) <= 5


async def test_nothing_stored_answers_nothing(tmp_path: Path) -> None:
    """An empty memory is not confident of anything."""
    async with memory_in(tmp_path) as memory:
        result = await memory.search(ALICE, "Where do I live?")
        assert result.hits == ()
        assert not result.confident


async def test_hits_below_the_least_relevance_of_the_settings_are_left_out(tmp_path: Path) -> None:
    """The reply says how many were left out."""
    async with memory_in(tmp_path, min_relevance=1.0) as memory:
        await fill(memory)
        result = await memory.search(ALICE, "Which instrument does Lina play?")
        assert result.hits == ()
        assert any("min_relevance" in note for note in result.notes)
