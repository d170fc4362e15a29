"""Documents through a real client: kept from a long text, found, read by page, completed, undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.types import TextResourceContents

from tests.support.command_line import palimpsest
from tests.support.documents import book
from tests.support.mcp_client import connect_stdio, reply_results, reply_text

pytestmark = pytest.mark.anyio

BOOK = book("kitchen", "cellar")


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def kept(client: Client, text: str = BOOK) -> str:
    """Add a long text, and return the address of its document."""
    reply = reply_text(await client.call_tool("add_memory", {"text": text}))
    assert reply.startswith("added as a document: Book, 2 pages, document://")
    return reply.splitlines()[0].rpartition(" ")[2]


@pytest.mark.nightly
async def test_a_folder_that_the_command_line_learned_is_read_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "hut.html").write_text("<h1>Hut</h1><p>The key hangs behind the barometer.</p>", "utf-8")
    palimpsest(tmp_path, "learn", "notes")
    async with connect_stdio(tmp_path) as client:
        (hit, *_) = reply_results(await client.call_tool("search_memories", {"query": "Where is the key?"}))
        assert "The key hangs behind the barometer." in await read(client, f"document://{hit['document']['id']}/1")
