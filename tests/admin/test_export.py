"""The export of a memory: a private file that is whole, and Markdown for reading."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest

from loopback import OpenAIServer
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from tests.support.exports import CutOffError, Interrupted
from tests.support.ledger_access import ignore_progress, store_memory
from tests.support.ledger_files import data_files
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in
from tests.support.scripted_model import summary_reply

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
WEB = Scope("alice", project="web")


async def test_an_export_is_a_new_private_file_that_is_whole(tmp_path: Path) -> None:
    """Guards the file: only its owner can read it, it replaces no other file, and no unfinished file is left."""
    async with memory_in(tmp_path / "here") as memory:
        store_memory(memory, "User bakes")
        store_memory(memory, "User likes tea")
        for form in ("jsonl", "markdown"):
            file = tmp_path / f"alice.{form}"
            await memory.care.export(file, form, ignore_progress)
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            before = file.read_bytes()
            with pytest.raises(InputError, match="already exists"):
                await memory.care.export(file, form, ignore_progress)
            assert file.read_bytes() == before
        with pytest.raises(CutOffError):
            await memory.care.export(tmp_path / "half.jsonl", "jsonl", Interrupted(1))
        for unwritable in (tmp_path / "nowhere" / "alice.jsonl", tmp_path / "alice.jsonl" / "alice.jsonl"):
            with pytest.raises(InputError, match="cannot be written"):
                await memory.care.export(unwritable, "jsonl", ignore_progress)
    assert {file.name for file in data_files(tmp_path)} - {"ledger.db"} == {"alice.jsonl", "alice.markdown"}


async def test_markdown_has_the_current_memories_by_project(tmp_path: Path) -> None:
    """Guards the file for a reader: one dated line per memory, oldest first, by project, nothing deleted."""
    clock = StoppedClock()
    with OpenAIServer([summary_reply("Bakes and lives by the sea.")]) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            bakes = store_memory(memory, "User bakes\nrye   bread", happened_at=datetime(2019, 7, 1, tzinfo=UTC))
            deleted = store_memory(memory, "User has a cat")
            sea = store_memory(memory, "User lives by the sea")
            blue = store_memory(memory, "The site is blue", scope=WEB)
            store_memory(memory, "Bob has a boat", scope=BOB)
            await memory.delete(ALICE, [deleted])
            await memory.summary(ALICE)
            stream = StringIO()
            assert await memory.care.export(stream, "markdown", ignore_progress) == 3
    assert stream.getvalue() == (
        "# Memories of alice\n"
        "\n## Global\n\n"
        "Bakes and lives by the sea.\n\n"
        f"- 2019-07-01 User bakes rye bread `{bakes[:8]}`\n"
        f"- 2026-05-08 User lives by the sea `{sea[:8]}`\n"
        "\n## Project web\n\n"
        f"- 2026-05-08 The site is blue `{blue[:8]}`\n"
    )


async def test_markdown_leaves_out_a_summary_that_may_mention_what_was_deleted(tmp_path: Path) -> None:
    """What was deleted after the summary was written is not shown by way of it."""
    with OpenAIServer([summary_reply("Lives at 4 Elm Street.")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            address = store_memory(memory, "User lives at 4 Elm Street")
            store_memory(memory, "User bakes")
            await memory.summary(ALICE)
            await memory.delete(ALICE, [address])
            stream = StringIO()
            await memory.care.export(stream, "markdown", ignore_progress)
    assert "Elm" not in stream.getvalue()
    assert "User bakes" in stream.getvalue()
