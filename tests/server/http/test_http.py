"""The server over HTTP: a real process, real clients, and requests that must be refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from palimpsest.server import access_tokens
from tests.support.command_line import palimpsest, palimpsest_process
from tests.support.environment import clean_environment
from tests.support.http_server import (
    ACCEPT,
    INITIALIZE,
    TIMEOUT,
    HttpServer,
    connect_http,
    new_access_token,
    post,
    run_http_server,
)
from tests.support.mcp_client import text_of
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

VIOLIN = "Alice plays the violin"


class TestTransports:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("how", ["legacy", "auto", "sse"])
    async def test_every_transport_serves_the_same_memory(self, open_server: HttpServer, how: str) -> None:
        """Guards the shared memory: what one connection stores, every other connection finds."""
        async with connect_http(open_server, how) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} >= {"add_memory", "get_history"}
            text = f"Alice keeps {how} bees"
            assert text_of(await client.call_tool("add_memory", {"text": text})).startswith("added")
        for other in ("legacy", "auto", "sse"):
            async with connect_http(open_server, other) as client:
                assert text in text_of(await client.call_tool("search_memories", {"query": f"{how} bees"}))

    @pytest.mark.nightly
    @pytest.mark.parametrize(("transport", "served", "missing"), [("http", "/mcp", "/sse"), ("sse", "/sse", "/mcp")])
    def test_a_single_transport_can_be_served(self, tmp_path: Path, transport: str, served: str, missing: str) -> None:
        """Guards the choice of the transport."""
        with run_http_server(tmp_path, transport) as server:
            assert httpx2.get(f"{server.base}{missing}").status_code == 404
            with httpx2.stream("GET", f"{server.base}{served}", headers=ACCEPT) as answer:
                assert answer.status_code != 404

    async def test_a_server_ends_in_order_while_a_stream_is_open(self, tmp_path: Path) -> None:
        """Guards what was acknowledged: it is in the ledger."""
        with run_http_server(tmp_path) as server:
            async with connect_http(server, "auto") as client:
                await client.call_tool("add_memory", {"text": VIOLIN})
            with httpx2.stream("GET", f"{server.base}/sse") as stream:
                next(stream.iter_lines())
                server.process.terminate()
                assert await anyio.to_thread.run_sync(server.process.wait, TIMEOUT) == 0
        async with connect(tmp_path) as client:
            assert VIOLIN in text_of(await client.call_tool("search_memories", {"query": "violin"}))


class TestHealth:
    @pytest.mark.nightly
    def test_it_reports_the_state_of_the_parts_and_nothing_that_is_stored(self, protected_server: HttpServer) -> None:
        """Guards what anybody may read without a token: no name, no path, no number of memories."""
        answer = httpx2.get(f"{protected_server.base}/health")
        assert answer.status_code == 200
        assert set(answer.json()) <= {"status", "version", "ledger", "vectors", "index"}
        assert "alice" not in answer.text
        assert str(protected_server.data) not in answer.text


class TestStreams:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("how", ["legacy", "sse"])
    def test_a_stream_ends_with_its_token(self, protected_server: HttpServer, how: str) -> None:
        """Guards what is stored after a token was revoked, or has expired, from those who listen already."""
        data = protected_server.data
        own, other = new_access_token(data, f"heidi {how}"), new_access_token(data, f"heidi {how}")
        headers = {**ACCEPT, "authorization": f"Bearer {own}"}
        if how == "legacy":
            headers["mcp-session-id"] = post(protected_server, own).headers["mcp-session-id"]
            _call(protected_server, headers, "resources/subscribe", {"uri": "memory://recent"})
        path = "/mcp" if how == "legacy" else "/sse"
        with httpx2.stream("GET", f"{protected_server.base}{path}", headers=headers, timeout=TIMEOUT) as stream:
            assert stream.status_code == 200
            rows = json.loads((data / "tokens.json").read_text("utf-8"))
            if how == "legacy":
                access_tokens.revoke(data, rows[-2]["id"])
            else:
                rows[-2]["expires_at"] = "2020-05-09T00:00:00Z"
                (data / "tokens.json").write_text(json.dumps(rows), "utf-8")
            session = {**ACCEPT, "authorization": f"Bearer {other}"}
            session["mcp-session-id"] = post(protected_server, other).headers["mcp-session-id"]
            for number in range(25):
                added = {"name": "add_memory", "arguments": {"text": f"Heidi has {number} goats"}}
                assert "added" in _call(protected_server, session, "tools/call", added)
            assert "resources/updated" not in "".join(stream.iter_text())
        assert httpx2.get(f"{protected_server.base}{path}", headers=headers).status_code == 401

    @pytest.mark.nightly
    async def test_a_call_that_listens_ends_with_its_token(self, protected_server: HttpServer) -> None:
        """Guards the same for the protocol since 2026-07-28, in which the answer to a call is the stream."""
        data, heard = protected_server.data, list[Any]()
        token = new_access_token(data, "ivan")

        async def listen() -> None:
            async with (
                connect_http(protected_server, "auto", token) as client,
                client.listen(resource_subscriptions=["memory://recent"]) as events,
            ):
                access_tokens.revoke(data, json.loads((data / "tokens.json").read_text("utf-8"))[-1]["id"])
                with anyio.fail_after(TIMEOUT):
                    heard.extend([event async for event in events])
                await client.list_tools()  # it is refused

        with pytest.raises(BaseExceptionGroup):
            await listen()
        assert heard == []


def _call(server: HttpServer, headers: dict[str, str], method: str, params: dict[str, Any]) -> str:
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return httpx2.post(f"{server.base}/mcp", json=request, headers=headers, timeout=TIMEOUT).text


class TestAccess:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - they are to be refused
    def test_listening_on_all_addresses_needs_a_token(self, tmp_path: Path, host: str) -> None:
        """Guards the memory from the network. The error says how to create a token."""
        error = palimpsest(tmp_path, "serve", "--transport", "http", "--host", host, "--port", "0", code=1)
        assert "palimpsest token create" in " ".join(error.split())

    @pytest.mark.nightly
    def test_a_port_that_is_in_use_is_named(self, open_server: HttpServer, tmp_path: Path) -> None:
        """Guards people who start the server twice."""
        error = palimpsest_process(tmp_path, "serve", "--transport", "http", "--port", str(open_server.port), code=1)
        assert f"port {open_server.port}" in error

    def test_a_request_without_a_valid_token_is_refused(self, protected_server: HttpServer) -> None:
        """Guards against a missing, a wrong, an expired and a just revoked token."""
        revoked, expired = (
            new_access_token(protected_server.data, "alice"),
            new_access_token(protected_server.data, "alice", days=1),
        )
        assert post(protected_server, revoked).status_code == 200
        stored = json.loads((protected_server.data / "tokens.json").read_text())
        stored[-1]["expires_at"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        (protected_server.data / "tokens.json").write_text(json.dumps(stored))
        access_tokens.revoke(protected_server.data, stored[-2]["id"])
        for token in ("", "wrong", expired, revoked):
            answer = post(protected_server, token)
            assert answer.status_code == 401
            assert "Traceback" not in answer.text
        assert httpx2.get(f"{protected_server.base}/sse").status_code == 401

    def test_only_hashes_of_tokens_are_stored(self, protected_server: HttpServer) -> None:
        """Guards backups of the folder."""
        assert (
            new_access_token(protected_server.data, "alice") not in (protected_server.data / "tokens.json").read_text()
        )
        assert (protected_server.data / "tokens.json").stat().st_mode & 0o077 == 0


class TestStdio:
    @pytest.mark.nightly
    def test_an_interrupt_ends_the_server_at_once(self, tmp_path: Path) -> None:
        """Guards Ctrl-C while a client still has the pipe open."""
        command = [sys.executable, "-m", "palimpsest"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=clean_environment(tmp_path)) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
            server.stdin.flush()
            server.stdout.readline()
            server.send_signal(signal.SIGINT)
            assert server.wait(TIMEOUT) == -signal.SIGINT
