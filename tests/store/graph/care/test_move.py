"""Entities go with their projects and memories: in moves, in merges, and in writes that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.models import MOVE, Relation, Scope
from palimpsest.memory import Memory
from tests.support.graph_rows import LIVES, entity_names, run_statement, stated_relations, store_stating
from tests.support.ledger_access import ledger_faults, ledger_in, row_faults, select_rows
from tests.support.stores import ledger_argument

pytestmark = pytest.mark.anyio

BOB = Scope("bob", project="old")
OLD, NEW, OTHER = (Scope("alice", project=name) for name in ("old", "new", "other"))
ANA, TOM = ("Ana", "person"), ("Tom", "person")


async def test_a_project_takes_its_entities_along(memory: Memory) -> None:
    store_stating(memory, "Ana lives in Lyon", ANA, relations=(LIVES,), scope=OLD)
    for scope in (OTHER, BOB):
        store_stating(memory, "Ana sails", ANA, scope=scope)
    store_stating(memory, "I like Ana", ("I", "person"), scope=OLD)
    relations = stated_relations(memory)
    await memory.projects.move("old", "new")
    assert entity_names(memory) == [("", "User"), ("new", "Ana"), ("new", "Lyon"), ("other", "Ana")]
    assert entity_names(memory, "bob") == [("old", "Ana")]
    assert stated_relations(memory) == relations
    store_stating(memory, "Ana bakes", ANA, scope=NEW)
    assert len(entity_names(memory)) == 4, "she is known there"
    assert await row_faults(memory) == []


async def test_entities_of_one_name_become_one_in_a_merge(memory: Memory) -> None:
    knows = Relation("Ana", "knows", "Mercury")
    store_stating(memory, "Ana knows Mercury", ANA, ("Mercury", "person"), relations=(knows,), scope=OLD)
    store_stating(memory, "Tom sails", TOM, scope=OLD)
    store_stating(memory, "Ana is here, and Mercury is a planet", ANA, ("Mercury", "place"), scope=NEW)
    store_stating(memory, "Tom bakes", TOM, ("Thomas", "person"), scope=NEW)
    run_statement(memory, "UPDATE entity_aliases SET key = 'tom' WHERE key = 'thomas'")
    await memory.projects.merge("old", "new")
    assert entity_names(memory).count(("new", "Ana")) == 1
    assert entity_names(memory).count(("new", "Mercury")) == 2
    assert entity_names(memory).count(("new", "Tom")) == 2
    merges = select_rows(memory, "SELECT event, stage, text FROM entity_history")
    assert merges == [("merge", MOVE, "merged Ana (in old) into Ana (in new)")]
    assert stated_relations(memory) == [("Ana", "knows", "Mercury")]
    assert await row_faults(memory) == []


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
