"""A ledger with something in every corner, and the ways to move it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin.backup import Moved, move_ledger
from palimpsest.core.models import Decision, Event, Fact, Relation, Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings, load_settings
from palimpsest.memory import Memory
from palimpsest.store import copying
from palimpsest.store.copying import TABLES, read_rows
from palimpsest.store.ledger import open_database
from tests.support.graph_rows import store_stating
from tests.support.ledger_access import ignore_progress, store_memory, store_messages, write_decisions
from tests.support.memory import ALICE, StoppedClock
from tests.support.stores import Address

# A user whose names sort differently by letters and by bytes.
BOB = Scope("Bøb 船", project="web", agent_id="β")

# Rows in a batch, so that a small ledger has many batches.
FEW = 3


@dataclass(frozen=True)
class Filled:
    """What was stored: a memory that changed, and a time before it did."""

    changed: str
    before: datetime


async def fill(memory: Memory, clock: StoppedClock) -> Filled:
    """Store memories, messages, relations, questions and edits of two users, in an order that leaves gaps."""
    turns = [(role, f"{role} says “{role}” 🙂 {number}") for number in range(4) for role in ("user", "assistant")]
    messages = await store_messages(memory, *turns)
    changed = store_memory(
        memory, "User lives in Köln", sources=[messages[0].id], metadata={"b": 1, "a": [True, None, " \ufdd0"]}
    )
    gone = store_memory(memory, "User has a cat")
    lives = Relation("Ana", "lives in", "Lyon", until="2027-03")
    store_stating(memory, "Ana lives in Lyon", ("Ana", "person"), relations=(lives,))
    for number in range(FEW * 3):
        store_memory(memory, f"The boat of Bob has {number} oars, 船", scope=BOB)
    await memory.care.purge(ALICE, [store_memory(memory, "User never said this")])
    clock.forward(days=1)
    before = clock.at
    clock.forward(days=1)
    change(memory, changed, "User lives in Zürich")
    await memory.delete(ALICE, [gone])
    await memory.search(ALICE, "Where does the user live?")
    return Filled(changed, before)


def change(memory: Memory, memory_id: str, text: str) -> None:
    write_decisions(memory, Decision(Event.UPDATE, Fact(text), memory_id))


def settings_for(folder: Path, place: Address) -> Settings:
    """Return the settings of a data directory whose ledger is at a place: the file in the folder, or a database."""
    url: dict[str, Any] = {} if isinstance(place, Path) else {"ledger_url": place}
    return load_settings(None, data_dir=folder, user_id="alice", llm={"provider": "none"}, **url)


def moved(
    folder: Path, source: Address, target: Address, clock: StoppedClock, progress: Progress = ignore_progress
) -> Moved:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "BATCH", FEW)
        return move_ledger(settings_for(folder, source), target, progress, clock)


def digests(place: Address, *, without: tuple[str, ...] = ()) -> Mapping[str, str]:
    """Return a digest of the rows of each table of a ledger, in a form that is the same in every database."""
    with closing(open_database(place)) as database, database.read() as conn:
        stored = {table.name: read_rows(conn, table) for table in TABLES if table.name not in without}
    return {
        name: hashlib.sha256(repr([_plain(row) for row in rows]).encode()).hexdigest() for name, rows in stored.items()
    }


def _plain(row: Mapping[str, Any]) -> list[Any]:
    return [int(value) if isinstance(value, bool) else value for value in row.values()]
