"""Let many clients use one memory: real servers on one data directory, all writing and searching at the same time.

    python benchmarks/clients.py --clients 8 --operations 40

Every acknowledged write is searched for at once through another client: an added or updated text must be found there
exactly once, and a deleted one not at all. At the end all servers are closed, and a new one is asked for everything.
With `--store postgres` each server has a data directory of its own, and the ledger is in a PostgreSQL server.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

STORES = ("sqlite", "postgres")

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
    """The numbers of acknowledged writes, searches and faults. `faults` describes each fault."""

    acknowledged: int = 0
    searches: int = 0
    missing: int = 0
    twice: int = 0
    undeleted: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        """Return whether there were no faults."""
        return not (self.missing or self.twice or self.undeleted or self.errors)


def environment_of(folder: Path, user: str = "alice", ledger_url: str = "") -> dict[str, str]:
    """Return the environment of a server for a user. Its data are in the folder, or its ledger is at a URL."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    settings = {"HOME": str(folder), "PALIMPSEST_DATA_DIR": str(folder / "data"), "PALIMPSEST_USER_ID": user}
    return {**inherited, **settings, **({"PALIMPSEST_LEDGER_URL": ledger_url} if ledger_url else {})}


@asynccontextmanager
async def served(folder: Path, ledger_url: str = "") -> AsyncGenerator[Client]:
    """Start a server on the folder, and yield a client that is connected to it."""
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "palimpsest"], env=environment_of(folder, ledger_url=ledger_url), cwd=folder
    )
    async with Client(server) as client:
        yield client


@contextmanager
def database_url(folder: Path) -> Generator[str]:
    """Run a PostgreSQL server with its data in a folder, and yield the address of a new database."""
    from postgresql import own_cluster  # noqa: PLC0415 - needs an extra, and only PostgreSQL does

    folder.chmod(0o755)  # the server runs as another user
    with own_cluster(folder / "postgresql") as cluster:
        cluster.create_database("ledger")
        yield cluster.url("ledger")


async def run(folder: Path, clients: int, operations: int, seed: int, ledger_url: str = "") -> Tally:
    """Let clients work on one memory, then check it with a new client.

    With a URL each server has a folder of its own, as on a machine of its own, and the ledger is there.
    """
    tally = Tally()
    living: dict[str, str] = {}
    deleted: list[str] = []

    def place(number: int) -> Path:
        return folder / str(number) if ledger_url else folder

    async with AsyncExitStack() as stack:
        connected = [await stack.enter_async_context(served(place(n), ledger_url)) for n in range(clients)]
        async with anyio.create_task_group() as tasks:
            for number in range(clients):
                worker = _Worker(connected, number, random.Random(seed + number), tally, living, deleted)  # noqa: S311 - not a secret
                tasks.start_soon(worker.work, operations)
        await _same_moment(connected, tally)
    async with served(place(clients), ledger_url) as survivor:
        for text in living.values():
            await _expect(survivor, text, 1, tally, "a new process")
        for text in deleted:
            await _expect(survivor, text, 0, tally, "a new process")
    return tally


@dataclass
class _Worker:
    """A worker that writes through one client and checks each write through another client."""

    connected: list[Client]
    number: int
    rng: random.Random
    tally: Tally
    living: dict[str, str]
    deleted: list[str]
    own: list[str] = field(default_factory=list[str])

    async def work(self, operations: int) -> None:
        for _ in range(operations):
            await self.rng.choice((self.add, self.add, self.update, self.delete))()

    async def add(self) -> None:
        text = self.text()
        reply = await _call(self.connected[self.number], "add_memory", {"text": text}, self.tally)
        if reply is not None:
            memory_id = reply["results"][0]["id"]
            self.own.append(memory_id)
            self.living[memory_id] = text
            await _expect(self.other(), text, 1, self.tally, f"client {self.number} added")

    async def update(self) -> None:
        if not self.own:
            return
        memory_id, text = self.rng.choice(self.own), self.text()
        arguments = {"memory_id": memory_id, "text": text}
        if await _call(self.connected[self.number], "update_memory", arguments, self.tally) is not None:
            old_text, self.living[memory_id] = self.living[memory_id], text
            self.deleted.append(old_text)
            await _expect(self.other(), text, 1, self.tally, f"client {self.number} updated")
            await _expect(self.other(), old_text, 0, self.tally, f"client {self.number} updated")

    async def delete(self) -> None:
        if not self.own:
            return
        memory_id = self.own.pop(self.rng.randrange(len(self.own)))
        arguments = {"memory_ids": [memory_id]}
        if await _call(self.connected[self.number], "delete_memory", arguments, self.tally) is not None:
            text = self.living.pop(memory_id)
            self.deleted.append(text)
            await _expect(self.other(), text, 0, self.tally, f"client {self.number} deleted")

    def text(self) -> str:
        return f"{self.rng.choice(TOPICS)}, note q{uuid.UUID(int=self.rng.getrandbits(128)).hex[:10]}"

    def other(self) -> Client:
        return self.connected[(self.number + self.rng.randrange(1, len(self.connected))) % len(self.connected)]


async def _same_moment(connected: list[Client], tally: Tally) -> None:
    """Let all clients add the same text at the same moment. One adds it, and the others find that it exists."""
    events: list[str] = []

    async def add(client: Client) -> None:
        reply = await _call(client, "add_memory", {"text": "Every client says just this, note qsame"}, tally)
        events.extend(result["event"] for result in (reply or {"results": []})["results"])

    async with anyio.create_task_group() as tasks:
        for client in connected:
            tasks.start_soon(add, client)
    if events.count("ADD") != 1:
        tally.twice += 1
        tally.faults.append(f"identical adds gave {events}")


async def _expect(client: Client, text: str, expected_hits: int, tally: Tally, event: str) -> None:
    """Search for a text, which contains a unique word, and count how often it is among the results."""
    reply = await _call(client, "search_memories", {"query": text, "limit": 20, "max_tokens": 2000}, tally)
    tally.searches += 1
    if reply is None:
        return
    hits = sum(hit["text"] == text for hit in reply["results"])
    if hits == expected_hits:
        return
    tally.missing += hits < expected_hits
    tally.twice += hits > expected_hits > 0
    tally.undeleted += hits > expected_hits == 0
    tally.faults.append(f"{event}: '{text}' was found {hits} times instead of {expected_hits}")


async def _call(client: Client, tool: str, arguments: dict[str, Any], tally: Tally) -> dict[str, Any] | None:
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        tally.errors += 1
        error_text = " ".join(block.text for block in result.content if isinstance(block, TextContent))
        tally.faults.append(f"{tool}: {error_text}")
        return None
    tally.acknowledged += tool != "search_memories"
    return result.structured_content


def main() -> None:
    """Run, print a table, and exit with 1 if there were faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8, help="the number of clients (default 8)")
    parser.add_argument("--operations", type=int, default=40, help="the operations of each client (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices (default 0)")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="where the ledger is (default sqlite)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palimpsest-clients-")))
        url = stack.enter_context(database_url(folder)) if options.store == "postgres" else ""
        tally = anyio.run(run, folder, options.clients, options.operations, options.seed, url)
    print(
        "| clients | acknowledged writes | searches by others | not found | found twice | "
        "found after deletion | errors |"
    )
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {options.clients} | {tally.acknowledged} | {tally.searches} | {tally.missing} | {tally.twice} | "
        f"{tally.undeleted} | {tally.errors} |"
    )
    for fault in tally.faults[:20]:
        print(fault)
    sys.exit(0 if tally.clean else 1)


if __name__ == "__main__":
    main()
