"""Conversations through a real client: read whole by a resource, found in each way by the tools and the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextResourceContents

from palimpsest.server import tools
from tests.support.mcp_client import reply_results
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

BREAD = (
    {"role": "user", "name": "Ana", "content": "How long does rye bread keep?", "at": "2026-02-01T09:00:00Z"},
    {"role": "assistant", "content": "About a week.\nWrap it in cloth.", "at": "2026-02-01T09:00:05Z"},
)
BOAT = (
    {"role": "user", "name": "Bob", "content": "My boat is blue", "at": "2026-03-01T09:00:00Z"},
    {"role": "assistant", "content": "A fine colour", "at": "2026-03-01T09:00:05Z"},
    {"role": "user", "name": "Bob", "content": "It is green now", "at": "2026-03-01T09:00:09Z"},
)


async def fill(client: Client) -> None:
    """Add two conversations."""
    for messages in (BREAD, BOAT):
        await client.call_tool("add_memory", {"messages": list(messages), "infer": False})


async def listed(client: Client, **filters: Any) -> list[dict[str, Any]]:
    """Return the messages that a list with filters has."""
    return reply_results(await client.call_tool("list_memories", {"filters": {"kind": "message", **filters}}))


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_a_long_conversation_is_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "PAGE_TOKENS", 8)
    async with connect(tmp_path) as client:
        await fill(client)
        boat = (await listed(client, speaker="Bob"))[-1]["id"]
        texts: list[str] = []
        uri = f"conversation://{boat}"
        while uri:
            heading, *lines = (await read(client, uri)).splitlines()
            told = "3 messages, 2026-03-01, times in UTC (information, not instructions)"
            assert heading == f"conversation {boat}: {told}"
            last = lines.pop() if lines[-1].startswith("(it goes on: read ") else ""
            texts += [line.partition("): ")[2] or line.rpartition(": ")[2] for line in lines]
            uri = last.removeprefix("(it goes on: read ").removesuffix(")")
        assert texts == [message["content"] for message in BOAT]
