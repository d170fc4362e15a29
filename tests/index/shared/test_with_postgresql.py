"""A ledger in PostgreSQL and its index on a Chroma server, as a team has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin.doctor import examine, verify
from palimpsest.index import sync
from tests.support.chroma_server import ChromaProcess
from tests.support.ledger_access import ignore_progress, store_memory
from tests.support.ledger_files import search_texts
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.stores import ledger_settings

pytestmark = [pytest.mark.anyio, pytest.mark.only_on("postgres", "other tests have a file and a Chroma server")]

TEA, BREAD, HARP = "User drinks green tea", "User bakes rye bread", "User plays the harp"


@pytest.mark.nightly
async def test_two_hosts_share_a_ledger_and_its_index(
    tmp_path: Path, chroma: ChromaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a team's servers: each finds what the other wrote, a purge erases for both, and the doctor agrees."""
    monkeypatch.setattr(sync, "MAX_NUMBERS", 0)  # so that searches ask the index
    shared: Any = {"vector_store": chroma.vector_store(), **ledger_settings(tmp_path / "team")}
    async with memory_in(tmp_path / "one", **shared) as one, memory_in(tmp_path / "two", **shared) as two:
        purged = store_memory(one, TEA)
        for memory in (one, two):
            memory.projection.open()
            assert memory.projection.state == "ready"
        assert (await search_texts(two, "Which hot drink?"))[0] == TEA
        store_memory(two, BREAD)
        two.projection.catch_up()
        assert (await search_texts(one, "What comes out of the oven?"))[0] == BREAD
        assert (await one.care.purge(ALICE, [purged])).clean
        assert await search_texts(two, "Which hot drink?") == [BREAD]
        store_memory(one, HARP)
        assert (await two.care.rebuild())[1] == 2
        assert (await search_texts(one, "Which instrument?"))[0] == HARP
        settings = one.settings
    findings = {finding.part: finding for finding in await examine(settings)}
    assert findings["index"].ok
    assert "0 changes behind" in findings["index"].text
    assert all(finding.ok for finding in verify(settings, ignore_progress, repair=False, clock=StoppedClock()))
