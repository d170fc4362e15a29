"""Projects that are moved and merged: their entities go with them, and those that are the same become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.models import MOVE, Relation, Scope, Undo
from tests.support.graph_rows import LIVES, entity_names, run_statement, stated_relations, store_stating
from tests.support.ledger_access import row_faults, select_rows
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

BOB = Scope("bob", project="old")
OLD, NEW, OTHER = (Scope("alice", project=name) for name in ("old", "new", "other"))
ANA, TOM = ("Ana", "person"), ("Tom", "person")


async def test_a_project_takes_its_entities_along(tmp_path: Path) -> None:
    """Guards a new name of a project: entities, aliases and relations are seen there, those of others stay."""
    async with memory_in(tmp_path) as memory:
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


async def test_entities_of_one_name_become_one_in_a_merge(tmp_path: Path) -> None:
    """Guards a merge: one Ana, two things of one name, and two Toms of whom nobody knows which is meant."""
    async with memory_in(tmp_path) as memory:
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


async def test_two_memories_that_say_the_same_state_together_what_both_stated(tmp_path: Path) -> None:
    """Guards relations: the memory that stays takes over what only the other one named."""
    async with memory_in(tmp_path) as memory:
        store_stating(memory, "Ana lives in Lyon", ANA, relations=(LIVES,), scope=OLD)
        store_stating(memory, "Ana lives in Lyon", scope=NEW)
        await memory.projects.merge("old", "new")
        assert stated_relations(memory) == [("Ana", "lives in", "Lyon")]
        assert entity_names(memory) == [("new", "Ana"), ("new", "Lyon")]
        assert await row_faults(memory) == []


async def test_an_undo_since_a_time_leaves_what_a_move_merged(tmp_path: Path) -> None:
    """Guards a merge of projects: an undo, which cannot take it back, takes no part of it back."""
    async with memory_in(tmp_path) as memory:
        for scope in (OLD, NEW):
            store_stating(memory, f"Ana is in {scope.project}", ANA, scope=scope)
        await memory.projects.merge("old", "new")
        await memory.undo(NEW, Undo(since=memory.engine.clock()))
        assert entity_names(memory) == [("new", "Ana")]
        assert await row_faults(memory) == []
        assert (await memory.list(ALICE)).hits == ()
