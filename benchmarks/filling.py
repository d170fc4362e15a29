"""Fill a data directory with memories, run a server on it, and wait for its index."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedders import QUICK, made_vectors, open_named
from figures import Figures
from palimpsest.core.clock import now
from palimpsest.store import contextual_keys
from palimpsest.store.contextual_keys import Embedded
from palimpsest.store.entries import missing_vectors
from palimpsest.store.ledger import open_ledger
from sentences import Sentences, write_export
from startup import DATA, INITIALIZE, PALIMPSEST, Server

USER = "speed"
SETTLED = 2.0  # an index is ready if nothing changes in it for this many seconds
READY_WITHIN = 3600.0
SERVED_WITHIN = 3 * READY_WITHIN  # seconds after which a server is killed
GIVEN_AT_ONCE = 2_000


@dataclass(frozen=True)
class Filled:
    """A filled directory, its texts, the generator of questions and new memories, and the embedder."""

    home: Path
    memories: Sequence[str]
    sentences: Sentences
    embedder: str

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.home / DATA


@contextmanager
def serving(home: Path, **variables: str) -> Generator[tuple[Server, int]]:
    """Run Palimpsest on the data directory in `home`. Yield the server after the handshake, and its process id."""
    env = _environment(home) | variables
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(PALIMPSEST, bufsize=0, stdin=pipe, stdout=pipe, stderr=errors, cwd=home, env=env)
        watchdog = threading.Timer(SERVED_WITHIN, process.kill)
        watchdog.start()
        try:
            with process:
                server = Server(process, errors, began)
                server.request("initialize", INITIALIZE)
                server.notify("notifications/initialized")
                yield server, process.pid
        finally:
            watchdog.cancel()


def call(server: Server, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool and return its structured content. Raises RuntimeError if the tool reports an error."""
    result = server.request("tools/call", {"name": tool, "arguments": arguments})
    if result.get("isError"):
        raise RuntimeError(f"{tool} failed: {result['content']}")
    return result["structuredContent"]


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of Palimpsest on the data directory in `home`."""
    words = (sys.executable, "-m", "palimpsest", *arguments)
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home, env=_environment(home)
    )


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA)}


def fill(home: Path, memories: Sequence[str], embedder: str) -> Figures:
    """Import the memories into a new data directory, search for one of them, and let a server build the index.

    An import embeds nothing. With a quick embedder the server does it; with a slow one the ledger gets the vectors of
    `made_vectors` before the server starts.
    """
    shutil.rmtree(home / DATA, ignore_errors=True)
    figures = _imported(home, memories)
    known = memories[-1]
    if embedder != QUICK:
        _give_made_vectors(home, memories, embedder)
        known = memories[0]  # its vector is its own at any size
    with serving(home) as (server, _):
        called = time.perf_counter()
        hits = call(server, "search_memories", {"query": known})["results"]
        if not any(hit["text"] == known for hit in hits):
            raise RuntimeError(f"an imported memory was not found: {hits}")
        ready = wait_until_ready(home)
    return figures | {"background_seconds": ready - called}


def _give_made_vectors(home: Path, memories: Sequence[str], embedder: str) -> None:
    """Give the texts that wait for a vector those of `made_vectors`."""
    vectors = made_vectors(embedder, memories)
    fingerprint = open_named(embedder).fingerprint
    by_text = dict(zip(memories, vectors, strict=True))
    with closing(open_ledger(home / DATA / "ledger.db", now)) as ledger:
        last = 0
        while True:
            with ledger.read() as conn:
                batch = missing_vectors(conn, fingerprint, GIVEN_AT_ONCE, after=last)
            if not batch:
                return
            last = batch[-1].seq
            ledger.run(
                contextual_keys.give_vectors,
                ledger.full_text,
                fingerprint,
                [Embedded(entry.seq, entry.text, by_text[entry.text]) for entry in batch],
                ledger.clock(),
            )


def _imported(home: Path, memories: Sequence[str]) -> Figures:
    file = home / "memories.jsonl"
    write_export(file, USER, memories)
    began = time.perf_counter()
    process = command(home, "import", str(file), "--json")
    samples = _watched(process, home / DATA / "ledger.db", len(memories))
    out, errors = process.communicate()
    ended = time.perf_counter()
    if process.returncode or json.loads(out)["new"]["memory"] != len(memories):
        raise RuntimeError(f"the import failed: {out}{errors}")
    file.unlink()
    (first, first_rows), (last, rows) = samples[0], samples[-1]
    return {
        "import_seconds": ended - began,
        "import_rate": len(memories) / (ended - began),
        "ledger_rate": (rows - first_rows) / (last - first) if rows > first_rows else None,
        "after_ledger_seconds": ended - last,
    }


def _watched(process: subprocess.Popen[str], ledger: Path, expected_rows: int) -> list[tuple[float, int]]:
    """Watch a ledger while a command fills it. Return samples of (time, number of rows)."""
    samples: list[tuple[float, int]] = []
    while process.poll() is None and (not samples or samples[-1][1] < expected_rows):
        rows = _rows(ledger)
        if rows > (samples[-1][1] if samples else 0):
            samples.append((time.perf_counter(), rows))
        time.sleep(0.02)
    return samples or [(time.perf_counter(), expected_rows)]


def _rows(ledger: Path) -> int:
    """Return the number of the last memory. The file is closed at once: its writer must close it last."""
    if not ledger.with_name("ledger.db-wal").exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as conn:
            return conn.execute("SELECT max(seq) FROM memories").fetchone()[0] or 0
    except sqlite3.OperationalError:  # the table does not exist yet
        return 0


def wait_until_ready(home: Path) -> float:
    """Wait until `doctor` misses no vectors and the index is stable and up to date. Return when it last changed."""
    began = changed = time.perf_counter()
    previous: dict[Path, tuple[int, int]] = {}
    while time.perf_counter() < began + READY_WITHIN:
        time.sleep(0.1)
        current = _stamps(home / DATA / "index")
        if current != previous:
            previous, changed = current, time.perf_counter()
        elif current and time.perf_counter() > changed + SETTLED:
            out, _ = command(home, "doctor", "--json").communicate()
            findings = {finding["part"]: finding for finding in json.loads(out)["findings"]}
            is_indexed = "in use by a server, 0 changes behind" in findings["index"]["text"]
            if is_indexed and findings["vectors"]["ok"]:
                return changed
    raise RuntimeError(f"the index in {home} was not ready within {READY_WITHIN:.0f} s")


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    stamps: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Chroma deletes files meanwhile
            stamps[path] = (path.stat().st_size, path.stat().st_mtime_ns)
    return stamps


@contextmanager
def copied(filled: Filled) -> Generator[Path]:
    """Yield a folder with a copy of the filled directory, which may be changed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(filled.data, Path(folder) / DATA)
        yield Path(folder)
