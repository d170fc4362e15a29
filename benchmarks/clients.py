"""Many clients, one memory: real servers over one data directory, all writing and searching at once.

    python benchmarks/clients.py --clients 8 --operations 40

Every acknowledged write is looked for at once through another client's search: an added or updated text has to be
found there once, a deleted one not at all. At the end all servers are closed and one new one is asked for everything.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

TOPICS = (
    "User's sister plays the harp in an orchestra",
    "The staging database moved to a machine in Oslo",
    "User prefers tea without sugar in the morning",
    "The release train leaves every second Tuesday",
    "User is allergic to hazelnuts and walnuts",
    "Deployments want a green build and two reviews",
)


@dataclass
class Tally:
    """Count what was acknowledged and what went wrong; `faults` names each, the first ones in full."""

    acknowledged: int = 0
    searches: int = 0
    missing: int = 0
    twice: int = 0
    risen: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        """Say whether nothing went wrong."""
        return not (self.missing or self.twice or self.risen or self.errors)


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Client]:
    """Start a server over the folder and connect a client to it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    settings = {"HOME": str(folder), "PALIMPSEST_DATA_DIR": str(folder / "data"), "PALIMPSEST_USER_ID": "alice"}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "palimpsest"], env={**plain, **settings}, cwd=folder
    )
    async with Client(server) as client:
        yield client


async def run(folder: Path, clients: int, operations: int, seed: int) -> Tally:
    """Let clients work on one memory, then look at it with a new one."""
    tally = Tally()
    living: dict[str, str] = {}
    gone: list[str] = []
    async with AsyncExitStack() as stack:
        connected = [await stack.enter_async_context(served(folder)) for _ in range(clients)]
        async with anyio.create_task_group() as tasks:
            for number in range(clients):
                worker = _Worker(connected, number, random.Random(seed + number), tally, living, gone)  # noqa: S311 - a script, no secret
                tasks.start_soon(worker.work, operations)
        await _same_moment(connected, tally)
    async with served(folder) as survivor:
        for text in living.values():
            await _expect(survivor, text, 1, tally, "a new process")
        for text in gone:
            await _expect(survivor, text, 0, tally, "a new process")
    return tally


@dataclass
class _Worker:
    """Write through one client, and look through another whether it is there."""

    connected: list[Client]
    number: int
    chance: random.Random
    tally: Tally
    living: dict[str, str]
    gone: list[str]
    own: list[str] = field(default_factory=list[str])

    async def work(self, operations: int) -> None:
        for _ in range(operations):
            await self.chance.choice((self.add, self.add, self.update, self.delete))()

    async def add(self) -> None:
        text = self.text()
        found = await _call(self.connected[self.number], "add_memory", {"text": text}, self.tally)
        if found is not None:
            memory_id = found["results"][0]["id"]
            self.own.append(memory_id)
            self.living[memory_id] = text
            await _expect(self.other(), text, 1, self.tally, f"client {self.number} added")

    async def update(self) -> None:
        if not self.own:
            return
        memory_id, text = self.chance.choice(self.own), self.text()
        arguments = {"memory_id": memory_id, "text": text}
        if await _call(self.connected[self.number], "update_memory", arguments, self.tally) is not None:
            before, self.living[memory_id] = self.living[memory_id], text
            self.gone.append(before)
            await _expect(self.other(), text, 1, self.tally, f"client {self.number} updated")
            await _expect(self.other(), before, 0, self.tally, f"client {self.number} updated")

    async def delete(self) -> None:
        if not self.own:
            return
        memory_id = self.own.pop(self.chance.randrange(len(self.own)))
        arguments = {"memory_ids": [memory_id]}
        if await _call(self.connected[self.number], "delete_memory", arguments, self.tally) is not None:
            text = self.living.pop(memory_id)
            self.gone.append(text)
            await _expect(self.other(), text, 0, self.tally, f"client {self.number} deleted")

    def text(self) -> str:
        return f"{self.chance.choice(TOPICS)}, note q{uuid.UUID(int=self.chance.getrandbits(128)).hex[:10]}"

    def other(self) -> Client:
        return self.connected[(self.number + self.chance.randrange(1, len(self.connected))) % len(self.connected)]


async def _same_moment(connected: list[Client], tally: Tally) -> None:
    """Let every client add the same text at the same moment: one of them adds, the others find it there."""
    events: list[str] = []

    async def add(client: Client) -> None:
        found = await _call(client, "add_memory", {"text": "Every client says just this, note qsame"}, tally)
        events.extend(result["event"] for result in (found or {"results": []})["results"])

    async with anyio.create_task_group() as tasks:
        for client in connected:
            tasks.start_soon(add, client)
    if events.count("ADD") != 1:
        tally.twice += 1
        tally.faults.append(f"identical adds gave {events}")


async def _expect(client: Client, text: str, times: int, tally: Tally, when: str) -> None:
    """Search by another client for the word that only this text has, and count how often the text comes."""
    found = await _call(client, "search_memories", {"query": text, "limit": 20, "max_tokens": 2000}, tally)
    tally.searches += 1
    if found is None:
        return
    seen = sum(hit["text"] == text for hit in found["results"])
    if seen == times:
        return
    tally.missing += seen < times
    tally.twice += seen > times > 0
    tally.risen += seen > times == 0
    tally.faults.append(f"{when}: '{text}' was found {seen} times instead of {times}")


async def _call(client: Client, tool: str, arguments: dict[str, Any], tally: Tally) -> dict[str, Any] | None:
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        tally.errors += 1
        said = " ".join(block.text for block in result.content if isinstance(block, TextContent))
        tally.faults.append(f"{tool}: {said}")
        return None
    tally.acknowledged += tool != "search_memories"
    return result.structured_content


def main() -> None:
    """Run, print a table, and exit with 1 if anything went wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--operations", type=int, default=40, help="of each client")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="palimpsest-clients-") as folder:
        tally = anyio.run(run, Path(folder), given.clients, given.operations, given.seed)
    print("| clients | acknowledged writes | searches by others | not found | twice | after deletion | errors |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {given.clients} | {tally.acknowledged} | {tally.searches} | {tally.missing} | {tally.twice} | "
        f"{tally.risen} | {tally.errors} |"
    )
    for fault in tally.faults[:20]:
        print(fault)
    sys.exit(0 if tally.clean else 1)


if __name__ == "__main__":
    main()
