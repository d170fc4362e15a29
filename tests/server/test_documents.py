"""Documents that a command learned, through a real client. What the tools do with documents is in the scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.types import TextResourceContents

from tests.support.command_line import palimpsest
from tests.support.mcp_client import connect_stdio, reply_results

pytestmark = pytest.mark.anyio


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


@pytest.mark.nightly
async def test_a_folder_that_the_command_line_learned_is_read_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "hut.html").write_text("<h1>Hut</h1><p>The key hangs behind the barometer.</p>", "utf-8")
    palimpsest(tmp_path, "learn", "notes")
    async with connect_stdio(tmp_path) as client:
        (hit, *_) = reply_results(await client.call_tool("search_memories", {"query": "Where is the key?"}))
        assert "The key hangs behind the barometer." in await read(client, f"document://{hit['document']['id']}/1")
