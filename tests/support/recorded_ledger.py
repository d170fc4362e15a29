"""A ledger for a test of undo, that knows what it held before every write."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palimpsest.core.models import (
    AppliedWrite,
    Decision,
    Edit,
    Event,
    Fact,
    Kind,
    Memory,
    Message,
    Provenance,
    Scope,
    Undo,
)
from palimpsest.core.protocols import Vector
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import edits as edit_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.schema import history, message_history
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.entries import Embedded
from tests.support.databases import OpenLedger
from tests.support.memory import ALICE, StoppedClock, messages_from

BY_TEST = Provenance("test", caller="pytest")
WEB = Scope("alice", project="web")
SCOPES = (ALICE, WEB)
EMBEDDER = "e"

LiveEntries: TypeAlias = dict[str, tuple[Any, ...]]
"""By id, all that a living memory or turn is."""


@dataclass
class RecordedLedger:
    """A ledger whose clock moves on by a minute with every write, and what it held before each of them.

    `before` has what there was just before an instant, `edits` what there was before an edit.
    """

    ledger: Ledger
    clock: StoppedClock
    before: list[tuple[datetime, LiveEntries]] = field(default_factory=list[tuple[datetime, LiveEntries]])
    edits: dict[int, LiveEntries] = field(default_factory=dict[int, LiveEntries])

    def apply(self, scope: Scope, *decisions: Decision, **rest: Any) -> AppliedWrite:
        """Write, with a vector for every text that comes."""
        self.clock.forward(minutes=1)
        was, rows = self.living(), len(self.rows())
        texts = [decision.fact.text for decision in decisions if decision.fact is not None]
        texts += [message.content for message in rest.get("messages", ())]
        vectors = {text: _vector(text) for text in texts}
        write = Write(scope, BY_TEST, decisions=decisions, vectors=vectors, embedder=EMBEDDER, **rest)
        done = self.ledger.apply(write)
        self.before.append((self.clock.at, was))
        if len(self.rows()) > rows:
            self.edits[self.rows()[-1][0]] = was
        return done

    def add(self, text: str, scope: Scope = ALICE, **labels: Any) -> Memory:
        """Add a memory."""
        return self.apply(scope, Decision(Event.ADD, Fact(text, **labels))).outcomes[0].memory

    def say(self, *texts: str, scope: Scope = ALICE) -> tuple[Message, ...]:
        """Keep turns, said now."""
        at = self.clock.at.isoformat()
        said = messages_from(*({"role": "user", "content": text, "at": at} for text in texts), scope=scope)
        return self.apply(scope, messages=said).messages

    def undo(self, change: int | None = None, since: datetime | None = None, scope: Scope = ALICE) -> AppliedWrite:
        """Take back an edit, all since an instant, or the newest edit in effect."""
        return self.apply(scope, undo=Undo(change, since))

    def log(self, scope: Scope = WEB) -> list[Edit]:
        """Return the edits a scope sees, newest first; the project sees all of alice's."""
        with self.ledger.read() as conn:
            return edit_queries.edits(conn, scope, 1_000)

    def living(self, scope: Scope | None = None) -> LiveEntries:
        """Return what lives, in a scope itself or in all of them."""
        with self.ledger.read() as conn:
            scopes = SCOPES if scope is None else (scope,)
            memories = [memory for place in scopes for memory in memory_queries.memories_of(conn, place)]
            messages = [message for place in scopes for message in message_queries.messages_of(conn, place)]
        live: LiveEntries = {memory.id: memory_fields(memory) for memory in memories}
        return live | {message.id: (message.scope, message.content) for message in messages}

    def texts(self, scope: Scope = ALICE) -> list[str]:
        """Return the texts that live in a scope itself, of memories and turns."""
        return sorted(owner[1] for owner in self.living(scope).values())

    def rows(self) -> list[tuple[Any, ...]]:
        """Return every row of history, of memories and of turns, as it is stored; those of newer edits later."""
        with self.ledger.read() as conn:
            rows = [
                (row.change, table.name, *row)
                for table in (history, message_history)
                for row in conn.exec_driver_sql(f"SELECT * FROM {table.name} ORDER BY seq")  # noqa: S608 - names of ours
            ]
        return sorted(rows, key=lambda row: row[0])

    def owners(self, scope: Scope) -> list[tuple[Kind, str]]:
        """Return every memory and turn the scope sees, living or not, in the order they came."""
        seen: dict[tuple[Kind, str], None] = {}
        for edit in reversed(self.log(scope)):
            seen.update({(step.kind, step.owner_id): None for step in edit.steps})
        return list(seen)

    def embed(self) -> None:
        """Give vectors to what has none, as the flows do after every write that brought something back."""
        with self.ledger.read() as conn:
            waiting = vector_queries.missing_vectors(conn, EMBEDDER, 100, after=0, only_failed=True)
        self.ledger.give_vectors(EMBEDDER, [Embedded(unit.seq, unit.text, _vector(unit.text)) for unit in waiting])

    def faults(self) -> list[str]:
        """Return what is wrong when all rows are held against each other."""
        return self.ledger.verify(lambda _done, _total: None).texts()


def memory_fields(memory: Memory) -> tuple[Any, ...]:
    labels = json.dumps([memory.metadata, memory.keywords, memory.tags], sort_keys=True)
    return memory.scope, memory.text, labels, memory.happened_at, memory.valid_from


def _vector(text: str) -> Vector:
    raw = np.random.default_rng(list(text.casefold().encode())).normal(size=8)
    return (raw / np.linalg.norm(raw)).astype(np.float32)


@contextmanager
def recorded_ledger(folder: Path, open_ledger: OpenLedger) -> Generator[RecordedLedger]:
    """Yield an empty recorded ledger in a folder."""
    clock = StoppedClock()
    ledger = open_ledger(folder, clock)
    try:
        yield RecordedLedger(ledger, clock)
    finally:
        ledger.close()
