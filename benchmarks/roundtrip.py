"""Compare the time of a search over HTTP and over stdio, and that of a trivial tool of a bare SDK server over both.

    python benchmarks/roundtrip.py --memories 1000 --calls 400

Four servers run at the same time and take one call each in turn, so that a slow moment of the machine affects all of
them. HTTP should add hardly more to a search than it adds to the trivial tool.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from http_soak import listening
from startup import QUERY, fill

BARE = '''\
import sys

from mcp.server import MCPServer

server = MCPServer("bare", log_level="ERROR")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    import socket

    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"bare: http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
'''
PALIMPSEST = [sys.executable, "-m", "palimpsest"]
WARM_UP = 40
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "palimpsest": ("search_memories", {"query": QUERY}),
    "bare": ("echo", {"text": QUERY}),
}


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[dict[tuple[str, str], Client]]:
    """Start the four servers, and yield a client connected to each, by (server, transport)."""
    bare = folder / "bare.py"
    bare.write_text(BARE, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    env = inherited | {"PALIMPSEST_LLM__PROVIDER": "none", "PALIMPSEST_HTTP__REQUESTS_PER_MINUTE": "1000000"}
    environments = {
        transport: env | {"PALIMPSEST_DATA_DIR": str(folder / transport)} for transport in ("stdio", "http")
    }
    commands = {
        ("palimpsest", "stdio"): PALIMPSEST,
        ("palimpsest", "http"): [*PALIMPSEST, "serve", "--transport", "http", "--port", "0"],
        ("bare", "stdio"): [sys.executable, str(bare), "stdio"],
        ("bare", "http"): [sys.executable, str(bare), "http"],
    }
    async with AsyncExitStack() as stack:
        clients: dict[tuple[str, str], Client] = {}
        for (server, transport), command in commands.items():
            if transport == "http":
                target: Any = stack.enter_context(listening(command, environments[transport]))[0]
            else:
                target = StdioServerParameters(command=command[0], args=command[1:], env=environments[transport])
            clients[server, transport] = await stack.enter_async_context(Client(target))
        yield clients


async def measure(folder: Path, calls: int) -> dict[tuple[str, str], list[float]]:
    """Return the time of each call in milliseconds, by (server, transport)."""
    times: dict[tuple[str, str], list[float]] = {}
    async with connected(folder) as clients:
        for number in range(WARM_UP + calls):
            for key, client in clients.items():
                name, arguments = CALLS[key[0]]
                began = time.perf_counter()
                result = await client.call_tool(name, arguments)
                milliseconds = (time.perf_counter() - began) * 1000
                if result.is_error or not result.content:
                    raise RuntimeError(f"{key} failed: {result.content}")
                if number >= WARM_UP:
                    times.setdefault(key, []).append(milliseconds)
    return times


def main() -> None:
    """Fill two memories with the same texts, measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=1_000, help="the number of memories to search (default 1,000)")
    parser.add_argument("--calls", type=int, default=400, help="the number of timed calls to each server (default 400)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for transport in ("stdio", "http"):
            fill(folder / transport, options.memories)
        times = anyio.run(measure, folder, options.calls)
    median = {key: statistics.median(values) for key, values in times.items()}
    costs = {server: median[server, "http"] - median[server, "stdio"] for server in CALLS}
    print("| p50, ms | stdio | http | difference |\n| --- | ---: | ---: | ---: |")
    for server, (tool, _) in CALLS.items():
        stdio, http = median[server, "stdio"], median[server, "http"]
        print(f"| {server}, `{tool}` | {stdio:.1f} | {http:.1f} | {costs[server]:.1f} |")
    print(f"\nHTTP adds {costs['palimpsest'] - costs['bare']:.1f} ms more to a search than to the trivial tool.")


if __name__ == "__main__":
    main()
