"""Ledgers of before schema 0012, which knew no views: what is older stays, and an earlier version can read all rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.store.jobs import JobRequest
from tests.support.exports import exported
from tests.support.ledger_access import ledger_faults, store_messages
from tests.support.ledger_files import downgrade
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.only_on("sqlite", "ledgers of earlier versions are all in files"),
]

BEFORE_THE_VIEWS = "0011"
ONLY_NEW = ("context", "links", "strength", "used_at", "sources", "message_ids")


def waiting_jobs(path: Path) -> list[tuple[str, dict[str, list[str]]]]:
    """Return kind and payload of the jobs in a ledger."""
    with closing(sqlite3.connect(path)) as conn:
        return [(kind, json.loads(payload)) for kind, payload in conn.execute("SELECT kind, payload FROM jobs")]


def without_views(export: bytes) -> list[str]:
    """Return the lines of an export, sorted, without what views added, and without summaries of conversations."""
    items = [json.loads(line) for line in export.splitlines()]
    kept = [item for item in items if not str(item.get("kind", "")).startswith("session")]
    return sorted(json.dumps({key: value for key, value in item.items() if key not in ONLY_NEW}) for item in kept)


@pytest.mark.nightly
async def test_a_ledger_that_goes_back_and_comes_again_loses_nothing_but_views(tmp_path: Path) -> None:
    """Guards the way back: jobs that an earlier version does not know stop it, and what was under way would be lost."""
    clock, path = StoppedClock(), tmp_path / "ledger.db"
    with OpenAIServer(lambda _request: json.dumps({"summary": "About the user."})) as server:
        async with memory_in(tmp_path, clock, links="on", llm=llm_settings(server.base_url)) as memory:
            messages = await store_messages(memory, ("user", "My sister Beatriz restores violins"))
            for text in ("User's sister is Beatriz", "Beatriz restores violins"):
                await add_text(memory, text, metadata={"pinned": True, "expires_at": "2026-06-01"})
            for kind in ("session", "overall", "day"):
                await memory.summary(ALICE, kind, refresh=True)
            clock.forward(minutes=1)
            await work_on_jobs(memory.engine, None)
            await add_text(memory, "User bakes bread")
            ledger = memory.engine.ledger
            asked = JobRequest("learn", payload={"messages": [messages[0].id], "caller": "test"})
            ledger.queue_job(ALICE, asked)
            clock.forward(minutes=1)
            assert ledger.take_job(("learn",)) is not None
            before = await exported(memory)
    assert {kind for kind, _ in waiting_jobs(path)} >= {"learn", "link", "expire"}
    downgrade(path, BEFORE_THE_VIEWS)
    assert waiting_jobs(path) == [("learn", {"caller": "test", "messages": [messages[0].id]})]
    with closing(sqlite3.connect(path)) as conn:
        kinds = {kind for (kind,) in conn.execute("SELECT kind FROM summaries")}
    assert kinds == {"overall", "day:2026-05-08"}
    async with memory_in(tmp_path, clock, links="on") as memory:
        assert without_views(await exported(memory)) == without_views(before)
        assert len((await memory.scope_contents(Scope("alice"))).memories) == 3
    assert ledger_faults(path) == []
