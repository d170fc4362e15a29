"""What the benchmarks share: server processes, filled memories, times of calls in turn, and tables."""

from __future__ import annotations

import importlib
import json
import os
import queue
import random
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, AnyStr, Self, cast

import anyio
from pydantic import SecretStr

from embedders import QUICK, made_vectors, open_named
from palimpsest.core.clock import now
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from palimpsest.store.apply import Write
from palimpsest.store.ledger import open_ledger

USER = "alice"
STORES = ("sqlite", "postgres")

# The data directory, inside a server's home.
DATA = "data"

PALIMPSEST = (sys.executable, "-m", "palimpsest")
OVER_HTTP = (*PALIMPSEST, "serve", "--port", "0", "--transport")
PROTOCOL = "2025-11-25"
INITIALIZE: dict[str, Any] = {
    "protocolVersion": PROTOCOL,
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
# Seconds after which a process that has not answered is killed.
TIMEOUT = 600.0

# Seconds in which a process must end after its input is closed.
EXIT_TIMEOUT = 15.0

FILL_BATCH = 500

# The agent of one memory in a hundred of a filled memory. The other memories have none.
AGENT = "coder"

# What the memories of the soaks say, each with a word of its own.
TOPICS = (
    "User's sister plays the harp in an orchestra",
    "The staging database moved to a machine in Oslo",
    "User prefers tea without sugar in the morning",
    "The release train leaves every second Tuesday",
    "User is allergic to hazelnuts and walnuts",
    "Deployments want a green build and two reviews",
)


def new_note(rng: random.Random) -> str:
    """Return a text with a word that no other has."""
    return f"{rng.choice(TOPICS)}, note q{rng.getrandbits(40):010x}"


def parser_of(documentation: str | None) -> ArgumentParser:
    """Return a parser whose help is a module's docstring."""
    return ArgumentParser(description=documentation, formatter_class=RawDescriptionHelpFormatter)


def environment(home: Path, user: str = USER, **settings: str) -> dict[str, str]:
    """Return the environment of a process with its data in `home`, without the settings of whoever measures."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    own = {"HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA), "PALIMPSEST_USER_ID": user}
    return inherited | own | {f"PALIMPSEST_{name.upper()}": value for name, value in settings.items()}


class ToolError(Exception):
    """A tool answered with an error."""


class Server:
    """A process that exchanges lines of JSON over its pipes: an MCP server, or a worker around a library.

    Its working directory is `home`. Every call waits for the answer. JSON is written to the pipe directly, so that the
    server is timed and not a client.
    """

    def __init__(self, command: Sequence[str], home: Path, variables: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._started = time.perf_counter()
        self.process = subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=self._errors, cwd=home, env=variables
        )
        self._received = b""
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def age(self) -> float:
        """Return the seconds since the process was spawned."""
        return time.perf_counter() - self._started

    def line(self) -> dict[str, Any]:
        """Return the next line of output as JSON. Raises RuntimeError if the process has ended or says nothing."""
        output = cast("Any", self.process.stdout).fileno()
        while b"\n" not in self._received:
            part = os.read(output, 1 << 20) if select.select([output], [], [], TIMEOUT)[0] else b""
            if not part:
                self.process.kill()
                raise RuntimeError(f"the process ended, or said nothing for {TIMEOUT:.0f} s: {self.last_errors()}")
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. If the process has ended, reading its answer reports it."""
        rest = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(BrokenPipeError):
            while rest:  # a raw pipe may take only a part of a long line
                rest = rest[cast("Any", self.process.stdin).write(rest) :]

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send an MCP request and return its result. Other messages are ignored. Raises RuntimeError."""
        self._last_id += 1
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        while True:
            message = self.line()
            if message.get("id") == self._last_id and "method" not in message:
                break
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def initialize(self) -> float:
        """Begin the session, and return the seconds from spawn to the answer."""
        self.request("initialize", INITIALIZE)
        seconds = self.age()
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return seconds

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured content. Raises ToolError with the text of an error."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise ToolError(" ".join(block.get("text", "") for block in result["content"]))
        return result["structuredContent"]

    def last_errors(self) -> str:
        """Return the end of what the process wrote to stderr."""
        # `pread` does not move the offset at which the process goes on writing.
        return os.pread(self._errors.fileno(), 1_000_000, 0).decode(errors="replace")[-2000:].strip()

    def close(self) -> None:
        """Close the input, wait for the process to end, and kill it if it does not."""
        with suppress(OSError):
            cast("Any", self.process.stdin).close()
        try:
            self.process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        cast("Any", self.process.stdout).close()
        self._errors.close()


@contextmanager
def serving(home: Path, user: str = USER, **settings: str) -> Generator[Server]:
    """Run Palimpsest over stdio on the data directory in `home`. Yield the server after the handshake."""
    home.mkdir(parents=True, exist_ok=True)
    with Server((*PALIMPSEST, "serve"), home, environment(home, user, **settings)) as server:
        server.initialize()
        yield server


@dataclass(frozen=True)
class Listening:
    """A server over HTTP: its base URL without a path, its process id, and the lines of its log that come later."""

    base: str
    process_id: int
    log: queue.SimpleQueue[str]


@contextmanager
def listening(command: Sequence[str], home: Path, variables: Mapping[str, str]) -> Generator[Listening]:
    """Run a server that prints its URL on stderr as the second word of the first line."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=home, env=variables) as process:
        # Read on, because a server whose log nobody reads stops when the pipe is full.
        log = queue.SimpleQueue[str]()
        threading.Thread(target=pump, args=(process.stderr, log), daemon=True).start()
        try:
            url = log.get(timeout=TIMEOUT).split()[1]
            yield Listening(url.rstrip(",").rsplit("/", 1)[0], process.pid, log)
        finally:
            process.terminate()


def pump(lines: Iterable[AnyStr], received: queue.SimpleQueue[AnyStr]) -> None:
    """Put lines into a queue as they come, so that whoever writes them never waits."""
    for line in lines:
        received.put(line)


def resident(process: int | str, field: str = "VmRSS") -> float:
    """Return the resident memory of a process in MB, or with VmHWM its peak; "self" is the calling process."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) * 1024 / 1e6


def write_memories(place: Path | SecretStr, texts: Sequence[str], embedder: str = QUICK, user: str = USER) -> None:
    """Write memories with their vectors into a ledger. Every hundredth has an agent."""
    fingerprint = open_named(embedder).fingerprint
    vectors = dict(zip(texts, made_vectors(embedder, texts), strict=True))
    with closing(open_ledger(place, now)) as ledger:
        for start in range(0, len(texts), FILL_BATCH):
            batch = texts[start : start + FILL_BATCH]
            for scope, part in (
                (Scope(user, agent_id=AGENT), batch[50::100]),
                (Scope(user), [text for number, text in enumerate(batch) if number % 100 != 50]),
            ):
                decisions = tuple(Decision(Event.ADD, Fact(text)) for text in part)
                known = {text: vectors[text] for text in part}
                ledger.apply(Write(scope, Provenance("fill"), decisions=decisions, vectors=known, embedder=fingerprint))


def fill(home: Path, texts: Sequence[str], embedder: str = QUICK) -> None:
    """Fill the data directory in `home` with memories, and build the index. One that is filled already stays."""
    done = home / f"filled-{embedder}-{len(texts)}"
    if done.exists():
        return
    (home / DATA).mkdir(parents=True, exist_ok=True)
    write_memories(home / DATA / "ledger.db", texts, embedder)
    anyio.run(rebuild, home / DATA, embedder)
    done.touch()


async def rebuild(data: Path, embedder: str) -> None:
    """Rebuild full text and index, as `palimpsest rebuild` does."""
    settings = load_settings(None, data_dir=data, user_id=USER, embedder={"provider": embedder})
    async with open_memory(settings, background=False) as memory:
        await memory.care.rebuild()


def in_turn(calls: Sequence[Callable[[Any], object]], arguments: Sequence[Any], warm_ups: int = 0) -> list[list[float]]:
    """Make all calls with each argument, each time another one first. Return the milliseconds after the warm-ups."""
    times: list[list[float]] = [[] for _ in calls]
    for number, argument in enumerate(arguments):
        for place in range(len(calls)):
            which = (number + place) % len(calls)
            began = time.perf_counter()
            calls[which](argument)
            times[which].append((time.perf_counter() - began) * 1000)
    return [each[warm_ups:] for each in times]


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share of all values lies."""
    ordered = sorted(values)
    return statistics.median(ordered) if share == 0.5 else ordered[int(share * len(ordered))]


def cell(value: object) -> str:
    """Return a number with three significant digits, the p50 and p95 of several, "-" for None, or a text as it is."""
    if value is None:
        return "-"
    if isinstance(value, list):
        values = cast("list[float]", value)
        return f"{cell(percentile(values, 0.5))} / {cell(percentile(values, 0.95))}" if values else "-"
    if isinstance(value, float):
        return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(head: Sequence[object], *rows: Sequence[object]) -> str:
    """Return a Markdown table."""
    lines = [[cell(value) for value in line] for line in (head, *rows)]
    lines.insert(1, ["---", *("---:" for _ in head[1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plotting() -> Any:
    """Return `matplotlib.pyplot`, which draws into files. It is not a dependency."""
    importlib.import_module("matplotlib").use("Agg")
    return importlib.import_module("matplotlib.pyplot")
