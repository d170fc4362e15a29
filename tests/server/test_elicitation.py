"""What the user is asked through the client, where it can ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import ElicitResult

from tests.support.mcp_client import error_text, reply_results, reply_text
from tests.support.server_in_process import server_in_process

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


def asking(folder: Path, mode: str, answer: ElicitResult, asked: list[str]) -> Client:
    """Return a client whose user gives one answer to every question, and which notes the questions."""

    async def ask(context: Any, params: Any) -> ElicitResult:
        del context
        asked.append(params.message)
        return answer

    server = server_in_process(folder)
    return Client(server, mode=mode, elicitation_callback=ask)


async def number(client: Client) -> int:
    """Return how many memories there are."""
    return len(reply_results(await client.call_tool("list_memories", {})))


@BOTH
async def test_a_user_who_agrees_is_enough_to_delete_everything(tmp_path: Path, mode: str) -> None:
    """Guards the short way: one question that names what would go, and no second call."""
    asked: list[str] = []
    async with asking(tmp_path, mode, ElicitResult(action="accept", content={"delete": True}), asked) as client:
        for text in ("Alice plays the violin", "Alice bakes bread"):
            await client.call_tool("add_memory", {"text": text})
        assert reply_text(await client.call_tool("delete_memory", {"all": True})).startswith("deleted: 2 memories")
        assert await number(client) == 0
    assert len(asked) == 1
    assert "2 memories" in asked[0]


@BOTH
@pytest.mark.parametrize(
    "answer",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={"delete": False}),
    ],
    ids=["declines", "closes it", "leaves the box empty"],
)
async def test_a_user_who_does_not_agree_keeps_everything(tmp_path: Path, mode: str, answer: ElicitResult) -> None:
    """Guards the memory from an agent that means to delete it, and tells that agent to stop."""
    async with asking(tmp_path, mode, answer, []) as client:
        await client.call_tool("add_memory", {"text": "Alice plays the violin"})
        assert "said no; nothing was deleted" in error_text(await client.call_tool("delete_memory", {"all": True}))
        assert await number(client) == 1


@BOTH
async def test_nobody_is_asked_about_single_memories_or_about_nothing(tmp_path: Path, mode: str) -> None:
    """Guards users from questions that do not matter."""
    asked: list[str] = []
    async with asking(tmp_path, mode, ElicitResult(action="decline"), asked) as client:
        assert "nothing is stored" in reply_text(await client.call_tool("delete_memory", {"all": True}))
        one = reply_results(await client.call_tool("add_memory", {"text": "Alice plays the violin"}))[0]["id"]
        assert reply_text(await client.call_tool("delete_memory", {"memory_ids": [one]})).startswith("deleted")
    assert asked == []
