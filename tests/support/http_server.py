"""Run the server over HTTP and connect clients to it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from palimpsest.server import access_tokens
from tests.support.environment import clean_environment

# Seconds to wait for a request, or for the server to stop.
TIMEOUT = 30

# Opens `/metrics` of the server that all tests of a folder share.
METRICS_TOKEN = "for Prometheus alone"  # noqa: S105 - made for the tests

# The first message of a client.
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True)
class HttpServer:
    """A running server: its base URL, its process, its data directory, and what it wrote to its log so far.

    `page` is the path of the first URL of its page, or "" if the log is JSON, which does not name it.
    """

    base: str
    process: subprocess.Popen[str]
    data: Path
    page: str
    log: list[str] = field(default_factory=list[str])

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return int(self.base.rsplit(":", 1)[1])


@contextmanager
def run_http_server(folder: Path, transport: str = "all", **settings: str) -> Generator[HttpServer]:
    """Run a server on a free port until the block ends."""
    command = [sys.executable, "-m", "palimpsest", "serve", "--transport", transport, "--port", "0"]
    env = clean_environment(folder, **{"PALIMPSEST_LLM__PROVIDER": "none", **settings})
    reader: threading.Thread | None = None
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=folder) as process:
        try:
            assert process.stderr is not None
            first_line = process.stderr.readline()
            if first_line.startswith("{"):
                base, page = json.loads(first_line)["urls"].split()[0].rsplit("/", 1)[0], ""
            else:
                assert first_line.startswith("palimpsest: http://"), first_line
                base = first_line.split()[1].rsplit("/", 1)[0].rstrip(",")
                page = process.stderr.readline().rpartition(f"{base}")[2].strip()
            server = HttpServer(base, process, folder / "data", page)
            reader = threading.Thread(target=server.log.extend, args=(process.stderr,), daemon=True)
            reader.start()
            yield server
        finally:
            process.terminate()
            process.wait(TIMEOUT)
            if reader is not None:
                reader.join(TIMEOUT)


def new_access_token(
    data: Path,
    user: str,
    project: str = "",
    *,
    read_only: bool = False,
    days: int | None = None,
    with_general: bool = False,
) -> str:
    """Create an access token and return its text."""
    grant = access_tokens.Grant(user, project, read_only, with_general)
    text, _ = access_tokens.create(data, grant, datetime.now(UTC), days)
    return text


@asynccontextmanager
async def connect_http(server: HttpServer, how: str, bearer: str = "", **options: Any) -> AsyncGenerator[Client]:
    """Connect a client: over streamable HTTP in the protocol era `how` ("legacy" or "auto"), or over SSE ("sse")."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    if how == "sse":
        async with Client(sse_client(f"{server.base}/sse", headers=headers), **options) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT) as http,
        Client(streamable_http_client(f"{server.base}/mcp", http_client=http), mode=how, **options) as client,
    ):
        yield client


def post(server: HttpServer, bearer: str = "", content: bytes | None = None) -> httpx2.Response:
    """Send a request to the MCP endpoint, by default the first one of a client."""
    headers = {**ACCEPT, **({"authorization": f"Bearer {bearer}"} if bearer else {})}
    body = json.dumps(INITIALIZE).encode() if content is None else content
    return httpx2.post(f"{server.base}/mcp", content=body, headers=headers, timeout=TIMEOUT)
