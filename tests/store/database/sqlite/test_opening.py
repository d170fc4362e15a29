"""Opening an SQLite ledger: what is loaded, file modes, paths, files of other programs and versions, migrations."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.errors import LedgerError, LedgerTooNewError
from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.schema import HEAD
from tests.support.command_line import palimpsest
from tests.support.environment import clean_environment
from tests.support.memory import ALICE, StoppedClock
from tests.support.next_version import become_the_next_version


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


def add(ledger: Ledger, text: str) -> None:
    """Add a memory of alice's."""
    ledger.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.ADD, Fact(text)),)))


class TestOpening:
    def test_files_are_private(self, tmp_path: Path, clock: StoppedClock) -> None:
        """Other users of the machine cannot read the files."""
        ledger = open_ledger(tmp_path / "ledger.db", clock)
        add(ledger, "A fact")
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("ledger.db*")}
        ledger.close()
        assert modes == {0o600}

    def test_a_path_that_looks_like_a_url_is_a_path(self, tmp_path: Path, clock: StoppedClock) -> None:
        """The path must not be read as a URL."""
        path = tmp_path / "q?mode=ro#x %41" / "ledger.db"
        opened = open_ledger(path, clock)
        add(opened, "A fact")
        opened.close()
        assert [file.name for file in tmp_path.iterdir()] == ["q?mode=ro#x %41"]
        assert path.stat().st_size > 0

    def test_a_ledger_that_a_newer_version_migrates_in_use_is_not_written(
        self, tmp_path: Path, clock: StoppedClock
    ) -> None:
        """A server that runs for weeks must not write rows of the old schema into the new one."""
        path = tmp_path / "ledger.db"
        ledger = open_ledger(path, clock)
        add(ledger, "A fact")
        with sqlite3.connect(path) as conn:
            conn.execute("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(LedgerTooNewError, match=r"9999.*start its clients again"):
            add(ledger, "Another fact")
        ledger.close()
        assert conn.execute("SELECT text FROM memories").fetchall() == [("A fact",)]
        conn.close()

    def test_a_file_of_another_program_is_refused(self, tmp_path: Path, clock: StoppedClock) -> None:
        """A database of another program is not touched."""
        path = tmp_path / "ledger.db"
        with sqlite3.connect(path) as conn:
            conn.execute("CREATE TABLE other (x)")
        conn.close()
        with pytest.raises(LedgerError, match="another program"):
            open_ledger(path, clock)
        path.write_bytes(b"no database at all" * 100)
        with pytest.raises(LedgerError, match="not a database"):
            open_ledger(path, clock)

    def test_a_ledger_of_a_newer_version_is_refused(self, tmp_path: Path, clock: StoppedClock) -> None:
        """An older program must not damage the data."""
        path = tmp_path / "ledger.db"
        open_ledger(path, clock).close()
        with sqlite3.connect(path) as conn:
            conn.execute("UPDATE alembic_version SET version_num = '9999'")
        conn.close()
        with pytest.raises(LedgerTooNewError, match=r"9999.*Upgrade"):
            open_ledger(path, clock)

    def test_an_older_schema_is_migrated_after_a_backup(
        self, tmp_path: Path, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A migration keeps the data and makes a backup first."""
        path = tmp_path / "ledger.db"
        opened = open_ledger(path, clock)
        add(opened, "User plays the cello")
        opened.close()
        become_the_next_version(monkeypatch, tmp_path)
        again = open_ledger(path, clock)
        with again.read() as conn:
            assert len(again.full_text.search(conn, ALICE, ["cello"], 9)) == 1
        again.close()
        (backup,) = (tmp_path / "backups").glob("*.db")
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        with sqlite3.connect(backup) as conn:
            assert conn.execute("SELECT text FROM memories").fetchall() == [("User plays the cello",)]
            assert conn.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
        conn.close()


REPORT_MODULES = """
import atexit, runpy, sys
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
runpy.run_module("palimpsest", run_name="__main__")
"""


@pytest.mark.nightly
def test_nothing_for_postgresql_is_loaded(tmp_path: Path) -> None:
    """Guards how long everything takes to start. Only migrations load SQLAlchemy's dialect, through Alembic."""
    palimpsest(tmp_path, "add", "Nora plays the cello")
    command = [sys.executable, "-c", REPORT_MODULES, "search", "cello"]
    done = subprocess.run(
        command, env=clean_environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    modules = done.stderr.split()
    assert "Nora plays the cello" in done.stdout
    assert "palimpsest.store.schema" in modules
    assert [name for name in modules if "postgres" in name or "psycopg" in name] == []
