"""What becomes of facts of one extraction that say the same, or of which one was true before another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.memory import Memory
from tests.learn.decisions import ids_of, scripted
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio

PARIS, ROME, OSLO = "User lives in Paris.", "User lives in Rome.", "User lives in Oslo."


def extracted(*facts: tuple[str, int]) -> str:
    return json.dumps({"facts": [{"text": text, "sources": [source]} for text, source in facts]})


def said(*years: int) -> Any:
    return messages_from(
        *({"role": "user", "content": f"Said in {year}.", "at": f"{year}-01-01T10:00:00Z"} for year in years)
    )


async def closed(memory: Memory) -> dict[str, StoredMemory]:
    hits = (await memory.list(ALICE, deleted=True)).hits
    return {hit.text: (await memory.history(ALICE, hit.id))[0] for hit in hits}


async def test_what_a_replaced_fact_contradicts_is_replaced_too(tmp_path: Path) -> None:
    """Paris is stored; Rome contradicts it, and Oslo contradicts Rome. Only Oslo holds."""

    def decide(_facts: Any, memories: Any) -> list[tuple[Any, ...]]:
        return [(0, "DELETE", ids_of(memories, "Paris")[0], None), (1, "DELETE", ids_of(memories, "Rome")[0], None)]

    chat = scripted([extracted((PARIS, 1)), extracted((ROME, 1), (OSLO, 2))], decide)
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said(2020))
            await memory.add_messages(said(2024, 2026))
            assert await memory_texts(memory) == [OSLO]
            assert (await closed(memory)).keys() == {PARIS, ROME}


async def test_a_memory_that_says_what_a_replaced_fact_says_is_replaced(tmp_path: Path) -> None:
    """First "still in Rome" and then "Oslo" in one call: the stored Rome is closed, and is not stored twice."""

    def decide(_facts: Any, memories: Any) -> list[tuple[Any, ...]]:
        return [
            (0, "NONE", ids_of(memories, "lives in Rome")[0], None),
            (1, "DELETE", ids_of(memories, "living in Rome")[0], None),
        ]

    chat = scripted([extracted((ROME, 1)), extracted(("User is living in Rome.", 1), (OSLO, 2))], decide)
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said(2020))
            await memory.add_messages(said(2024, 2026))
            assert await memory_texts(memory) == [OSLO]
            assert (await closed(memory)).keys() == {ROME}


MISO = ("User has a cat named Miso.", "User's cat is named Miso.", "The cat of User is named Miso.")


async def test_three_facts_that_say_the_same_become_one_memory(tmp_path: Path) -> None:
    """The model says it in a chain: the third is the second, the second is the first."""

    def decide(_facts: Any, memories: Any) -> list[tuple[Any, ...]]:
        first, second = ids_of(memories, "has a cat")[0], ids_of(memories, "User's cat")[0]
        return [(0, "ADD", None, None), (1, "NONE", first, None), (2, "NONE", second, None)]

    chat = scripted([extracted(*((text, source) for source, text in enumerate(MISO, 1)))], decide)
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said(2024, 2025, 2026))
            (hit,) = (await memory.list(ALICE)).hits
    assert (hit.text, len(hit.sources)) == (MISO[0], 3)


async def test_every_fact_that_is_not_kept_is_named(tmp_path: Path) -> None:
    """A fact that says the same as one that is not worth keeping is not kept either."""

    def decide(_facts: Any, memories: Any) -> list[tuple[Any, ...]]:
        return [(0, "NONE", None, None), (1, "NONE", ids_of(memories, "has a cat")[0], None)]

    chat = scripted([extracted((MISO[0], 1), (MISO[1], 1))], decide)
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            result = await memory.add_messages(said(2026))
    for text in MISO[:2]:
        assert any("not kept" in note and text in note for note in result.notes)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("order", [(OSLO, PARIS), (PARIS, OSLO)], ids=["newer first", "older first"])
async def test_a_newer_and_an_older_fact_contradict_one_memory(tmp_path: Path, order: tuple[str, str]) -> None:
    """The newer one replaces it, and the older one is stored as replaced by it, in whatever order they come."""

    def decide(facts: Any, memories: Any) -> list[tuple[Any, ...]]:
        return [(fact["fact"], "DELETE", ids_of(memories, "Rome")[0], None) for fact in facts]

    sources = {OSLO: 2, PARIS: 1}
    chat = scripted([extracted((ROME, 1)), extracted(*((text, sources[text]) for text in order))], decide)
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said(2022))
            await memory.add_messages(said(2019, 2026))
            assert await memory_texts(memory) == [OSLO]
            gone = await closed(memory)
    assert {text: old.valid_until.year for text, old in gone.items() if old.valid_until} == {PARIS: 2022, ROME: 2026}


@pytest.mark.parametrize("event", ["NONE", "UPDATE"])
async def test_what_another_memory_replaces_is_named_in_its_history(tmp_path: Path, event: str) -> None:
    """A fact that is known by one memory contradicts another one: the known memory is the successor."""

    def decide(facts: Any, memories: Any) -> list[tuple[Any, ...]]:
        if len(facts) == 2:
            return [(0, "ADD", None, None), (1, "ADD", None, None)]
        wording = "User lives in Oslo, in Tøyen." if event == "UPDATE" else None
        return [(0, event, ids_of(memories, "Oslo")[0], wording), (0, "DELETE", ids_of(memories, "Rome")[0], None)]

    home = "User's home is in Rome."
    replies = [extracted((OSLO, 1), (home, 1)), extracted(("User is living in Oslo, Tøyen.", 1))]
    with OpenAIServer(scripted(replies, decide)) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said(2020))
            await memory.add_messages(said(2024))
            (hit,) = (await memory.list(ALICE)).hits
            assert [old.memory.text for old in await memory.predecessors(ALICE, hit.id)] == [home]
