"""A process that has a ledger open, as another client has."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from palimpsest.core.clock import now
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store import memories
from palimpsest.store.apply import Write
from palimpsest.store.ledger import open_ledger
from tests.support.remote import Remote

ALICE = Scope("alice")


class _OpenLedger:
    def __init__(self, _pipe: object, path: Path) -> None:
        self._ledger = open_ledger(path, now)
        self.close = self._ledger.close

    def add(self, text: str) -> list[str]:
        decision = Decision(Event.ADD, Fact(text))
        self._ledger.apply(Write(ALICE, Provenance("test"), decisions=(decision,)))
        return self.list()

    def list(self) -> list[str]:
        with self._ledger.read() as conn:
            return sorted(memory.text for memory in memories.memories_of(conn, ALICE))


class LedgerProcess(Remote):
    """A process with an open ledger. Its methods return the texts of Alice's memories, sorted, or raise LedgerError."""

    def add(self, text: str) -> list[str]:
        """Add a memory."""
        return self.call("add", text)

    def list(self) -> list[str]:
        """List the memories."""
        return self.call("list")

    def close(self) -> None:
        """Close the ledger, as a process does that ends."""
        self.call("close")


@contextmanager
def ledger_process(path: Path) -> Generator[LedgerProcess]:
    """Start a process that opens a ledger, and kill it at the end, without closing the ledger unless that was done."""
    process = LedgerProcess(_OpenLedger, path)
    try:
        yield process
    finally:
        process.kill()
