"""`vector_store.provider = "exact"`: searches without an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.index import sync
from tests.support.ledger_access import store_memory
from tests.support.ledger_files import data_files, search_texts
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

TEA, BREAD = "User drinks green tea", "User bakes rye bread"
EXACT = {"provider": "exact"}


@pytest.mark.parametrize("numbers", [2**20, 0], ids=["in memory", "no room"])
async def test_a_search_finds_everything_and_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    """Guards the scan: it is ready at once, and the same whether or not there is room for the keys."""
    monkeypatch.setattr(sync, "MAX_NUMBERS_WITHOUT_INDEX", numbers)
    async with memory_in(tmp_path, vector_store=EXACT) as memory:
        store_memory(memory, TEA)
        before = data_files(tmp_path)
        memory.projection.open()
        store_memory(memory, BREAD)
        for question, text in (("Which hot drink?", TEA), ("What comes out of the oven?", BREAD)):
            assert (await search_texts(memory, question))[0] == text
        assert (memory.projection.count(), memory.projection.is_behind()) == (2, False)
        assert bool(memory.kept_keys.kept_users()) is bool(numbers)
    assert data_files(tmp_path) == before


async def test_a_purge_deletes_the_index_that_was_used_before(tmp_path: Path) -> None:
    """Guards erased vectors: who changes the setting leaves a folder behind that nobody opens."""
    async with memory_in(tmp_path) as memory:
        purged = store_memory(memory, TEA)
        memory.projection.open()
    assert list((tmp_path / "index").rglob("*.sqlite3"))
    async with memory_in(tmp_path, vector_store=EXACT) as memory:
        assert (await memory.care.purge(ALICE, [purged])).clean
    assert not list((tmp_path / "index").rglob("*.sqlite3"))
