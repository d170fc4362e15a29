"""A process that has a ledger open and does what a test tells it, line by line.

    python ledger_process.py PATH

It reads `add TEXT`, `list` and `close`, and answers each with a line of JSON: the texts of Alice's memories, or an
object with the error. With the end of its input it ends without closing anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from palimpsest.core.clock import now
from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store import memories
from palimpsest.store.apply import Write
from palimpsest.store.ledger import open_ledger


class LedgerProcess:
    """A process with an open ledger. Its methods return the texts of Alice's memories, sorted, or raise LedgerError."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def add(self, text: str) -> list[str]:
        """Add a memory."""
        return self._call(f"add {text}")

    def list(self) -> list[str]:
        """List the memories."""
        return self._call("list")

    def close(self) -> list[str]:
        """Close the ledger, as a process does that ends."""
        return self._call("close")

    def end(self) -> None:
        """End the process without closing the ledger, unless that was done."""
        self._process.kill()
        self._process.communicate()

    def _call(self, line: str) -> list[str]:
        stdin = cast("IO[str]", self._process.stdin)
        stdin.write(f"{line}\n")
        stdin.flush()
        return self._read()

    def _read(self) -> list[str]:
        answer = json.loads(cast("IO[str]", self._process.stdout).readline())
        if isinstance(answer, list):
            return cast("list[str]", answer)
        raise LedgerError(answer["error"])


@contextmanager
def ledger_process(path: Path) -> Generator[LedgerProcess]:
    """Start a process that opens a ledger, and kill it at the end."""
    process = LedgerProcess(path)
    try:
        yield process
    finally:
        process.end()


def _serve(path: Path) -> None:
    ledger, alice = open_ledger(path, now), Scope("alice")
    _say([])
    for line in sys.stdin:
        command, _, text = line.strip().partition(" ")
        texts: list[str] = []
        try:
            if command == "add":
                ledger.apply(Write(alice, Provenance("test"), decisions=(Decision(Event.ADD, Fact(text)),)))
            if command == "close":
                ledger.close()
            else:
                with ledger.read() as conn:
                    texts = sorted(memory.text for _, memory in memories.list_memories(conn, alice, 1_000))
            _say(texts)
        except LedgerError as error:
            _say({"error": str(error)})
    os._exit(0)


def _say(answer: object) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
