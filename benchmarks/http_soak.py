"""Call a server over HTTP a great many times and watch whether it grows: memory, open files, threads.

    python benchmarks/http_soak.py --calls 100000

Eight clients of a memory of 10,000 over streamable HTTP, each call on its way as soon as the one before is answered; of
a hundred calls 93 list, 5 search for eight words never seen before, 2 add. What a client adds replaces what it added
before, so that the memory stays as large as it is; the stores of words fill in the first third, and what grows after
that is a leak. Now and then a client leaves and another comes. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio
from mcp import Client

from speed import resident
from startup import fill

CLIENTS = 8
CALLS_OF_ONE = 500
"""Calls after which a client leaves and another comes."""

LOOKS = 10


@dataclass
class Tally:
    """Count the calls, and hold what was seen of the process: (calls, seconds, MB, open files, threads)."""

    wanted: int
    process_id: int
    since: float = field(default_factory=time.perf_counter)
    begun: Iterator[int] = field(default_factory=count)
    done: int = 0
    failed: int = 0
    seen: list[tuple[int, float, float, int, int]] = field(default_factory=list[tuple[int, float, float, int, int]])


@contextmanager
def listening(command: Sequence[str], env: Mapping[str, str]) -> Generator[tuple[str, int]]:
    """Run a server that says its URL on stderr; give that and its process id."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            told = process.stderr.readline() if process.stderr else ""
            yield told.split()[1].rstrip(","), process.pid
        finally:
            process.terminate()


@contextmanager
def served(folder: Path) -> Generator[tuple[str, int]]:
    """Run a server; give its URL and its process id."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    env |= {"PALIMPSEST_DATA_DIR": str(folder), "PALIMPSEST_HTTP__REQUESTS_PER_MINUTE": "100000000"}
    command = [sys.executable, "-m", "palimpsest", "serve", "--transport", "http", "--port", "0"]
    with listening(command, env) as reached:
        yield reached


def note(tally: Tally, *, well: bool) -> None:
    """Count a call, and ten times on the way look at what the system says of the process."""
    tally.failed += not well
    tally.done += 1
    if tally.done * LOOKS // tally.wanted > len(tally.seen):
        process = Path(f"/proc/{tally.process_id}")
        files, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
        spent = time.perf_counter() - tally.since
        tally.seen.append((tally.done, spent, resident(tally.process_id), files, threads))


async def call(client: Client, number: int, added: list[str]) -> bool:
    """Make one call and say whether it was answered well; `added` holds the id of what this client added last."""
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
    """Call, as one client after the other, until there have been enough calls."""
    while True:
        async with Client(url, mode="legacy") as client:
            added: list[str] = []
            for _ in range(CALLS_OF_ONE):
                number = next(tally.begun)
                if number >= tally.wanted:
                    return
                note(tally, well=await call(client, number, added))


async def soak(url: str, tally: Tally) -> None:
    """Let all clients call."""
    async with anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(work, url, tally)


def main() -> None:
    """Read the arguments, soak, print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000, help="how many in all (default 100,000)")
    parser.add_argument("--memories", type=int, default=10_000, help="how many there are before (default 10,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, options.memories)
        with served(folder) as (url, process_id):
            tally = Tally(options.calls, process_id)
            anyio.run(soak, url, tally)
    print("| calls | s | RSS, MB | open files | threads |\n| ---: | ---: | ---: | ---: | ---: |")
    for calls, seconds, memory, files, threads in tally.seen:
        print(f"| {calls:,} | {seconds:.0f} | {memory:.0f} | {files} | {threads} |")
    print(f"\n{tally.done:,} calls answered, {tally.failed} of them with an error")


if __name__ == "__main__":
    main()
