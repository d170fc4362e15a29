"""Who is who, through a real client: the tool, the resources and their completion."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceTemplateReference, TextResourceContents

from palimpsest.core.models import ABOUT_THE_PAST, Relation, Scope
from tests.support.graph_rows import LIVES, store_stating
from tests.support.http_server import HttpServer, connect_http, new_access_token
from tests.support.mcp_client import error_text, reply_text
from tests.support.memory import memory_in
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

HOSTILE = ("src/../app.py", "Ana \u202eevil", 'a"b<c>&d', "أنا من بيروت", "100% {x}", "東京 タワー")


@asynccontextmanager
async def server_that_knows(folder: Path, mode: str = "auto") -> AsyncGenerator[Client]:
    """Connect to a server whose memory knows Ana, Lyon and names that are hard to write."""
    async with memory_in(folder / "data") as memory:
        store_stating(memory, "Ana lives in Lyon", ("Ana", "person"), ("Lyon", "place"), relations=(LIVES,))
        for name in HOSTILE:
            store_stating(memory, f"Ana likes {name}", (name, "other"))
        owner = Relation("Ana", "owns", "the site")
        store_stating(memory, "Ana owns the site", relations=(owner,), scope=Scope("alice", "site"))
    async with connect(folder, mode) as server:
        yield server


async def read(server: Client, uri: str) -> str:
    """Return the text of a resource."""
    (content,) = (await server.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


@pytest.mark.few_by_day(1)
@BOTH
async def test_a_summary_about_a_name_is_read_with_the_tool(tmp_path: Path, mode: str) -> None:
    """Guards the agent's question about one person, and its next step after a name that is unknown."""
    async with server_that_knows(tmp_path, mode) as server:
        found = await server.call_tool("get_summary", {"kind": "about:ana"})
        assert reply_text(found).startswith("Ana (person)\nHolds now:\n- [")
        assert "Ana — lives in → Lyon" in reply_text(found)
        assert reply_text(found).splitlines()[-1] == f"note: {ABOUT_THE_PAST}"
        assert "scope:" not in reply_text(found)
        assert found.structured_content["kind"] == "about:ana"
        assert "the site" not in reply_text(found)
        in_project = await server.call_tool("get_summary", {"kind": "about:Ana", "scope": {"project": "site"}})
        assert "Ana — owns → the site" in reply_text(in_project)
        unknown = await server.call_tool("get_summary", {"kind": "about:Anna"})
        assert "Did you mean Ana?" in error_text(unknown)


@pytest.mark.few_by_day(1)
@BOTH
async def test_entities_are_listed_and_read_by_their_names(tmp_path: Path, mode: str) -> None:
    """Guards clients that attach a resource, whatever the name is made of."""
    async with server_that_knows(tmp_path, mode) as server:
        templates = [str(item.uri_template) for item in (await server.list_resource_templates()).resource_templates]
        assert "entity://{name}" in templates
        text = await read(server, "memory://entities")
        assert "Lyon (place), in 1 memory, last 2026-05-08" in text
        assert "the site" not in text
        assert "\u202e" not in text
        assert (await read(server, "entity://lyon")).startswith("Lyon (place)")
        for name in HOSTILE:
            assert "Ana likes" in await read(server, f"entity://{quote(name, safe='')}")
        with pytest.raises(MCPError, match="Did you mean Lyon"):
            await read(server, "entity://lion")


@pytest.mark.few_by_day(1)
@BOTH
async def test_names_are_completed(tmp_path: Path, mode: str) -> None:
    """Guards people who type the beginning of a name, in any case."""
    ref = ResourceTemplateReference(uri="entity://{name}")
    async with server_that_knows(tmp_path, mode) as server:
        one = await server.complete(ref, {"name": "name", "value": "LY"})
        assert (one.completion.values, one.completion.total, one.completion.has_more) == (["Lyon"], 1, False)
        every = await server.complete(ref, {"name": "name", "value": ""})
        assert {"Ana", "Lyon"} < set(every.completion.values)
        assert "the site" not in every.completion.values
        none = await server.complete(ref, {"name": "name", "value": "zz"})
        assert none.completion.values == []


async def test_the_list_is_announced_when_it_may_have_changed(tmp_path: Path) -> None:
    """Guards clients that show the list."""
    async with connect(tmp_path) as server, server.listen(resource_subscriptions=["memory://entities"]) as events:
        await server.call_tool("add_memory", {"text": "Alice plays the violin"})
        with anyio.fail_after(30):
            async for event in events:
                if str(getattr(event, "uri", "")) == "memory://entities":
                    break


@pytest.mark.nightly
async def test_a_token_sees_the_graph_of_its_own_user(protected_server: HttpServer) -> None:
    """Guards the same names in two memories: what is about them, listed, completed, and read as a resource."""
    async with memory_in(protected_server.data) as memory:
        for user, town in (("alice", "Ghent"), ("bob", "Bergen")):
            relation = Relation("Odile", "lives in", town)
            names = (("Odile", "person"), (town, "place"))
            store_stating(memory, f"Odile lives in {town}", *names, relations=(relation,), scope=Scope(user))
            site = Scope(user, "site")
            store_stating(memory, f"Odile built {town} Hall", (f"{town} Hall", "place"), scope=site)
    for user, own, other in (("alice", "Ghent", "Bergen"), ("bob", "Bergen", "Ghent")):
        bearer = new_access_token(protected_server.data, user)
        async with connect_http(protected_server, "auto", bearer) as client:
            about = reply_text(await client.call_tool("get_summary", {"kind": "about:Odile"}))
            found = await client.call_tool("search_memories", {"query": "Where does Odile live?"})
            listed, one = await read(client, "memory://entities"), await read(client, "entity://Odile")
            template = ResourceTemplateReference(type="ref/resource", uri="entity://{name}")
            completed = (await client.complete(template, {"name": "name", "value": ""})).completion.values
            unknown = error_text(await client.call_tool("get_summary", {"kind": f"about:{other}"}))
            with pytest.raises(MCPError):
                await client.read_resource(f"entity://{other}")
            foreign = {"kind": "about:Odile", "scope": {"user_id": "bob" if user == "alice" else "alice"}}
            assert (await client.call_tool("get_summary", foreign)).is_error
        assert {"Odile", own} <= set(completed)
        for text in (about, listed, one, " ".join(completed), str(found.structured_content)):
            assert own in text
            assert other not in text
            assert "Hall" not in text, "no project was named"
        assert f"{other} Hall" not in unknown
    bearer = new_access_token(protected_server.data, "alice", "site")
    async with connect_http(protected_server, "auto", bearer) as client:
        assert "Ghent Hall" in await read(client, "memory://entities")
        assert (await client.call_tool("get_summary", {"kind": "about:Odile", "scope": {"project": "shop"}})).is_error
