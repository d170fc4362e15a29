"""Opening an SQLite ledger: paths, files of other programs and versions, and the lock that processes get in order."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from filelock import Timeout

from palimpsest.core.errors import LedgerError, LedgerTooNewError
from palimpsest.core.files import file_lock
from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.sqlite.ledger_files import in_turn
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


# The lock that processes get in the order in which they ask for it.

LONG = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


def wait_until_one_is_next(path: Path) -> None:
    """Wait until a thread or process is the next to get the lock: it holds the lock of the line."""
    while True:
        try:
            file_lock(path.with_name("work.next.lock")).acquire(timeout=0).lock.release()
        except Timeout:
            return


def test_who_is_next_is_not_passed(path: Path) -> None:
    """Guards a writer that waits from those that ask again and again."""
    order: list[str] = []

    def take(name: str) -> None:
        with in_turn(path, LONG):
            order.append(name)

    with in_turn(path, LONG):
        first = threading.Thread(target=take, args=("first",))
        first.start()
        wait_until_one_is_next(path)
        others = [threading.Thread(target=take, args=("other",)) for _ in range(8)]
        for thread in others:
            thread.start()
        order.append("holder")
    for thread in (first, *others):
        thread.join()
    assert order == ["holder", "first", *["other"] * 8]
