"""Searches that are answered from memory see every change of the ledger, whoever made it."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import pytest

from palimpsest.admin.backup import back_up, restore
from palimpsest.core.models import Scope
from palimpsest.index import keys
from palimpsest.memory import Memory
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

QUESTION = "Which insects live behind the house?"
"""Asks for the bees below by meaning: the two have no word in common."""

BEES = "User keeps bees in the garden"


async def texts_found(memory: Memory, scope: Scope = ALICE) -> list[str]:
    return [hit.text for hit in (await memory.search(scope, QUESTION)).hits]


async def test_a_memory_that_another_process_adds_changes_or_deletes(tmp_path: Path) -> None:
    """Guards the keys of one process against the writes of another on the same ledger."""
    async with memory_in(tmp_path) as memory, memory_in(tmp_path) as other:
        await add_text(memory, "User's dog is named Rex")
        assert BEES not in await texts_found(memory)
        assert memory.kept_keys.kept_users() == ["alice"]
        bees = await add_text(other, BEES)
        assert (await texts_found(memory))[0] == BEES
        await other.update(ALICE, bees, text="User keeps wasps in the garden")
        assert (await texts_found(memory))[0] == "User keeps wasps in the garden"
        await other.delete(ALICE, [bees])
        assert await texts_found(memory) == ["User's dog is named Rex"]
        await other.restore(ALICE, bees)
        assert (await texts_found(memory))[0] == "User keeps wasps in the garden"


async def test_a_purge_leaves_no_keys_in_memory(tmp_path: Path) -> None:
    """Guards erasure: a vector says much of what its text said."""
    async with memory_in(tmp_path) as memory:
        bees = await add_text(memory, BEES)
        await add_text(memory, "User's dog is named Rex")
        assert (await texts_found(memory))[0] == BEES
        assert memory.kept_keys.kept_users() == ["alice"]
        assert (await memory.care.purge(ALICE, [bees])).clean
        assert memory.kept_keys.kept_users() == []
        assert await texts_found(memory) == ["User's dog is named Rex"]


async def test_a_restored_ledger(tmp_path: Path) -> None:
    """Guards against keys of entries that the restored ledger does not have, or has under other numbers."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, "User's dog is named Rex")
        copy = await anyio.to_thread.run_sync(lambda: back_up(memory.settings, None, clock).path)
        await add_text(memory, BEES)
        assert (await texts_found(memory))[0] == BEES
        await anyio.to_thread.run_sync(lambda: restore(memory.settings, copy, clock))
        assert await texts_found(memory) == ["User's dog is named Rex"]
        await add_text(memory, BEES)
        assert (await texts_found(memory))[0] == BEES


async def test_a_user_with_too_many_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the way without keys in memory: before the index is open, and with it."""
    monkeypatch.setattr(keys, "MAX_NUMBERS", 0)
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User's dog is named Rex")
        await add_text(memory, BEES)
        assert (await texts_found(memory))[0] == BEES
        await memory.care.rebuild()
        assert (await texts_found(memory))[0] == BEES
        assert memory.kept_keys.kept_users() == []


async def test_a_narrow_scope_sees_only_its_own(tmp_path: Path) -> None:
    """Guards scopes: the keys in memory are those of all scopes of a user."""
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User's dog is named Rex")
        await memory.add_text(Scope("alice", project="honey"), BEES, infer=False)
        assert (await texts_found(memory, Scope("alice", project="honey")))[0] == BEES
        assert BEES not in await texts_found(memory, Scope("alice", project="other"))
        assert await texts_found(memory, Scope("bob")) == []
