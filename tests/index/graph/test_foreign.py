"""What is in the graph database besides ours, and what the database may become: restored, emptied, of another copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.admin.backup import back_up, restore
from palimpsest.admin.doctor import examine
from palimpsest.core.errors import GraphStoreError
from tests.support.bolt_server import BoltServer, caught_up, projection_of, state
from tests.support.memory import StoppedClock, memory_in
from tests.support.stores import copy_memory

pytestmark = pytest.mark.anyio

LYON = ("Ana", "lives in", "Lyon")
TOM = ("Tom", "knows", "Eve")


async def test_nodes_of_others_are_left_alone(tmp_path: Path, bolt: BoltServer) -> None:
    bolt.query("CREATE (:Entity {id: 'theirs', name: 'Ana'})-[:RELATES {memory_id: 'm'}]->(:Place {name: 'Lyon'})")
    async with memory_in(tmp_path, graph_store=bolt.settings()) as memory:
        state(memory, *LYON)
        await caught_up(memory)
        await memory.care.rebuild_graph()
    theirs = bolt.query("MATCH (a:Entity {id: 'theirs'})-[r]->(b) RETURN a, r.memory_id AS m, b.name AS b")
    assert theirs == [{"a": {"id": "theirs", "name": "Ana"}, "m": "m", "b": "Lyon"}]


async def test_two_ledgers_share_a_database_and_one_may_be_emptied(tmp_path: Path, bolt: BoltServer) -> None:
    async with (
        memory_in(tmp_path / "one", graph_store=bolt.settings()) as one,
        memory_in(tmp_path / "two", graph_store=bolt.settings()) as two,
    ):
        state(one, *LYON)
        state(two, *TOM)
        for memory in (one, two, one):
            await projection_of(memory).rebuild()
        assert bolt.relations(one) == [(*LYON, True)]
        assert bolt.relations(two) == [(*TOM, True)]
        bolt.remove_all()
        state(one, *TOM)
        await caught_up(one)
        assert bolt.relations(one) == [(*LYON, True), (*TOM, True)]


async def test_a_restored_ledger_replaces_what_is_there(tmp_path: Path, bolt: BoltServer) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, graph_store=bolt.settings()) as memory:
        settings = memory.settings
        state(memory, *LYON)
        copy = back_up(settings, tmp_path / "copy.db", clock)
        state(memory, *TOM)
        await caught_up(memory)
    restore(settings, copy.path, clock)
    async with memory_in(tmp_path, clock, graph_store=bolt.settings()) as memory:
        await caught_up(memory)
        assert bolt.relations(memory) == [(*LYON, True)]


@pytest.mark.nightly
async def test_another_copy_of_the_ledger_is_told_apart_and_may_take_over(tmp_path: Path, bolt: BoltServer) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    async with memory_in(folders[0], graph_store=bolt.settings()) as one:
        state(one, *LYON)
        await caught_up(one)
    copy_memory(folders[0], folders[1])
    async with memory_in(folders[0], graph_store=bolt.settings()) as one:
        state(one, *TOM)
        await caught_up(one)
    async with memory_in(folders[1], graph_store=bolt.settings()) as two:
        with pytest.raises(GraphStoreError, match="another copy of this ledger"):
            await caught_up(two)
        assert bolt.relations(two) == [(*LYON, True), (*TOM, True)]
        finding = next(found for found in await examine(two.settings) if found.part == "graph")
        assert not finding.ok
        assert "palimpsest rebuild --graph" in finding.text
        await two.care.rebuild_graph()
        assert bolt.relations(two) == [(*LYON, True)]
