"""The export of a memory: a private file that is whole."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from tests.support.exports import CutOffError, Interrupted
from tests.support.ledger_access import ignore_progress, store_memory
from tests.support.ledger_files import data_files
from tests.support.memory import memory_in

pytestmark = pytest.mark.anyio


async def test_an_export_is_a_new_private_file_that_is_whole(tmp_path: Path) -> None:
    """Guards the file: only its owner can read it, it replaces no other file, and no unfinished file is left."""
    async with memory_in(tmp_path / "here") as memory:
        store_memory(memory, "User bakes")
        store_memory(memory, "User likes tea")
        file = tmp_path / "alice.jsonl"
        await memory.care.export(file, ignore_progress)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        before = file.read_bytes()
        with pytest.raises(InputError, match="already exists"):
            await memory.care.export(file, ignore_progress)
        assert file.read_bytes() == before
        with pytest.raises(CutOffError):
            await memory.care.export(tmp_path / "half.jsonl", Interrupted(1))
        for unwritable in (tmp_path / "nowhere" / "alice.jsonl", tmp_path / "alice.jsonl" / "alice.jsonl"):
            with pytest.raises(InputError, match="cannot be written"):
                await memory.care.export(unwritable, ignore_progress)
    assert {file.name for file in data_files(tmp_path)} - {"ledger.db"} == {"alice.jsonl"}
