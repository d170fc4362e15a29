"""Compare the time of a search over HTTP and over stdio, and that of a trivial tool of a bare SDK server over both.

    python benchmarks/roundtrip.py --memories 1000 --calls 400

Four servers run at the same time and take one call each in turn, so that a slow moment of the machine affects all of
them. HTTP should add hardly more to a search than it adds to the trivial tool.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from harness import MINIMAL_SERVER, OVER_HTTP, PALIMPSEST, environment, fill, listening, parser_of, percentile, table
from sentences import Sentences

WARM_UP = 40
QUESTION = "who repairs clocks in Kyoto?"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "palimpsest": ("search_memories", {"query": QUESTION}),
    "a bare SDK server": ("echo", {"text": QUESTION}),
}


async def measure(folder: Path, calls: int) -> dict[tuple[str, str], list[float]]:
    """Return the time of each call in milliseconds, by (server, transport)."""
    script = folder / "minimal.py"
    script.write_text(MINIMAL_SERVER, encoding="utf-8")
    bare = (sys.executable, str(script))
    times: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        clients: dict[tuple[str, str], Client] = {}
        for server, transport, command in (
            ("palimpsest", "stdio", PALIMPSEST),
            ("palimpsest", "http", (*OVER_HTTP, "http")),
            ("a bare SDK server", "stdio", bare),
            ("a bare SDK server", "http", (*bare, "http")),
        ):
            home = folder / transport
            variables = environment(home, llm__provider="none", http__requests_per_minute="1000000")
            if transport == "http":
                target: Any = f"{stack.enter_context(listening(command, home, variables)).base}/mcp"
            else:
                target = StdioServerParameters(command=command[0], args=list(command[1:]), env=variables, cwd=home)
            clients[server, transport] = await stack.enter_async_context(Client(target))
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
    parser = parser_of(__doc__)
    parser.add_argument("--memories", type=int, default=1_000, help="the number of memories to search (default 1,000)")
    parser.add_argument("--calls", type=int, default=400, help="the number of timed calls to each server (default 400)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for transport in ("stdio", "http"):
            fill(Path(name, transport), Sentences(1).memories(options.memories), "local")
        times = anyio.run(measure, Path(name), options.calls)
    rows: list[tuple[object, ...]] = []
    for server, (tool, _) in CALLS.items():
        stdio, http = (percentile(times[server, transport], 0.5) for transport in ("stdio", "http"))
        rows.append((f"{server}, `{tool}`", stdio, http, http - stdio))
    print(table(("p50, ms", "stdio", "http", "difference"), *rows))


if __name__ == "__main__":
    main()
