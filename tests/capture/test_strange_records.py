"""A record that no client should write must not keep the others from being taken in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks import captured
from tests.support.memory import memory_in
from tests.support.sessions import kept, spooled, waiting

pytestmark = pytest.mark.anyio

STRANGE: tuple[dict[str, Any], ...] = (
    {"cwd": "/home/\0"},
    {"cwd": f"/{'x' * 5_000}"},
    {"transcript": "/home/\0", "event": "reply"},
    {"transcript": f"/{'x' * 5_000}", "event": "reply"},
    {"at": "0001-01-01T00:00:00+14:00"},
    {"at": "9999-12-31T23:59:59-14:00"},
)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("project", ["", "auto"])
@pytest.mark.parametrize("strange", STRANGE, ids=lambda strange: f"{next(iter(strange.items()))!r:.20}")
async def test_the_others_are_taken_in(tmp_path: Path, strange: dict[str, Any], project: str) -> None:
    """Guards against one record that stops all capture, and every purge with it, until somebody removes it."""
    file = spooled(tmp_path, "prompt", "a strange one")
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | strange), "utf-8")
    spooled(tmp_path, "prompt", "a good one", session="s2")
    async with memory_in(tmp_path, project=project, hooks_excluded_folders=(str(tmp_path / "x"),)) as memory:
        await memory.capture.take_in()
        assert ("user", "a good one") in kept(memory)
        assert [name for name in waiting(tmp_path) if name != captured.DAMAGED] == []
        assert ("user", "a strange one") in kept(memory) or len(captured.damaged_files(tmp_path)) == 1


async def test_a_pipe_is_no_transcript(tmp_path: Path) -> None:
    """Guards against waiting forever, with the lock in hand, for somebody to write into it."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    spooled(tmp_path, "reply", "done", transcript=str(tmp_path / "pipe.jsonl"))
    async with memory_in(tmp_path) as memory:
        await memory.capture.take_in()
        assert kept(memory) == [("assistant", "done")]
