"""Imports that were made before schema 0009: the log gets to know when they were made."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.core.models import Undo
from tests.support.foreign_files import claude_conversation
from tests.support.ledger_access import ignore_progress, row_faults, select_rows, store_memory
from tests.support.ledger_files import downgrade
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.sessions import kept

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.only_on("sqlite", "ledgers of earlier versions are all in files"),
]

BEFORE_IMPORTS_HAD_TIMES = "0008"
RECORDED = (
    "SELECT event, recorded_at FROM message_history UNION ALL SELECT event, recorded_at FROM history ORDER BY 1, 2"
)


async def test_an_older_import_is_undone_by_the_time_it_was_made(tmp_path: Path) -> None:
    """Guards the migration: it takes the time of imports from the index log, and leaves other edits alone."""
    chats, entities = tmp_path / "conversations.json", tmp_path / "memory.jsonl"
    said = {"uuid": "m1", "sender": "human", "text": "My boat is blue", "created_at": "2024-02-01T09:00:00Z"}
    chats.write_text(json.dumps([claude_conversation(said, uuid="boat")]), "utf-8")
    ana = {"type": "entity", "name": "Ana", "entityType": "person", "observations": ["likes tea"]}
    entities.write_text(json.dumps(ana), "utf-8")
    clock, data = StoppedClock(), tmp_path / "data"
    async with memory_in(data, clock) as memory:
        for file in (chats, entities):
            clock.forward(hours=1)
            await memory.care.import_file(ALICE, file, ignore_progress)
        clock.forward(hours=1)
        store_memory(memory, "Bob plays chess")
        [message] = (await memory.conversations.list(ALICE)).conversations
        assert message.first is not None
        await memory.delete(ALICE, [message.first.id])
        recorded, imported_at = select_rows(memory, RECORDED), clock.at - timedelta(hours=2)
    assert [at is None for _, at in recorded] == [True, False, False, True]
    downgrade(data / "ledger.db", BEFORE_IMPORTS_HAD_TIMES)
    async with memory_in(data, clock) as memory:
        assert sorted(map(str, select_rows(memory, RECORDED))) == sorted(map(str, recorded))
        clock.forward(hours=1)
        await memory.undo(ALICE, Undo(since=imported_at + timedelta(minutes=30)))
        assert kept(memory) == [("user", "My boat is blue")]
        assert (await memory.list(ALICE)).hits == ()
        await memory.undo(ALICE, Undo(since=imported_at - timedelta(minutes=1)))
        assert kept(memory) == []
        assert await row_faults(memory) == []
