"""Measure honest clients of a server over HTTP with and without attackers.

    python benchmarks/attackers.py --memories 2000 --seconds 30 --phases 2

Fifty clients with an access token each add and search. Phases with and without attackers take turns in one run, so that
both meet the same machine. The attackers are a process of their own with the lowest priority, because attackers
elsewhere would compute on machines of their own. Each attack has a stated rate: without one, on one machine, they would
only measure how the CPU is shared. The exit code is 1 if a call of an honest client failed or an add was lost.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from harness import (
    DATA,
    INITIALIZE,
    OVER_HTTP,
    USER,
    Listening,
    environment,
    fill,
    listening,
    parser_of,
    percentile,
    resident,
    table,
)
from palimpsest.core.models import Memory, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from palimpsest.server import access_tokens
from palimpsest.server.access_tokens import Grant
from sentences import Sentences

HONEST = 50
PAUSE = 5.0
"""The mean seconds between the calls of an honest client, so that 50 make some ten calls a second."""

ADDS = 0.2
"""The share of adds among the calls of an honest client. The others are searches."""

TIMEOUT = 120.0
LOWEST_PRIORITY = 19

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "attacker", "version": "1"},
}
LARGE_FILTER = {"OR": [{"a": number} for number in range(100_000)]}
ALLOWED_FILTER = {"OR": [{f"no such key {number}": number} for number in range(100)]}
DEEP = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"a":' * 100_000
MALFORMED = (b'{"jsonrpc": "2.0", "id": 1, "met', DEEP, b"[" + b"null," * 15_000 + b"null]", b"\xff\xfe")
CLOSED = (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.HTTPError)


@dataclass
class Phases:
    """The phase that is on ("" in between), the ms of calls, errors, and what was acknowledged."""

    server: Listening
    phase: str = ""
    calls: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})
    errors: Counter[str] = field(default_factory=Counter[str])
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])
    answers: Counter[str] = field(default_factory=Counter[str])

    def fail(self, phase: str, error: str) -> None:
        """Count an error of what began in a phase."""
        if phase:
            self.errors[f"{phase} attackers: {error}"] += 1


async def honest(phases: Phases, bearer: str, number: int) -> None:
    """Add and search as one client, half of them with a session and its stream, for as long as the run lasts."""
    headers, mode = {"authorization": f"Bearer {bearer}"}, "legacy" if number % 2 else "auto"
    while True:
        try:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=TIMEOUT) as http,
                Client(streamable_http_client(f"{phases.server.base}/mcp", http_client=http), mode=mode) as client,
            ):
                while True:
                    await anyio.sleep(random.uniform(0, 2 * PAUSE))  # noqa: S311 - not a secret
                    await _call(phases, client, number)
        except Exception as error:  # noqa: BLE001 - counted, and the client connects again
            phases.fail(phases.phase, f"{type(error).__name__}: {error}"[:80])


async def _call(phases: Phases, client: Client, number: int) -> None:
    """Add a memory or search, and note how long it took."""
    phase, word = phases.phase, secrets.token_hex(6)
    is_add = random.random() < ADDS  # noqa: S311 - not a secret
    text = f"Client {number} keeps the note {word}"
    arguments = {"text": text, "infer": False} if is_add else {"query": f"What does client {number} keep as {word}?"}
    started = time.perf_counter()
    result = await client.call_tool("add_memory" if is_add else "search_memories", arguments)
    if phase:
        phases.calls[phase].append((time.perf_counter() - started) * 1000)
    if result.is_error:
        phases.fail(phase, getattr(result.content[0], "text", "error")[:80])
    elif is_add:
        phases.acknowledged[result.structured_content["results"][0]["id"]] = text


async def run(phases: Phases, data: Path, seconds: float, rounds: int) -> None:
    """Let the phases take turns, so many rounds. Each takes `seconds`."""
    attacking = {
        "port": int(phases.server.base.rsplit(":", 1)[1]),
        "reader": _token(data, USER, read_only=True),
        "writer": _token(data, "mallory"),
        "other": _token(data, "mallory"),
    }
    async with anyio.create_task_group() as tasks:
        for number in range(HONEST):
            tasks.start_soon(honest, phases, _token(data, USER), number)
        await anyio.sleep(4 * PAUSE)  # until all clients are connected
        for _ in range(rounds):
            phases.phase = "without"
            await anyio.sleep(seconds)
            async with _attacked(phases, json.dumps(attacking)):
                phases.phase = ""
                await anyio.sleep(2 * PAUSE)  # until all attackers are at it
                phases.phase = "with"
                await anyio.sleep(seconds)
                phases.phase = ""
            await anyio.sleep(2 * PAUSE)
        tasks.cancel_scope.cancel()


def _token(data: Path, user: str, *, read_only: bool = False) -> str:
    """Create an access token and return its text."""
    return access_tokens.create(data, Grant(user, read_only=read_only), datetime.now(UTC))[0]


@asynccontextmanager
async def _attacked(phases: Phases, target: str) -> AsyncGenerator[None]:
    """Run the attackers until the block ends, and count how they were answered."""
    command, pipe = [sys.executable, __file__, "--target", target], subprocess.PIPE
    async with await anyio.open_process(command, stdin=pipe, stdout=pipe, stderr=None) as process:
        yield
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the attackers have no pipes")
        await process.stdin.aclose()
        phases.answers.update(json.loads(b"".join([part async for part in process.stdout])))


async def lost(data: Path, acknowledged: dict[str, str]) -> int:
    """Return how many acknowledged memories are not stored as they were given."""
    async with open_memory(load_settings(None, data_dir=data, user_id=USER), background=False) as memory:
        stored = [await memory.get(Scope(USER), memory_id) for memory_id in acknowledged]
    texts = {entry.text for entry in stored if isinstance(entry, Memory)}
    return sum(text not in texts for text in acknowledged.values())


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
    answers: Counter[str] = field(default_factory=Counter[str])

    async def post(self, name: str, bearer: str, content: bytes, **headers: str) -> httpx2.Response:
        """Send a body to the MCP endpoint and count the answer."""
        sent = {**ACCEPT, "authorization": f"Bearer {bearer}", **headers}
        reply = await self.http.post("/mcp", content=content, headers=sent)
        self.answers[f"{name}: {reply.status_code}"] += 1
        return reply

    async def connect(self, sent: bytes) -> anyio.abc.SocketStream:
        """Open a connection and send something."""
        connection = await anyio.connect_tcp("127.0.0.1", self.port)
        await connection.send(sent)
        return connection


def _message(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _modern(method: str, params: dict[str, Any], name: str = "") -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request that needs no session."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method, **({"mcp-name": name} if name else {})}
    return _message(method, {**params, "_meta": META}), headers


def _tool(tool: str, **arguments: Any) -> tuple[bytes, dict[str, str]]:
    return _modern("tools/call", {"name": tool, "arguments": arguments}, tool)


def _raw(bearer: str, length: int, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request that declares a length."""
    fields = {"host": "localhost", **ACCEPT, "authorization": f"Bearer {bearer}", "content-length": length, **headers}
    head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""])
    return head.encode() + body


async def filters(target: Target) -> None:
    """Call with 100,000 conditions, and with as many as are allowed."""
    for conditions in (LARGE_FILTER, ALLOWED_FILTER):
        content, headers = _tool("list_memories", filters=conditions, limit=100)
        await target.post("filters", target.reader, content, **headers)


async def long_searches(target: Target) -> None:
    """Search with long questions that were never asked before."""
    content, headers = _tool("search_memories", query=" ".join(secrets.token_hex(4) for _ in range(200)), limit=50)
    await target.post("long searches", target.reader, content, **headers)


async def held_bodies(target: Target) -> None:
    """Send most of a long body with a wrong access token, and hold it."""
    async with await target.connect(_raw("none", 4 * 1024 * 1024, b"x" * 256 * 1024)) as connection:
        answered = await connection.receive()
        target.answers[f"held bodies: {answered[9:12].decode()}"] += 1
        while True:
            await connection.receive()


async def slow_bodies(target: Target) -> None:
    """Send a byte of a body a second."""
    await _drip(target, "slow bodies", _raw(target.other, 1000))


async def slow_headers(target: Target) -> None:
    """Send a byte of the headers a second."""
    await _drip(target, "slow headers", b"POST /mcp HTTP/1.1\r\nx: ")


async def _drip(target: Target, name: str, start: bytes) -> None:
    """Send a byte a second until the server closes the connection."""
    async with await target.connect(start) as connection, anyio.create_task_group() as tasks:

        async def wait() -> None:
            try:
                answer = (await connection.receive())[9:12].decode()
            except CLOSED:
                answer = "closed"
            target.answers[f"{name}: {answer}"] += 1
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait)
        while True:
            await anyio.sleep(1)
            await connection.send(b"x")


async def malformed(target: Target) -> None:
    """Send what is no JSON, JSON that is too deep, and JSON that is no message."""
    for content in MALFORMED:
        await target.post("malformed JSON", target.other, content)


async def sessions(target: Target) -> None:
    """Open a session, follow resources in it, and never end it."""
    reply = await target.post("sessions", target.writer, _message("initialize", INITIALIZE))
    session = {"mcp-session-id": reply.headers.get("mcp-session-id", "none")}
    for uri in ("memory://recent", f"memory://{secrets.token_hex(16)}", f"memory://{secrets.token_hex(16)}"):
        content = _message("resources/subscribe", {"uri": uri})
        await target.post("subscriptions", target.writer, content, **session)


async def streams(target: Target) -> None:
    """Follow 1,000 resources in one stream, and keep it open."""
    uris = [f"memory://{secrets.token_hex(16)}" for _ in range(1000)]
    content, headers = _modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    sent = {**ACCEPT, "authorization": f"Bearer {target.reader}", **headers}
    async with target.http.stream("POST", "/mcp", content=content, headers=sent, timeout=None) as reply:
        target.answers[f"streams: {reply.status_code}"] += 1
        async for _ in reply.aiter_bytes():
            pass


ATTACKS: tuple[tuple[Callable[[Target], Awaitable[None]], int, float], ...] = (
    (filters, 8, 2.0),
    (long_searches, 4, 2.0),
    (held_bodies, 250, 5.0),
    (slow_bodies, 100, 1.0),
    (slow_headers, 400, 1.0),
    (malformed, 2, 1.0),
    (sessions, 2, 0.5),
    (streams, 250, 5.0),
)
"""What is done by how many workers at a time, with a pause in seconds between the end of one and the next."""


async def _work(target: Target, act: Callable[[Target], Awaitable[None]], pause: float) -> None:
    await anyio.sleep(secrets.randbelow(1000) / 1000 * pause)
    while True:
        try:
            await act(target)
        except CLOSED as error:
            answer = type(error).__name__ if isinstance(error, httpx2.HTTPError) else "disconnected"
            target.answers[f"{act.__name__.replace('_', ' ')}: {answer}"] += 1
        await anyio.sleep(pause)


async def attack_all(given: dict[str, Any]) -> None:
    """Run all attacks until stdin is closed. Print how often each was answered how."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=50)
    base = f"http://127.0.0.1:{given['port']}"
    async with httpx2.AsyncClient(base_url=base, timeout=60, limits=limits) as http:
        target = Target(**given, http=http)
        async with anyio.create_task_group() as tasks:
            for act, workers, pause in ATTACKS:
                for _ in range(workers):
                    tasks.start_soon(_work, target, act, pause)
            await anyio.to_thread.run_sync(sys.stdin.read)
            tasks.cancel_scope.cancel()
    print(json.dumps(target.answers))


def main() -> None:
    """Fill a memory, run the phases, and print what was measured."""
    parser = parser_of(__doc__)
    parser.add_argument("--memories", type=int, default=10_000, help="the number of memories stored before")
    parser.add_argument("--seconds", type=float, default=60, help="how long each phase takes (default 60)")
    parser.add_argument("--phases", type=int, default=4, help="phases of each kind (default 4)")
    parser.add_argument("--target", type=json.loads, help="attack a server: its port and access tokens, as JSON")
    options = parser.parse_args()
    if options.target:
        os.nice(LOWEST_PRIORITY)
        anyio.run(attack_all, options.target)
        return
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        fill(home, Sentences(1).memories(options.memories), "local")
        _token(home / DATA, USER)  # from the start, the server demands one
        with listening((*OVER_HTTP, "all"), home, environment(home)) as server:
            phases = Phases(server)
            anyio.run(run, phases, home / DATA, options.seconds, options.phases)
            peak = resident(server.process_id, "VmHWM")
        number_lost = anyio.run(lost, home / DATA, phases.acknowledged)
    rows = [
        (
            f"{phase} attackers",
            len(calls),
            *(round(percentile(calls, share)) for share in (0.5, 0.99)),
            round(max(calls)),
        )
        for phase, calls in phases.calls.items()
    ]
    print(table(("honest clients", "calls", "p50, ms", "p99, ms", "longest, ms"), *rows))
    print(f"\n{len(phases.acknowledged):,} adds acknowledged, {number_lost} of them lost; peak RSS {peak:.0f} MB")
    for error, number in phases.errors.items():
        print(f"{number} x {error}")
    print("\nHow the attacks were answered: " + ", ".join(f"{k} {n:,}" for k, n in sorted(phases.answers.items())))
    sys.exit(bool(phases.errors or number_lost))


if __name__ == "__main__":
    main()
