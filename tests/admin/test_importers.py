"""Files of other tools: what becomes memories and messages, what is left out or refused, and how it is undone."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin import import_file
from palimpsest.admin.import_file import read_file
from palimpsest.admin.importers.records import ImportedFile
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope, Undo
from palimpsest.core.validation import MAX_TEXT_CHARS
from tests.support.exports import CutOffError, Interrupted, exported, exporting
from tests.support.foreign_files import (
    MEM0_COLUMNS,
    claude_conversation,
    json_lines,
    json_zip,
    mem0_database,
    write_file,
)
from tests.support.ledger_access import ignore_progress, ledger_faults, store_memory
from tests.support.ledger_files import files_with_part_of, search_texts, table_rows
from tests.support.memory import ALICE, memory_in
from tests.support.scripted_model import NOW

pytestmark = pytest.mark.anyio


LONG = "x" * (MAX_TEXT_CHARS + 1)
ANA = {"type": "entity", "name": "Ana_Silva", "entityType": "Person", "observations": ["Prefers green tea"]}
WORKS_ON = {"type": "relation", "from": "Ana_Silva", "to": "Atlas", "relationType": "works_on"}
HUMAN_MESSAGE = {"uuid": "m1", "sender": "human", "text": "Hi", "created_at": "2025-02-01T10:00:00.5Z"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path for a test's file. Its name does not show the format."""
    return tmp_path / "file"


def read(file: Path, content: Any) -> ImportedFile:
    raw = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    file.write_bytes(raw)
    return read_file(file, NOW)


# Files of each tool, and all that is read of them; a "why" holds for the cases of that name that follow.
CASES: dict[str, Any] = json.loads(
    Path(__file__).with_name("imported_files.json").read_text("utf-8").replace("LONG", LONG)
)


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_of_a_file(file: Path, case: str) -> None:
    """Every memory with its versions, every message with its time, and a note on all that is left out."""
    write_file(file, CASES[case])
    imported = read_file(file, NOW)
    assert json.loads(json.dumps(asdict(imported), default=datetime.isoformat)) == CASES[case]["read"]


def test_a_damaged_line_is_named_and_nothing_is_imported(file: Path) -> None:
    """Guards against a partial import."""
    for broken in ('{"type":"entity","na', "}", '{"a": ' + "9" * 5000 + "}", "[" * 100_000):
        with pytest.raises(InputError, match=r"file, line 3: .*Nothing was imported"):
            read(file, f"{json_lines(ANA)}\n\n{broken}\n{json_lines(WORKS_ON)}")


def test_the_database_is_only_read(tmp_path: Path) -> None:
    """Guards the other tool's file, also if SQLite could take part of its name for options."""
    row = ("m1", None, "a", "ADD", None, None, 0, None, None)
    mem0_file = mem0_database(tmp_path / "100% mem?mode=rwc#1", MEM0_COLUMNS, row)
    mem0_file.chmod(0o400)
    before = mem0_file.read_bytes()

    assert [memory.versions[-1].text for memory in read_file(mem0_file, NOW).memories] == ["a"]
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(mem0_file, before)]


def test_another_database_is_refused(file: Path) -> None:
    """Guards against reading the wrong database: another program's, a Palimpsest ledger, or a truncated file."""
    with pytest.raises(InputError, match=r"without a mem0 history\. Expected"):
        read_file(mem0_database(file, "id TEXT, visited TEXT"), NOW)
    ledger = mem0_database(file.with_name("ledger"), f"seq INTEGER, {MEM0_COLUMNS}, state TEXT, stage TEXT")
    with pytest.raises(InputError, match="palimpsest restore"):
        read_file(ledger, NOW)
    with pytest.raises(InputError, match=r"cannot be read as a database: .*\. Expected"):
        read(file, ledger.read_bytes()[:3000])


class TestFiles:
    def test_a_damaged_or_unknown_file_is_refused(self, file: Path) -> None:
        """Guards against a partial import: the error names the file, the line if there is one, and the formats."""
        with pytest.raises(InputError, match=r"cannot be read: .*Expected"):
            read_file(file, NOW)
        for content, error in (
            ("\ufeff", "file cannot be read as JSON: "),
            (json.dumps([claude_conversation(HUMAN_MESSAGE)], indent=1)[:-20], r"cannot be read .*line 1\d column"),
            (json_lines(ANA)[:-9], "line 1 column"),
            ("9" * 5000, "cannot be read as JSON"),
            (b"\xff\xfe{\x00}\x00", "cannot be read as JSON: 'utf-8'"),
            ('{"results": []}', "or empty"),
            ({"role": "user", "content": "Hi"}, "JSON in an unknown format"),
            (json_lines({"role": "user"}, {"role": "assistant"}), "JSON in an unknown format"),
        ):
            with pytest.raises(InputError, match=error):
                read(file, content)

    def test_a_zip_without_conversations_is_refused(self, file: Path) -> None:
        """Guards against other, truncated and damaged ZIP files, and against an unknown compression."""
        with pytest.raises(InputError, match=r"no conversations\.json in it\. Expected"):
            read_file(json_zip(file, my_conversations=[]), NOW)
        whole = json_zip(file, conversations=[claude_conversation(HUMAN_MESSAGE)]).read_bytes()
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, whole[:-30])
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, whole.replace(whole[60:64], b"\xff" * 4))
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("conversations.json", "[{")
        with pytest.raises(InputError, match=r"file, conversations\.json cannot be read as JSON: .*line 1"):
            read_file(file, NOW)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("conversations.json", "[]")
        with pytest.raises(InputError, match="Unpack it"):
            read_file(file, NOW)

    def test_too_large_a_file_is_refused_before_it_is_read(self, file: Path) -> None:
        """Guards against running out of memory on a ZIP bomb, also one whose parts are small enough one by one."""
        part = [claude_conversation({**HUMAN_MESSAGE, "text": " " * 600})]
        with pytest.raises(InputError, match="would unpack to more than 1,000 bytes"):
            read_file(json_zip(file, **{"conversations-1": part, "conversations-2": part}), NOW, 1000)
        file.write_text(json.dumps([part, part]), "utf-8")
        with pytest.raises(InputError, match="larger than 1,000 bytes"):
            read_file(file, NOW, 1000)
        raw = bytearray(
            json_zip(file, conversations=[claude_conversation({**HUMAN_MESSAGE, "text": "a" * 5000})]).read_bytes()
        )
        entry = raw.rindex(b"PK\x01\x02")
        raw[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):  # its member is larger than it says
            read(file, bytes(raw))


BOB = Scope("bob")
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
            versions = (await memory.history(ALICE, tea.id)).versions
            assert [
                (version.event, version.old_memory, version.new_memory, version.updated_at.date().isoformat())
                for version in versions
            ] == [
                ("ADD", None, "Ana drinks black coffee", "2025-03-01"),
                ("UPDATE", "Ana drinks black coffee", "Ana drinks green tea", "2025-04-01"),
            ]
            then = datetime(2025, 3, 15, tzinfo=UTC)
            hits = (await memory.search(ALICE, "Ana", as_of=then)).hits
            assert {hit.text for hit in hits} >= {"Ana drinks black coffee"}
            assert "Ana keeps a parrot" not in {hit.text for hit in hits}, "what somebody deleted is not shown again"
            assert all(hit.at <= then for hit in hits), "a version of that time does not carry a later date"
            (deleted,) = (await memory.list(ALICE, deleted=True)).hits
            assert deleted.text == "Ana keeps a parrot"
            assert "Ana keeps a parrot" not in await search_texts(memory, "parrot")
            await memory.restore(ALICE, deleted.id)
            assert (await search_texts(memory, "parrot"))[0] == "Ana keeps a parrot"
            assert "Ana keeps a parrot" in {hit.text for hit in (await memory.search(ALICE, "Ana", as_of=then)).hits}
            later = (await memory.search(ALICE, "parrot", as_of=datetime(2025, 5, 2, tzinfo=UTC))).hits
            assert "Ana keeps a parrot" not in {hit.text for hit in later}

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
