"""Compare the page with the tools: its first page with `list_memories`, a search as you type with `search_memories`.

    python benchmarks/page.py --size 100000 --rounds 100
    python benchmarks/page.py --size 2000 --rounds 30

One server process serves both over HTTP on this machine, on one connection each, and answers them in turn: each pair is
the same question, and every second pair begins with the other one. A ratio is the median over the pairs, so that what
else the machine does falls on both. The tools are asked for as many results as the page shows. The embedder is the
static one. `--keep FOLDER` keeps the filled directory for the next run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from embedders import QUICK
from harness import INITIALIZE, OVER_HTTP, PROTOCOL, environment, fill, in_turn, listening, parser_of, percentile, table
from palimpsest.page.browse import SEARCH_LIMIT as LIMIT
from sentences import Sentences

# How many times as long as the tool the page may take.
MAX_FIRST_PAGE, MAX_SEARCH = 3.0, 1.5

WARM_UPS = 10
TIMEOUT = 600.0
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True)
class Server:
    """A running server: a browser at its page, and a client with a session of its tools."""

    browser: httpx.Client
    client: httpx.Client

    def page(self, question: str = "", *, as_typed: bool = False) -> None:
        """Request the first page, or hits, also as the page does while somebody types."""
        asked = {"q": question} if question else {}
        answer = self.browser.get("/", params=asked, headers={"hx-request": "true"} if as_typed else {})
        answer.raise_for_status()
        if 'class="hits"' not in answer.text:
            raise RuntimeError(f"the page shows no hits: {answer.text[:500]}")

    def call(self, tool: str, **arguments: Any) -> None:
        """Call a tool. Raises RuntimeError if it fails or finds nothing."""
        answer = self.ask("tools/call", {"name": tool, "arguments": {"limit": LIMIT, **arguments}}, id=1)
        if '"isError":true' in answer.text or '"results"' not in answer.text:
            raise RuntimeError(f"{tool} failed: {answer.text[:500]}")

    def ask(self, method: str, params: dict[str, Any], **more: object) -> httpx.Response:
        """Send an MCP message."""
        answer = self.client.post("/mcp", json={"jsonrpc": "2.0", "method": method, "params": params, **more})
        answer.raise_for_status()
        return answer


@contextmanager
def running(home: Path) -> Generator[Server]:
    """Serve the tools and the page on the data directory in `home`."""
    variables = environment(home, llm__provider="none", embedder__provider=QUICK, http__requests_per_minute="1000000")
    with listening((*OVER_HTTP, "http"), home, variables) as server:
        first_url = server.base + server.log.get(timeout=TIMEOUT).rpartition(server.base)[2].strip()
        with (
            httpx.Client(base_url=server.base, timeout=TIMEOUT, follow_redirects=True) as browser,
            httpx.Client(base_url=server.base, timeout=TIMEOUT, headers=JSON) as client,
        ):
            browser.get(first_url).raise_for_status()
            both = Server(browser, client)
            begun = both.ask("initialize", INITIALIZE, id=0)
            client.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
            client.headers["mcp-protocol-version"] = PROTOCOL
            both.ask("notifications/initialized", {})
            yield both


def compare(server: Server, questions: Sequence[str]) -> Sequence[tuple[str, list[float], list[float], float, float]]:
    """Return the ms of the first page and of both searches, and of the tools, the ratio of both and its bound."""

    def listed(_: str) -> None:
        server.call("list_memories")

    def found(question: str) -> None:
        server.call("search_memories", query=question)

    pairs: Sequence[tuple[str, float, Callable[[str], None], Callable[[str], None]]] = (
        ("the first page, to `list_memories`", MAX_FIRST_PAGE, lambda _: server.page(), listed),
        ("a search as you type, to `search_memories`", MAX_SEARCH, lambda q: server.page(q, as_typed=True), found),
        ("a page with hits, to `search_memories`", MAX_FIRST_PAGE, server.page, found),
    )
    compared: list[tuple[str, list[float], list[float], float, float]] = []
    for name, bound, page, tool in pairs:
        of_page, of_tool = in_turn((page, tool), questions, WARM_UPS)
        ratio = percentile((a / b for a, b in zip(of_page, of_tool, strict=True)), 0.5)
        compared.append((name, of_page, of_tool, ratio, bound))
    return compared


def main() -> None:
    """Read the arguments, fill a memory, and print how the page compares. Exit with 1 if a bound is not met."""
    parser = parser_of(__doc__)
    parser.add_argument("--size", type=int, default=100_000, help="the number of memories (default 100,000)")
    parser.add_argument("--rounds", type=int, default=100, help=f"pairs, after {WARM_UPS} warm-ups (default 100)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled directory here, and use it")
    options = parser.parse_args()
    sentences = Sentences(1)
    memories = sentences.memories(options.size)
    with tempfile.TemporaryDirectory() as folder:
        home = (options.keep or Path(folder)).absolute() / str(options.size)
        fill(home, memories)
        with running(home) as server:
            compared = compare(server, sentences.questions(options.rounds + WARM_UPS, memories))
    head = (f"{options.size:,} memories, ms (p50 / p95)", "page", "tool", "ratio", "bound")
    print(table(head, *compared))
    sys.exit(any(ratio > bound for *_, ratio, bound in compared))


if __name__ == "__main__":
    main()
