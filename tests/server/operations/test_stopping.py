"""The end of a server: a real process, a real signal, and requests before, during and after it."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from tests.support.http_server import TIMEOUT, HttpServer, connect_http, run_http_server
from tests.support.mcp_client import reply_text
from tests.support.slow_model import slow_model

pytestmark = pytest.mark.anyio

CONVERSATION = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}


async def until_draining(server: HttpServer) -> None:
    """Ask whether a server is ready until it says that it is about to stop."""
    async with httpx2.AsyncClient() as http:
        while (answer := await http.get(f"{server.base}/ready")).json() != {"status": "draining"}:
            assert answer.json()["status"] in ("ready", "opening")
        assert answer.status_code == 503


async def until_closed(server: HttpServer) -> None:
    """Open connections to a server until it takes none."""
    while True:
        try:
            async with await anyio.connect_tcp("127.0.0.1", server.port):
                pass
        except OSError:
            return


class TestAnOrderlyEnd:
    @pytest.mark.nightly
    @pytest.mark.parametrize("how", ["auto", "legacy", "sse"])
    async def test_a_call_that_is_under_way_is_answered(self, tmp_path: Path, how: str) -> None:
        """Guards calls from a restart: the server listens no more, and yet answers what it was asked before."""
        replies: list[str] = []
        with (
            slow_model() as model,
            run_http_server(tmp_path, **model.settings) as server,
            anyio.fail_after(2 * TIMEOUT),
        ):
            async with connect_http(server, how) as client, anyio.create_task_group() as tasks:
                await client.list_tools()  # else the client asks for them with the result

                async def call() -> None:
                    replies.append(reply_text(await client.call_tool("add_memory", CONVERSATION)))

                tasks.start_soon(call)
                assert await anyio.to_thread.run_sync(model.was_asked.wait, TIMEOUT)
                server.process.send_signal(signal.SIGTERM)
                await until_closed(server)
                assert replies == []
                model.may_answer.set()
            assert await anyio.to_thread.run_sync(server.process.wait, TIMEOUT) == 0
        (reply,) = replies
        assert "Alice likes Darjeeling" in reply
        with run_http_server(tmp_path) as server:
            async with connect_http(server, how) as client:
                found = await client.call_tool("search_memories", {"query": "which tea does Alice like?"})
                assert "Alice likes Darjeeling" in reply_text(found)

    @pytest.mark.nightly
    async def test_a_server_that_drains_is_not_ready_and_still_serves(self, tmp_path: Path) -> None:
        """Guards requests that a proxy sends before it knows that the server is to stop."""
        with run_http_server(tmp_path, PALIMPSEST_HTTP__DRAIN_SECONDS="600") as server, anyio.fail_after(2 * TIMEOUT):
            async with connect_http(server, "auto") as client:
                await client.call_tool("add_memory", {"text": "Alice plays the violin"})
                server.process.send_signal(signal.SIGTERM)
                await until_draining(server)
                assert httpx2.get(f"{server.base}/health").status_code == 200
            async with connect_http(server, "legacy") as client:
                found = await client.call_tool("search_memories", {"query": "violin"})
                assert "Alice plays the violin" in reply_text(found)
            server.process.send_signal(signal.SIGTERM)
            await anyio.to_thread.run_sync(server.process.wait, TIMEOUT)

    @pytest.mark.nightly
    async def test_a_second_signal_does_not_wait_for_calls(self, tmp_path: Path) -> None:
        """Guards a person who wants the process to end, whatever it does. What was given to it is kept."""
        with (
            slow_model() as model,
            run_http_server(tmp_path, **model.settings) as server,
            anyio.fail_after(2 * TIMEOUT),
        ):
            async with connect_http(server, "auto") as client, anyio.create_task_group() as tasks:

                async def call() -> None:
                    with pytest.raises(MCPError):
                        await client.call_tool("add_memory", CONVERSATION)

                tasks.start_soon(call)
                assert await anyio.to_thread.run_sync(model.was_asked.wait, TIMEOUT)
                for _ in range(2):
                    server.process.send_signal(signal.SIGTERM)
                await anyio.to_thread.run_sync(server.process.wait, TIMEOUT)
                assert not model.may_answer.is_set()
        with run_http_server(tmp_path) as server:
            async with connect_http(server, "auto") as client:
                found = await client.call_tool("search_memories", {"query": "Darjeeling"})
                assert "I do like Darjeeling" in reply_text(found)
