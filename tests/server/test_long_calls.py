"""Long calls: they report their progress, and cancelling them leaves nothing half done."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from tests.support.http_server import connect_http, run_http_server
from tests.support.mcp_client import connect_stdio, reply_results, reply_text
from tests.support.server_in_process import connect
from tests.support.slow_model import slow_model

pytestmark = pytest.mark.anyio

EVERY_TRANSPORT = pytest.mark.parametrize("how", ["stdio-auto", "auto", "stdio-legacy", "legacy", "sse"])
CONVERSATION = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}


@asynccontextmanager
async def connect_by(how: str, folder: Path, **settings: str) -> AsyncGenerator[Client]:
    """Connect to a new server, over stdio, HTTP or SSE. Over stdio only "auto" is a process of its own."""
    if how.startswith("stdio"):
        connection = connect_stdio if how == "stdio-auto" else connect
        async with connection(folder, how.removeprefix("stdio-"), **settings) as one:
            yield one
        return
    with run_http_server(folder, **settings) as running:
        async with connect_http(running, how) as one:
            yield one


@pytest.mark.nightly
@EVERY_TRANSPORT
async def test_a_cancelled_call_keeps_the_messages_and_nothing_else(tmp_path: Path, how: str) -> None:
    with slow_model() as model:
        async with connect_by(how, tmp_path, **model.settings) as memory:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(memory.call_tool, "add_memory", CONVERSATION)
                await anyio.to_thread.run_sync(model.was_asked.wait)
                tasks.cancel_scope.cancel()
            assert reply_results(await memory.call_tool("list_memories", {})) == []
            hits = reply_results(await memory.call_tool("search_memories", {"query": "Darjeeling"}))
            assert [hit["text"] for hit in hits] == ["I do like Darjeeling"]
            model.may_answer.set()
            assert reply_text(await memory.call_tool("add_memory", CONVERSATION)).startswith("added: [")
            assert len(reply_results(await memory.call_tool("list_memories", {}))) == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_progress_is_reported_before_the_model_is_asked(tmp_path: Path, mode: str) -> None:
    reports: list[tuple[float, str]] = []
    with slow_model() as model:

        async def record(progress: float, total: float | None, message: str | None) -> None:
            del total
            reports.append((progress, message or ""))
            model.may_answer.set()

        async with connect(tmp_path, mode, **model.settings) as memory:
            await memory.call_tool("add_memory", CONVERSATION, progress_callback=record)
    assert reports[0] == (1, "kept 1 message; asking the model for facts")
    assert [number for number, _ in reports] == sorted({number for number, _ in reports})
