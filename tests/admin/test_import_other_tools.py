"""Files of other tools, from the import to the undo: found, recognized, free of secrets, in the right scope."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.admin import import_file
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope, Undo
from tests.support.exports import CutOffError, Interrupted, exported, exporting
from tests.support.foreign_files import (
    MEM0_COLUMNS,
    chatgpt_conversation,
    chatgpt_node,
    claude_conversation,
    json_lines,
    json_zip,
    mem0_database,
)
from tests.support.ledger_access import ignore_progress, ledger_faults, store_memory
from tests.support.ledger_files import files_with_part_of, search_texts, table_rows
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
WEB = Scope("alice", project="web")
CODER = Scope("alice", project="web", agent_id="coder", run_id="run 1")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


@dataclass(frozen=True)
class Sample:
    """A file of another tool.

    `write` makes the file, `answer` is the best hit for `question`, `new` counts messages and memories.
    """

    form: str
    write: Callable[[Path], object]
    question: str
    answer: str
    new: tuple[int, int]


def _write_history(file: Path) -> object:
    first, later, last = "2025-03-01T10:00:00Z", "2025-04-01T10:00:00Z", "2025-05-01T10:00:00Z"
    return mem0_database(
        file,
        MEM0_COLUMNS,
        ("m1", None, "Ana drinks black coffee", "ADD", first, None, 0, "ana", "user"),
        ("m2", None, f"The wifi password of Ana is {TOKEN}", "ADD", first, None, 0, None, None),
        ("m1", "Ana drinks black coffee", "Ana drinks green tea", "UPDATE", first, later, 0, "ana", "user"),
        ("m2", "-", f"The old deploy token of Ana was {TOKEN}", "UPDATE", first, later, 0, None, None),
        ("m3", None, "Ana keeps a parrot", "ADD", first, None, 0, None, None),
        ("m3", "Ana keeps a parrot", None, "DELETE", first, last, 1, None, None),
    )


SAMPLES = {
    sample.form: sample
    for sample in (
        Sample(
            "server-memory",
            lambda file: file.write_text(
                json_lines(
                    {
                        "type": "entity",
                        "name": "Ana",
                        "entityType": "person",
                        "observations": ["drinks green tea", f"deploys with {TOKEN}", "has a cat 🐈"],
                    },
                    {"type": "relation", "from": "Ana", "to": "Atlas", "relationType": "works_on"},
                )
            ),
            "What does Ana drink?",
            "Ana: drinks green tea",
            (0, 4),
        ),
        Sample("mem0-history", _write_history, "What does Ana drink?", "Ana drinks green tea", (0, 3)),
        Sample(
            "mem0-export",
            lambda file: file.write_text(
                json.dumps(
                    {
                        "results": [
                            {"id": "m1", "memory": "Ana drinks green tea", "created_at": "2025-03-01T10:00:00Z"},
                            {
                                "id": "m2",
                                "memory": "Ana deploys",
                                "metadata": {"with": [TOKEN]},
                                "categories": ["Work"],
                            },
                        ]
                    }
                )
            ),
            "What does Ana drink?",
            "Ana drinks green tea",
            (0, 2),
        ),
        Sample(
            "chatgpt",
            lambda file: file.write_text(
                json.dumps(
                    [
                        chatgpt_conversation(
                            "c",
                            a=chatgpt_node(None, "user", "Which tea is green?", at=1_700_000_000.5),
                            b=chatgpt_node("a", "assistant", "Sencha is a green tea.", at=1_700_000_010),
                            c=chatgpt_node("b", "user", f"Deploy with {TOKEN}", at=1_700_009_000),
                        )
                    ]
                )
            ),
            "Sencha",
            "Sencha is a green tea.",
            (3, 0),
        ),
        Sample(
            "claude",
            lambda file: json_zip(
                file,
                conversations=[
                    claude_conversation(
                        {"uuid": "m1", "sender": "human", "text": "Tea?", "created_at": "2025-02-01T10:00:00.5Z"},
                        {
                            "uuid": "m2",
                            "sender": "assistant",
                            "text": f"Sencha is a green tea. {TOKEN}",
                            "created_at": "2025-02-01T10:00:09Z",
                        },
                    )
                ],
            ),
            "green tea",
            "Sencha is a green tea. [secret removed: github token]",
            (2, 0),
        ),
    )
}


class TestImport:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("form", SAMPLES)
    async def test_it_is_found_recognized_free_of_secrets_and_undone_by_one_undo(
        self, tmp_path: Path, form: str
    ) -> None:
        """Guards the whole life of imported items: first import, second import, search, undo and export."""
        sample = SAMPLES[form]
        file = tmp_path / "file"
        sample.write(file)
        data = tmp_path / "data"
        async with memory_in(data) as memory:
            store_memory(memory, "Bob drinks beer", scope=BOB)
            done = await memory.care.import_file(ALICE, file, ignore_progress)
            assert (done.format, done.new["message"], done.new["memory"]) == (form, *sample.new)
            assert sum(done.known.values()) == 0
            assert any("github token" in note for note in done.notes)
            assert files_with_part_of(data, TOKEN) == set()
            assert (await search_texts(memory, sample.question))[0] == sample.answer
            again = await memory.care.import_file(ALICE, file, ignore_progress)
            assert (sum(again.new.values()), again.known) == (0, done.new)
            await exporting(memory, tmp_path / "ours.jsonl")
            (edit,) = await memory.log(ALICE)
            assert (edit.provenance.stage, edit.provenance.caller) == ("import", "cli")
            await memory.undo(ALICE)
            assert str(await memory.scope_contents(ALICE)) == "nothing"
            assert await search_texts(memory, sample.question) == []
            assert await search_texts(memory, "drinks", BOB) == ["Bob drinks beer"]
            await memory.undo(ALICE, Undo(edit=(await memory.log(ALICE))[0].number))
            assert (await search_texts(memory, sample.question))[0] == sample.answer
        assert ledger_faults(data / "ledger.db") == []
        async with memory_in(tmp_path / "other") as memory:
            await memory.care.import_file(ALICE, tmp_path / "ours.jsonl", ignore_progress)
            assert await exported(memory) == (tmp_path / "ours.jsonl").read_bytes()

    async def test_a_secret_is_kept_if_the_settings_say_so(self, tmp_path: Path) -> None:
        """Guards the setting, and proves that the test above looks for the right bytes."""
        SAMPLES["mem0-export"].write(tmp_path / "file")
        async with memory_in(tmp_path / "data", keep_secrets=True) as memory:
            await memory.care.import_file(ALICE, tmp_path / "file", ignore_progress)
        assert files_with_part_of(tmp_path / "data", TOKEN)

    async def test_the_history_of_mem0s_memories_is_imported(self, tmp_path: Path) -> None:
        """Guards imported history: versions, dates, searches in the past, and deleted memories."""
        _write_history(tmp_path / "file")
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
        sample.write(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            for scope in (WEB, BOB, ALICE, CODER):
                done = await memory.care.import_file(scope, tmp_path / "file", ignore_progress)
                assert (done.new["message"], done.new["memory"]) == sample.new
                stored = await memory.scope_contents(scope)
                assert {entry.scope for entry in (*stored.memories, *stored.messages)} >= {scope}
            assert await search_texts(memory, sample.question, Scope("alice", project="app")) != []
            assert await search_texts(memory, sample.question, Scope("eve")) == []
        assert ledger_faults(tmp_path / "data" / "ledger.db") == []

    async def test_an_interrupted_import_is_still_one_edit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards the single undo of an import that took two runs."""
        monkeypatch.setattr(import_file, "BATCH", 1)
        SAMPLES["server-memory"].write(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            with pytest.raises(CutOffError):
                await memory.care.import_file(ALICE, tmp_path / "file", Interrupted(2))
            done = await memory.care.import_file(ALICE, tmp_path / "file", ignore_progress)
            assert (done.new["memory"], done.known["memory"]) == (2, 2)
            await memory.undo(ALICE)
            assert str(await memory.scope_contents(ALICE)) == "nothing"

    async def test_a_damaged_or_unknown_file_stores_nothing(self, tmp_path: Path) -> None:
        """Guards against a partial import: the error names the file, and the ledger is unchanged."""
        SAMPLES["server-memory"].write(tmp_path / "file")
        broken = (tmp_path / "file").read_text("utf-8") + '\n{"type":"ent'
        async with memory_in(tmp_path / "data") as memory:
            before = table_rows(tmp_path / "data" / "ledger.db", "meta")
            for text, error_text in (
                (broken, r"file, line 3: "),
                ("[1, 2]", "JSON in an unknown format"),
                ("", "is empty"),
            ):
                (tmp_path / "file").write_text(text, "utf-8")
                with pytest.raises(InputError, match=error_text):
                    await memory.care.import_file(ALICE, tmp_path / "file", ignore_progress)
            assert table_rows(tmp_path / "data" / "ledger.db", "meta") == before

    async def test_a_dry_run_stores_nothing(self, tmp_path: Path) -> None:
        """Guards the preview of another tool's file, which is free of secrets too."""
        SAMPLES["claude"].write(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            before = table_rows(tmp_path / "data" / "ledger.db", "meta")
            would = await memory.care.import_file(ALICE, tmp_path / "file", ignore_progress, dry_run=True)
            assert (would.format, would.new["message"], would.examples[0]) == ("claude", 2, "Tea?")
            assert TOKEN not in " ".join(would.examples)
            assert table_rows(tmp_path / "data" / "ledger.db", "meta") == before
