"""A migration that is killed at any step: the next process finds the old ledger as it was, and migrates it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from palimpsest.store.ledger import open_ledger
from palimpsest.store.schema import HEAD
from tests.support.ledger_access import ledger_faults, second_writer
from tests.support.memory import StoppedClock
from tests.support.next_version import AS_THE_NEXT_VERSION, NEXT, become_the_next_version

pytestmark = pytest.mark.only_on("sqlite", "nobody but a person migrates a database that servers share")

TEXTS = ["User lives in Nice", "User plays the cello"]

KILLED_AT = f"""{AS_THE_NEXT_VERSION}
import os, signal
from datetime import UTC, datetime
from pathlib import Path
from sqlalchemy import Engine, event
from palimpsest.store.ledger import open_ledger

moment = sys.argv[3]

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def before(conn, cursor, statement, parameters, context, executemany):
    if statement.startswith("UPDATE alembic_version") and moment in statement + str(parameters):
        kill()

event.listen(Engine, "before_cursor_execute", before)
if moment == "commit":
    event.listen(Engine, "commit", lambda conn: kill())
if moment == "backup":
    sys.addaudithook(lambda name, arguments: kill() if name == "os.rename" else None)
open_ledger(Path(sys.argv[2]), lambda: datetime.now(UTC))
"""


def content(path: Path) -> tuple[str, list[str]]:
    """Return the revision and the texts of a ledger."""
    with closing(sqlite3.connect(path)) as conn:
        (revision,) = conn.execute("SELECT version_num FROM alembic_version").fetchone()
        return revision, sorted(text for (text,) in conn.execute("SELECT text FROM memories"))


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("moment", ["commit", "backup", NEXT])
def test_the_next_process_migrates_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Guards against a ledger between two versions, at the end of a step, before the commit and in the backup."""
    path = tmp_path / "data" / "ledger.db"
    path.parent.mkdir()
    with second_writer(path.parent) as store:
        for text in TEXTS:
            store(text)
    become_the_next_version(monkeypatch, tmp_path)
    command = [sys.executable, "-c", KILLED_AT, str(tmp_path / "migrations"), str(path), moment]
    killed = subprocess.run(command, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert content(path) == (HEAD, TEXTS)
    open_ledger(path, StoppedClock()).close()
    assert content(path) == (NEXT, TEXTS)
    assert ledger_faults(path) == []
    backups = sorted((path.parent / "backups").glob("*.db"))
    assert backups
    assert all(content(backup) == (HEAD, TEXTS) for backup in backups)
    assert not list((path.parent / "backups").glob("*.half")), "the copy that was not finished has gone"
