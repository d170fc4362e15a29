"""What a hit's relevance and a confident reply mean, in a real memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.memory import Memory
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

UNANSWERED = "When does Marcello's visa XK-4471 expire?"

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
        unknown = await memory.search(ALICE, UNANSWERED)
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


REMEMBERED = (
    *LIFE,
    "Deploys to production happen on Tuesdays and Thursdays, never on a Friday",
    "The billing database is Postgres 16 and runs on port 5433",
    "Marta reviews every change to the payment code",
    "User prefers short answers without bullet points",
    "The staging server is reset every night at 3 o'clock",
    "The team decided to replace Redis with a table in Postgres",
    "Commit messages are written in the imperative and in English",
    "The car, a blue Skoda, has its inspection in March 2027",
    "User drinks oat milk in coffee and no sugar",
    "User's mother Helga turns seventy on 4 May 2027",
    "The API answers with 409 when two clients edit the same record",
    "User runs every Sunday morning along the river with Jonas",
    "Jonas moved to Hamburg in the autumn and works at a hospital",
    "Invoices are sent on the first working day of the month",
    "User reads mostly science fiction, and likes Ursula Le Guin best",
    "Secrets are stored in Vault and are never written into the repository",
    "The kitchen was painted green in spring",
    "User plans to visit Lisbon with Lina in the summer holidays",
    "Lina is afraid of dogs",
    "Lina's best friend is Emma",
    "Lina loves strawberry ice cream",
)
"""A memory in which many facts are about one person."""

IN_OTHER_WORDS = (
    "What do you know about Lina?",
    "Tell me about Lina",
    "facts about Lina",
    "Was weißt du über Lina?",
    "¿Qué sabes de Jonas?",
    "Which days may we release?",
    "Who checks payment changes?",
    "What food must I avoid?",
    "mum's birthday",
    "favourite author",
)
"""Questions that a stored text answers, most of them in other words."""

WITHOUT_ANSWER = (
    UNANSWERED,
    "Does Marta have a dog?",
    "Who teaches Lina Portuguese?",
    "When was Tom born?",
    "What is the password of the staging server 4?",
    "What did ADR-007 decide?",
)
"""Questions that nothing answers, though some name somebody or something that is known."""

EMBEDDERS = ("static", "local")

TAKEN_FOR_ANSWERS = 1
"""For so many of these questions an embedder may take a near memory for an answer."""


async def remember(memory: Memory) -> None:
    """Store what is remembered, with its vectors."""
    for text in REMEMBERED:
        await memory.add_text(ALICE, text, infer=False)
    await memory.care.rebuild()


@pytest.mark.parametrize("embedder", EMBEDDERS)
async def test_a_right_answer_is_not_called_weak(tmp_path: Path, embedder: str) -> None:
    """A reply that has the answer says nothing against it, whether the question is open or in other words."""
    async with memory_in(tmp_path, embedder={"provider": embedder}) as memory:
        await remember(memory)
        weak = [question for question in IN_OTHER_WORDS if (await memory.search(ALICE, question)).is_weak]
        assert weak == []


@pytest.mark.parametrize("embedder", EMBEDDERS)
async def test_what_nothing_answers_is_called_weak(tmp_path: Path, embedder: str) -> None:
    """A known name, or a word of the question, is no answer."""
    async with memory_in(tmp_path, embedder={"provider": embedder}) as memory:
        await remember(memory)
        sure = [question for question in WITHOUT_ANSWER if not (await memory.search(ALICE, question)).is_weak]
        assert len(sure) <= TAKEN_FOR_ANSWERS, sure


async def test_all_that_a_filter_leaves_is_not_called_weak(tmp_path: Path) -> None:
    """Whoever narrows a search to a few memories wants these, in whatever words they ask. All of them are shown."""
    async with memory_in(tmp_path) as memory:
        await fill(memory)
        for number in range(7):
            await memory.add_text(ALICE, f"Rule {number}: lint before a commit", metadata={"area": "work"}, infer=False)
        await memory.care.rebuild()
        narrowed = await memory.search(ALICE, UNANSWERED, filters={"area": "work"})
        assert (len(narrowed.hits), narrowed.is_weak, narrowed.confident) == (7, False, False)
        assert (await memory.search(ALICE, UNANSWERED, filters={"area": "work"}, limit=6)).is_weak
        assert (await memory.search(ALICE, UNANSWERED, filters={"area": "work"}, max_tokens=50)).is_weak
        for filters in ({}, {"kind": "memory"}, {"created_at": {"gte": "2000-01-01"}}):
            wide = await memory.search(ALICE, UNANSWERED, filters=filters)
            assert wide.is_weak
            assert len(wide.hits) == 5
