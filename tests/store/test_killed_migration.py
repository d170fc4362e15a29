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
from palimpsest.store.schema import HEAD, KNOWN_REVISIONS
from tests.support.ledger_access import ledger_faults, second_writer
from tests.support.ledger_files import downgrade
from tests.support.memory import StoppedClock

pytestmark = pytest.mark.only_on("sqlite", "ledgers of earlier versions are all in files")

OLDEST = min(KNOWN_REVISIONS)
TEXTS = ["User lives in Nice", "User plays the cello"]

KILLED_AT = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from sqlalchemy import Engine, event
from palimpsest.store.ledger import open_ledger

moment = sys.argv[2]

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
open_ledger(Path(sys.argv[1]), lambda: datetime.now(UTC))
"""


def downgraded(path: Path) -> None:
    """Make a ledger as the first version of the program has left it."""
    with second_writer(path.parent) as store:
        for text in TEXTS:
            store(text)
    downgrade(path, OLDEST)


def content(path: Path) -> tuple[str, list[str]]:
    """Return the revision and the texts of a ledger."""
    with closing(sqlite3.connect(path)) as conn:
        (revision,) = conn.execute("SELECT version_num FROM alembic_version").fetchone()
        return revision, sorted(text for (text,) in conn.execute("SELECT text FROM memories"))


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["backup", *sorted(KNOWN_REVISIONS - {OLDEST}), "commit"])
def test_the_next_process_migrates_what_a_killed_one_left(tmp_path: Path, moment: str) -> None:
    """Guards against a ledger between two versions, at the end of every step, before the commit and in the backup."""
    path = tmp_path / "ledger.db"
    downgraded(path)
    killed = subprocess.run([sys.executable, "-c", KILLED_AT, str(path), moment], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert content(path) == (OLDEST, TEXTS)
    open_ledger(path, StoppedClock()).close()
    assert content(path) == (HEAD, TEXTS)
    assert ledger_faults(path) == []
    backups = sorted((tmp_path / "backups").glob("*.db"))
    assert backups
    assert all(content(backup) == (OLDEST, TEXTS) for backup in backups)
    assert not list((tmp_path / "backups").glob("*.half")), "the copy that was not finished has gone"
