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


@pytest.fixture
def large(settings: Settings) -> Settings:
    """Return the settings of a ledger of many pages."""
    store(settings, *(f"fact {number}: {'long ' * 200}" for number in range(40)))
    return settings


def test_a_backup_is_one_private_file_and_five_of_an_occasion_are_kept(settings: Settings) -> None:
    """Guards it against others, and from depending on a log; the disk against filling up; and every other file."""
    with pytest.raises(LedgerError, match="nothing to back up"):
        back_up(settings, None, CLOCK)
    assert not settings.data_dir.exists()
    store(settings, "User plays the cello")
    copy, clock, folder = back_up(settings, None, CLOCK), StoppedClock(), settings.data_dir / "backups"
    assert copy.path == folder / "ledger-backup-20260508T120000Z.db"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (copy.path, folder)] == [0o600, 0o700]
    assert (copy.revision, copy.memories, copy.messages) == (HEAD, 1, 0)
    assert list(folder.iterdir()) == [copy.path]
    assert table_rows(copy.path) == table_rows(settings.ledger_path)
    copy.path.unlink()
    occasions = ("ledger-before-import", "ledger-before-restore", "ledger-schema-0001", "ledger-damaged", "work-backup")
    others = {folder / f"{occasion}-20200101T000000Z.db" for occasion in occasions} | {folder / "mine.db"}
    for file in others:
        file.write_text("another file")
    copies: list[Path] = []
    for number in range(KEPT + 3):
        clock.forward(minutes=number % 2)
        copies.append(back_up(settings, None, clock).path)
    assert len(set(copies)) == len(copies), "two backups in one second have two names"
    assert set(folder.iterdir()) == others | set(copies[-KEPT:])


def test_a_backup_that_fails_or_is_refused_changes_no_file(tmp_path: Path, large: Settings) -> None:
    """Guards good backups against a damaged ledger, other files against being overwritten, and against half a file."""
    kept = [back_up(large, None, CLOCK).path for _ in range(KEPT)]
    (tmp_path / "file").write_text("mine")
    before = {file: file.read_bytes() for file in data_files(tmp_path)}
    for target in ("file/copy.db", "data", "file"):
        with pytest.raises((InputError, LedgerError), match=r"already exists|could not be made"):
            back_up(large, tmp_path / target, CLOCK)
    assert {file: file.read_bytes() for file in data_files(tmp_path)} == before
    with large.ledger_path.open("r+b") as file:
        file.seek(30 * 4096)
        file.write(b"\xa5" * 4096 * 10)
    for target in (None, large.data_dir / "copy.db"):
        with pytest.raises(LedgerError, match=r"malformed|is damaged"):
            back_up(large, target, CLOCK)
    assert data_files(tmp_path) == before.keys()
    assert all(file.read_bytes() == before[file] for file in kept)


class TestRestore:
    def test_a_restored_ledger_equals_the_backup_and_the_previous_one_is_kept(self, settings: Settings) -> None:
        """Guards both states, which can be restored in turn, and rows and index logs against numbers that clash."""
        store(settings, "User plays the cello", "User lives in Nice")
        first = back_up(settings, None, CLOCK).path
        then = table_rows(settings.ledger_path)
        store(settings, "User lives in Lyon", "User bakes rye bread")
        now = table_rows(settings.ledger_path)
        newest = max(row["seq"] for row in table_rows(settings.ledger_path, "changes")["changes"])

        done = restore(settings, first, CLOCK)
        assert done.copy.memories == 2
        assert done.before is not None
        assert done.before.name == "ledger-before-restore-20260508T120000Z.db"
        assert stat.S_IMODE(done.before.stat().st_mode) == 0o600
        assert table_rows(settings.ledger_path) == then == table_rows(first)
        assert table_rows(done.before) == now

        again = restore(settings, done.before, CLOCK)
        assert table_rows(settings.ledger_path) == now
        assert again.before is not None
        assert table_rows(again.before) == then
        assert data_files(settings.data_dir) == {settings.ledger_path, first, done.before, again.before}
        restore(settings, first, CLOCK)
        store(settings, "User sings", "User lives in Lyon")
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

    def test_an_unusable_backup_is_refused_and_nothing_is_changed(self, tmp_path: Path, large: Settings) -> None:
        """Guards the present ledger against files that are not usable backups."""
        good = back_up(large, None, CLOCK).path.read_bytes()
        files = {name: tmp_path / name for name in ("newer", "foreign", "text", "damaged", "missing", "folder")}
        files["newer"].write_bytes(good)
        run_sql(files["newer"], "UPDATE alembic_version SET version_num = '9999'")
        with closing(sqlite3.connect(files["foreign"])) as conn:
            conn.executescript("CREATE TABLE memories (id, text); CREATE TABLE messages (id)")
        files["text"].write_text("# Notes\n" * 1_000)
        files["damaged"].write_bytes(good[: 20 * 4096] + b"\xa5" * 4096 + good[21 * 4096 :])
        files["folder"].mkdir()
        before, present = table_rows(large.ledger_path, "meta", "changes"), data_files(large.data_dir)
        for name, error_text in {
            "newer": "schema 9999, which this version does not know",
            "foreign": "not a ledger that can be read",
            "text": "not a ledger that can be read",
            "damaged": r"is damaged|malformed",
            "missing": "there is no file",
            "folder": "not a plain file",
        }.items():
            with pytest.raises(LedgerError, match=error_text):
                restore(large, files[name], CLOCK)
        assert table_rows(large.ledger_path, "meta", "changes") == before
        assert data_files(large.data_dir) == present
        with pytest.raises(LedgerError, match="Upgrade palimpsest-mcp"):
            open_ledger(files["newer"], CLOCK)

    @pytest.mark.parametrize("damage", [b"no database" * 1_000, b""])
    def test_a_damaged_ledger_is_set_aside_once_no_client_uses_it(self, large: Settings, damage: bytes) -> None:
        """Guards a client's writes, which would go into the replaced file, and what can be read of the damaged one."""
        copy, path = back_up(large, None, CLOCK).path, large.ledger_path
        path.write_bytes(damage)
        large.index_dir.mkdir()
        files = data_files(large.data_dir)
        for name in ("0.lock", "server.lock"):
            with file_lock(large.index_dir / name), pytest.raises(LedgerError, match="Close all clients"):
                restore(large, copy, CLOCK)
        assert (path.read_bytes(), data_files(large.data_dir)) == (damage, files)
        done = restore(large, copy, CLOCK)
        assert done.before is not None
        assert done.before.name == "ledger-damaged-20260508T120000Z.db"
        assert done.before.read_bytes() == damage
        assert table_rows(path) == table_rows(copy)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ledger_faults(path) == []

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
