"""A ledger for tests of undo that remembers its state before every write."""

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
from palimpsest.store import contextual_keys, verify
from palimpsest.store import entries as entry_queries
from palimpsest.store import history as history_queries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.documents import EmbeddedText
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import history, message_history
from tests.support.memory import ALICE, StoppedClock, messages_from
from tests.support.stores import open_empty_ledger

BY_TEST = Provenance("test", caller="pytest")
WEB = Scope("alice", project="web")
SCOPES = (ALICE, WEB)
EMBEDDER = "e"

LiveEntries: TypeAlias = dict[str, tuple[Any, ...]]
"""Everything there is to living memories and messages, by id."""


@dataclass
class RecordedLedger:
    """A ledger whose clock moves on by a minute with every write, and its state before each write.

    `states_by_time` pairs an instant with the state just before it. `states_by_edit` maps the number of an edit to the
    state before it.
    """

    ledger: Ledger
    clock: StoppedClock
    states_by_time: list[tuple[datetime, LiveEntries]] = field(default_factory=list[tuple[datetime, LiveEntries]])
    states_by_edit: dict[int, LiveEntries] = field(default_factory=dict[int, LiveEntries])

    def apply(self, scope: Scope, *decisions: Decision, by: Provenance = BY_TEST, **rest: Any) -> AppliedWrite:
        """Apply decisions, with a vector for every new text. `by` is what makes the edit."""
        self.clock.forward(minutes=1)
        state, row_count = self.live_entries(), len(self.history_rows())
        texts = [decision.fact.text for decision in decisions if decision.fact is not None]
        texts += [message.content for message in rest.get("messages", ())]
        vectors = {text: _vector(text) for text in texts}
        write = Write(scope, by, decisions=decisions, vectors=vectors, embedder=EMBEDDER, **rest)
        applied = self.ledger.apply(write)
        self.states_by_time.append((self.clock.at, state))
        rows = self.history_rows()
        if len(rows) > row_count:
            self.states_by_edit[rows[-1][0]] = state
        return applied

    def add(self, text: str, scope: Scope = ALICE, **labels: Any) -> Memory:
        """Add a memory."""
        return self.apply(scope, Decision(Event.ADD, Fact(text, **labels))).outcomes[0].memory

    def store_messages(self, *texts: str, scope: Scope = ALICE) -> tuple[Message, ...]:
        """Store messages of the user, dated now."""
        at = self.clock.at.isoformat()
        messages = messages_from(*({"role": "user", "content": text, "at": at} for text in texts), scope=scope)
        return self.apply(scope, messages=messages).messages

    def undo(self, edit: int | None = None, since: datetime | None = None, scope: Scope = ALICE) -> AppliedWrite:
        """Undo one edit, everything since an instant, or the newest edit in effect."""
        return self.apply(scope, undo=Undo(edit, since))

    def edits(self, scope: Scope = WEB) -> list[Edit]:
        """Return the edits a scope sees, newest first. A project's scope sees all of Alice's."""
        with self.ledger.read() as conn:
            return history_queries.edits(conn, scope, 1_000)

    def live_entries(self, scope: Scope | None = None) -> LiveEntries:
        """Return the living memories and messages of a scope itself, or of all scopes."""
        with self.ledger.read() as conn:
            scopes = SCOPES if scope is None else (scope,)
            memories = [memory for place in scopes for memory in memory_queries.memories_of(conn, place)]
            messages = [message for place in scopes for message in message_queries.messages_of(conn, place)]
        entries: LiveEntries = {memory.id: memory_fields(memory) for memory in memories}
        return entries | {message.id: (message.scope, message.content) for message in messages}

    def live_texts(self, scope: Scope = ALICE) -> list[str]:
        """Return the sorted texts of the living memories and messages of a scope itself."""
        return sorted(entry[1] for entry in self.live_entries(scope).values())

    def history_rows(self) -> list[tuple[Any, ...]]:
        """Return every row of the history of memories and messages as it is stored, by the number of its edit."""
        with self.ledger.read() as conn:
            rows = [
                (row.change, table.name, *row)
                for table in (history, message_history)
                for row in conn.exec_driver_sql(f"SELECT * FROM {table.name} ORDER BY seq")  # noqa: S608 - our own names
            ]
        return sorted(rows, key=lambda row: row[0])

    def entries_ever_seen(self, scope: Scope) -> list[tuple[Kind, str]]:
        """Return kind and id of every memory and message that the scope sees, deleted or not, oldest first."""
        entries: dict[tuple[Kind, str], None] = {}
        for edit in reversed(self.edits(scope)):
            entries |= {(step.kind, step.owner_id): None for step in edit.steps if step.kind != "entity"}
        return list(entries)

    def embed_missing(self) -> None:
        """Give vectors to entries without one, as the server does after a write that restored some."""
        with self.ledger.read() as conn:
            entries = entry_queries.missing_vectors(conn, EMBEDDER, 100, after=0, only_failed=True)
        embedded = {seq: EmbeddedText(text, EMBEDDER, _vector(text)) for seq, text in entries.items()}
        self.ledger.run(contextual_keys.give_vectors, self.ledger.full_text, embedded, self.ledger.clock())

    def faults(self) -> list[str]:
        """Return what does not agree when every row is compared with the rows it depends on."""
        return self.ledger.read_with(verify.verify, self.ledger.database, lambda _done, _total: None).texts()


def memory_fields(memory: Memory) -> tuple[Any, ...]:
    """Return what undo must restore of a memory."""
    labels = json.dumps([memory.metadata, memory.keywords, memory.tags], sort_keys=True)
    return memory.scope, memory.text, labels, memory.happened_at, memory.valid_from, memory.context, memory.links


def _vector(text: str) -> Vector:
    raw = np.random.default_rng(list(text.casefold().encode())).normal(size=8)
    return (raw / np.linalg.norm(raw)).astype(np.float32)


@contextmanager
def recorded_ledger(folder: Path) -> Generator[RecordedLedger]:
    """Yield an empty recorded ledger in a folder."""
    clock = StoppedClock()
    ledger = open_empty_ledger(folder, clock)
    try:
        yield RecordedLedger(ledger, clock)
    finally:
        ledger.close()
