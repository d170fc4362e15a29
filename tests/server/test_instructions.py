"""The server's instructions: their sizes, whose memories they have, and when they have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.hooks.instructions import HEAD, INSTRUCTIONS
from tests.support.command_line import palimpsest
from tests.support.http_server import connect_http, run_http_server
from tests.support.mcp_client import connect_stdio, reply_results
from tests.support.server_in_process import connect_rendering

pytestmark = pytest.mark.anyio


def test_our_own_text_is_short_and_its_beginning_stands_alone() -> None:
    """Clients that show 512 characters show when to search and when to add, in whole sentences."""
    assert len(INSTRUCTIONS.encode()) < 1_024
    assert INSTRUCTIONS.startswith(HEAD)
    assert len(HEAD) < 400
    assert HEAD.endswith(".")
    assert "search_memories" in HEAD
    assert "add_memory" in HEAD


async def test_what_is_written_anywhere_is_known_at_the_next_start_everywhere(tmp_path: Path) -> None:
    """What another project, no project or the command line added, replaced and deleted; it is one block, in order."""
    project = {"PALIMPSEST_PROJECT": "px"}
    async with connect_rendering(tmp_path) as client:
        trade = {"text": "The user is Jan Novak, a smith in York."}
        (jan,) = reply_results(await client.call_tool("add_memory", trade))
    async with connect_rendering(tmp_path, **project) as client:
        pinned = {"text": "px uses tabs for indentation.", "metadata": {"pinned": True}}
        await client.call_tool("add_memory", pinned)
        await client.call_tool("add_memory", {"text": "px stores its data in Redis."})
    async with connect_rendering(tmp_path) as client:
        trade = {"text": "The user is Jan Novak, a baker in York.", "replaces": [jan["id"]]}
        await client.call_tool("add_memory", trade)
        pinned = {"text": "The user wants answers in Czech.", "metadata": {"pinned": True}}
        await client.call_tool("add_memory", pinned)
        left = [path.read_text("utf-8") for path in (tmp_path / "data" / "hooks" / "instructions").glob("*.txt")]
        assert not any("smith" in text for text in left)
    palimpsest(tmp_path, "add", "The user's nephew Tom is allergic to sesame.")
    async with connect_stdio(tmp_path, **project) as client:
        text = client.instructions or ""
    said = ["Known of the user", "Jan Novak, a baker", "sesame", "Pinned", "tabs", "in Czech", "the project", "Redis"]
    places = [text.find(words) for words in said]
    assert places == sorted(places), text
    assert min(places) > 0, text
    assert "smith" not in text
    assert text.count("Known of the user") == 1
    assert text.index("Redis") < text.index("One fact per call")


@pytest.mark.nightly
async def test_over_http_without_tokens_they_are_static(tmp_path: Path) -> None:
    with run_http_server(tmp_path) as server:
        async with connect_http(server, "auto") as client:
            await client.call_tool("add_memory", {"text": "User likes oolong"})
        async with connect_http(server, "auto") as client:
            assert client.instructions == INSTRUCTIONS
