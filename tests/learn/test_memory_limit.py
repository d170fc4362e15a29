"""The bound on the memories of a user: what it refuses, what it lets through, and that nobody slips past it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Event, Scope
from palimpsest.memory import Memory
from tests.support.memory import ALICE, add_text, memory_in, memory_texts

pytestmark = pytest.mark.anyio

TEXTS = ("Alice keeps bees", "Alice plays the cello", "Alice lives in Lyon")


async def fill(memory: Memory) -> list[str]:
    """Add three memories and return their ids."""
    return [await add_text(memory, text) for text in TEXTS]


async def test_one_too_many_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with memory_in(tmp_path, max_memories=3) as memory:
        await fill(memory)
        edits = await memory.log(ALICE)
        with pytest.raises(InputError) as refused:
            await add_text(memory, "Alice drinks Darjeeling")
        for said in ("alice has 3 memories", "of 3 that a user may have", "nothing was stored", "Delete"):
            assert said in str(refused.value)
        assert await memory_texts(memory) == sorted(TEXTS)
        assert await memory.log(ALICE) == edits
        hits = (await memory.search(ALICE, "Darjeeling")).hits
        assert not [hit for hit in hits if "Darjeeling" in hit.text]


async def test_all_scopes_of_a_user_count_and_no_other_user_does(tmp_path: Path) -> None:
    async with memory_in(tmp_path, max_memories=2) as memory:
        for scope in (ALICE, Scope("alice", "web")):
            await memory.add_text(scope, "Tests run in parallel", infer=False)
        for scope in (ALICE, Scope("alice", "atlas"), Scope("alice", "web", "coder", "r1")):
            with pytest.raises(InputError, match="alice has 2 memories"):
                await memory.add_text(scope, "Releases are tagged", infer=False)
        await memory.add_text(Scope("bob"), "Releases are tagged", infer=False)


async def test_what_adds_nothing_is_done_in_a_full_memory_and_nothing_goes_round_it(tmp_path: Path) -> None:
    async with memory_in(tmp_path, max_memories=3) as memory:
        bees, cello, _ = await fill(memory)
        await add_text(memory, "Alice keeps wasps", replaces=[bees])
        await memory.update(ALICE, cello, text="Alice plays the viola")
        repeated = await memory.add_text(ALICE, TEXTS[2], infer=False)
        assert [outcome.event for outcome in repeated.outcomes] == [Event.NONE]
        await memory.delete(ALICE, [cello])
        await add_text(memory, "Alice drinks Darjeeling")
        with pytest.raises(InputError, match="another one would be added"):
            await memory.restore(ALICE, cello)
        for _ in range(4):
            await memory.undo(ALICE)
        assert await memory_texts(memory) == sorted(TEXTS)


async def test_many_writers_at_once_do_not_exceed_it(tmp_path: Path) -> None:
    refused: list[InputError] = []

    async def add(memory: Memory, number: int) -> None:
        try:
            await memory.add_text(Scope("alice", f"project {number % 3}"), f"Ticket {number} is open", infer=False)
        except InputError as error:
            refused.append(error)

    async with memory_in(tmp_path, max_memories=7) as first, memory_in(tmp_path, max_memories=7) as second:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(add, (first, second)[number % 2], number)
        stored = [hit for number in range(3) for hit in (await first.list(Scope("alice", f"project {number}"))).hits]
    assert len({hit.id for hit in stored}) == 7
    assert len(refused) == 13
