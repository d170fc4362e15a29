"""A process that has a ledger open, as another client has, and does what a test tells it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from palimpsest.core.clock import now
from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store import memories
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger

ALICE = Scope("alice")


class LedgerProcess:
    """A process with an open ledger. Its methods return the texts of Alice's memories, sorted, or raise LedgerError."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        pipe.recv()  # it is open now

    def add(self, text: str) -> list[str]:
        """Add a memory."""
        return self._call("add", text)

    def list(self) -> list[str]:
        """List the memories."""
        return self._call("list")

    def close(self) -> None:
        """Close the ledger, as a process does that ends."""
        self._call("close")

    def _call(self, *request: str) -> Any:
        self._pipe.send(request)
        answer = self._pipe.recv()
        if isinstance(answer, LedgerError):
            raise answer
        return answer


@contextmanager
def ledger_process(path: Path) -> Generator[LedgerProcess]:
    """Start a process that opens a ledger, and kill it at the end, without closing the ledger unless that was done."""
    context = multiprocessing.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, path), daemon=True)
    process.start()
    there.close()
    try:
        yield LedgerProcess(pipe)
    finally:
        process.kill()
        process.join()
        pipe.close()


def _serve(pipe: Connection, path: Path) -> None:
    ledger = open_ledger(path, now)
    pipe.send(None)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            os._exit(0)  # nothing is closed
        try:
            pipe.send(_done(ledger, *request))
        except LedgerError as error:
            pipe.send(error)


def _done(ledger: Ledger, verb: str, text: str = "") -> list[str]:
    if verb == "close":
        ledger.close()
        return []
    if verb == "add":
        decision = Decision(Event.ADD, Fact(text))
        ledger.apply(Write(ALICE, Provenance("test"), decisions=(decision,)))
    with ledger.read() as conn:
        return sorted(memory.text for memory in memories.memories_of(conn, ALICE))
