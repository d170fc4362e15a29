"""Relations follow their memories in one transaction, whatever happens to these, and never leave a scope."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.models import Scope
from tests.support.ledger_access import ledger_faults, ledger_in
from tests.support.stores import ledger_argument

pytestmark = pytest.mark.anyio

HOME = Path(__file__).parents[4]
WEB, API = (Scope("alice", project=name) for name in ("web", "api"))
TABLES = ("memories", "entities", "entity_aliases", "mentions", "relations")
WRITE = """
import os, signal, sys
from datetime import UTC, datetime
from sqlalchemy import Engine, event
from palimpsest.core.models import NamedEntity, Relation
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store.ledger import open_ledger
from palimpsest.store.apply import Write
from tests.support.stores import ledger_place

moment = sys.argv[2]
ledger = open_ledger(ledger_place(sys.argv[1]), lambda: datetime.now(UTC))
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)

def after(conn, cursor, statement, parameters, context, executemany):
    if statement.startswith(f"INSERT INTO {moment} "):
        kill()

def before(conn, cursor, statement, parameters, context, executemany):
    if moment == "commit" and statement.endswith("COMMIT"):
        kill()

event.listen(Engine, "before_cursor_execute", before)
event.listen(Engine, "after_cursor_execute", after)
if moment == "commit":
    event.listen(Engine, "commit", lambda conn: kill())
lives = Relation("Ana", "lives in", "Lyon")
fact = Fact("Ana lives in Lyon", entities=(NamedEntity("Ana", "person"),), relations=(lives,))
ledger.apply(Write(Scope("alice"), Provenance("test"), decisions=(Decision(Event.ADD, fact),)))
kill()
"""


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    "moment", ["memories", "entities", "entity_aliases", "mentions", "relations", "commit", "never"]
)
def test_a_killed_write_leaves_the_memory_and_its_relations_or_neither(tmp_path: Path, moment: str) -> None:
    """Guards one transaction: kill -9 after each of its statements, before the commit and after it."""
    ledger = tmp_path / "ledger.db"
    command = [sys.executable, "-c", WRITE, ledger_argument(ledger), moment]
    killed = subprocess.run(command, cwd=HOME, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with ledger_in(tmp_path) as opened, opened.read() as conn:
        counts = [
            conn.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()  # noqa: S608 - names of our own
            for table in TABLES
        ]
    assert counts == ([1, 2, 2, 2, 1] if moment == "never" else [0, 0, 0, 0, 0])
    assert ledger_faults(ledger) == []
