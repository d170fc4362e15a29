"""Attack a server over HTTP in every way of `ATTACKS` at once, until stdin is closed. Print how it answered.

    python benchmarks/attackers.py --port 8765 --reader TOKEN --writer TOKEN --other TOKEN

It is a process of its own, so that it takes nothing from the event loop of the honest clients of `http_soak.py`. Each
attack has a stated rate. Without one, on one machine, they would only measure how the CPU is shared.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import httpx2

HOST = "127.0.0.1"
LOWEST_PRIORITY = 19
"""The priority of this process: attackers elsewhere would compute on machines of their own."""

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "attacker", "version": "1"},
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "attacker", "version": "1"}},
}
LARGE_FILTER = {"OR": [{"a": number} for number in range(100_000)]}
ALLOWED_FILTER = {"OR": [{f"no such key {number}": number} for number in range(100)]}
DEEP = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"a":' * 100_000
CLOSED = (
    OSError,
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    httpx2.HTTPError,
)


@dataclass(frozen=True)
class Target:
    """A server, the access tokens that the attackers have, and how it answered.

    `reader` may read the memory of the honest clients; `writer` and `other` are of other users.
    """

    port: int
    reader: str
    writer: str
    other: str
    http: httpx2.AsyncClient
    answers: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    async def post(self, name: str, bearer: str, content: bytes, **headers: str) -> httpx2.Response:
        """Send a body to the MCP endpoint and count the answer."""
        reply = await self.http.post("/mcp", content=content, headers={**ACCEPT, **token(bearer), **headers})
        self.answers[name, str(reply.status_code)] += 1
        return reply

    async def connect(self, sent: bytes) -> anyio.abc.SocketStream:
        """Open a connection and send something."""
        connection = await anyio.connect_tcp(HOST, self.port)
        await connection.send(sent)
        return connection


def token(bearer: str) -> dict[str, str]:
    """Return the header with an access token."""
    return {"authorization": f"Bearer {bearer}"} if bearer else {}


def request(method: str, params: dict[str, Any], name: str = "") -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request that needs no session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method, **({"mcp-name": name} if name else {})}
    return json.dumps(body).encode(), headers


def call(tool: str, **arguments: Any) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a call of a tool."""
    return request("tools/call", {"name": tool, "arguments": arguments}, tool)


def raw(bearer: str, length: int, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request that declares a length."""
    fields = {"host": "localhost", **ACCEPT, **token(bearer), "content-length": str(length), **headers}
    return (
        "\r\n".join(["POST /mcp HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items()), "", ""]).encode()
        + body
    )


async def filters(target: Target) -> None:
    """Call with 100,000 conditions, and with as many as are allowed."""
    for conditions in (LARGE_FILTER, ALLOWED_FILTER):
        content, headers = call("list_memories", filters=conditions, limit=100)
        await target.post("filters", target.reader, content, **headers)


async def searches(target: Target) -> None:
    """Search with long questions that were never asked before."""
    content, headers = call("search_memories", query=" ".join(secrets.token_hex(4) for _ in range(200)), limit=50)
    await target.post("long searches", target.reader, content, **headers)


async def held_bodies(target: Target) -> None:
    """Send most of a long body without an access token, and hold it."""
    connection = await target.connect(raw("", 4 * 1024 * 1024, b"x" * 256 * 1024))
    await _until_closed(target, "held bodies", connection)


async def slow_bodies(target: Target) -> None:
    """Send a byte of a body a second."""
    await _drip(target, "slow bodies", raw(target.other, 1000))


async def slow_headers(target: Target) -> None:
    """Send a byte of the headers a second."""
    await _drip(target, "slow headers", b"POST /mcp HTTP/1.1\r\nx: ")


async def random_tokens(target: Target) -> None:
    """Guess an access token."""
    await target.post("random tokens", secrets.token_urlsafe(32), json.dumps(INITIALIZE).encode())


async def forged_hosts(target: Target) -> None:
    """Name another host, and another client."""
    forged = {"host": "localhost:1@evil.example", "x-forwarded-for": f"10.0.0.{secrets.randbelow(256)}"}
    await target.post("forged hosts", target.other, json.dumps(INITIALIZE).encode(), **forged)


async def malformed(target: Target) -> None:
    """Send what is no JSON, JSON that is too deep, and JSON that is no message."""
    for content in (b'{"jsonrpc": "2.0", "id": 1, "met', DEEP, b"[" + b"null," * 15_000 + b"null]", b"\xff\xfe"):
        await target.post("malformed JSON", target.other, content)


async def sessions(target: Target) -> None:
    """Open a session, follow a resource in it, and never end it."""
    reply = await target.post("sessions", target.writer, json.dumps(INITIALIZE).encode())
    session = {"mcp-session-id": reply.headers.get("mcp-session-id", "none")}
    for number in range(3):
        params = {"uri": f"memory://{secrets.token_hex(16)}" if number else "memory://recent"}
        content = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": params}).encode()
        await target.post("subscriptions", target.writer, content, **session)


async def listening(target: Target) -> None:
    """Follow 1,000 resources in one stream, and keep it open."""
    uris = [f"memory://{secrets.token_hex(16)}" for _ in range(1000)]
    content, headers = request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    sent = {**ACCEPT, **token(target.reader), **headers}
    async with target.http.stream("POST", "/mcp", content=content, headers=sent, timeout=None) as reply:
        target.answers["listening", str(reply.status_code)] += 1
        async for _ in reply.aiter_bytes():
            pass


async def given_up(target: Target) -> None:
    """Search, and disconnect at once."""
    content, headers = call("search_memories", query=f"Who knows {secrets.token_hex(4)}?", limit=50)
    connection = await target.connect(raw(target.reader, len(content), content, **headers))
    await connection.aclose()
    target.answers["given-up calls", "disconnected"] += 1


async def _until_closed(target: Target, name: str, connection: anyio.abc.SocketStream) -> None:
    async with connection:
        answered = await connection.receive()
        target.answers[name, answered[9:12].decode()] += 1
        while True:
            await connection.receive()


async def _drip(target: Target, name: str, start: bytes) -> None:
    """Send a byte a second until the server closes the connection."""
    connection = await target.connect(start)
    async with connection, anyio.create_task_group() as tasks:

        async def wait() -> None:
            try:
                answered = await connection.receive()
                target.answers[name, answered[9:12].decode()] += 1
            except CLOSED:
                target.answers[name, "closed"] += 1
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait)
        while True:
            await anyio.sleep(1)
            await connection.send(b"x")


@dataclass(frozen=True)
class Attack:
    """What is done by how many workers at a time, with a pause in seconds between the end of one and the next."""

    act: Callable[[Target], Awaitable[None]]
    workers: int
    pause: float


ATTACKS = (
    Attack(filters, workers=8, pause=2.0),
    Attack(searches, workers=4, pause=2.0),
    Attack(held_bodies, workers=250, pause=5.0),
    Attack(slow_bodies, workers=100, pause=1.0),
    Attack(slow_headers, workers=400, pause=1.0),
    Attack(random_tokens, workers=2, pause=0.1),
    Attack(forged_hosts, workers=2, pause=0.2),
    Attack(malformed, workers=2, pause=1.0),
    Attack(sessions, workers=2, pause=0.5),
    Attack(listening, workers=250, pause=5.0),
    Attack(given_up, workers=2, pause=0.4),
)


async def _work(target: Target, attack: Attack) -> None:
    await anyio.sleep(secrets.randbelow(1000) / 1000 * attack.pause)
    while True:
        try:
            await attack.act(target)
        except CLOSED as error:
            answer = type(error).__name__ if isinstance(error, httpx2.HTTPError) else "disconnected"
            target.answers[attack.act.__name__.replace("_", " "), answer] += 1
        await anyio.sleep(attack.pause)


async def attack_all(port: int, reader: str, writer: str, other: str) -> Counter[tuple[str, str]]:
    """Run all attacks until stdin is closed. Return how often each was answered how."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=50)
    async with httpx2.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=60, limits=limits) as http:
        target = Target(port, reader, writer, other, http)
        async with anyio.create_task_group() as tasks:
            for attack in ATTACKS:
                for _ in range(attack.workers):
                    tasks.start_soon(_work, target, attack)
            await anyio.to_thread.run_sync(sys.stdin.read)
            tasks.cancel_scope.cancel()
    return target.answers


def main() -> None:
    """Read the arguments, attack, and print the answers as JSON: how often each attack was answered how."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    for name in ("reader", "writer", "other"):
        parser.add_argument(f"--{name}", required=True, help="an access token; see `Target`")
    options = parser.parse_args()
    os.nice(LOWEST_PRIORITY)
    answers = anyio.run(attack_all, options.port, options.reader, options.writer, options.other)
    print(json.dumps([[name, answer, number] for (name, answer), number in sorted(answers.items())]))


if __name__ == "__main__":
    main()
