"""Call a server over HTTP many times and check that its memory, open files and threads do not grow.

    python benchmarks/http_soak.py --calls 100000

Eight clients call a memory of 10,000 over streamable HTTP. Each sends its next call when the last one is answered. Of
100 calls, 93 list, 5 search for eight words that were never used before, and 2 add. An added memory replaces the one
that the same client added before, so the memory keeps its size. The word caches fill in the first third; growth after
that is a leak. After some calls, a client disconnects and another one connects. Linux only, because it reads /proc.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio
from mcp import Client

from harness import OVER_HTTP, environment, fill, listening, parser_of, resident, table
from sentences import Sentences

CLIENTS = 8

# The number of calls after which a client disconnects and another one connects.
CALLS_OF_ONE = 500

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
    samples: list[tuple[int, int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int, int]])

    def note(self, *, failed: bool) -> None:
        """Count a call. After each tenth of all calls, take a sample of the process."""
        self.failed += failed
        self.finished += 1
        if self.finished * SAMPLES // self.calls > len(self.samples):
            process = Path(f"/proc/{self.process_id}")
            files, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
            seconds = round(time.perf_counter() - self.started_at)
            self.samples.append((self.finished, seconds, round(resident(self.process_id)), files, threads))


async def call(client: Client, number: int, added: list[str]) -> bool:
    """Make one call and return whether it failed. `added` holds the id of the memory this client added last."""
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
    return result.is_error is True


async def work(url: str, tally: Tally) -> None:
    """Make calls, as one client after the other, until there have been enough."""
    while True:
        async with Client(url, mode="legacy") as client:
            added: list[str] = []
            for _ in range(CALLS_OF_ONE):
                number = next(tally.started)
                if number >= tally.calls:
                    return
                tally.note(failed=await call(client, number, added))


async def soak(url: str, tally: Tally) -> None:
    """Run all clients at the same time."""
    async with anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(work, url, tally)


def main() -> None:
    """Read the arguments, fill a memory, make the calls, and print the samples. Exit with 1 if a call failed."""
    parser = parser_of(__doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="the number of all calls (default 100,000)")
    parser.add_argument(
        "--memories", type=int, default=10_000, help="the number of memories stored before (default 10,000)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        fill(home, Sentences(1).memories(options.memories), "local")
        with listening((*OVER_HTTP, "http"), home, environment(home, http__requests_per_minute="100000000")) as server:
            tally = Tally(options.calls, server.process_id)
            anyio.run(soak, f"{server.base}/mcp", tally)
    print(table(("calls", "s", "RSS, MB", "open files", "threads"), *tally.samples))
    print(f"\n{tally.finished:,} calls answered, {tally.failed} of them with an error")
    sys.exit(tally.failed > 0)


if __name__ == "__main__":
    main()
