"""A clock that jumps between writes, back a day and forward a year: ids, order and undo do not depend on it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.admin.backup import back_up, restore
from palimpsest.core.models import Undo
from palimpsest.recall.listing import Page
from tests.support.ledger_access import row_faults
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, memory_texts

pytestmark = pytest.mark.anyio

JUMPS = (timedelta(days=-1), timedelta(days=365), timedelta(days=-365 * 20), timedelta())
TEXTS = [f"User has seen film {number}" for number in range(len(JUMPS))]


async def test_order_ids_and_undo_do_not_depend_on_the_clock(tmp_path: Path) -> None:
    """Guards a memory on a machine whose clock is wrong for a while."""
    clock = StoppedClock()
    start = clock.at
    async with memory_in(tmp_path, clock) as memory:
        ids: list[str] = []
        for text, jump in zip(TEXTS, JUMPS, strict=True):
            clock.at = start + jump
            ids.append(await add_text(memory, text))
            assert (await memory.search(ALICE, text)).hits[0].id == ids[-1], "the write is found at once"
        assert len(set(ids)) == len(ids)
        assert [edit.number for edit in await memory.log(ALICE)] == [4, 3, 2, 1]
        stored = {memory_id: (await memory.history(ALICE, memory_id))[0].created_at for memory_id in ids}
        assert list(stored.values()) == [start + jump for jump in JUMPS]
        clock.at = start - timedelta(days=2)
        assert (await memory.undo(ALICE)).outcomes[0].memory.id == ids[-1], "the newest edit is the last one made"
        await memory.undo(ALICE, Undo(2))
        assert await memory_texts(memory) == [TEXTS[0], TEXTS[2]]
        assert await row_faults(memory) == []


async def test_backups_and_restores_do_not_depend_on_the_clock(tmp_path: Path) -> None:
    """Guards the copies: one made with the clock set back neither replaces nor outlives one by its date."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, TEXTS[0])
        first = back_up(memory.settings, None, clock)
        clock.forward(days=-1)
        second = back_up(memory.settings, None, clock)
        await add_text(memory, TEXTS[1])
        clock.forward(days=366)
        restored = restore(memory.settings, first.path, clock)
        assert restored.before is not None
        assert first.path != second.path
        assert await memory_texts(memory) == [TEXTS[0]]
        clock.forward(days=-400)
        await add_text(memory, TEXTS[2])
        assert await memory_texts(memory) == [TEXTS[0], TEXTS[2]]
        assert await row_faults(memory) == []


@pytest.mark.nightly
async def test_pages_and_the_index_follow_a_clock_that_jumps(tmp_path: Path) -> None:
    """Guards lists, which are paged by number, and the index and the kept keys, which follow numbers of the log."""
    clock = StoppedClock()
    start = clock.at
    async with memory_in(tmp_path, clock) as memory:
        await memory.engine.run(memory.projection.open)
        for text, jump in zip(TEXTS, JUMPS, strict=True):
            clock.at = start + jump
            await add_text(memory, text)
            await memory.engine.run(memory.projection.catch_up)
        assert memory.projection.count() == len(TEXTS)
        listed: list[str] = []
        page: Page | None = await memory.list(ALICE, limit=1)
        while page is not None:
            listed += [hit.text for hit in page.hits]
            page = await memory.list(ALICE, limit=1, cursor=page.cursor) if page.cursor else None
        assert sorted(listed) == TEXTS
        for text in TEXTS:
            assert (await memory.search(ALICE, text)).hits[0].text == text
