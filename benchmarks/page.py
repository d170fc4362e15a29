"""Compare the page with the tools: its first page with `list_memories`, a search as you type with `search_memories`.

    python benchmarks/page.py --size 100000 --rounds 100
    python benchmarks/page.py --size 2000 --rounds 30

One server process serves both over HTTP on this machine, on one connection each, and answers them in turn: each pair is
the same question, and every second pair begins with the other one. A ratio is the median over the pairs, so that what
else the machine does falls on both. The tools are asked for as many results as the page shows. The embedder is the
static one. `--keep FOLDER` keeps the filled directory for the next run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from embedders import QUICK
from figures import cell
from filling import USER, fill
from fuzzing.calls import LEGACY, initialize
from palimpsest.page.search_page import LIMIT
from sentences import Sentences
from startup import DATA

MAX_FIRST_PAGE, MAX_SEARCH = 3.0, 1.5
"""How many times as long as the tool the page may take."""

WARM_UPS = 10
TIMEOUT = 600.0
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True)
class Comparison:
    """The milliseconds of a request to the page and of the call of a tool, pair by pair."""

    name: str
    bound: float
    page: Sequence[float]
    tool: Sequence[float]

    @property
    def ratio(self) -> float:
        """Return how many times as long the page takes: the median over the pairs."""
        return statistics.median(page / tool for page, tool in zip(self.page, self.tool, strict=True))


@dataclass(frozen=True)
class Server:
    """A running server: a browser at its page, and a client with a session of its tools."""

    browser: httpx.Client
    client: httpx.Client

    def page(self, **asked: str) -> None:
        """Request the first page."""
        self._found(self.browser.get("/", params=asked))

    def part(self, question: str) -> None:
        """Request hits as the page does while somebody types."""
        self._found(self.browser.get("/", params={"q": question}, headers={"hx-request": "true"}))

    def call(self, tool: str, **arguments: Any) -> None:
        """Call a tool. Raises RuntimeError if it fails or finds nothing."""
        params = {"name": tool, "arguments": {"limit": LIMIT, **arguments}}
        answer = self.client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        answer.raise_for_status()
        if '"isError":true' in answer.text or '"results"' not in answer.text:
            raise RuntimeError(f"{tool} failed: {answer.text[:500]}")

    def _found(self, answer: httpx.Response) -> None:
        answer.raise_for_status()
        if 'class="hits"' not in answer.text:
            raise RuntimeError(f"the page shows no hits: {answer.text[:500]}")


@contextmanager
def running(home: Path) -> Generator[Server]:
    """Serve the tools and the page on the data directory in `home`."""
    env = {**os.environ, "HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA)}
    env["PALIMPSEST_HTTP__REQUESTS_PER_MINUTE"] = "1000000"
    command = [sys.executable, "-m", "palimpsest", "serve", "--transport", "http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=home) as process:
        try:
            if process.stderr is None:
                raise RuntimeError("the server has no log")
            base = process.stderr.readline().split()[1].rsplit("/", 1)[0]
            first_url = base + process.stderr.readline().rpartition(base)[2].strip()
            # Read on, because a server whose log nobody reads stops when the pipe is full.
            threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
            with (
                httpx.Client(base_url=base, timeout=TIMEOUT, follow_redirects=True) as browser,
                httpx.Client(base_url=base, timeout=TIMEOUT, headers=JSON) as client,
            ):
                browser.get(first_url).raise_for_status()
                begun = client.post("/mcp", json=initialize({}))
                client.headers.update(
                    {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
                )
                client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}).raise_for_status()
                yield Server(browser, client)
        finally:
            process.terminate()


def in_turn(
    name: str, bound: float, page: Callable[[str], None], tool: Callable[[str], None], questions: Sequence[str]
) -> Comparison:
    """Ask the page and the tool each question, every second time the tool first."""
    times: dict[Callable[[str], None], list[float]] = {page: [], tool: []}
    for number, question in enumerate(questions):
        for ask in (page, tool) if number % 2 else (tool, page):
            began = time.perf_counter()
            ask(question)
            times[ask].append((time.perf_counter() - began) * 1000)
    return Comparison(name, bound, times[page][WARM_UPS:], times[tool][WARM_UPS:])


def compare(server: Server, questions: Sequence[str]) -> Sequence[Comparison]:
    """Compare the first page and both searches with the tools."""

    def first_page(_: str) -> None:
        server.page()

    def listed(_: str) -> None:
        server.call("list_memories")

    def found(question: str) -> None:
        server.call("search_memories", query=question)

    def whole(question: str) -> None:
        server.page(q=question)

    return (
        in_turn("the first page, to `list_memories`", MAX_FIRST_PAGE, first_page, listed, questions),
        in_turn("a search as you type, to `search_memories`", MAX_SEARCH, server.part, found, questions),
        in_turn("a page with hits, to `search_memories`", MAX_FIRST_PAGE, whole, found, questions),
    )


def table(size: int, comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table of the comparisons."""
    lines = [f"| {size:,} memories, ms (p50 / p95) | page | tool | ratio | bound |", "|---|---:|---:|---:|---:|"]
    for one in comparisons:
        times = (cell(list(one.page)), cell(list(one.tool)))
        lines.append(f"| {one.name} | {times[0]} | {times[1]} | {one.ratio:.2f} | {one.bound:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Read the arguments, fill a memory, and print how the page compares. Exit with 1 if a bound is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="the number of memories (default 100,000)")
    parser.add_argument("--rounds", type=int, default=100, help=f"pairs, after {WARM_UPS} warm-ups (default 100)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled directory here, and use it")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("PALIMPSEST_", "OPENAI_"))]:
        del os.environ[name]
    os.environ |= {"PALIMPSEST_USER_ID": USER, "PALIMPSEST_LLM__PROVIDER": "none"}
    os.environ["PALIMPSEST_EMBEDDER__PROVIDER"] = QUICK
    sentences = Sentences(1)
    memories = sentences.memories(options.size)
    with tempfile.TemporaryDirectory() as folder:
        home = (options.keep or Path(folder)).absolute() / str(options.size)
        if not (home / DATA).exists():
            home.mkdir(parents=True)
            fill(home, memories, QUICK)
        with running(home) as server:
            comparisons = compare(server, sentences.questions(options.rounds + WARM_UPS, memories))
    print(table(options.size, comparisons))
    if any(one.ratio > one.bound for one in comparisons):
        sys.exit(1)


if __name__ == "__main__":
    main()
