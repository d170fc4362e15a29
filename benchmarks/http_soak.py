"""Call a server over HTTP many times and check that its memory, open files and threads do not grow.

    python benchmarks/http_soak.py --calls 100000

Eight clients call a memory of 10,000 over streamable HTTP. Each sends its next call when the last one is answered. Of
100 calls, 93 list, 5 search for eight words that were never used before, and 2 add. An added memory replaces the one
that the same client added before, so the memory keeps its size. The word caches fill in the first third; growth after
that is a leak. After some calls, a client disconnects and another one connects. Linux only, because it reads /proc.

    python benchmarks/http_soak.py --hostile

Fifty honest clients add and search, in turn alone and beside the attackers of `attackers.py`; see `hostile_soak.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio
from mcp import Client

import hostile_soak
from embedders import resident
from palimpsest.core.settings import load_settings
from startup import fill

CLIENTS = 8
CALLS_OF_ONE = 500
"""The number of calls after which a client disconnects and another one connects."""

SAMPLES = 10


@dataclass
class Tally:
    """The numbers of calls, and samples of the process: (calls, seconds, MB, open files, threads)."""

    calls: int
    process_id: int
    started_at: float = field(default_factory=time.perf_counter)
    started: Iterator[int] = field(default_factory=count)
    finished: int = 0
    failed: int = 0
    samples: list[tuple[int, float, float, int, int]] = field(default_factory=list[tuple[int, float, float, int, int]])


@contextmanager
def listening(command: Sequence[str], env: Mapping[str, str]) -> Generator[tuple[str, int]]:
    """Run a server that prints its URL on stderr. Yield the URL and the process id."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            # Read on, because a server whose log nobody reads stops when the pipe is full.
            threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
            yield line.split()[1].rstrip(","), process.pid
        finally:
            process.terminate()


@contextmanager
def served(folder: Path, transport: str, **settings: str) -> Generator[tuple[str, int]]:
    """Run Palimpsest on a data directory. Yield its URL and its process id."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    env |= {"PALIMPSEST_DATA_DIR": str(folder), **settings}
    command = [sys.executable, "-m", "palimpsest", "serve", "--transport", transport, "--port", "0"]
    with listening(command, env) as server:
        yield server


def note(tally: Tally, *, succeeded: bool) -> None:
    """Count a call. After each tenth of all calls, take a sample of the process."""
    tally.failed += not succeeded
    tally.finished += 1
    if tally.finished * SAMPLES // tally.calls > len(tally.samples):
        process = Path(f"/proc/{tally.process_id}")
        files, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
        seconds = time.perf_counter() - tally.started_at
        tally.samples.append((tally.finished, seconds, resident(tally.process_id), files, threads))


async def call(client: Client, number: int, added: list[str]) -> bool:
    """Make one call and return whether it succeeded. `added` holds the id of the memory this client added last."""
    if number % 50 == 0:
        arguments = {"text": f"User counted to {number}", "infer": False, "replaces": list(added)}
        result = await client.call_tool("add_memory", arguments)
        if not result.is_error:
            added[:] = [result.structured_content["results"][0]["id"]]
    elif number % 20 == 1:
        words = " ".join(f"{number}{letter}" for letter in "abcdefgh")
        result = await client.call_tool("search_memories", {"query": f"How far did the user count near {words}?"})
    else:
        result = await client.call_tool("list_memories", {"limit": 3})
    return not result.is_error


async def work(url: str, tally: Tally) -> None:
    """Make calls, as one client after the other, until there have been enough."""
    while True:
        async with Client(url, mode="legacy") as client:
            added: list[str] = []
            for _ in range(CALLS_OF_ONE):
                number = next(tally.started)
                if number >= tally.calls:
                    return
                note(tally, succeeded=await call(client, number, added))


async def soak(url: str, tally: Tally) -> None:
    """Run all clients at the same time."""
    async with anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(work, url, tally)


def soak_hostile(folder: Path, seconds: float, phases: int) -> None:
    """Run honest clients and attackers, and print what was measured."""
    user = load_settings(data_dir=folder).user_id
    hostile_soak.token(folder, user)  # from the start, the server demands one
    with served(folder, "all") as (url, process_id):
        base = url.rsplit("/", 1)[0]
        soaked = anyio.run(hostile_soak.run, folder, base, process_id, user, seconds, phases)
        peak = hostile_soak.peak_resident(process_id)
    hostile_soak.report(soaked, anyio.run(hostile_soak.lost, folder, user, soaked.acknowledged), peak)


def soak_calls(folder: Path, calls: int) -> None:
    """Make calls, and print the samples."""
    with served(folder, "http", PALIMPSEST_HTTP__REQUESTS_PER_MINUTE="100000000") as (url, process_id):
        tally = Tally(calls, process_id)
        anyio.run(soak, url, tally)
    print("| calls | s | RSS, MB | open files | threads |\n| ---: | ---: | ---: | ---: | ---: |")
    for number, seconds, memory, files, threads in tally.samples:
        print(f"| {number:,} | {seconds:.0f} | {memory:.0f} | {files} | {threads} |")
    print(f"\n{tally.finished:,} calls answered, {tally.failed} of them with an error")


def main() -> None:
    """Read the arguments, fill a memory, and run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000, help="the number of all calls (default 100,000)")
    parser.add_argument(
        "--memories", type=int, default=10_000, help="the number of memories stored before (default 10,000)"
    )
    parser.add_argument("--hostile", action="store_true", help="measure honest clients beside attackers")
    parser.add_argument("--seconds", type=float, default=60, help="how long each phase takes, if hostile (default 60)")
    parser.add_argument("--phases", type=int, default=4, help="phases of each kind, if hostile (default 4)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, options.memories)
        if options.hostile:
            soak_hostile(folder, options.seconds, options.phases)
        else:
            soak_calls(folder, options.calls)


if __name__ == "__main__":
    main()
