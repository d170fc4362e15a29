"""The graph database follows the ledger, and the commands that rebuild and examine it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory
from tests.support.bolt_server import BoltServer, caught_up, state
from tests.support.command_line import palimpsest
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.memory import ALICE, StoppedClock, memory_in

pytestmark = pytest.mark.anyio

LYON = ("Ana", "lives in", "Lyon")
PORTO = ("Ana", "lives in", "Porto")


@pytest.fixture
async def memory(tmp_path: Path, bolt: BoltServer) -> AsyncGenerator[Memory]:
    async with memory_in(tmp_path, StoppedClock(), graph_store=bolt.settings()) as opened:
        yield opened


CASES = graph_cases(Path(__file__).with_name("cases.json"))


@pytest.mark.parametrize("case", CASES)
async def test_it_shows(memory: Memory, bolt: BoltServer, case: str) -> None:
    """Follow the steps of a case. The database catches up after each."""
    steps = GraphCase(Graph(memory.engine.ledger, StoppedClock()))
    for step in CASES[case]:
        match step:
            case ["nodes", *names]:
                assert bolt.names(memory) == names
            case ["edges", *stated]:
                assert bolt.relations(memory) == [tuple(edge) for edge in stated]
            case _:
                steps.play(step)
                await caught_up(memory)


async def test_a_purge_erases_there_too(memory: Memory, bolt: BoltServer) -> None:
    memory_id = state(memory, *PORTO)
    state(memory, "Tom", "knows", "Eve")
    await caught_up(memory)
    result = await memory.care.purge(ALICE, [memory_id])
    assert result.notes == ()
    assert bolt.names(memory) == ["Eve", "Tom"]
    assert bolt.relations(memory) == [("Tom", "knows", "Eve", True)]


def findings(folder: Path, bolt: BoltServer, *options: str, code: int = 0) -> dict[str, Any]:
    printed = palimpsest(folder, "doctor", "--json", *options, settings=bolt.variables(), code=code)
    found = json.loads(printed[printed.index("{") :])["findings"]
    return {finding["part"]: finding for finding in found if finding["part"].startswith("graph")}


@pytest.mark.nightly
async def test_rebuild_fills_the_database(tmp_path: Path, bolt: BoltServer) -> None:
    async with memory_in(tmp_path / "data", graph_store=bolt.settings()) as memory:
        state(memory, *LYON)
        assert "nothing of this ledger yet" in findings(tmp_path, bolt)["graph"]["text"]
        printed = palimpsest(tmp_path, "rebuild", "--graph", settings=bolt.variables())
        assert f"rebuilt: 2 entities, 1 relation in bolt://127.0.0.1:{bolt.port}" in printed
        assert bolt.relations(memory) == [(*LYON, True)]
        state(memory, "Tom", "knows", "Eve")
        text = findings(tmp_path, bolt)["graph"]["text"]
        assert text.startswith(f"neo4j at bolt://127.0.0.1:{bolt.port}, database {bolt.database}: 2 entities")
        assert text.endswith("1 relation, 1 change behind")


async def test_rebuild_without_a_graph_database_says_so(tmp_path: Path) -> None:
    assert "the settings name no graph database" in palimpsest(tmp_path, "rebuild", "--graph", code=1)


@pytest.mark.parametrize("url", ["http://127.0.0.1:7474", "127.0.0.1:7687", "bolt://root:a-secret@127.0.0.1:7687"])
async def test_an_address_that_is_none_is_refused_without_showing_a_login(tmp_path: Path, url: str) -> None:
    store = {"provider": "memgraph", "config": {"url": url}}
    with pytest.raises(SettingsError, match=r"graph_store\.config\.url") as error:
        load_settings(None, data_dir=tmp_path, graph_store=store)
    assert "a-secret" not in str(error.value)


@pytest.mark.nightly
async def test_relations_of_entities_with_themselves_are_copied(memory: Memory, bolt: BoltServer) -> None:
    for number in range(120):
        state(memory, f"p{number:03}", "trusts", f"p{number:03}")
    await caught_up(memory)
    assert bolt.relations(memory) == [(f"p{number:03}", "trusts", f"p{number:03}", True) for number in range(120)]
