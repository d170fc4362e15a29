"""The commands that look after the graph database: rebuild --graph, doctor, doctor --deep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import load_settings
from tests.support.bolt_server import BoltServer, state
from tests.support.command_line import palimpsest
from tests.support.memory import memory_in

pytestmark = pytest.mark.anyio

LYON = ("Ana", "lives in", "Lyon")


def findings(folder: Path, bolt: BoltServer, *options: str, code: int = 0) -> dict[str, Any]:
    """Return what doctor says of the graph database, by part."""
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


@pytest.mark.nightly
async def test_a_deep_doctor_finds_each_difference_and_repairs_it(tmp_path: Path, bolt: BoltServer) -> None:
    async with memory_in(tmp_path / "data", graph_store=bolt.settings()) as memory:
        ledger = memory.engine.ledger.id
        for names in (LYON, ("Tom", "knows", "Eve"), ("Bob", "likes", "Tea")):
            state(memory, *names)
        assert findings(tmp_path, bolt, "--deep")["graph rows"]["ok"]
        bolt.query("MATCH (n:Entity {ledger: $ledger, name: 'Lyon'}) DETACH DELETE n", ledger=ledger)
        bolt.query("MATCH (n:Entity {ledger: $ledger, name: 'Tom'}) SET n.name = 'Tim'", ledger=ledger)
        bolt.query("MATCH (:Entity {ledger: $ledger})-[r:RELATES {name: 'likes'}]->() SET r.text = '?'", ledger=ledger)
        bolt.query("CREATE (:Entity {ledger: $ledger, id: 'x', name: 'x'})", ledger=ledger)
        found = findings(tmp_path, bolt, "--deep", code=1)["graph rows"]
        assert found["text"].startswith("2 entities are missing or wrong, 2 relations are missing or wrong")
        assert "rebuilt" in findings(tmp_path, bolt, "--deep", "--repair")["graph rows"]["text"]
        assert findings(tmp_path, bolt, "--deep")["graph rows"]["ok"]
        assert bolt.names(memory) == ["Ana", "Bob", "Eve", "Lyon", "Tea", "Tom"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:7474", "127.0.0.1:7687", "bolt://root:a-secret@127.0.0.1:7687"])
async def test_an_address_that_is_none_is_refused_without_showing_a_login(tmp_path: Path, url: str) -> None:
    store = {"provider": "memgraph", "config": {"url": url}}
    with pytest.raises(SettingsError, match=r"graph_store\.config\.url") as error:
        load_settings(None, data_dir=tmp_path, graph_store=store)
    assert "a-secret" not in str(error.value)
