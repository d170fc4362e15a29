"""Opening an SQLite ledger: what is loaded, file modes, paths, files of other programs and versions, migrations."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from palimpsest.core.errors import LedgerError, LedgerTooNewError
from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger
from tests.support.memory import ALICE, StoppedClock


def add(ledger: Ledger, text: str) -> None:
    ledger.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.ADD, Fact(text)),)))


def test_a_path_that_looks_like_a_url_is_a_path(tmp_path: Path, clock: StoppedClock) -> None:
    path = tmp_path / "q?mode=ro#x %41" / "ledger.db"
    opened = open_ledger(path, clock)
    add(opened, "A fact")
    opened.close()
    assert [file.name for file in tmp_path.iterdir()] == ["q?mode=ro#x %41"]
    assert path.stat().st_size > 0


def test_a_ledger_of_a_newer_version_is_neither_written_nor_opened(tmp_path: Path, clock: StoppedClock) -> None:
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
    with pytest.raises(LedgerTooNewError, match=r"9999.*Upgrade"):
        open_ledger(path, clock)


def test_a_file_of_another_program_is_refused(tmp_path: Path, clock: StoppedClock) -> None:
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE other (x)")
    conn.close()
    with pytest.raises(LedgerError, match="another program"):
        open_ledger(path, clock)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        open_ledger(path, clock)
