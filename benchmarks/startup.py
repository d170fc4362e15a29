"""Measure the start over stdio: of `palimpsest`, of a minimal server of the same SDK, and up to a first search.

JSON-RPC lines are written to the pipe directly, so that the server is timed and not a client.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Self, cast

import anyio

from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from palimpsest.store.apply import Write

PALIMPSEST = (sys.executable, "-m", "palimpsest", "serve")
MINIMAL_SERVER = '''\
from mcp.server import MCPServer

server = MCPServer("minimal")


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


server.run("stdio")
'''
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "startup-benchmark", "version": "1"},
}
DATA = "data"  # the data directory, inside a run's home
SEARCH_RUNS = 3
FILL_BATCH = 500
TIMEOUT = 120.0  # seconds after which a server is killed

WORDS = """\
Ada Ben Cleo Dan Eva Finn Gia Hugo Ida Jon Kim Leo Mia Noah Olga Paul Quinn Rosa Sam Tess
avoids borrows builds carries cleans collects draws inherits likes orders paints repairs sells teaches
baskets bicycles boats bridges cameras chairs clocks globes kites ladders lanterns maps radios violins
Accra Bergen Boston Cairo Dakar Hanoi Kyoto Lima Lisbon Oslo Perth Porto Sofia Tunis Zagreb
"""
NAMES, HABITS, THINGS, PLACES = (line.split() for line in WORDS.splitlines())
CAPACITY = len(NAMES) * len(HABITS) * len(THINGS) * len(PLACES)  # 58,800 distinct texts
STRIDE = 36_341  # a prime that does not divide CAPACITY: each step gives a new text, unlike the one before
QUERY = "who repairs clocks in Kyoto?"


@dataclass(frozen=True)
class Spread:
    """A summary of measurements in seconds, or of ratios. `values` has all of them in order."""

    median: float
    minimum: float
    maximum: float
    values: list[float]

    @classmethod
    def of(cls, values: list[float]) -> Self:
        """Return the summary of one or more values."""
        return cls(statistics.median(values), min(values), max(values), values)


@dataclass(frozen=True)
class StartUp:
    """Seconds from spawn to the `initialize` reply. `ratios` are Palimpsest's time by the minimal server's, by run."""

    palimpsest: Spread
    minimal: Spread
    ratios: Spread
    ratio_of_medians: float


@dataclass(frozen=True)
class FirstSearch:
    """Seconds from spawn to the answer of the first search among `memories` memories."""

    memories: int
    fill_seconds: float
    search: Spread


class Server:
    """A client of a server process: newline-delimited JSON-RPC. `started` is the time of spawn (`perf_counter`)."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], started: float) -> None:
        self._input = cast("io.RawIOBase", process.stdin)
        self._lines = io.BufferedReader(cast("io.RawIOBase", process.stdout))
        self._errors = errors
        self._started = started
        self._last_id = 0

    def age(self) -> float:
        """Return the seconds since the process was spawned."""
        return time.perf_counter() - self._started

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._send({"method": method})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its result. Other messages of the server are ignored."""
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        for line in self._lines:
            message = json.loads(line)
            if message.get("id") == self._last_id and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method} failed: {message['error']}")
                return message["result"]
        self._errors.seek(0)
        error_text = self._errors.read().decode(errors="replace")[-2000:]
        raise RuntimeError(f"the server ended, or was killed after {TIMEOUT:.0f} s, during {method}:\n{error_text}")

    def _send(self, message: dict[str, Any]) -> None:
        # If the server has ended, reading its output reports that, with its last lines on stderr.
        with suppress(BrokenPipeError):
            self._input.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@contextmanager
def running(command: Sequence[str], home: Path) -> Generator[Server]:
    """Run a server with its home, working and data directories in `home`. Close its input at the end."""
    env = os.environ | {"HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA)}
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=errors, cwd=home, env=env)
        # Reading a pipe has no timeout. It ends when the process ends.
        watchdog = threading.Timer(TIMEOUT, process.kill)
        watchdog.start()
        try:
            with process:
                yield Server(process, errors, started)
        finally:
            watchdog.cancel()


def time_start(command: Sequence[str], home: Path) -> float:
    """Return the seconds from spawning the server to its `initialize` reply."""
    with running(command, home) as server:
        server.request("initialize", INITIALIZE)
        return server.age()


def time_first_search(home: Path, known: Sequence[str]) -> float:
    """Return the seconds from spawning Palimpsest to its reply to a search, which must contain a known text."""
    with running(PALIMPSEST, home) as server:
        server.request("initialize", INITIALIZE)
        server.notify("notifications/initialized")
        reply = server.request("tools/call", {"name": "search_memories", "arguments": {"query": QUERY}})
        seconds = server.age()
    reply_text = json.dumps(reply)
    # A search of another directory or scope would be fast and would measure nothing.
    if reply.get("isError") or not any(text in reply_text for text in known):
        raise RuntimeError(f"the search found none of the memories: {reply_text[:2000]}")
    return seconds


def measure_start(runs: int) -> StartUp:
    """Time both servers in turn, `runs` times each after one warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        script = home / "minimal_server.py"
        script.write_text(MINIMAL_SERVER, encoding="utf-8")
        minimal = (sys.executable, str(script))
        pairs = [(time_start(PALIMPSEST, home), time_start(minimal, home)) for _ in range(runs + 1)][1:]
    palimpsest, minimal_spread = Spread.of([pair[0] for pair in pairs]), Spread.of([pair[1] for pair in pairs])
    ratios = Spread.of([a / b for a, b in pairs])
    return StartUp(palimpsest, minimal_spread, ratios, palimpsest.median / minimal_spread.median)


def measure_first_search(count: int) -> FirstSearch:
    """Fill a data directory with `count` memories, and time a first search in it `SEARCH_RUNS` times."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        began = time.perf_counter()
        fill(home / DATA, count)
        filled = time.perf_counter() - began
        known = texts(count)
        return FirstSearch(count, filled, Spread.of([time_first_search(home, known) for _ in range(SEARCH_RUNS)]))


def fill(data_dir: Path, count: int) -> None:
    """Write `count` generated memories into `data_dir`, and build the index."""

    async def write() -> None:
        async with open_memory(load_settings(data_dir=data_dir), background=False) as memory:
            engine = memory.engine
            generated = texts(count)
            for start in range(0, count, FILL_BATCH):
                batch = generated[start : start + FILL_BATCH]
                engine.ledger.apply(
                    Write(
                        memory.scope,
                        Provenance("benchmark"),
                        decisions=tuple(Decision(Event.ADD, Fact(text)) for text in batch),
                        vectors=dict(zip(batch, engine.embedder.embed_passages(batch), strict=True)),
                        embedder=engine.embedder.fingerprint,
                    )
                )
            await memory.care.rebuild()

    anyio.run(write)


def texts(count: int) -> list[str]:
    """Return `count` distinct short texts, at most `CAPACITY`. Each call returns the same texts."""
    return [_text(step * STRIDE % CAPACITY) for step in range(count)]


def _text(number: int) -> str:
    number, name = divmod(number, len(NAMES))
    number, habit = divmod(number, len(HABITS))
    place, thing = divmod(number, len(THINGS))
    return f"{NAMES[name]} {HABITS[habit]} {THINGS[thing]} in {PLACES[place]}"


def report(start: StartUp, search: FirstSearch | None) -> None:
    """Print the figures."""
    print(f"start to `initialize` reply, {len(start.minimal.values)} runs: median (min to max)")
    for name, spread in (("palimpsest", start.palimpsest), ("minimal", start.minimal)):
        print(f"  {name:<11}{spread.median:.3f} s ({spread.minimum:.3f} to {spread.maximum:.3f})")
    print(f"  ratio      {start.ratio_of_medians:.3f} of medians, {start.ratios.median:.3f} median of pairs")
    if search is not None:
        print(f"start to first search, {search.memories} memories, {len(search.search.values)} runs")
        print(f"  median     {search.search.median:.3f} s (filled in {search.fill_seconds:.1f} s)")


def main() -> None:
    """Read the arguments, measure, print the figures, and write them to a file if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="the number of timed starts of each server (default 15)")
    parser.add_argument(
        "--memories", type=int, default=10_000, help="the number of memories to search (default 10000; 0: no search)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.runs < 1 or not 0 <= arguments.memories <= CAPACITY:
        parser.error(f"--runs must be 1 or more, and --memories between 0 and {CAPACITY}")
    start = measure_start(arguments.runs)
    search = measure_first_search(arguments.memories) if arguments.memories else None
    report(start, search)
    if arguments.json:
        versions = {"python": platform.python_version(), "mcp": version("mcp")}
        figures = {"start": asdict(start), "first_search": asdict(search) if search else None}
        arguments.json.write_text(json.dumps(versions | figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
