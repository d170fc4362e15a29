"""Agents that share a user (Letta, mem0): each knows what its user knows, and its own; other agents' stay apart.

The table in docs/projects.md says who sees what. It is played here row by row, over HTTP with access tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.support.http_server import HttpServer, connect_http, new_access_token, run_http_server
from tests.support.mcp_client import connect_stdio, error_text, reply_results, reply_text
from tests.support.server_in_process import connect
from tests.support.stores import Store

pytestmark = pytest.mark.anyio

# The columns of the table, and the scope in which such a memory is stored.
OWNERS = {
    "the user's": {},
    "the project's": {"project": "atlas"},
    "the agent's": {"agent_id": "coder"},
    "the agent's in the project": {"project": "atlas", "agent_id": "coder"},
    "another agent's": {"agent_id": "cook"},
    "the run's": {"run_id": "r1"},
}


def table() -> Iterator[tuple[str, str, dict[str, str]]]:
    lines = Path("docs/projects.md").read_text("utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    (_, _, *owners), _, *told = rows
    assert owners == list(OWNERS)
    for asked, writes_to, *cells in told:
        yield asked, writes_to, dict(zip(owners, cells, strict=True))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    store: Store,  # noqa: ARG001 - where its ledger is
) -> Iterator[HttpServer]:
    """Run a server that requires an access token, because one exists."""
    folder = tmp_path_factory.mktemp("shared")
    new_access_token(folder / "data", "nobody")
    with run_http_server(folder) as running:
        yield running


def asked_with(asked: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the access token of a row, as arguments, and its `scope`."""
    if not asked.startswith("a token"):
        return {}, json.loads(asked.strip("`"))
    return {"project": "atlas", "with_general": "with what is general" in asked}, {}


@pytest.mark.parametrize(("asked", "writes_to", "cells"), [*table()])
async def test_the_table_says_who_sees_what(
    server: HttpServer, asked: str, writes_to: str, cells: Mapping[str, str]
) -> None:
    user = f"user of {asked}"
    token, scope = asked_with(asked)
    given = {"scope": scope} if scope else {}
    seen = {told_by(name) for name, cell in cells.items() if cell in ("seen", "own")}
    own = {told_by(name) for name, cell in cells.items() if cell == "own"}
    async with (
        connect_http(server, "auto", new_access_token(server.data, user)) as owner,
        connect_http(server, "auto", new_access_token(server.data, user, **token)) as agent,
    ):
        for name, of in OWNERS.items():
            await add(owner, told_by(name), scope={"project": None, **of}, metadata={"pinned": True})
        assert {*await texts(agent, "search_memories", query="whistle code", limit=50, **given)} == seen
        assert {*await texts(agent, "list_memories", **given)} == seen
        summary = reply_text(await agent.call_tool("get_summary", given))
        assert {told_by(name) for name in OWNERS if re.search(rf"{told_by(name)}$", summary, re.MULTILINE)} == seen
        stored = reply_text(await agent.call_tool("add_memory", {"text": "The kettle is blue", **given}))
        named = ", ".join(f"{part.removesuffix('_id')} {value}" for part, value in OWNERS[writes_to].items())
        assert re.findall(r"scope: (.*)", stored) == ([f"user {user}, {named}"] if named else [])
        refused = error_text(await agent.call_tool("delete_memory", {"all": True, **given}))
        (confirmation,) = re.findall(r"confirm='([^']+)'", refused)
        await agent.call_tool("delete_memory", {"all": True, "confirm": confirmation, **given})
        assert {hit["text"] for hit in await everything(owner)} == {*map(told_by, OWNERS)} - own


@pytest.mark.nightly
async def test_what_an_agent_replaces_of_its_users_stays_its_users(tmp_path: Path) -> None:
    """Guards other agents from losing what all of them saw, because one of them corrected it."""
    async with connect(tmp_path) as agent:
        old = await add(agent, "The user lives in Nice", metadata={"pinned": True})
        await add(agent, "The sauce needs salt", scope={"agent_id": "cook"})
    async with connect_stdio(tmp_path, PALIMPSEST_AGENT_ID="coder") as agent:
        await add(agent, "The user lives in Lyon", replaces=[old])
        await add(agent, "Tests come first", metadata={"pinned": True})
        await add(agent, "Invoices go out on Mondays", scope={"agent_id": None})
    async with connect_stdio(tmp_path, PALIMPSEST_AGENT_ID="coder") as agent:
        told = agent.instructions or ""
        assert ("lives in Lyon" in told, "Tests come first" in told, "salt" in told) == (True, True, False)
    async with connect_stdio(tmp_path, PALIMPSEST_AGENT_ID="baker", PALIMPSEST_MIN_SCORE="0.01") as agent:
        told = agent.instructions or ""  # at its very first start
        assert ("lives in Lyon" in told, "Tests come first" in told, "salt" in told) == (True, False, False)
    async with connect(tmp_path, PALIMPSEST_AGENT_ID="cook") as agent:
        seen = ["Invoices go out on Mondays", "The user lives in Lyon", "The sauce needs salt"]
        assert await texts(agent, "list_memories") == seen


def told_by(owner: str) -> str:
    return f"The whistle code is {owner}"


async def add(client: Client, text: str, **arguments: Any) -> str:
    (stored,) = reply_results(await client.call_tool("add_memory", {"text": text, **arguments}))
    return stored["id"]


async def texts(client: Client, tool: str, **arguments: Any) -> list[str]:
    return [hit["text"] for hit in reply_results(await client.call_tool(tool, arguments))]


async def everything(owner: Client) -> list[Any]:
    hits: dict[str, Any] = {}
    for project in (None, "atlas"):
        listed = await owner.call_tool("list_memories", {"scope": {"project": project}, "limit": 50})
        hits |= {hit["id"]: hit for hit in reply_results(listed)}
    return [*hits.values()]
