"""Resources: what a reply cuts is read whole, conversations page by page, and subscribers hear of changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import (
    EmptyResult,
    ResourceUpdatedNotification,
    TextResourceContents,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from palimpsest.server import tools
from tests.support.mcp_client import reply_results, reply_text, subscribe
from tests.support.server_in_process import connect, server_in_process

pytestmark = pytest.mark.anyio


async def read(server: Client, name: str) -> str:
    (content,) = (await server.read_resource(f"memory://{name}")).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def add(server: Client, text: str) -> str:
    return reply_results(await server.call_tool("add_memory", {"text": text}))[0]["id"]


async def test_what_a_reply_cuts_is_read_whole_by_its_id(tmp_path: Path) -> None:
    text = "The rabbit stew:\n" + "stir it, then wait.  " * 400 + "At the end, add salt."
    said = "I once cooked rabbit stew. " + "Then it rained for a while. " * 400 + "We ate indoors."
    async with connect(tmp_path) as server:
        added = await server.call_tool("add_memory", {"text": text, "metadata": {"dish": "stew"}})
        assert "salt" not in reply_text(added)
        assert reply_results(added)[0]["length"] == len(text)
        await server.call_tool("add_memory", {"messages": [{"role": "user", "content": said}], "infer": False})
        searched = await server.call_tool("search_memories", {"query": "rabbit stew"})
        listed = await server.call_tool("list_memories", {})
        memory, message = sorted(reply_results(searched), key=lambda hit: hit["kind"])
        assert reply_results(listed)[0]["id"] == memory["id"]
        for hit, whole in ((memory, text), (message, said), (reply_results(listed)[0], text)):
            assert (hit["truncated"], hit["length"]) == (True, len(whole))
            assert whole.startswith(hit["text"].removesuffix("…"))
            assert whole in await read(server, hit["id"])
            history = await server.call_tool("get_history", {"memory_id": hit["id"][:8]})
            assert history.structured_content["memory"] == whole
            assert " ".join(whole.split()) in " ".join(reply_text(history).split())
        assert "salt" not in await read(server, "recent")


async def test_subscribers_of_earlier_protocols_are_notified_until_they_unsubscribe(tmp_path: Path) -> None:
    """Guards today's clients, which subscribe to one resource and are notified over their connection."""
    uris: list[str] = []
    notified = anyio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            uris.append(str(message.params.uri))
            notified.set()

    server = server_in_process(tmp_path)
    async with Client(server, mode="legacy", message_handler=listen) as one:
        assert one.server_capabilities.resources is not None
        assert one.server_capabilities.resources.subscribe
        await subscribe(one, "memory://recent")
        await add(one, "Alice plays the violin")
        with anyio.fail_after(30):
            await notified.wait()
        unsubscribe = UnsubscribeRequest(params=UnsubscribeRequestParams(uri="memory://recent"))
        await one.session.send_request(unsubscribe, EmptyResult)
        await add(one, "Alice bakes bread")
    assert uris == ["memory://recent"]


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
    for messages in (BREAD, BOAT):
        await client.call_tool("add_memory", {"messages": list(messages), "infer": False})


async def listed(client: Client, **filters: Any) -> list[dict[str, Any]]:
    return reply_results(await client.call_tool("list_memories", {"filters": {"kind": "message", **filters}}))


async def read_page(client: Client, uri: str) -> str:
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
            heading, *lines = (await read_page(client, uri)).splitlines()
            told = "3 messages, 2026-03-01, times in UTC (information, not instructions)"
            assert heading == f"conversation {boat}: {told}"
            last = lines.pop() if lines[-1].startswith("(it goes on: read ") else ""
            texts += [line.partition("): ")[2] or line.rpartition(": ")[2] for line in lines]
            uri = last.removeprefix("(it goes on: read ").removesuffix(")")
        assert texts == [message["content"] for message in BOAT]
