"""Calls that take long: how far they are is told, and giving them up leaves nothing half done."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from loopback import OpenAIServer
from tests.support.http_server import connect_http, run_http_server
from tests.support.mcp_client import connect_stdio, reply_results, reply_text

pytestmark = pytest.mark.anyio

EVERYWHERE = pytest.mark.parametrize("how", ["stdio-legacy", "stdio-auto", "legacy", "auto", "sse"])
SAID = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}
FACTS = json.dumps({"facts": [{"text": "Alice likes Darjeeling", "sources": [1]}]})
ADD = json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})


@dataclass
class SlowModel:
    """Hold a model that says when it is asked and answers when it is let."""

    url: str = ""
    asked: threading.Event = field(default_factory=threading.Event)
    let: threading.Event = field(default_factory=threading.Event)

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings by which the server finds it."""
        return {"PALIMPSEST_LLM__PROVIDER": "openai", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": self.url}


@contextmanager
def slow_model() -> Generator[SlowModel]:
    """Run a model that is asked for facts, and what becomes of them."""
    model = SlowModel()

    def answer(request: dict[str, Any]) -> str:
        model.asked.set()
        model.let.wait()
        return ADD if "decisions" in json.dumps(request["messages"][0]) else FACTS

    with OpenAIServer(answer) as server:
        model.url = server.base_url
        try:
            yield model
        finally:
            model.let.set()


@asynccontextmanager
async def reached(how: str, folder: Path, **settings: str) -> AsyncGenerator[Client]:
    """Connect to a new server in one of the ways there are."""
    if how.startswith("stdio"):
        async with connect_stdio(folder, how.removeprefix("stdio-"), **settings) as one:
            yield one
        return
    with run_http_server(folder, **settings) as running:
        async with connect_http(running, how) as one:
            yield one


@EVERYWHERE
async def test_a_call_that_is_given_up_leaves_what_was_said_and_nothing_half_done(tmp_path: Path, how: str) -> None:
    """Guards cancellation: the turns are kept, no fact is, and the same call sent again learns from them."""
    with slow_model() as model:
        async with reached(how, tmp_path, **model.settings) as memory:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(memory.call_tool, "add_memory", SAID)
                await anyio.to_thread.run_sync(model.asked.wait)
                tasks.cancel_scope.cancel()
            assert reply_results(await memory.call_tool("list_memories", {})) == []
            found = reply_results(await memory.call_tool("search_memories", {"query": "Darjeeling"}))
            assert [hit["text"] for hit in found] == ["I do like Darjeeling"]
            model.let.set()
            assert reply_text(await memory.call_tool("add_memory", SAID)).startswith("added: [")
            assert len(reply_results(await memory.call_tool("list_memories", {}))) == 1


@EVERYWHERE
async def test_how_far_a_call_is_is_told_to_a_client_that_wants_to_know(tmp_path: Path, how: str) -> None:
    """Guards the line a client shows while a model thinks; the numbers only rise."""
    told: list[tuple[float, str]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        del total
        told.append((progress, message or ""))

    with slow_model() as model:
        model.let.set()
        async with reached(how, tmp_path, **model.settings) as memory:
            await memory.call_tool("add_memory", {"text": "Alice likes Assam", "infer": False})
            await memory.call_tool("add_memory", SAID, progress_callback=note)
    assert [number for number, _ in told] == [1, 2]
    assert told[0][1] == "kept 1 message; asking the model for facts"
    assert told[1][1] == "asking the model what becomes of 1 fact"
