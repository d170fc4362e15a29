"""Files of other tools, from the import to the undo: found, recognized, free of secrets, in the right scope."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin import import_file
from palimpsest.core.models import Scope, Undo
from tests.support.exports import CutOffError, Interrupted, exported, exporting
from tests.support.foreign_files import write_file
from tests.support.ledger_access import ignore_progress, ledger_faults, store_memory
from tests.support.ledger_files import files_with_part_of, search_texts, table_rows
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
WEB = Scope("alice", project="web")
CODER = Scope("alice", project="web", agent_id="coder", run_id="run 1")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


# A file of each tool. `answer` is the best hit for `question`, and `new` counts messages and memories.
SAMPLES: dict[str, Any] = json.loads(
    Path(__file__).with_name("sample_files.json").read_text("utf-8").replace("TOKEN", TOKEN)
)


class TestImport:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("form", SAMPLES)
    async def test_it_is_found_recognized_free_of_secrets_and_undone_by_one_undo(
        self, tmp_path: Path, form: str
    ) -> None:
        """Guards the whole life of imported items: first import, second import, search, undo and export."""
        sample = SAMPLES[form]
        file = tmp_path / "file"
        write_file(file, sample)
        data = tmp_path / "data"
        async with memory_in(data) as memory:
            store_memory(memory, "Bob drinks beer", scope=BOB)
            before = table_rows(data / "ledger.db", "meta")
            would = await memory.care.import_file(ALICE, file, ignore_progress, dry_run=True)
            assert TOKEN not in " ".join(would.examples)
            assert table_rows(data / "ledger.db", "meta") == before
            done = await memory.care.import_file(ALICE, file, ignore_progress)
            assert would.new == done.new
            assert (done.format, done.new["message"], done.new["memory"]) == (form, *sample["new"])
            assert sum(done.known.values()) == 0
            assert any("github token" in note for note in done.notes)
            assert files_with_part_of(data, TOKEN) == set()
            assert (await search_texts(memory, sample["question"]))[0] == sample["answer"]
            again = await memory.care.import_file(ALICE, file, ignore_progress)
            assert (sum(again.new.values()), again.known) == (0, done.new)
            await exporting(memory, tmp_path / "ours.jsonl")
            (edit,) = await memory.log(ALICE)
            assert (edit.provenance.stage, edit.provenance.caller) == ("import", "cli")
            await memory.undo(ALICE)
            assert str(await memory.scope_contents(ALICE)) == "nothing"
            assert await search_texts(memory, sample["question"]) == []
            assert await search_texts(memory, "drinks", BOB) == ["Bob drinks beer"]
            await memory.undo(ALICE, Undo(edit=(await memory.log(ALICE))[0].number))
            assert (await search_texts(memory, sample["question"]))[0] == sample["answer"]
        assert ledger_faults(data / "ledger.db") == []
        async with memory_in(tmp_path / "other") as memory:
            await memory.care.import_file(ALICE, tmp_path / "ours.jsonl", ignore_progress)
            assert await exported(memory) == (tmp_path / "ours.jsonl").read_bytes()

    async def test_the_history_of_mem0s_memories_is_imported(self, tmp_path: Path) -> None:
        """Guards imported history: versions, dates, searches in the past, and deleted memories."""
        write_file(tmp_path / "file", SAMPLES["mem0-history"])
        async with memory_in(tmp_path / "data") as memory:
            await memory.care.import_file(ALICE, tmp_path / "file", ignore_progress)
            tea = next(stored for stored in (await memory.scope_contents(ALICE)).memories if "tea" in stored.text)
            assert (tea.metadata["mem0_id"], tea.metadata["actor_id"], tea.revision) == ("m1", "ana", 2)
            _, versions = await memory.history(ALICE, tea.id)
            assert [
                (version.event, version.old_memory, version.new_memory, version.updated_at.date().isoformat())
                for version in versions
            ] == [
                ("ADD", None, "Ana drinks black coffee", "2025-03-01"),
                ("UPDATE", "Ana drinks black coffee", "Ana drinks green tea", "2025-04-01"),
            ]
            then = datetime(2025, 3, 15, tzinfo=UTC)
            hits = (await memory.search(ALICE, "Ana", as_of=then)).hits
            assert {hit.text for hit in hits} >= {"Ana drinks black coffee", "Ana keeps a parrot"}
            assert all(hit.at <= then for hit in hits), "a version of that time does not carry a later date"
            (deleted,) = (await memory.list(ALICE, deleted=True)).hits
            assert deleted.text == "Ana keeps a parrot"
            assert "Ana keeps a parrot" not in await search_texts(memory, "parrot")
            await memory.restore(ALICE, deleted.id)
            assert (await search_texts(memory, "parrot"))[0] == "Ana keeps a parrot"
            later = (await memory.search(ALICE, "parrot", as_of=datetime(2025, 5, 2, tzinfo=UTC))).hits
            assert "Ana keeps a parrot" not in {hit.text for hit in later}

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("form", ["server-memory", "chatgpt"])
    async def test_every_user_and_project_imports_for_itself(self, tmp_path: Path, form: str) -> None:
        """Guards the scope: items go into the given scope, and items of other scopes do not count as known."""
        sample = SAMPLES[form]
        write_file(tmp_path / "file", sample)
        async with memory_in(tmp_path / "data") as memory:
            for scope in (WEB, BOB, ALICE, CODER):
                done = await memory.care.import_file(scope, tmp_path / "file", ignore_progress)
                assert (done.new["message"], done.new["memory"]) == tuple(sample["new"])
                stored = await memory.scope_contents(scope)
                assert {entry.scope for entry in (*stored.memories, *stored.messages)} >= {scope}
            assert await search_texts(memory, sample["question"], Scope("alice", project="app")) != []
            assert await search_texts(memory, sample["question"], Scope("eve")) == []
        assert ledger_faults(tmp_path / "data" / "ledger.db") == []

    async def test_an_interrupted_import_is_still_one_edit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards the single undo of an import that took two runs."""
        monkeypatch.setattr(import_file, "BATCH", 1)
        write_file(tmp_path / "file", SAMPLES["server-memory"])
        async with memory_in(tmp_path / "data") as memory:
            with pytest.raises(CutOffError):
                await memory.care.import_file(ALICE, tmp_path / "file", Interrupted(2))
            done = await memory.care.import_file(ALICE, tmp_path / "file", ignore_progress)
            assert (done.new["memory"], done.known["memory"]) == (2, 2)
            await memory.undo(ALICE)
            assert str(await memory.scope_contents(ALICE)) == "nothing"
