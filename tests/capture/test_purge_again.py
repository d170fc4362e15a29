"""What a purge erased stays away: the transcripts of clients still have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.files import files_below
from palimpsest.hooks.intake import SessionsRequest
from tests.support.ledger_access import ignore_progress
from tests.support.memory import memory_in
from tests.support.sessions import ClaudeSession, kept, spooled

pytestmark = pytest.mark.anyio

DIAGNOSIS = "The diagnosis is hypertension."


async def test_a_transcript_does_not_bring_back_what_a_purge_erased(tmp_path: Path) -> None:
    """A hook's record and its line in a transcript have two ids; a session that goes on in a new file has copies."""
    data, client = tmp_path / "data", tmp_path / "client"
    session = ClaudeSession(client / "p" / "s1.jsonl")
    async with memory_in(data) as memory:
        spooled(data, "prompt", DIAGNOSIS, transcript=str(session.path), at=session.now)
        session.user(DIAGNOSIS)
        session.assistant("I wish you all the best.")
        spooled(data, "reply", "I wish you all the best.", transcript=str(session.path), at=session.now)
        await memory.capture.take_in()
        assert len(kept(memory)) == 2
        await memory.care.purge(memory.scope, None)
        copy = ClaudeSession(client / "p" / "s2.jsonl", "s2")
        for line in session.lines:
            copy.write({**line, "sessionId": "s2"})
        copy.user("What else is new?")
        result = await memory.capture.take_in_sessions(SessionsRequest("claude-code", client), ignore_progress)
        assert kept(memory) == [("user", "What else is new?")]
        assert result.messages.total() == 1
    assert [file for file in files_below(data) if b"hypertension" in file.read_bytes()] == []


async def test_the_same_words_are_kept_when_they_are_said_again(tmp_path: Path) -> None:
    """A purge erases what was said, and forbids nobody to say it later."""
    session = ClaudeSession(tmp_path / "client" / "p" / "s1.jsonl")
    async with memory_in(tmp_path / "data") as memory:
        spooled(tmp_path / "data", "prompt", "go on", session="s0", at=session.now)
        await memory.capture.take_in()
        await memory.care.purge(memory.scope, None)
        for number in range(600):
            session.other("progress", number=number)
        session.user("go on")
        request = SessionsRequest("claude-code", tmp_path / "client")
        await memory.capture.take_in_sessions(request, ignore_progress)
        assert kept(memory) == [("user", "go on")]
