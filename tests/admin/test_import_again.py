"""Import a file, undo it, delete from it, purge from it, and import it again."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.core.models import Undo
from palimpsest.memory import Memory
from tests.support.exports import exporting
from tests.support.foreign_files import claude_conversation
from tests.support.ledger_access import ignore_progress, row_faults, store_memory
from tests.support.memory import ALICE, StoppedClock, memory_in

pytestmark = pytest.mark.anyio

MEMORIES = [
    {"id": "m1", "memory": "Ana drinks green tea", "created_at": "2024-03-01T10:00:00Z"},
    {"id": "m2", "memory": "Ana keeps a parrot", "created_at": "2024-04-01T10:00:00Z"},
]


def mem0_file(folder: Path) -> Path:
    """Write an export of mem0 with two memories of 2024."""
    file = folder / "mem0.json"
    file.write_text(json.dumps(MEMORIES), "utf-8")
    return file


def chat_file(folder: Path) -> Path:
    """Write an export of Claude with one conversation of two messages."""
    file = folder / "conversations.json"
    messages = (
        {"uuid": "h1", "sender": "human", "text": "My boat is blue", "created_at": "2024-02-01T09:00:00Z"},
        {"uuid": "a1", "sender": "assistant", "text": "A fine colour", "created_at": "2024-02-01T09:00:05Z"},
    )
    file.write_text(json.dumps([claude_conversation(*messages, name="Boat")]), "utf-8")
    return file


async def texts(memory: Memory) -> list[str]:
    """Return the texts of the memories and messages that can be found, sorted."""
    hits = (await memory.search(ALICE, "Ana tea parrot boat colour", limit=20)).hits
    return sorted(hit.text for hit in hits)


async def test_the_log_shows_an_import_at_its_own_time(tmp_path: Path) -> None:
    """Guards the log: it is in the order of the edits, whatever the dates of the content."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        store_memory(memory, "User bakes")
        clock.at += timedelta(hours=1)
        await memory.care.import_file(ALICE, mem0_file(tmp_path), ignore_progress)
        imported, first = await memory.log(ALICE)
        assert (imported.provenance.stage, imported.made_at) == ("import", clock.at)
        assert first.made_at == clock.at - timedelta(hours=1)
        _, versions = await memory.history(ALICE, imported.steps[0].owner_id)
        assert versions[0].updated_at.year == 2024, "the history keeps the date of the content"


async def test_undo_since_a_time_undoes_the_imports_of_that_time(tmp_path: Path) -> None:
    """Guards `undo --since` against missing what was imported from another tool, also after a move of the memory."""
    clock = StoppedClock()
    async with memory_in(tmp_path / "here", clock) as memory:
        store_memory(memory, "User bakes")
        clock.at += timedelta(hours=1)
        before = clock.at
        for file in (mem0_file(tmp_path), chat_file(tmp_path)):
            await memory.care.import_file(ALICE, file, ignore_progress)
        assert len(await texts(memory)) == 5
        await exporting(memory, tmp_path / "export.jsonl")
        await memory.undo(ALICE, Undo(since=before))
        assert await texts(memory) == ["User bakes"]
        assert await row_faults(memory) == []
    async with memory_in(tmp_path / "there", clock) as memory:
        await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
        await memory.undo(ALICE, Undo(since=before))
        assert await texts(memory) == ["User bakes"]


async def test_an_import_after_its_undo_brings_the_content_back(tmp_path: Path) -> None:
    """Guards against "already known" for what an undo took back; an edit in between is gone with the undo."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        before = clock.at
        for file in (mem0_file(tmp_path), chat_file(tmp_path)):
            await memory.care.import_file(ALICE, file, ignore_progress)
        (parrot,) = [hit.id for hit in (await memory.list(ALICE)).hits if "parrot" in hit.text]
        await memory.update(ALICE, parrot, text="Ana keeps two parrots")
        there = await texts(memory)
        await memory.undo(ALICE, Undo(since=before))
        assert await texts(memory) == []
        clock.forward(minutes=5)
        would = await memory.care.import_file(ALICE, mem0_file(tmp_path), ignore_progress, dry_run=True)
        done = await memory.care.import_file(ALICE, mem0_file(tmp_path), ignore_progress)
        assert would.new["memory"] == done.new["memory"] == 2
        assert done.known["memory"] == 0
        chats = await memory.care.import_file(ALICE, chat_file(tmp_path), ignore_progress)
        assert chats.new["message"] == 2
        assert await texts(memory) == sorted({*there, "Ana keeps a parrot"} - {"Ana keeps two parrots"})
        again = await memory.care.import_file(ALICE, mem0_file(tmp_path), ignore_progress)
        assert (again.new["memory"], again.known["memory"]) == (0, 2)
        await memory.undo(ALICE, Undo(since=clock.at))
        assert await texts(memory) == []
        assert await row_faults(memory) == []


async def test_what_a_person_deleted_or_purged_stays_away_until_it_is_asked_for(tmp_path: Path) -> None:
    """Guards a person's decision, and that it is counted and shown what is left out."""
    async with memory_in(tmp_path) as memory:
        for file in (mem0_file(tmp_path), chat_file(tmp_path)):
            await memory.care.import_file(ALICE, file, ignore_progress)
        by_text = {hit.text: hit.id for hit in (await memory.search(ALICE, "parrot tea boat colour")).hits}
        await memory.delete(ALICE, [by_text["Ana keeps a parrot"]])
        await memory.care.purge(ALICE, [by_text["My boat is blue"], by_text["Ana drinks green tea"]])
        kept = await texts(memory)
        for dry_run in (True, False):
            done = await memory.care.import_file(ALICE, mem0_file(tmp_path), ignore_progress, dry_run=dry_run)
            assert done.new["memory"] == 0
            assert done.left_out == {"deleted": 1, "purged": 1}
            if dry_run:
                assert done.skipped["deleted"] == ["Ana keeps a parrot"]
                assert done.skipped["purged"] == ["Ana drinks green tea"]
        chats = await memory.care.import_file(ALICE, chat_file(tmp_path), ignore_progress)
        assert chats.left_out == {"deleted": 0, "purged": 1}
        assert await texts(memory) == kept
        for file in (mem0_file(tmp_path), chat_file(tmp_path)):
            await memory.care.import_file(ALICE, file, ignore_progress, restore_deleted=True)
        assert await texts(memory) == sorted(by_text)
        assert await row_faults(memory) == []
