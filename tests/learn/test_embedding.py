"""What a call embeds, what waits for the background, and who embeds it."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from palimpsest.memory import Memory
from tests.support.memory import ALICE, memory_in
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

NICE, LYON = "User lives in Nice", "User lives in Lyon"


async def test_of_a_long_text_a_call_embeds_the_first_window(tmp_path: Path) -> None:
    text = "The violin is old. " * 1_000
    async with memory_in(tmp_path) as plain:
        memory, embedder = watched(plain)
        added = await memory.add_text(ALICE, text, infer=False, metadata={"source": "letter"})  # no document
        ((window,),) = embedder.texts
        assert window == plain.engine.embedder.windows(text)[0]
        assert [note for note in added.notes if "1 long text" in note]
        assert (await memory.health())["vectors"] == "waiting"
        found = await memory.search(ALICE, "violin")
        assert len(found.hits) == 1
        await memory.care.rebuild()
        assert (await memory.health())["vectors"] == "complete"


async def test_a_memory_changes_over_to_another_embedder_and_can_be_searched_meanwhile(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as before:
        await before.add_text(ALICE, "Anna spielt Geige", infer=False)
        await before.add_text(ALICE, "User lives in Nice", infer=False)
        async with memory_in(tmp_path, background=True, embedder={"provider": "e5"}) as memory:
            assert (await memory.care.waiting(), await memory.care.waiting()) == (2, 2), (
                "nothing begins before the first call"
            )
            found = await memory.search(ALICE, "Geige")
            assert found.hits[0].text == "Anna spielt Geige"
            await memory.add_text(ALICE, "User drinks tea", infer=False)
            await _until_complete(memory)
            found = await memory.search(ALICE, "Which instrument does Anna play?")
            assert found.hits[0].text == "Anna spielt Geige"
            await before.add_text(ALICE, "User has a dog", infer=False)
            assert (await memory.search(ALICE, "dog")).hits[0].text == "User has a dog"
        assert (await before.search(ALICE, "Nice")).hits[0].text == "User lives in Nice"


async def _until_complete(memory: Memory) -> None:
    with anyio.fail_after(60):
        while (await memory.health())["vectors"] != "complete":
            await anyio.lowlevel.checkpoint()
