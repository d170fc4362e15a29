"""A purge also erases what hooks captured and nobody has taken in."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.files import files_below
from tests.support.memory import memory_in
from tests.support.sessions import kept, spooled, waiting

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_purge_of_a_scope_leaves_nothing_in_the_spool(tmp_path: Path, mode: str) -> None:
    """With capture it is taken in first, so that the purge knows what to search for; without, it is removed."""
    async with memory_in(tmp_path, hooks=mode) as memory:
        spooled(tmp_path, "prompt", "the diagnosis is hypertension")
        result = await memory.care.purge(memory.scope, None)
        assert result.clean
        assert waiting(tmp_path) == []
        assert kept(memory) == []
        traces = [file for file in files_below(tmp_path) if b"hypertension" in file.read_bytes()]
        assert traces == []


async def test_a_trace_in_a_damaged_record_is_named(tmp_path: Path) -> None:
    """What was set aside is nobody's to delete, so the person is told of it."""
    async with memory_in(tmp_path) as memory:
        file = spooled(tmp_path, "prompt", "the diagnosis is hypertension")
        file.with_name("1-1-a.json").write_text('{"text": "the diagnosis is hypertension')
        result = await memory.care.purge(memory.scope, None)
        assert [trace.file.parent.name for trace in result.traces] == ["damaged"]
        assert not result.clean
