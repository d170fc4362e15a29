"""Look into the files of a memory, and run a process that writes to it all the time."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from palimpsest.store.ledger import open_ledger
from tests.support.memory import ALICE, StoppedClock
from tests.support.stores import ledger_address, ledger_argument, ledger_tables

Rows: TypeAlias = dict[str, list[dict[str, Any]]]

TABLES = (
    "messages",
    "message_history",
    "memories",
    "history",
    "memory_sources",
    "summaries",
    "vectors",
    "means",
    "lexical",
    "entities",
    "entity_aliases",
    "entity_history",
    "mentions",
    "relations",
)

HOME = Path(__file__).parents[2]

# How many bytes in a row of a text betray what it says.
WINDOW = 20

KEEP_WRITING = """
import sys, threading
from datetime import UTC, datetime
import numpy as np
from palimpsest.store.ledger import open_ledger
from palimpsest.store.apply import Write
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from tests.support.stores import ledger_place

over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
ledger, number = open_ledger(ledger_place(sys.argv[1]), lambda: datetime.now(UTC)), 0
while not over.is_set():
    text = f"the writer's fact number {number}"
    vectors = {text: np.full(16, 0.25, dtype=np.float32)}
    decisions = (Decision(Event.ADD, Fact(text)),)
    ledger.apply(Write(Scope("alice"), Provenance("test"), decisions=decisions, vectors=vectors, embedder="writer"))
    print(text, flush=True)
    number += 1
ledger.close()
"""


def table_rows(path: Path, *more: str) -> Rows:
    """Return the rows of a ledger's tables as they are stored, in order."""
    address = ledger_address(path)
    if not isinstance(address, Path):
        with closing(open_ledger(address, StoppedClock())) as ledger, ledger.read() as conn:
            read = {table: conn.exec_driver_sql(f"SELECT * FROM {table}") for table in (*TABLES, *more)}  # noqa: S608 - as below
            return {table: _in_order([dict(row) for row in rows.mappings()]) for table, rows in read.items()}
    with closing(sqlite3.connect(path)) as conn:
        conn.row_factory = sqlite3.Row
        tables = ((table, conn.execute(f"SELECT rowid AS number, * FROM {table}")) for table in (*TABLES, *more))  # noqa: S608 - names of our own
        return {table: [dict(row) for row in rows] for table, rows in tables}


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by their number, or, if they have none, always in the same order."""
    numbered = [{"number": row.get("seq"), **row} for row in rows]
    return sorted(numbered, key=lambda row: (row["number"] or 0, repr(row)))


def data_files(folder: Path) -> set[Path]:
    """Return the files under a folder, without lock files and what SQLite keeps only while a database is open."""
    temporary = {".lock", ".probe", ".migrating", ".copying"}
    return {
        file
        for file in folder.rglob("*")
        if file.is_file() and file.suffix not in temporary and not file.name.endswith(("-wal", "-shm"))
    }


def run_sql(path: Path, statements: str) -> None:
    """Run SQL statements on a ledger, past all checks."""
    address = ledger_address(path)
    if not isinstance(address, Path):
        with closing(open_ledger(address, StoppedClock())) as ledger, ledger.read() as conn, conn.engine.begin() as own:
            own.exec_driver_sql(statements, execution_options={"no_parameters": True})
        return
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(statements)
        conn.commit()


def files_with_part_of(folder: Path, *texts: str | bytes) -> set[Path]:
    """Return the files of a folder and the tables of its ledgers that contain 20 bytes in a row of one of the texts."""
    files: set[Path] = set()
    pieces = set[bytes]()
    for text in texts:
        raw = text.encode() if isinstance(text, str) else text
        step = max(1, len(raw) // 400)  # of a long text, several pieces of every page are enough
        pieces |= {raw[at : at + WINDOW] for at in range(0, max(1, len(raw) - WINDOW + 1), step)} | {raw[-WINDOW:]}
    for file, data in _contents(folder):
        files |= {file} if any(piece in data for piece in pieces) else set()
    return files


def files_with(folder: Path, *texts: str, ignore: Iterable[Path] = ()) -> set[Path]:
    """Return the files under a folder, and the tables of its ledgers, that contain one of the texts as a whole."""
    kept = set(ignore)
    return {file for file, data in _contents(folder) if file not in kept for text in texts if text.encode() in data}


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file under a folder and every table of its ledgers."""
    yield from ((file, file.read_bytes()) for file in sorted(folder.rglob("*")) if file.is_file())
    yield from ledger_tables(folder).items()


async def search_texts(memory: Memory, question: str, scope: Scope = ALICE) -> list[str]:
    """Return the texts of the hits of a search, best first."""
    return [hit.text for hit in (await memory.search(scope, question, limit=50, max_tokens=20_000)).hits]


class WriterProcess:
    """A process that adds one memory of Alice's after another. `acknowledged` are the texts it has stored."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.acknowledged: list[str] = []
        self._stored = threading.Condition()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until that many more are stored."""
        with self._stored:
            target = len(self.acknowledged) + more
            assert self._stored.wait_for(lambda: len(self.acknowledged) >= target, timeout=60)

    def end(self) -> None:
        """Let the process finish its write and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._thread.join()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._stored:
                self.acknowledged.append(line.rstrip("\n"))
                self._stored.notify_all()


@contextmanager
def run_writer(path: Path) -> Generator[WriterProcess]:
    """Run a process that writes to a ledger until the block ends."""
    arguments = [sys.executable, "-c", KEEP_WRITING, ledger_argument(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HOME) as process:
        writer = WriterProcess(process)
        try:
            yield writer
        finally:
            writer.end()
    assert process.returncode == 0


async def repeat_until(done: Callable[[], bool], work: Callable[[], Any]) -> None:
    """Repeat some work until the background work that it starts is done."""
    async with asyncio.timeout(60):
        while not done():
            await work()
