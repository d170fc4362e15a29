"""Read and write a ledger past the facade, for what the facade has no way to do: another writer, exact rows, faults."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection
from sqlalchemy import text as sql

from palimpsest.core.models import AppliedWrite, Decision, Event, Fact, Message, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.index.sync import Checkpoint
from palimpsest.memory import Memory
from palimpsest.store import entries, verify
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.sqlite import sqlite_database
from tests.support.memory import ALICE, StoppedClock, messages_from
from tests.support.stores import ledger_address


def index_follows(memory: Memory, folder: Path) -> bool:
    """Return whether the index in a folder is up to date with the ledger."""
    checkpoint = Checkpoint.read(folder)
    with memory.engine.ledger.read() as conn:
        return (
            checkpoint is not None
            and checkpoint.is_valid(memory.projection.initial_checkpoint, conn)
            and checkpoint.log_number == entries.newest_log_number(conn)
        )


def ignore_progress(_done: int, _total: int) -> None:
    """Ignore progress reports."""


@contextmanager
def ledger_in(folder: Path) -> Generator[Ledger]:
    """Open the ledger of a folder, beside whoever else has it open."""
    ledger = open_ledger(ledger_address(folder / "ledger.db"), StoppedClock(), data_dir=folder)
    try:
        yield ledger
    finally:
        ledger.close()


def writing(ledger: Ledger, user_id: str | None = None) -> AbstractContextManager[Connection]:
    """Return a connection that holds the write lock of a user, or of all users."""
    return ledger.database.write(user_id)


def write_decisions(memory: Memory, *decisions: Decision, scope: Scope = ALICE, stage: str = "test") -> AppliedWrite:
    """Apply decisions in one write, with a vector for each of their texts."""
    engine = memory.engine
    texts = [decision.fact.text for decision in decisions if decision.fact is not None]
    write = Write(
        scope,
        Provenance(stage),
        decisions=decisions,
        vectors=dict(zip(texts, engine.embedder.embed_passages(texts), strict=True)),
        embedder=engine.embedder.fingerprint,
    )
    return engine.ledger.apply(write)


def store_memory(memory: Memory, text: str, *, scope: Scope = ALICE, sources: Iterable[str] = (), **labels: Any) -> str:
    """Add a memory that cites messages, with its vector, and return its id."""
    decision = Decision(Event.ADD, Fact(text, tuple(sources), **labels))
    return write_decisions(memory, decision, scope=scope).outcomes[0].memory.id


async def store_messages(
    memory: Memory, *messages: tuple[str, str] | dict[str, Any], scope: Scope = ALICE
) -> list[Message]:
    """Store messages, and return all messages of the scope as they are stored."""
    await memory.add_messages(messages_from(*messages, scope=scope, at=memory.engine.clock()), infer=False)
    with memory.engine.ledger.read() as conn:
        return message_queries.messages_of(conn, scope)


def write_elsewhere(folder: Path, *decisions: Decision, **rest: Any) -> None:
    """Apply decisions to Alice's memories as another process does, without vectors."""
    with ledger_in(folder) as ledger:
        ledger.apply(Write(ALICE, Provenance("test"), decisions=decisions, **rest))


@contextmanager
def second_writer(folder: Path) -> Generator[Callable[[str], None]]:
    """Give a function that adds one of Alice's memories to the same ledger, as another process does."""
    with ledger_in(folder) as ledger:

        def add(text: str) -> None:
            ledger.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.ADD, Fact(text)),)))

        yield add


def select_rows(memory: Memory, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of an SQL query."""
    with memory.engine.ledger.read() as conn:
        return [tuple(row) for row in conn.execute(sql(query), parameters)]


def all_keys(conn: Connection, scope: Scope, embedder: str) -> tuple[list[int], Vector]:
    """Return the numbers and the keys, of shape (n, dims), of all living entries that a scope sees, by number."""
    batches = list(entries.scope_keys(conn, scope, embedder))
    keys = {number: key for numbers, keys in batches for number, key in zip(numbers, keys, strict=True)}
    numbers = sorted(keys)
    return numbers, np.stack([keys[number] for number in numbers]) if keys else np.zeros((0, 0), dtype=np.float32)


def ledger_faults(path: Path) -> list[str]:
    """Return what does not agree in the ledger of a path when every row is compared with the rows it depends on."""
    ledger = open_ledger(ledger_address(path), StoppedClock())
    try:
        return ledger.read_with(verify.verify, ledger.database, ignore_progress).texts()
    finally:
        ledger.close()


async def row_faults(memory: Memory) -> list[str]:
    """Return what `ledger_faults` does of an open memory."""
    faults = await memory.engine.run(
        lambda: memory.engine.ledger.read_with(verify.verify, memory.engine.ledger.database, ignore_progress)
    )
    return faults.texts()


def do_not_wait_for_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a write fail at once if another process holds the write lock."""
    monkeypatch.setattr(sqlite_database, "BUSY_TIMEOUT_SECONDS", 0.01)
