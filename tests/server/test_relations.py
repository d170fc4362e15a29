"""Relations in replies: in Mem0's form and as lines, names as data, and each caller's own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.core.models import NamedEntity, Relation, Scope
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.http_server import HttpServer, connect_http, new_access_token
from tests.support.ledger_access import store_memory
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, memory_in
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

BOB = Scope("bob")


async def fill(folder: Path) -> None:
    """Let Alice and Bob each know something of an Odile."""
    async with memory_in(folder) as memory:
        for scope, town in ((ALICE, "Ghent"), (BOB, "Bergen")):
            store_memory(
                memory,
                f"Odile lives in {town}",
                scope=scope,
                relations=(Relation("Odile", "lives in", town),),
                entities=(NamedEntity("Odile", "person"), NamedEntity(town, "place")),
                valid_from=datetime(2025, 3, 1, tzinfo=UTC),
                valid_from_precision="month",
            )
            store_memory(memory, f"{town} has canals", scope=scope, relations=(Relation(town, "has", "canals"),))


@pytest.mark.nightly
async def test_a_tool_shows_them_as_text_and_as_values(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    async with connect(tmp_path, PALIMPSEST_USER_ID="alice") as server:
        found = await server.call_tool("search_memories", {"query": "Where does Odile live?"})
        other = await server.call_tool(
            "search_memories", {"query": "Where are canals?", "filters": {"entity": "Ghent"}}
        )
    assert "Odile — lives in → Ghent (since 2025-03)" in reply_text(found).splitlines()
    expected = {"source": "Odile", "relationship": "lives in", "destination": "Ghent", "valid_from": "2025-03"}
    assert found.structured_content["relations"] == [expected]
    assert {hit["text"] for hit in other.structured_content["results"]} == {"Odile lives in Ghent", "Ghent has canals"}


@pytest.mark.nightly
async def test_a_token_sees_its_own_users(protected_server: HttpServer) -> None:
    """Guards the same name in the memories of two users."""
    await fill(protected_server.data)
    for user, town in (("alice", "Ghent"), ("bob", "Bergen")):
        bearer = new_access_token(protected_server.data, user)
        async with connect_http(protected_server, "auto", bearer) as client:
            found = await client.call_tool("search_memories", {"query": "Where does Odile live?"})
            unknown = await client.call_tool("list_memories", {"filters": {"entity": "Bergen"}})
        assert [item["destination"] for item in found.structured_content["relations"]] == [town]
        assert bool(unknown.structured_content["results"]) is (user == "bob")


@pytest.mark.nightly
async def test_the_command_line_leads_one_relation_further(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    question = ("--user", "alice", "search", "Where does Odile live?")
    assert "Odile — lives in → Ghent (since 2025-03)" in palimpsest(tmp_path, *question)
    far = palimpsest_json(tmp_path, *question, "--hops", "2", "--json")
    assert [item["destination"] for item in far["relations"]] == ["Ghent", "canals"]
    assert len(palimpsest_json(tmp_path, *question, "--json")["relations"]) == 1
