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
from tests.support.mcp_client import reply_text
from tests.support.repositories import repository
from tests.support.server_in_process import server_in_process

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


def roots_of(folder: Path) -> Callable[..., Any]:

    async def answer(context: Any) -> ListRootsResult:
        del context
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri()))])

    return answer


def client(folder: Path, mode: str, root: Path) -> Client:
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


# Facts about people and facts about a project, as agents tell them in a repository.
PERSONAL: dict[str, list[str]] = json.loads((Path(__file__).parent / "personal_facts.json").read_text("utf-8"))


def test_what_is_about_a_person_is_told_from_what_is_about_a_project() -> None:
    """Guards both kinds: a person's allergy is known in every project, and a project's database in one."""
    for kind, texts in PERSONAL.items():
        wrong = [
            text for text in texts if is_personal(Fact(text), {"nora"}, "github.com/acme/atlas") != (kind == "person")
        ]
        assert wrong == [], kind
