"""What the tests of purge, backups, export and repair look at: rows, faults, bytes; and a process that writes on."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from tests.support.memory import ALICE

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
)

WINDOW = 20
"""So many bytes of a text, or so many of its end, are enough to know what it said."""

KEEP_WRITING = """
import sys, threading
from datetime import UTC, datetime
from pathlib import Path
import numpy as np
from palimpsest.store.ledger import open_ledger
from palimpsest.store.writes.apply import Write
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope

over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
ledger, number = open_ledger(Path(sys.argv[1]), lambda: datetime.now(UTC)), 0
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
    """Return the rows of a ledger's tables, in order, as SQLite has them."""
    with closing(sqlite3.connect(path)) as conn:
        conn.row_factory = sqlite3.Row
        tables = ((table, conn.execute(f"SELECT rowid AS number, * FROM {table}")) for table in (*TABLES, *more))  # noqa: S608 - names of our own
        return {table: [dict(row) for row in rows] for table, rows in tables}


def data_files(folder: Path) -> set[Path]:
    """Return the files under a folder, but for what locks and SQLite's shared memory leave there."""
    passing = {".lock", ".probe", ".migrating", ".copying"}
    return {
        file
        for file in folder.rglob("*")
        if file.is_file() and file.suffix not in passing and not file.name.endswith(("-wal", "-shm"))
    }


def run_sql(path: Path, statements: str) -> None:
    """Change a ledger behind its back."""
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(statements)
        conn.commit()


def files_with_part_of(folder: Path, *texts: str | bytes) -> set[Path]:
    """Return the files under a folder that hold 20 bytes in a row of one of the texts."""
    found: set[Path] = set()
    wanted = set[bytes]()
    for text in texts:
        raw = text.encode() if isinstance(text, str) else text
        step = max(1, len(raw) // 400)  # of a long one not every run is tried, but several of every page
        wanted |= {raw[at : at + WINDOW] for at in range(0, max(1, len(raw) - WINDOW + 1), step)} | {raw[-WINDOW:]}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            found |= {file} if any(each in data for each in wanted) else set()
    return found


def files_with(folder: Path, *texts: str, but: Iterable[Path] = ()) -> set[Path]:
    """Return the files under a folder that hold one of the texts as a whole."""
    files = {file for file in folder.rglob("*") if file.is_file()} - set(but)
    return {file for file in files for text in texts if text.encode() in file.read_bytes()}


async def search_texts(memory: Memory, question: str, scope: Scope = ALICE) -> list[str]:
    """Return the texts that a search finds, best first."""
    return [hit.text for hit in (await memory.search(scope, question, limit=50, max_tokens=20_000)).hits]


class WriterProcess:
    """A process that adds one memory of alice's after the other; `acknowledged` are those it said were stored."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.acknowledged: list[str] = []
        self._came = threading.Condition()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until so many more were stored."""
        with self._came:
            wanted = len(self.acknowledged) + more
            assert self._came.wait_for(lambda: len(self.acknowledged) >= wanted, timeout=60)

    def end(self) -> None:
        """Let it finish what it is writing and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._thread.join()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self.acknowledged.append(line.rstrip("\n"))
                self._came.notify_all()


@contextmanager
def run_writer(path: Path) -> Generator[WriterProcess]:
    """Give a process that writes to a ledger all the time."""
    arguments = [sys.executable, "-c", KEEP_WRITING, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        writer = WriterProcess(process)
        try:
            yield writer
        finally:
            writer.end()
    assert process.returncode == 0


async def repeat_until(done: Callable[[], bool], work: Callable[[], Any]) -> None:
    """Do work, again and again, until that has led to something; what leads to it goes on in the background."""
    async with asyncio.timeout(60):
        while not done():
            await work()
