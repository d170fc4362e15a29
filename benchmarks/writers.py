"""Let many processes add to one memory at the same time, and measure how long each add waits.

    python benchmarks/writers.py --clients 8 --seconds 30
    python benchmarks/writers.py --clients 8 --seconds 30 --ledger

Real servers share one data directory. Each adds one memory after the other, and one more server lists the newest
memories meanwhile. Every add must be acknowledged, and at the end every acknowledged text must be stored once.

With `--ledger`, processes without a server, an embedder or an index write to the ledger, which is then locked nearly
all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import anyio
import numpy as np
from mcp import Client
from mcp.types import TextContent

from clients import TOPICS, served
from palimpsest.core.clock import now
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store import memories
from palimpsest.store.apply import Write
from palimpsest.store.ledger import open_ledger

SCOPE = Scope("alice")

LIST_PAUSE = 0.05
"""Seconds between two lists, so that the lists do not take the machine from the adds. Set by hand."""


@dataclass
class Measured:
    """The seconds that each add and each list took, the texts that were acknowledged, and the faults."""

    adds: list[float] = field(default_factory=list[float])
    lists: list[float] = field(default_factory=list[float])
    texts: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])


async def run(folder: Path, clients: int, seconds: float) -> Measured:
    """Let clients add and one more list, for so many seconds, and then look for what was acknowledged."""
    measured = Measured()
    async with AsyncExitStack() as stack:
        adding = [await stack.enter_async_context(served(folder)) for _ in range(clients)]
        listing = await stack.enter_async_context(served(folder))
        async with anyio.create_task_group() as tasks:  # the first calls load the embedder and open the index
            for number, client in enumerate(adding):
                tasks.start_soon(_add, client, f"client {number} begins", Measured())
            tasks.start_soon(_list, listing, Measured())
        end = time.monotonic() + seconds
        async with anyio.create_task_group() as tasks:
            for number, client in enumerate(adding):
                tasks.start_soon(_add_until, client, number, end, measured)
            tasks.start_soon(_list_until, listing, end, measured)
    _look_for_all(folder / "data" / "ledger.db", measured)
    return measured


def run_on_ledger(folder: Path, clients: int, seconds: float) -> Measured:
    """Let processes write to the ledger itself and one more list, and then look for what was acknowledged."""
    path = folder / "ledger.db"
    open_ledger(path, now).close()
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", str(number), "--data", str(path), "--seconds", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(clients + 1)  # number 0 lists
    ]
    for worker in workers:
        cast("IO[str]", worker.stdout).readline()
    for worker in workers:
        stdin = cast("IO[str]", worker.stdin)
        stdin.write("begin\n")
        stdin.flush()
    outputs = [worker.communicate()[0] for worker in workers]
    measured = Measured(lists=json.loads(outputs[0]))
    for number, output in enumerate(outputs[1:], start=1):
        times = cast("list[float]", json.loads(output))
        measured.adds += times
        measured.texts += [_text(number, count) for count in range(len(times))]
    _look_for_all(path, measured)
    return measured


def work_on_ledger(path: Path, number: int, seconds: float) -> None:
    """Add memories, or list them if the number is 0, and print how long each call took."""
    times: list[float] = []
    with closing(open_ledger(path, now)) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            if number:
                fact = Fact(_text(number, len(times)))
                vectors = {fact.text: np.full(384, 384**-0.5, dtype=np.float32)}
                decisions = (Decision(Event.ADD, fact),)
                ledger.apply(Write(SCOPE, Provenance("add"), decisions=decisions, vectors=vectors, embedder="none"))
            else:
                with ledger.read() as conn:
                    memories.list_memories(conn, SCOPE, 20)
            times.append(time.monotonic() - began)
            if not number:
                time.sleep(LIST_PAUSE)
    print(json.dumps(times))


def _text(number: int, count: int) -> str:
    return f"{TOPICS[count % len(TOPICS)]}, note {number}-{count}"


async def _add_until(client: Client, number: int, end: float, measured: Measured) -> None:
    count = 0
    while time.monotonic() < end:
        count += 1
        await _add(client, _text(number, count), measured)


async def _add(client: Client, text: str, measured: Measured) -> None:
    seconds = await _timed(client, "add_memory", {"text": text}, measured)
    if seconds is not None:
        measured.adds.append(seconds)
        measured.texts.append(text)


async def _list_until(client: Client, end: float, measured: Measured) -> None:
    while time.monotonic() < end:
        await _list(client, measured)
        await anyio.sleep(LIST_PAUSE)


async def _list(client: Client, measured: Measured) -> None:
    seconds = await _timed(client, "list_memories", {}, measured)
    if seconds is not None:
        measured.lists.append(seconds)


async def _timed(client: Client, tool: str, arguments: dict[str, Any], measured: Measured) -> float | None:
    """Call a tool and return how many seconds it took, or None after a fault."""
    began = time.monotonic()
    result = await client.call_tool(tool, arguments)
    seconds = time.monotonic() - began
    if not result.is_error:
        return seconds
    measured.faults.append(" ".join(block.text for block in result.content if isinstance(block, TextContent)))
    return None


def _look_for_all(path: Path, measured: Measured) -> None:
    """Look in the ledger for every acknowledged text, which must be there once."""
    with closing(open_ledger(path, now)) as ledger, ledger.read() as conn:
        stored = Counter(memory.text for _, memory in memories.list_memories(conn, SCOPE, 1_000_000))
    measured.faults += [f"'{text}' is stored {stored[text]} times" for text in measured.texts if stored[text] != 1]


def row(name: str, seconds: list[float]) -> str:
    """Return a row of the table: the number of calls, and the median, the 99th percentile and the longest."""
    p50, p99 = np.percentile(seconds, (50, 99))
    return f"| {name} | {len(seconds)} | {p50:.3f} | {p99:.3f} | {max(seconds):.3f} |"


def main() -> None:
    """Run, print a table, and exit with 1 if an add failed or was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8, help="the number of servers that add (default 8)")
    parser.add_argument("--seconds", type=float, default=30, help="how long they add (default 30)")
    parser.add_argument("--ledger", action="store_true", help="write to the ledger itself, without servers")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work_on_ledger(options.data, options.worker, options.seconds)
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="palimpsest-writers-") as folder:
        if options.ledger:
            measured = run_on_ledger(Path(folder), options.clients, options.seconds)
        else:
            measured = anyio.run(run, Path(folder), options.clients, options.seconds)
    print("| call | calls | median | 99th percentile | longest |")
    print("|---|---|---|---|---|")
    print(row(f"add, {options.clients} at once", measured.adds))
    print(row("list beside them", measured.lists))
    print(f"Seconds. The load of the machine before the run was {load:.1f} on {os.cpu_count()} cores.")
    for fault in measured.faults[:20]:
        print(fault)
    sys.exit(1 if measured.faults else 0)


if __name__ == "__main__":
    main()
