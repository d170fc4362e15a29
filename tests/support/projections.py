"""Projections and indexes for tests: indexes that record their calls, and short ways to write to a ledger."""

from __future__ import annotations

import uuid
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from palimpsest.core.models import Decision, Event, Fact, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector, VectorIndex
from palimpsest.index.chroma_folder import ChromaIndex
from palimpsest.index.sync import OpenIndex, Projection
from palimpsest.recall.retrieve import NearestEntries
from palimpsest.store import entries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from tests.support.ledger_access import all_keys

EMBEDDER = "hand-made"


def direction(text: str, dims: int = 8) -> Vector:
    """Return a unit vector that depends only on the text."""
    vector = np.random.default_rng(zlib.crc32(text.encode())).normal(size=dims)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class ExactIndex:
    """An index in memory that compares a query with every vector. It keeps them when it is closed, like one on disk."""

    def __init__(self) -> None:
        self._users: defaultdict[str, dict[int, Vector]] = defaultdict(dict)

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims)."""
        self._users[user_id].update(zip(seqs, vectors, strict=True))

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Delete vectors. Unknown numbers are ignored."""
        for seq in seqs:
            self._users[user_id].pop(seq, None)

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of the nearest vectors by cosine similarity, nearest first."""
        stored = self._users[user_id]
        return sorted(stored, key=lambda seq: -float(stored[seq] @ vector))[:limit]

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors of shape (dims,) by number. Unknown numbers are left out."""
        return {seq: self._users[user_id][seq] for seq in seqs if seq in self._users[user_id]}

    def count(self) -> int:
        """Return how many vectors are stored, of all users."""
        return sum(map(len, self._users.values()))

    def close(self) -> None:
        """Do nothing."""


def ignore(_call: str) -> None:
    """Do nothing before a call of an index."""


class RecordingIndex:
    """An index that records what is written to it. `before` is called before each call, with its name."""

    def __init__(self, index: VectorIndex, before: Callable[[str], object] = ignore) -> None:
        self.index = index
        self.before = before
        self.upserted: list[int] = []
        self.deleted: list[int] = []

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors."""
        self.before("upsert")
        self.index.upsert(user_id, seqs, vectors)
        self.upserted.extend(seqs)

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Delete vectors."""
        self.before("delete")
        self.index.delete(user_id, seqs)
        self.deleted.extend(seqs)

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Query the index."""
        self.before("query")
        return self.index.query(user_id, vector, limit)

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Fetch vectors."""
        return self.index.fetch(user_id, seqs)

    def count(self) -> int:
        """Count vectors."""
        self.before("count")
        return self.index.count()

    def close(self) -> None:
        """Close the index."""
        self.index.close()


@dataclass
class Indexes:
    """Opens indexes of one kind. `opened` holds every one, the newest last."""

    kind: str
    opened: list[RecordingIndex] = field(default_factory=list[RecordingIndex])
    before: Callable[[str], object] = ignore
    _exact: dict[str, ExactIndex] = field(default_factory=dict[str, ExactIndex])

    @property
    def last(self) -> RecordingIndex:
        """Return the index that was opened last."""
        return self.opened[-1]

    def open(self, folder: Path) -> RecordingIndex:
        """Open the index in a folder. One in memory is found by an id in the folder."""
        if self.kind == "exact":
            mark = folder / "exact.id"
            if not mark.exists():
                mark.write_text(uuid.uuid4().hex)
            index: VectorIndex = self._exact.setdefault(mark.read_text(), ExactIndex())
        else:
            index = ChromaIndex.open_folder(folder, "test")
        self.opened.append(RecordingIndex(index, self.before))
        return self.last


@contextmanager
def projected(
    ledger: Ledger, open_index: OpenIndex, root: Path, *, embedder: str = EMBEDDER, layout: str = "test"
) -> Generator[Projection]:
    projection = Projection(ledger, embedder, open_index, root, layout=layout)
    try:
        yield projection
    finally:
        projection.close()


@contextmanager
def opened(
    ledger: Ledger, open_index: OpenIndex, root: Path, *, embedder: str = EMBEDDER, layout: str = "test"
) -> Generator[Projection]:
    with projected(ledger, open_index, root, embedder=embedder, layout=layout) as projection:
        projection.open()
        yield projection


def build(ledger: Ledger, indexes: Indexes, root: Path) -> None:
    with opened(ledger, indexes.open, root) as projection:
        assert projection.state == "ready"


def write(ledger: Ledger, *decisions: Decision, user: str = "ana", embedder: str = EMBEDDER) -> list[Outcome]:
    texts = [decision.fact.text for decision in decisions if decision.fact is not None]
    vectors = {text: direction(text) for text in texts} if embedder else {}
    request = Write(Scope(user), Provenance("test"), decisions=decisions, vectors=vectors, embedder=embedder)
    return list(ledger.apply(request).outcomes)


def add(ledger: Ledger, *texts: str, user: str = "ana", embedder: str = EMBEDDER) -> list[Outcome]:
    return write(ledger, *(Decision(Event.ADD, Fact(text)) for text in texts), user=user, embedder=embedder)


def facts(count: int, start: int = 0) -> list[str]:
    return [f"fact {number}" for number in range(start, start + count)]


def entry_of(ledger: Ledger, outcome: Outcome) -> int:
    """Return the entry number of a memory that is not deleted."""
    with ledger.read() as conn:
        # All rows are read: a result set that is not read to its end keeps the connection at an old state.
        living = {memory.id: seq for seq, memory in entries.living_memories(conn, outcome.memory.scope)}
    return living[outcome.memory.id]


def agrees(ledger: Ledger, index: VectorIndex, *users: str) -> bool:
    """Return whether an index holds exactly the ledger's keys, each under its entry number."""
    with ledger.read() as conn:
        total = entries.count_indexed(conn, EMBEDDER)
        expected = [(user, *all_keys(conn, Scope(user), EMBEDDER)) for user in users or ("ana",)]
    assert total == sum(len(seqs) for _, seqs, _ in expected), "`users` must name every user"
    found_all = all(
        index.query(user, key, 1) == [seq] for user, seqs, keys in expected for seq, key in zip(seqs, keys, strict=True)
    )
    return found_all and index.count() == total


def has_all(ledger: Ledger, projection: Projection, *users: str) -> bool:
    """Return the same of the index of a projection once it has caught up."""
    projection.catch_up()
    index = projection._index  # pyright: ignore[reportPrivateUsage] - nothing else needs it
    return index is not None and agrees(ledger, index, *users)


def nearest(ledger: Ledger, index: NearestEntries, text: str, limit: int = 3, user: str = "ana") -> list[int] | None:
    """Return what a search would take from the index: the nearest entries, and those that changed since."""
    hits = index.query(user, direction(text), limit)
    if hits is None:
        return None
    with ledger.read() as conn:
        changed = index.changed_since(conn, user, hits.log_number)
    return None if changed is None else [*hits.entries, *changed]
