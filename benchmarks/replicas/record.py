"""What the replicas of a soak were told, and whether the ledger agrees with it."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from palimpsest.core.models import Scope
from palimpsest.store import history, memories
from palimpsest.store.ledger import Ledger

NOTHING_WRITTEN = re.compile(r"Nothing was (?:written|stored|changed|deleted)")
"""What the text of an error says if the write did not happen. Without it, the write may have happened or not."""

PLAIN = re.compile(r"the ledger postgresql://|Nothing was stored|Nothing was changed")


@dataclass
class Write:
    """A write that a replica was asked for: a memory's id if it is known, its text, and the text before."""

    user: str
    text: str
    memory_id: str = ""
    old_text: str = ""
    deletes: bool = False


@dataclass
class Record:
    """The texts of living memories by user and id, the ids of deleted ones, and the writes whose end is not known.

    The counts are of a whole run. `slowest` has the seconds of the slowest call by what happened in its round.
    `touched` counts, by id, how often a write of a memory began or ended: an odd number says that one is under way.
    """

    living: dict[str, dict[str, str]]
    deleted: set[str] = field(default_factory=set[str])
    uncertain: list[Write] = field(default_factory=list[Write])
    refused: list[Write] = field(default_factory=list[Write])
    acknowledged: int = 0
    searches: int = 0
    failed: int = 0
    killed: int = 0
    adopted: int = 0
    slowest: dict[str, float] = field(default_factory=dict[str, float])
    touched: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    described: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, kind: str, text: str) -> None:
        """Count and describe a fault."""
        with self.lock:
            self.faults[kind] += 1
            self.described.append(f"{kind}: {text}")

    def begin(self, write: Write) -> None:
        """Record that a write begins. `acknowledge` or `fail` follows."""
        with self.lock:
            self.touched[write.memory_id] += 1

    def acknowledge(self, write: Write, memory_id: str) -> None:
        """Record a write that was acknowledged, with the id of its memory."""
        with self.lock:
            self.touched[write.memory_id] += 1
            self.acknowledged += 1
            write.memory_id = memory_id
            self._hold(write)

    def fail(self, write: Write, error: str) -> None:
        """Record a write that was answered by an error, or with "" by nothing, because its replica was killed."""
        with self.lock:
            self.touched[write.memory_id] += 1
            self.killed += not error
            self.failed += bool(error)
            (self.refused if NOTHING_WRITTEN.search(error) else self.uncertain).append(write)

    def note_error(self, error: str) -> None:
        """Count an error by its words, without what is different each time."""
        with self.lock:
            self.errors[re.sub(r"\d+|'[^']*'|[0-9a-f-]{8,}", "…", error)[:300]] += 1

    def note_time(self, kind: str, seconds: float) -> None:
        """Record how long a call took."""
        with self.lock:
            self.slowest[kind] = max(self.slowest.get(kind, 0.0), seconds)

    def settled(self, user: str) -> dict[str, tuple[str, int]]:
        """Return the texts of the memories of a user by id whose state is certain, and how often each was touched."""
        with self.lock:
            uncertain = {write.memory_id for write in self.uncertain + self.refused}
            return {
                memory_id: (text, self.touched[memory_id])
                for memory_id, text in self.living[user].items()
                if memory_id not in uncertain and self.touched[memory_id] % 2 == 0
            }

    def _hold(self, write: Write) -> None:
        if write.deletes:
            self.living[write.user].pop(write.memory_id, None)
            self.deleted.add(write.memory_id)
        else:
            self.living[write.user][write.memory_id] = write.text

    def compare(self, ledger: Ledger) -> None:
        """Compare the ledger with the record, when no call is under way. What was uncertain is certain then."""
        stored = {user: _stored(ledger, user) for user in self.living}
        for write in self.refused:
            if self._happened(write, stored[write.user]):
                self.fault("untrue", f"an error said that nothing was written, but it was: {write}")
                self._adopt(write, stored[write.user])
        for write in self.uncertain:
            if self._happened(write, stored[write.user]):
                self.adopted += 1
                self._adopt(write, stored[write.user])
        self.refused, self.uncertain = [], []
        for user, texts in self.living.items():
            self._compare_user(ledger, texts, stored[user])

    def _happened(self, write: Write, stored: Mapping[str, str]) -> bool:
        if write.deletes:
            return write.memory_id not in stored and write.memory_id not in self.deleted
        if write.memory_id:
            return stored.get(write.memory_id) == write.text != self.living[write.user].get(write.memory_id)
        known = self.living[write.user]
        return any(text == write.text and memory_id not in known for memory_id, text in stored.items())

    def _adopt(self, write: Write, stored: Mapping[str, str]) -> None:
        found = write.memory_id or next(memory_id for memory_id, text in stored.items() if text == write.text)
        self._hold(Write(write.user, write.text, found, write.old_text, write.deletes))

    def _compare_user(self, ledger: Ledger, expected: Mapping[str, str], stored: Mapping[str, str]) -> None:
        with ledger.read() as conn:
            for memory_id, text in expected.items():
                if stored.get(memory_id) != text:
                    self.fault("lost", f"{memory_id} '{text}' is {stored.get(memory_id)!r}")
                    continue
                versions = history.versions_of(conn, memory_id)
                if not versions or versions[-1].new_memory != text:
                    self.fault("lost", f"'{text}' is not in the last row of its history")
        for text, number in Counter(stored.values()).items():
            if number > 1:
                self.fault("twice", f"'{text}' is stored {number} times")
        for memory_id in stored.keys() - expected.keys():
            kind = "undeleted" if memory_id in self.deleted else "twice"
            self.fault(kind, f"{memory_id} '{stored[memory_id]}' was not acknowledged")


def _stored(ledger: Ledger, user: str) -> dict[str, str]:
    with ledger.read() as conn:
        return {memory.id: memory.text for _, memory in memories.list_memories(conn, Scope(user), 1_000_000)}
