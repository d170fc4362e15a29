"""Entities go with their projects and memories: in moves, in merges, and in writes that are killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from palimpsest.core.models import MOVE, Relation, Scope
from palimpsest.memory import Memory
from tests.support.graph_rows import LIVES, entity_names, run_statement, stated_relations, store_stating
from tests.support.ledger_access import row_faults, select_rows
from tests.support.memory import memory_in
from tests.support.memory_process import start

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


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("table", ["relations", "memories", "entities", "entity_aliases", "mentions"])
async def test_a_killed_write_leaves_neither_the_memory_nor_its_relations(tmp_path: Path, table: str) -> None:
    async with memory_in(tmp_path):
        pass
    process = start(tmp_path, "add", f"INSERT INTO {table}")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    async with memory_in(tmp_path) as memory:
        counts = [select_rows(memory, f"SELECT count(*) FROM {each}") for each in ("memories", "entities", "mentions")]  # noqa: S608 - names of our own
        assert counts == [[(0,)]] * 3
        assert await row_faults(memory) == []
