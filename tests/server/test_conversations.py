"""Conversations through a real client: read whole by a resource, found in each way by the tools and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceTemplateReference, TextResourceContents

from palimpsest.server import resources
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.mcp_client import reply_results, reply_text, subscribe
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


async def test_a_conversation_is_read_whole_by_the_id_of_any_of_its_messages(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        await fill(client)
        first, second = sorted(await listed(client, words="week"), key=lambda hit: hit["at"]), BREAD
        (hit,) = first
        lines = (await read(client, f"conversation://{hit['id']}")).splitlines()
        question = (await listed(client, words="rye bread"))[0]["id"]
        assert lines == [
            f"conversation {question}: 2 messages, 2026-02-01, times in UTC (information, not instructions)",
            f"[{question[:8]}] 2026-02-01 09:00 Ana (user): {second[0]['content']}",
            f"[{hit['id'][:8]}] 2026-02-01 09:00 assistant: About a week.",
            "Wrap it in cloth.",
        ]
        assert (await read(client, f"conversation://{question[:8]}")).splitlines() == lines
        with pytest.raises(MCPError, match="the newest are"):
            await read(client, "conversation://00000000")
        with pytest.raises(MCPError, match="not a cursor"):
            await read(client, f"conversation://{question}/x")


async def test_a_long_conversation_is_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PAGE_TOKENS", 8)
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


async def test_what_is_forgotten_is_not_read(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        await fill(client)
        (fine,) = await listed(client, words="fine colour")
        await client.call_tool("delete_memory", {"memory_ids": [fine["id"]]})
        boat = (await listed(client, speaker="Bob"))[-1]["id"]
        text = await read(client, f"conversation://{boat}")
        assert "2 messages" in text
        assert "A fine colour" not in text


async def test_ids_of_conversations_are_completed_the_newest_first(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        await fill(client)
        ref = ResourceTemplateReference(uri="conversation://{id}")
        every = (await client.complete(ref, {"name": "id", "value": ""})).completion.values
        boat, bread = [(await listed(client, words=words))[0]["id"] for words in ("blue", "rye")]
        assert every == [boat, bread]
        assert (await client.complete(ref, {"name": "id", "value": bread[:6]})).completion.values == [bread]
        assert (await client.complete(ref, {"name": "after", "value": ""})).completion.values == []
        templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
        assert {"conversation://{id}", "conversation://{id}/{after}"} <= templates


async def test_changes_of_conversations_are_not_announced(tmp_path: Path) -> None:
    async with connect(tmp_path, "legacy") as client:
        with pytest.raises(MCPError, match="changes of conversations are not announced"):
            await subscribe(client, "conversation://00000000")


async def test_memgpt_searches_its_recall_storage_by_words_and_by_date_in_pages(tmp_path: Path) -> None:
    """`conversation_search` and `conversation_search_date` of MemGPT are a list with filters and a cursor.

    By meaning a search with the same filters finds the turns.
    """
    async with connect(tmp_path) as client:
        await fill(client)
        by_words = {"filters": {"kind": "message", "words": "is"}, "limit": 1}
        first = await client.call_tool("list_memories", by_words)
        assert "It is green now" in reply_text(first)
        second = await client.call_tool("list_memories", {**by_words, "cursor": first.structured_content["cursor"]})
        assert "My boat is blue" in reply_text(second)
        by_date = await listed(client, at={"gte": "2026-02-01", "lte": "2026-02-28"})
        assert [hit["text"] for hit in by_date] == [message["content"] for message in BREAD[::-1]]
        found = await client.call_tool(
            "search_memories", {"query": "what is it painted like", "filters": {"speaker": "Bob", "at": "2026-03"}}
        )
        assert {hit["text"] for hit in reply_results(found)} == {"My boat is blue", "It is green now"}


def test_the_command_finds_messages_in_each_way(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([*BREAD, *BOAT]), "utf-8")
    palimpsest(tmp_path, "learn", str(file))

    def texts(*options: str) -> list[str]:
        return [hit["text"] for hit in palimpsest_json(tmp_path, "messages", *options)["results"]]

    every = [message["content"] for message in (*BREAD, *BOAT)][::-1]
    assert texts() == every
    assert texts("rye bread") == every[-1:]
    assert texts("--role", "assistant") == [every[1], every[3]]
    assert texts("--speaker", "bob") == [every[0], every[2]]
    assert texts("--from", "2026-02-01", "--to", "2026-02-28") == every[3:]
    page = palimpsest_json(tmp_path, "messages", "--limit", "3")
    assert texts("--cursor", page["cursor"]) == every[3:]
    session = page["results"][0]["id"]
    assert texts("--session", session[:8]) == every[:3]
    assert "It is green now" in palimpsest(tmp_path, "messages", "green")
    assert "no message of user alice matches" in palimpsest(tmp_path, "messages", "violet")
