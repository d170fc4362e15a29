"""Many processes at once, and processes that are killed: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from tests.support.memory import memory_in
from tests.support.memory_process import start
from tests.support.sessions import ClaudeSession, kept, spooled, waiting

pytestmark = [pytest.mark.nightly, pytest.mark.anyio]

TIMEOUT = 90
SPOOLERS, RECORDS = 10, 20


def until_at_most(folder: Path, records: int) -> None:
    """Wait until the spool has at most so many records."""
    deadline = time.monotonic() + TIMEOUT
    while len(waiting(folder)) > records:
        assert time.monotonic() < deadline, "the spool was not taken in"


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes, as a crash does."""
    for process in processes:
        process.kill()
        process.communicate()


async def test_whoever_is_killed_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Servers are killed at any point while they take in records and a transcript; the next one goes on."""
    session = ClaudeSession(tmp_path / "t.jsonl")
    for number in range(150):
        spooled(tmp_path, "prompt", f"prompt {number}", message_id=str(number), transcript=str(session.path))
        session.user(f"prompt {number}")
        session.assistant(f"between {number}")
        session.assistant(f"reply {number}")
        spooled(tmp_path, "reply", f"reply {number}", transcript=str(session.path))
    for left in (300, 299, 200, 199, 101, 50):
        server = start(tmp_path, "take-in")
        assert server.stdout is not None
        await anyio.to_thread.run_sync(server.stdout.readline)
        await anyio.to_thread.run_sync(until_at_most, tmp_path, left)
        end([server])
    async with memory_in(tmp_path) as memory:
        await memory.capture.take_in()
        texts = sorted(text for _, text in kept(memory))
    expected = [f"{what} {number}" for number in range(150) for what in ("prompt", "between", "reply")]
    assert texts == sorted(expected)
    assert waiting(tmp_path) == []
