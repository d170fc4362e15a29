"""Texts that hide or steer: agents read them visibly, programs get them as they are, and blank ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import TextContent, TextResourceContents

from palimpsest.text.display import visible
from tests.support.mcp_client import error_text, reply_results, reply_text, text_of
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

HOSTILE = "Rex \x1b]52;c;eA==\x07 and \x9b2J then \u202ereversed\u2069 with\U000e0068\U000e0069 hidden"
SHOWN = r"Rex \x1b]52;c;eA==\x07 and \x9b2J then \u202ereversed\u2069 with\U000e0068\U000e0069 hidden"
BLANK = ["\u200b", "\x00\x01", "\u200d\u200c\ufeff", "\u2060 \u3164\n", "\ufe0f", "\x1b", "\U000e0041\U000e0042"]


async def test_every_reply_shows_what_a_text_hides(tmp_path: Path) -> None:
    """Guards agents and people from every tool's text; structured content is the text as it was stored."""
    async with connect(tmp_path) as client:
        added = await client.call_tool("add_memory", {"text": HOSTILE, "metadata": {"\x1b[2J": HOSTILE}})
        assert SHOWN in reply_text(added)
        (outcome,) = reply_results(added)
        assert outcome["memory"] == HOSTILE
        said = {"role": "user", "name": f"Ana{HOSTILE}", "content": f"{HOSTILE} bonjour", "id": f"D1{HOSTILE}"}
        replies = [
            await client.call_tool("add_memory", {"messages": [said]}),
            await client.call_tool("search_memories", {"query": HOSTILE}),
            await client.call_tool("list_memories", {}),
            await client.call_tool("get_summary", {}),
            await client.call_tool("get_history", {"memory_id": outcome["id"]}),
            await client.call_tool("update_memory", {"memory_id": outcome["id"], "text": f"{HOSTILE} now"}),
            await client.call_tool("delete_memory", {"memory_ids": [outcome["id"]]}),
            await client.call_tool("update_memory", {"memory_id": outcome["id"], "restore": True}),
            await client.call_tool("delete_memory", {"all": True}),
        ]
        resource = await client.read_resource(f"memory://{outcome['id']}")
        prompt = await client.get_prompt("recall", {"topic": HOSTILE})
        found: Any = replies[1].structured_content
    texts = [text_of(reply) for reply in replies]
    texts += [block.text for block in resource.contents if isinstance(block, TextResourceContents)]
    texts += [message.content.text for message in prompt.messages if isinstance(message.content, TextContent)]
    assert len(texts) == len(replies) + 2
    assert [text for text in texts if visible(text) != text] == []
    assert f"Ana{SHOWN} said: {SHOWN} bonjour" in texts[1]
    assert {hit["text"] for hit in found["results"]} == {HOSTILE, f"{HOSTILE} bonjour"}


async def test_every_error_shows_what_an_argument_hides(tmp_path: Path) -> None:
    """Guards whoever reads an error: it names an id, a key or a tool visibly."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_history", {"memory_id": HOSTILE}),
        ("list_memories", {"cursor": HOSTILE}),
        ("list_memories", {"filters": {"a": {HOSTILE: 1}}}),
        ("search_memories", {"query": "x", "as_of": HOSTILE}),
        ("add_memory", {"text": "x", HOSTILE: 1}),
        ("add_memory", {"messages": [{"role": HOSTILE, "content": "x"}]}),
        ("add_memory", {"text": "x", "scope": {HOSTILE: 1}}),
        (HOSTILE, {}),
    ]
    async with connect(tmp_path) as client:
        errors = [error_text(await client.call_tool(name, arguments)) for name, arguments in calls]
        with pytest.raises(MCPError) as unknown_prompt:
            await client.get_prompt(HOSTILE)
    errors.append(str(unknown_prompt.value))
    assert [text for text in errors if visible(text) != text] == []
    assert [r"\x1b]52;c;eA==\x07" in text for text in errors] == [True] * len(errors)


async def test_a_text_that_shows_nothing_is_an_empty_text(tmp_path: Path) -> None:
    """Guards against memories and queries that nobody can see."""
    expected = ("neither text nor messages", "no user or assistant message with text", "give text", "query is empty")
    async with connect(tmp_path) as client:
        added = await client.call_tool("add_memory", {"text": "User likes tea"})
        memory_id = reply_results(added)[0]["id"]
        for blank in BLANK:
            calls: list[tuple[str, dict[str, Any]]] = [
                ("add_memory", {"text": blank}),
                ("add_memory", {"messages": [{"role": "user", "content": blank}]}),
                ("update_memory", {"memory_id": memory_id, "text": blank}),
                ("search_memories", {"query": blank}),
            ]
            errors = [error_text(await client.call_tool(name, arguments)) for name, arguments in calls]
            for text, error in zip(expected, errors, strict=True):
                assert text in error, ascii(blank)
            with pytest.raises(MCPError, match="query is empty"):
                await client.get_prompt("recall", {"topic": blank})
        listed = reply_results(await client.call_tool("list_memories", {}))
    assert [hit["text"] for hit in listed] == ["User likes tea"]
