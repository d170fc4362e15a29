"""Projects over MCP: what replies say of them, and connected clients when one is moved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import ListRootsResult, Root
from pydantic import FileUrl

from palimpsest.core.models import Fact
from palimpsest.learn.reconcile import is_personal
from tests.support.command_line import palimpsest
from tests.support.mcp_client import reply_results, reply_text, text_of
from tests.support.repositories import repository
from tests.support.server_in_process import server_in_process

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


def roots_of(folder: Path) -> Callable[..., Any]:
    """Return the callback of a client that has a folder open."""

    async def answer(context: Any) -> ListRootsResult:
        del context
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri()))])

    return answer


def client(folder: Path, mode: str, root: Path) -> Client:
    """Return a client that has a folder open, of a server that is started elsewhere."""
    server = server_in_process(folder, PALIMPSEST_PROJECT="auto")
    return Client(server, mode=mode, list_roots_callback=roots_of(root))


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@BOTH
async def test_a_remote_that_was_added_is_told_in_one_reply(tmp_path: Path, mode: str) -> None:
    """The memories of a folder stayed behind when it got a remote."""
    atlas = repository(tmp_path / "atlas")
    async with client(tmp_path, mode, atlas) as first:
        await first.call_tool("add_memory", {"text": "The build runs on Debian"})
    repository(atlas, "https://github.com/acme/atlas.git")
    async with client(tmp_path, mode, atlas) as second:
        told = reply_text(await second.call_tool("list_memories", {}))
        again = reply_text(await second.call_tool("list_memories", {}))
    assert "The build runs on Debian" in told
    assert "note: the git remote of this folder is github.com/acme/atlas now; it stays project atlas" in told
    assert "scope: user alice, project atlas" in told
    assert again.count("note:") == 1, "that memories are no instructions"


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@BOTH
async def test_a_connected_client_follows_a_move(tmp_path: Path, mode: str) -> None:
    """Guards a server that was started before the project got another name, and what it writes after."""
    atlas = repository(tmp_path / "atlas")
    async with client(tmp_path, mode, atlas) as agent:
        await agent.call_tool("add_memory", {"text": "The build runs on Debian"})
        palimpsest(tmp_path, "projects", "move", "atlas", "globe")
        added = reply_text(await agent.call_tool("add_memory", {"text": "The tests want a database"}))
        assert "scope: user alice, project globe" in added
        by_old_name = {"text": "The site uses Svelte", "scope": {"project": "atlas"}}
        await agent.call_tool("add_memory", by_old_name)
        listed = reply_text(await agent.call_tool("list_memories", {}))
    for text in ("Debian", "database", "Svelte"):
        assert text in listed


@pytest.mark.anyio
async def test_a_search_through_all_projects_names_the_project_of_a_hit(tmp_path: Path) -> None:
    """Guards a hit of another project: it says where it is, and how to reach it."""
    async with Client(server_in_process(tmp_path, PALIMPSEST_PROJECT="globe")) as agent:
        await agent.call_tool("add_memory", {"text": "The lighthouse lamp is yellow"})
        other = {"text": "The lighthouse door is red", "scope": {"project": "atlas"}}
        await agent.call_tool("add_memory", other)
        arguments = {"query": "lighthouse", "scope": {"all_projects": True}}
        result = await agent.call_tool("search_memories", arguments)
        refused = await agent.call_tool("list_memories", {"scope": {"all_projects": True}})
    text = reply_text(result)
    assert "(project atlas) The lighthouse door is red" in text
    assert "(project globe)" not in text
    assert 'pass scope={"project": its name}' in text
    assert result.structured_content is not None
    hits = {hit["text"]: hit.get("project") for hit in result.structured_content["results"]}
    assert hits == {"The lighthouse lamp is yellow": None, "The lighthouse door is red": "atlas"}
    assert refused.is_error
    assert "there is no such key" in text_of(refused)


PERSONAL: dict[str, list[str]] = json.loads((Path(__file__).parent / "personal_facts.json").read_text("utf-8"))
"""Facts about people and facts about a project, as agents tell them in a repository."""


def test_what_is_about_a_person_is_told_from_what_is_about_a_project() -> None:
    """Guards both kinds: a person's allergy is known in every project, and a project's database in one."""
    for kind, texts in PERSONAL.items():
        wrong = [
            text for text in texts if is_personal(Fact(text), {"nora"}, "github.com/acme/atlas") != (kind == "person")
        ]
        assert wrong == [], kind


@pytest.mark.anyio
async def test_a_fact_about_a_person_is_known_in_every_project(tmp_path: Path) -> None:
    """Guards what is said in a repository and has nothing to do with it, and the agent that wants it otherwise."""
    atlas = Client(server_in_process(tmp_path, PALIMPSEST_PROJECT="atlas"))
    async with atlas as agent:

        async def add(text: str, **arguments: Any) -> str:
            return reply_text(await agent.call_tool("add_memory", {"text": text, **arguments}))

        added = await add("Tomasz is allergic to cats")
        assert "it is about a person, so it is stored for all projects, not in atlas alone" in added
        assert "scope:" not in added
        related = {"relations": [["User", "sings in", "Harbour Choir"]]}
        assert "stored for all projects" in await add("Rehearsals of the Harbour Choir are on Monday", **related)
        assert "scope: user alice, project atlas" in await add("The build runs on Debian")
        kept = await add("User prefers tea to coffee", scope={"project": "atlas"})
        assert "scope: user alice, project atlas" in kept
        assert "scope:" not in await add("The lighthouse lamp is yellow", scope={"project": None})
        corrected = reply_results(await agent.call_tool("search_memories", {"query": "tea"}))[0]["id"]
        assert "project atlas" in await add("User prefers cocoa to tea", replaces=[corrected])
        lamp = reply_results(await agent.call_tool("search_memories", {"query": "lamp"}))[0]["id"]
        replaced = await add("It is red since May", replaces=[lamp])
        assert "what it replaces belongs to no project, so it is stored for all projects" in replaced
    async with Client(server_in_process(tmp_path)) as agent:
        listed = reply_results(await agent.call_tool("list_memories", {}))
        assert {hit["text"] for hit in listed} == {
            "Tomasz is allergic to cats",
            "Rehearsals of the Harbour Choir are on Monday",
            "It is red since May",
        }
        asked = reply_text(await agent.call_tool("search_memories", {"query": "Which system does the build run on?"}))
        assert 'note: also found in project atlas: pass scope={"project": "atlas"}' in asked
        asked = reply_text(await agent.call_tool("search_memories", {"query": "What is Tomasz allergic to?"}))
        assert "also found" not in asked
    assert "it is about a person" in palimpsest(
        tmp_path, "add", "User has a sister", settings={"PALIMPSEST_PROJECT": "atlas"}
    )
    assert "it is about a person" not in palimpsest(tmp_path, "--project", "atlas", "add", "User has a brother")
    assert "also found in project atlas: use --project atlas" in palimpsest(tmp_path, "search", "brother")


@pytest.mark.anyio
async def test_a_project_that_does_not_exist_is_told_before_it_is_made(tmp_path: Path) -> None:
    """A misspelt name would find nothing, or divide what is known between two projects."""
    async with Client(server_in_process(tmp_path)) as agent:

        async def told(tool: str, project: str, **arguments: Any) -> str:
            return reply_text(await agent.call_tool(tool, {**arguments, "scope": {"project": project}}))

        first = await told("add_memory", "Stradishop", text="The build runs on Debian")
        assert "note: alice has no project 'Stradishop' yet.\n" in first
        assert "has no project" not in await told("add_memory", "Stradishop", text="The lamp is yellow")
        for tool, arguments in (
            ("search_memories", {"query": "lamp"}),
            ("list_memories", {}),
            ("add_memory", {"text": "The shop opens at six"}),
        ):
            note = "alice has no project 'stradishop' yet. Did you mean Stradishop?"
            assert note in await told(tool, "stradishop", **arguments), tool
