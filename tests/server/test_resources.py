"""Resources, subscriptions, completions and prompts, through a real client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    EmptyResult,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    TextContent,
    TextResourceContents,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from tests.support.mcp_client import reply_results, reply_text, subscribe
from tests.support.server_in_process import connect, server_in_process

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


async def read(server: Client, name: str) -> str:
    """Return the text of a resource."""
    (content,) = (await server.read_resource(f"memory://{name}")).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def add(server: Client, text: str) -> str:
    """Add a memory and return its id."""
    return reply_results(await server.call_tool("add_memory", {"text": text}))[0]["id"]


@pytest.mark.few_by_day(1)
@BOTH
async def test_the_summary_and_the_newest_memories_are_listed_and_can_be_read(tmp_path: Path, mode: str) -> None:
    """Guards clients that attach a resource without knowing an id."""
    async with connect(tmp_path, mode) as server:
        await add(server, "Alice plays the violin")
        listed = [str(resource.uri) for resource in (await server.list_resources()).resources]
        assert listed == ["memory://summary", "memory://recent", "memory://entities"]
        for name in ("summary", "recent"):
            assert "Alice plays the violin" in await read(server, name)


@pytest.mark.few_by_day(1)
@BOTH
async def test_a_memory_and_its_history_are_read_by_id(tmp_path: Path, mode: str) -> None:
    """Guards the templates: the current version, and every version."""
    async with connect(tmp_path, mode) as server:
        memory_id = await add(server, "Alice plays the violin")
        await server.call_tool("update_memory", {"memory_id": memory_id, "text": "Alice plays the cello"})
        templates = [template.uri_template for template in (await server.list_resource_templates()).resource_templates]
        assert {"memory://{id}", "memory://{id}/history", "entity://{name}", "conversation://{id}"} <= set(templates)
        for name in (memory_id, memory_id[:8]):
            now = await read(server, name)
            assert "cello" in now
            assert "violin" not in now
            assert "violin" in await read(server, f"{name}/history")


async def test_what_a_reply_cuts_is_read_whole_by_its_id(tmp_path: Path) -> None:
    """Guards long texts: each reply names the id of what it cuts, and the id leads to all of it."""
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


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("name", ["0123456789", "abc", "..%2fledger.db", "0123456789/history"])
async def test_an_unknown_resource_is_reported_as_missing(tmp_path: Path, name: str) -> None:
    """Guards against unknown ids, and names that are paths."""
    async with connect(tmp_path) as server:
        with pytest.raises(MCPError) as raised:
            await read(server, name)
        assert raised.value.error.code == -32602


@pytest.mark.few_by_day(1)
@BOTH
async def test_ids_are_completed_newest_first(tmp_path: Path, mode: str) -> None:
    """Guards people who type the start of an id."""
    ref = ResourceTemplateReference(uri="memory://{id}")
    async with connect(tmp_path, mode) as server:
        first, second = await add(server, "Alice plays the violin"), await add(server, "Bob bakes bread")
        every = await server.complete(ref, {"name": "id", "value": ""})
        assert every.completion.values == [second, first]
        one = await server.complete(ref, {"name": "id", "value": first[:6]})
        assert (one.completion.values, one.completion.total) == ([first], 1)
        none = await server.complete(ref, {"name": "id", "value": "zz"})
        assert (none.completion.values, none.completion.total, none.completion.has_more) == ([], 0, False)


async def test_subscribers_are_notified_of_what_a_write_changed(tmp_path: Path) -> None:
    """Guards clients that show a memory: it is announced when it changes, and so are the lists that contain it."""
    async with connect(tmp_path) as server:
        memory_id = await add(server, "Alice plays the violin")
        expected = {f"memory://{memory_id}", "memory://recent"}
        seen: set[str] = set()
        async with server.listen(resource_subscriptions=sorted(expected)) as events:
            await server.call_tool("update_memory", {"memory_id": memory_id, "text": "Alice plays the cello"})
            with anyio.fail_after(30):
                async for event in events:
                    seen.add(str(getattr(event, "uri", "")))
                    if seen >= expected:
                        break
        assert seen == expected


@pytest.mark.few_by_day(1)
@BOTH
async def test_the_prompts_contain_the_memories_they_are_about(tmp_path: Path, mode: str) -> None:
    """Guards the prompts that a person picks: each has a description and contains the right memories."""
    async with connect(tmp_path, mode) as server:
        await add(server, "Alice plays the violin")
        prompts = (await server.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["recall", "remember-this-conversation", "review-memory"]
        assert all(prompt.description for prompt in prompts)
        texts: dict[str, str] = {}
        for prompt, arguments in zip(prompts, ({"topic": "music"}, {}, {}), strict=True):
            (message,) = (await server.get_prompt(prompt.name, arguments)).messages
            assert isinstance(message.content, TextContent)
            texts[prompt.name] = message.content.text
        assert "Alice plays the violin" in texts["recall"]
        assert "Alice plays the violin" in texts["review-memory"]
        assert "add_memory" in texts["remember-this-conversation"]


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
        with pytest.raises(MCPError, match="there is no resource"):
            await subscribe(one, "file:///etc/passwd")
    assert uris == ["memory://recent"]


@pytest.mark.few_by_day(1)
@BOTH
@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("recal", {"topic": "music"}, "did you mean 'recall'"),
        ("recall", {}, "the prompt recall needs topic"),
        ("recall", {"topic": "x" * 5_000}, "use a shorter one"),
    ],
)
async def test_a_prompt_that_cannot_be_filled_in_says_why(
    tmp_path: Path, mode: str, name: str, arguments: dict[str, str], error: str
) -> None:
    """Guards the person who picks a prompt from an internal error."""
    async with connect(tmp_path, mode) as server:
        with pytest.raises(MCPError, match=error):
            await server.get_prompt(name, arguments)
