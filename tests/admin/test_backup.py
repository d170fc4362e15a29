"""Backups of the ledger: consistent while it is written to, restored without loss, and made before migrations."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin.backup import back_up, restore
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.files import file_lock
from palimpsest.core.settings import Settings, load_settings
from palimpsest.store import memories
from palimpsest.store.ledger import open_ledger
from palimpsest.store.schema import HEAD
from palimpsest.store.sqlite.ledger_files import KEPT
from tests.support.ledger_access import index_follows, ledger_faults, second_writer
from tests.support.ledger_files import data_files, repeat_until, run_sql, run_writer, table_rows
from tests.support.mcp_client import reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.next_version import NEXT, become_the_next_version
from tests.support.server_in_process import connect

pytestmark = pytest.mark.only_on("sqlite", "these are copies of files, and ledgers of earlier versions")

KILLED_AFTER_WRITING = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from palimpsest.store.ledger import open_ledger
from palimpsest.store.apply import Write
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
ledger = open_ledger(Path(sys.argv[1]), lambda: datetime.now(UTC))
for number in range(30):
    decision = Decision(Event.ADD, Fact(f"a fact of the killed one, number {number}"))
    ledger.apply(Write(Scope("alice"), Provenance("test"), decisions=(decision,)))
os.kill(os.getpid(), signal.SIGKILL)
"""


CLOCK = StoppedClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(None, data_dir=tmp_path / "data", user_id="alice", llm={"provider": "none"})


def store(settings: Settings, *texts: str) -> None:
    settings.data_dir.mkdir(exist_ok=True)
    with second_writer(settings.data_dir) as add:
        for text in texts:
            add(text)


def texts_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as conn:
        return [text for (text,) in conn.execute("SELECT text FROM memories WHERE deleted_at IS NULL ORDER BY seq")]


def schema_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as conn:
        (revision,) = conn.execute("SELECT version_num FROM alembic_version").fetchone()
        return [(revision,), *conn.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()]


class TestBackup:
    def test_a_backup_is_one_private_file(self, settings: Settings) -> None:
        """Guards the backup against other users of the machine, and against depending on a write-ahead log."""
        store(settings, "User plays the cello")
        copy = back_up(settings, None, CLOCK)
        assert copy.path == settings.data_dir / "backups" / "ledger-backup-20260508T120000Z.db"
        assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(copy.path.parent.stat().st_mode) == 0o700
        assert (copy.revision, copy.memories, copy.messages) == (HEAD, 1, 0)
        assert list(copy.path.parent.iterdir()) == [copy.path]
        assert table_rows(copy.path) == table_rows(settings.ledger_path)

    def test_the_newest_five_backups_of_an_occasion_are_kept(self, settings: Settings) -> None:
        """Guards the disk against filling up, and every other file against being deleted as an old backup."""
        clock = StoppedClock()
        store(settings, "User plays the cello")
        folder = settings.data_dir / "backups"
        folder.mkdir()
        occasions = ("before-import", "before-restore", "schema-0001", "damaged")
        names = [
            *(f"ledger-{occasion}-20200101T000000Z.db" for occasion in occasions),
            "work-backup-20200101T000000Z.db",
        ]
        others = {folder / name for name in (*names, "ledger-backup-20200101T000000Z.txt", "mine.db")}
        for file in others:
            file.write_text("another file")
        copies: list[Path] = []
        for number in range(KEPT + 3):
            clock.forward(minutes=number % 2)
            copies.append(back_up(settings, None, clock).path)
        assert len(set(copies)) == len(copies), "two backups in one second have two names"
        assert set(folder.iterdir()) == others | set(copies[-KEPT:])

    def test_a_failed_backup_leaves_no_file_and_deletes_no_older_backup(self, settings: Settings) -> None:
        """Guards good backups against a damaged ledger, and the folder against unfinished files."""
        store(settings, *(f"fact {number}: {'long ' * 200}" for number in range(40)))
        kept = [back_up(settings, None, CLOCK).path for _ in range(KEPT)]
        before = {file: file.read_bytes() for file in data_files(settings.data_dir)}
        with settings.ledger_path.open("r+b") as file:
            file.seek(30 * 4096)
            file.write(b"\xa5" * 4096 * 10)
        with pytest.raises(LedgerError, match=r"malformed|is damaged"):
            back_up(settings, None, CLOCK)
        with pytest.raises(LedgerError, match=r"malformed|is damaged"):
            back_up(settings, settings.data_dir / "copy.db", CLOCK)
        assert data_files(settings.data_dir) == before.keys()
        assert all(file.read_bytes() == before[file] for file in kept)

    def test_a_target_that_cannot_be_written_is_refused(self, tmp_path: Path, settings: Settings) -> None:
        """Guards other files: none is overwritten, no unfinished one is left, and no ledger is made to back it up."""
        with pytest.raises(LedgerError, match="nothing to back up"):
            back_up(settings, None, CLOCK)
        assert not settings.data_dir.exists()
        store(settings, "User plays the cello")
        (tmp_path / "file").write_text("mine")
        before = data_files(tmp_path)
        for target in ("file/copy.db", "data", "file"):
            with pytest.raises((InputError, LedgerError), match=r"already exists|could not be made"):
                back_up(settings, tmp_path / target, CLOCK)
        assert data_files(tmp_path) == before
        assert (tmp_path / "file").read_text() == "mine"


class TestRestore:
    def test_a_restored_ledger_equals_the_backup_and_the_previous_one_is_kept(self, settings: Settings) -> None:
        """Guards both states: the restored one, and the previous one, which can be restored in turn."""
        store(settings, "User plays the cello", "User lives in Nice")
        first = back_up(settings, None, CLOCK).path
        then = table_rows(settings.ledger_path)
        store(settings, "User lives in Lyon", "User bakes rye bread")
        now = table_rows(settings.ledger_path)

        done = restore(settings, first, CLOCK)

        assert done.copy.memories == 2
        assert done.before is not None
        assert done.before.name == "ledger-before-restore-20260508T120000Z.db"
        assert stat.S_IMODE(done.before.stat().st_mode) == 0o600
        assert table_rows(settings.ledger_path) == then == table_rows(first)
        assert table_rows(done.before) == now
        assert ledger_faults(settings.ledger_path) == []

        again = restore(settings, done.before, CLOCK)

        assert table_rows(settings.ledger_path) == now
        assert again.before is not None
        assert table_rows(again.before) == then
        assert data_files(settings.data_dir) == {settings.ledger_path, first, done.before, again.before}

    def test_writes_after_a_restore_get_new_numbers(self, settings: Settings) -> None:
        """Guards the numbers of rows, entries and index log rows against clashes after a restore."""
        store(settings, "User plays the cello", "User lives in Nice")
        copy = back_up(settings, None, CLOCK).path
        store(settings, *(f"fact {number}" for number in range(5)))
        newest = max(row["seq"] for row in table_rows(settings.ledger_path, "changes")["changes"])
        restore(settings, copy, CLOCK)
        store(settings, "User bakes rye bread", "User lives in Lyon")
        assert len(texts_in(settings.ledger_path)) == 4
        assert ledger_faults(settings.ledger_path) == []
        changes = [row["seq"] for row in table_rows(settings.ledger_path, "changes")["changes"]]
        assert max(changes) > newest + 2, "no index takes a new row of the log for an old one"

    @pytest.mark.nightly
    def test_no_acknowledged_write_is_lost_between_the_copy_and_the_replacement(self, settings: Settings) -> None:
        """Guards clients that go on writing: every acknowledged write is in the ledger or in a backup."""
        store(settings, "User plays the cello")
        copy = back_up(settings, None, CLOCK).path
        kept: list[Path] = []
        with run_writer(settings.ledger_path) as writer:
            for _ in range(6):
                writer.wait_for(8)
                done = restore(settings, copy, CLOCK)
                assert done.before is not None
                kept.append(done.before)
            writer.wait_for(8)
        stored = {text for path in (settings.ledger_path, *kept) for text in texts_in(path)}
        assert set(writer.acknowledged) <= stored
        assert texts_in(settings.ledger_path)[0] == "User plays the cello"
        assert set(writer.acknowledged) - set(texts_in(settings.ledger_path)), "the restore replaced some of them"
        assert ledger_faults(settings.ledger_path) == []

    def test_a_backup_with_an_older_schema_is_migrated(
        self, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards backups that an older version of the program made."""
        store(settings, "User plays the cello")
        store(settings, "User lives in Nice")
        old = Path(shutil.copyfile(back_up(settings, None, CLOCK).path, tmp_path / "old.db"))
        become_the_next_version(monkeypatch, tmp_path)
        before = old.read_bytes()
        store(settings, "User bakes rye bread")
        restore(settings, old, CLOCK)
        assert texts_in(settings.ledger_path) == ["User plays the cello", "User lives in Nice"]
        assert schema_of(settings.ledger_path)[0] == (NEXT,)
        assert ledger_faults(settings.ledger_path) == []
        assert old.read_bytes() == before, "the backup itself is unchanged"

    def test_an_unusable_backup_is_refused_and_nothing_is_changed(self, tmp_path: Path, settings: Settings) -> None:
        """Guards the present ledger against files that are not usable backups."""
        store(settings, *(f"fact {number}: {'long ' * 200}" for number in range(40)))
        good = back_up(settings, None, CLOCK).path.read_bytes()
        files = {name: tmp_path / name for name in ("newer", "foreign", "text", "damaged", "missing", "folder")}
        files["newer"].write_bytes(good)
        run_sql(files["newer"], "UPDATE alembic_version SET version_num = '9999'")
        with closing(sqlite3.connect(files["foreign"])) as conn:
            conn.executescript("CREATE TABLE memories (id, text); CREATE TABLE messages (id)")
        files["text"].write_text("# Notes\n" * 1_000)
        files["damaged"].write_bytes(good[: 20 * 4096] + b"\xa5" * 4096 + good[21 * 4096 :])
        files["folder"].mkdir()
        before, present = table_rows(settings.ledger_path, "meta", "changes"), data_files(settings.data_dir)
        for name, error_text in {
            "newer": "schema 9999, which this version does not know",
            "foreign": "not a ledger that can be read",
            "text": "not a ledger that can be read",
            "damaged": r"is damaged|malformed",
            "missing": "there is no file",
            "folder": "is not a plain file",
        }.items():
            with pytest.raises(LedgerError, match=error_text):
                restore(settings, files[name], CLOCK)
        assert table_rows(settings.ledger_path, "meta", "changes") == before
        assert data_files(settings.data_dir) == present

    @pytest.mark.parametrize("damage", [b"no database" * 1_000, b""])
    def test_a_damaged_ledger_is_set_aside_and_replaced(self, settings: Settings, damage: bytes) -> None:
        """Guards the restore after damage. The damaged file is kept, because most of it may be readable."""
        store(settings, *(f"fact {number}: {'long ' * 200}" for number in range(40)))
        copy = back_up(settings, None, CLOCK).path
        path = settings.ledger_path
        path.write_bytes(damage)
        done = restore(settings, copy, CLOCK)
        assert done.before is not None
        assert done.before.name == "ledger-damaged-20260508T120000Z.db"
        assert done.before.read_bytes() == damage
        assert table_rows(path) == table_rows(copy)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ledger_faults(path) == []

    def test_a_damaged_ledger_is_not_replaced_while_a_client_uses_it(self, settings: Settings) -> None:
        """Guards the client's writes: they would go into the replaced file."""
        store(settings, "User plays the cello")
        copy = back_up(settings, None, CLOCK).path
        settings.ledger_path.write_bytes(b"no database" * 1_000)
        settings.index_dir.mkdir()
        files = data_files(settings.data_dir)
        for name in ("0.lock", "server.lock"):
            with file_lock(settings.index_dir / name), pytest.raises(LedgerError, match="Close all clients"):
                restore(settings, copy, CLOCK)
        assert settings.ledger_path.read_bytes() == b"no database" * 1_000
        assert data_files(settings.data_dir) == files
        restore(settings, copy, CLOCK)
        assert texts_in(settings.ledger_path) == ["User plays the cello"]

    def test_the_log_of_a_killed_client_is_in_the_backup_and_not_in_the_restored_ledger(
        self, settings: Settings, tmp_path: Path
    ) -> None:
        """Guards its last writes, and the restored content: SQLite would apply a leftover log to the file beside it."""
        store(settings, "User plays the cello")
        copy = back_up(settings, None, CLOCK).path
        killed = subprocess.run(
            [sys.executable, "-c", KILLED_AFTER_WRITING, str(settings.ledger_path)], check=False, timeout=60
        )
        assert killed.returncode == -signal.SIGKILL
        assert settings.ledger_path.with_name("ledger.db-wal").stat().st_size > 0, "its last writes are in the log"
        shutil.copytree(settings.data_dir, tmp_path / "log alone")
        log_alone = settings.model_copy(update={"data_dir": tmp_path / "log alone"})
        log_alone.ledger_path.unlink()
        done = restore(settings, copy, CLOCK)
        assert done.before is not None
        assert len(texts_in(done.before)) == 31
        assert restore(log_alone, copy, CLOCK).before is None
        for restored in (settings, log_alone):
            assert texts_in(restored.ledger_path) == ["User plays the cello"]
            assert table_rows(restored.ledger_path) == table_rows(copy)


@pytest.mark.anyio
async def test_a_running_server_sees_the_restored_state_at_its_next_call_and_its_index_follows(tmp_path: Path) -> None:
    """Guards clients that stay connected: they need no restart, see no old results, and their index is updated."""
    data = tmp_path / "data"
    async with connect(tmp_path) as server, memory_in(data) as memory:

        async def search(query: str) -> set[str]:
            hits = reply_results(await server.call_tool("search_memories", {"query": query}))
            return {hit["text"] for hit in hits}

        for text in ("The team retreat is in Lisbon", "User bakes rye bread"):
            reply_text(await server.call_tool("add_memory", {"text": text}))
        copy = back_up(memory.settings, None, memory.engine.clock).path
        with memory.engine.ledger.read() as conn:
            ids = [memory.id for _, memory in memories.list_memories(conn, ALICE, 9)]
        reply_text(await server.call_tool("delete_memory", {"memory_ids": ids}))
        reply_text(await server.call_tool("add_memory", {"text": "The team retreat is in Porto"}))
        await repeat_until(lambda: index_follows(memory, data / "index" / "0"), lambda: search("retreat"))
        assert await search("retreat bread") == {"The team retreat is in Porto"}

        restore(memory.settings, copy, memory.engine.clock)

        assert await search("retreat bread") == {"The team retreat is in Lisbon", "User bakes rye bread"}
        await repeat_until(lambda: index_follows(memory, data / "index" / "0"), lambda: search("retreat"))
        assert "The team retreat is in Lisbon" in await search("Where is the company offsite?")
        listed = reply_results(await server.call_tool("list_memories", {}))
        assert {item["id"] for item in listed} == set(ids)
        reply_text(await server.call_tool("add_memory", {"text": "User plays the cello"}))
        assert "User plays the cello" in await search("cello")
    assert ledger_faults(data / "ledger.db") == []


class TestMigration:
    def test_a_failed_migration_changes_neither_schema_nor_data(
        self, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards against a half-migrated ledger: all of a migration is applied, or nothing of it."""
        store(settings, "User plays the cello", "User lives in Nice")
        path = settings.ledger_path
        run_sql(path, "ALTER TABLE memories ADD COLUMN mood TEXT")
        before, texts = schema_of(path), texts_in(path)
        become_the_next_version(monkeypatch, tmp_path)
        with pytest.raises(LedgerError, match="duplicate column"):
            open_ledger(path, CLOCK)
        assert schema_of(path) == before
        assert texts_in(path) == texts
        (copy,) = (settings.data_dir / "backups").iterdir()
        assert schema_of(copy) == before
        assert texts_in(copy) == texts
        run_sql(path, "ALTER TABLE memories DROP COLUMN mood")
        open_ledger(path, CLOCK).close()
        assert schema_of(path)[0] == (NEXT,)
        assert ledger_faults(path) == []
