"""The server over HTTP: real clients and what they hear of, and requests that must be refused."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.types import ResourceUpdatedNotification

from palimpsest.server import access_tokens
from palimpsest.server.jsonrpc import MAX_JSON_VALUES, MAX_MESSAGE_BYTES
from palimpsest.server.session.rate_limits import FAILED_PER_MINUTE
from tests.support.command_line import palimpsest
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
from tests.support.mcp_client import reply_results, subscribe, text_of
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


def _call(server: HttpServer, headers: dict[str, str], method: str, params: dict[str, Any]) -> str:
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return httpx2.post(f"{server.base}/mcp", json=request, headers=headers, timeout=TIMEOUT).text


class TestAccess:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - they are to be refused
    def test_listening_on_all_addresses_needs_a_token(self, tmp_path: Path, host: str) -> None:
        """Guards the memory from the network. The error says how to create a token."""
        error = palimpsest(tmp_path, "serve", "--transport", "http", "--host", host, "--port", "0", code=1)
        assert "palimpsest token create" in " ".join(error.split())

    def test_a_request_without_a_valid_token_is_refused(self, protected_server: HttpServer) -> None:
        """Guards against a missing, a wrong, an expired and a just revoked token. The file has only their hashes."""
        data, server = protected_server.data, protected_server
        revoked, expired = new_access_token(data, "alice"), new_access_token(data, "alice", days=1)
        assert post(server, revoked).status_code == 200
        stored = json.loads((data / "tokens.json").read_text())
        assert revoked not in str(stored)
        assert (data / "tokens.json").stat().st_mode & 0o077 == 0
        stored[-1]["expires_at"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        (data / "tokens.json").write_text(json.dumps(stored))
        access_tokens.revoke(data, stored[-2]["id"])
        for token in ("", "wrong", expired, revoked):
            answer = post(server, token)
            assert (answer.status_code, "Traceback" in answer.text) == (401, False)
        assert httpx2.get(f"{server.base}/sse").status_code == 401
        health = httpx2.get(f"{server.base}/health")
        assert (health.status_code, "alice" in health.text, str(data) in health.text) == (200, False, False)


def begin(server: HttpServer, method: str, path: str, length: int) -> socket.socket:
    """Send the headers of a request with a body, and nothing of the body. Return its connection."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)
    lines = {"host": "localhost", **ACCEPT, "content-length": str(length)}
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    return connection


def test_bodies_are_refused_before_they_are_read_or_parsed(
    open_server: HttpServer, protected_server: HttpServer
) -> None:
    """Guards memory before authentication, clients from sending what will be refused, and many values from parsing."""
    for server, method, path, length, status in (
        (protected_server, "POST", "/mcp", MAX_MESSAGE_BYTES, 401),
        (protected_server, "GET", "/mcp", MAX_MESSAGE_BYTES, 401),
        (protected_server, "POST", "/messages/", MAX_MESSAGE_BYTES, 401),
        (protected_server, "POST", "/elsewhere", MAX_MESSAGE_BYTES, 401),
        (protected_server, "POST", "/health", MAX_MESSAGE_BYTES, 405),
        (open_server, "POST", "/mcp", MAX_MESSAGE_BYTES + 1, 413),
        (open_server, "POST", "/mcp", int("9" * 20), 413),
    ):
        with begin(server, method, path, length) as connection:
            assert int(connection.recv(12).split()[1]) == status, (method, path)
    answer = post(open_server, content=b"[" + b"[]," * MAX_JSON_VALUES + b"[]]")
    assert (answer.status_code, str(MAX_JSON_VALUES) in answer.text) == (413, True)


def test_an_address_that_sends_wrong_tokens_is_limited_and_locks_nobody_out(protected_server: HttpServer) -> None:
    """Guards tokens from being guessed, and an honest client behind the same address."""
    honest = new_access_token(protected_server.data, "alice")
    # Other tests are behind another address of this machine.
    transport = httpx2.HTTPTransport(local_address="127.0.0.2")
    with httpx2.Client(base_url=protected_server.base, headers=ACCEPT, transport=transport) as http:

        def sent(bearer: str) -> httpx2.Response:
            return http.post("/mcp", json=INITIALIZE, headers={"authorization": f"Bearer {bearer}"})

        assert sent(honest).status_code == 200
        # A minute that ends meanwhile leaves a little room for more.
        answers = [sent(f"guess {number}") for number in range(FAILED_PER_MINUTE + 10)]
        assert (answers[0].status_code, answers[-1].status_code) == (401, 429)
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert sent(honest).status_code == 200


FOREIGN_HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "localhost:1@evil.com",
    "localhost:evil.com",
    "localhost:80:80",
    "localhost:123456",
    "localhost:1/evil",
    "[::1]evil.com",
    "[::1]:1@evil.com",
    "user@localhost",
)


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/", "/health"])
def test_a_host_or_origin_that_only_looks_like_ours_is_refused(open_server: HttpServer, path: str) -> None:
    """Guards against DNS rebinding: a name, and a port of digits, with nothing before or after them."""
    with httpx2.Client(base_url=open_server.base, timeout=TIMEOUT) as http:
        for host in FOREIGN_HOSTS:
            assert http.get(path, headers={"host": host}).status_code == 421, host
            assert http.get(path, headers={"origin": f"http://{host}"}).status_code == 403, host
        for host in ("localhost", "LocalHost:8000", "127.0.0.1:1", "[::1]", "[::1]:65535"):
            assert http.get("/health", headers={"host": host, "origin": f"http://{host}"}).status_code == 200, host


LISTS = ["memory://recent", "memory://summary"]


async def added(client: Client, text: str, project: str) -> str:
    """Add a memory to a project, or for all projects with "", and return its id."""
    result = await client.call_tool("add_memory", {"text": text, "scope": {"project": project}})
    return reply_results(result)[0]["id"]


@asynccontextmanager
async def subscribed(
    server: HttpServer, how: str, bearer: str, uris: list[str], until: str
) -> AsyncGenerator[tuple[list[str], anyio.Event]]:
    """Subscribe to resources. Give the list of URIs heard of so far, and the event of hearing of `until`."""
    heard: list[str] = []
    is_done = anyio.Event()

    def hear(uri: str) -> None:
        heard.append(uri)
        if uri == until:
            is_done.set()

    async def record(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            hear(str(message.params.uri))

    if how == "legacy":
        async with connect_http(server, how, bearer, message_handler=record) as client:
            for uri in uris:
                await subscribe(client, uri)
            yield heard, is_done
        return

    async def listen(events: Any) -> None:
        async for event in events:
            hear(str(event.uri))

    async with (
        connect_http(server, how, bearer) as client,
        client.listen(resource_subscriptions=uris) as events,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listen, events)
        yield heard, is_done
        tasks.cancel_scope.cancel()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("how", ["legacy", "auto"])
async def test_changes_of_another_user_or_project_are_not_announced(protected_server: HttpServer, how: str) -> None:
    """Guards even the fact that something was stored elsewhere, from who follows the lists or knows an id."""
    user = f"bob by {how}"
    tokens = [(user, "atlas"), (user, ""), (f"erik by {how}", "")]
    atlas, all_projects, erik = (new_access_token(protected_server.data, *token) for token in tokens)
    async with (
        connect_http(protected_server, how, all_projects) as writer,
        connect_http(protected_server, how, erik) as other,
    ):
        await added(writer, "It is there from the start", "atlas")
        foreign = await added(other, "They live in a house", "")
        uris = [*LISTS, f"memory://{foreign}"]
        async with subscribed(protected_server, how, atlas, uris, "memory://summary") as (heard, has_heard):
            await added(writer, "Bob builds another boat", "other")
            await other.call_tool("update_memory", {"memory_id": foreign, "text": "They moved"})
            async with connect_http(protected_server, how, atlas) as reader:  # answered after what was announced
                await reader.list_tools()
            assert heard == []
            with anyio.fail_after(TIMEOUT):
                await added(writer, "Atlas is written in Rust", "atlas")
                await has_heard.wait()
    assert set(heard) == set(LISTS)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("how", ["legacy", "auto"])
async def test_a_shared_memory_that_a_project_replaces_is_announced_to_all_projects(
    protected_server: HttpServer, how: str
) -> None:
    """Guards subscribers from believing a memory that was replaced where they do not look."""
    user = f"carol by {how}"
    atlas, other = (
        new_access_token(protected_server.data, user, project, with_general=True) for project in ("atlas", "other")
    )
    async with connect_http(protected_server, how, new_access_token(protected_server.data, user)) as writer:
        shared = f"memory://{await added(writer, 'Carol lives in Rome', '')}"
        async with (
            subscribed(protected_server, how, other, [shared, *LISTS], shared) as (heard, has_heard),
            connect_http(protected_server, how, atlas) as project_writer,
        ):
            with anyio.fail_after(TIMEOUT):
                new = {"text": "Carol lives in Oslo", "replaces": [shared.removeprefix("memory://")]}
                reply_results(await project_writer.call_tool("add_memory", new))
                await has_heard.wait()
    assert set(heard) == {shared, *LISTS}
