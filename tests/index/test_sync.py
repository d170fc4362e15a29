"""The vector index behind the ledger: leased, followed by checkpoint, set aside and rebuilt when in doubt."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from palimpsest.core.errors import LedgerError, VectorIndexError
from palimpsest.core.models import Decision, Event, Fact, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector, VectorIndex
from palimpsest.index import lease, sync
from palimpsest.index.checkpoint import Checkpoint
from palimpsest.index.chroma import ChromaIndex
from palimpsest.index.exact import ExactIndex
from palimpsest.index.sync import BATCH, OpenIndex, Projection
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.entries import Embedded
from tests.support.memory import StoppedClock, all_keys, messages_from

EMBEDDER = "hand-made"
CHROMA_SYNCS_AFTER = 1_000
"""Writes to one collection after which Chroma, as it is set, writes its graph to files."""

HOLD_A_LEASE = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def direction(text: str, dims: int = 8) -> Vector:
    """Return a unit vector of its own for every text."""
    vector = np.random.default_rng(zlib.crc32(text.encode())).normal(size=dims)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class Recording:
    """Pass everything on to an index, and note what is written; `before` is called ahead of each upsert."""

    def __init__(self, index: VectorIndex) -> None:
        self.index = index
        self.upserted: list[int] = []
        self.deleted: list[int] = []
        self.before: Callable[[], None] = lambda: None
        self.failing = ""

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store, unless it is to fail."""
        self._fail()
        self.before()
        self.index.upsert(user_id, seqs, vectors)
        self.upserted.extend(seqs)

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Drop, unless it is to fail."""
        self._fail()
        self.index.delete(user_id, seqs)
        self.deleted.extend(seqs)

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Ask, unless it is to fail."""
        self._fail()
        return self.index.query(user_id, vector, limit)

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Fetch."""
        return self.index.fetch(user_id, seqs)

    def count(self) -> int:
        """Count."""
        return self.index.count()

    def clear(self) -> None:
        """Clear."""
        self.index.clear()

    def close(self) -> None:
        """Close."""
        self.index.close()

    def _fail(self) -> None:
        if self.failing:
            raise VectorIndexError(self.failing)


class Lasting(ExactIndex):
    """Outlive its closing, as an index on disk does."""

    def close(self) -> None:
        """Keep the vectors."""


@dataclass
class Indexes:
    """Open indexes of one kind, and keep every one that was opened, the newest last."""

    kind: str
    opened: list[Recording] = field(default_factory=list[Recording])
    before: Callable[[], None] = lambda: None
    _lasting: dict[str, Lasting] = field(default_factory=dict[str, Lasting])

    @property
    def last(self) -> Recording:
        """Return the index that was opened last."""
        return self.opened[-1]

    def open(self, folder: Path) -> Recording:
        """Open what a folder holds; it may have been moved or emptied since."""
        index = Recording(self._exact(folder) if self.kind == "exact" else ChromaIndex.open_folder(folder, "test"))
        index.before = self.before
        self.opened.append(index)
        return index

    def _exact(self, folder: Path) -> Lasting:
        """Find the index in memory that belongs to a folder by a mark in it."""
        mark = folder / "exact.id"
        if not mark.exists():
            mark.write_text(uuid.uuid4().hex)
        return self._lasting.setdefault(mark.read_text(), Lasting())


@pytest.fixture(params=["exact", "chroma"])
def indexes(request: pytest.FixtureRequest) -> Indexes:
    """Give indexes of each kind."""
    return Indexes(request.param)


@pytest.fixture
def exact() -> Indexes:
    """Give exact indexes, where the kind does not matter."""
    return Indexes("exact")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def ledger(tmp_path: Path) -> Generator[Ledger]:
    with ledger_in(tmp_path / "ledger.db") as opened:
        yield opened


@contextmanager
def ledger_in(path: Path) -> Generator[Ledger]:
    opened = open_ledger(path, StoppedClock())
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def projected(
    ledger: Ledger, open_index: OpenIndex, root: Path | None, *, embedder: str = EMBEDDER, layout: str = "test"
) -> Generator[Projection]:
    """Give a projection, not yet opened, and close it at the end."""
    made = Projection(ledger, embedder, open_index, root, layout=layout)
    try:
        yield made
    finally:
        made.close()


def build(ledger: Ledger, indexes: Indexes, root: Path) -> None:
    """Build the index of a ledger once, and leave it."""
    with projected(ledger, indexes.open, root) as projection:
        projection.open()
        assert projection.state == "ready"


def write(ledger: Ledger, *decisions: Decision, user: str = "ana", embedder: str = EMBEDDER) -> list[Outcome]:
    texts = [decision.fact.text for decision in decisions if decision.fact is not None]
    vectors = {text: direction(text) for text in texts} if embedder else {}
    given = Write(Scope(user), Provenance("test"), decisions=decisions, vectors=vectors, embedder=embedder)
    return list(ledger.apply(given).outcomes)


def add(ledger: Ledger, *texts: str, user: str = "ana", embedder: str = EMBEDDER) -> list[Outcome]:
    return write(ledger, *(Decision(Event.ADD, Fact(text)) for text in texts), user=user, embedder=embedder)


def facts(count: int, start: int = 0) -> list[str]:
    return [f"fact {number}" for number in range(start, start + count)]


def unit_of(ledger: Ledger, change: Outcome) -> int:
    """Return the unit number of a living memory."""
    with ledger.read() as conn:
        living = entry_queries.living_memories(conn, change.memory.scope)
        return next(seq for seq, memory in living if memory.id == change.memory.id)


def agrees(ledger: Ledger, index: VectorIndex, *users: str) -> bool:
    """Say whether an index holds just what the ledger holds: every key under its number, and no other."""
    with ledger.read() as conn:
        total = entry_queries.count_indexed(conn, EMBEDDER)
        held = [(user, *all_keys(conn, Scope(user), EMBEDDER)) for user in users or ("ana",)]
    assert total == sum(len(seqs) for _, seqs, _ in held), "the users named are all there are"
    found = all(
        index.query(user, key, 1) == [seq] for user, seqs, keys in held for seq, key in zip(seqs, keys, strict=True)
    )
    return found and index.count() == total


def nearest(ledger: Ledger, projection: Projection, text: str, limit: int = 3, user: str = "ana") -> list[int] | None:
    with ledger.read() as conn:
        return projection.nearest(conn, user, direction(text), limit)


class TestLease:
    def test_two_projections_never_share_a_folder(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards Chroma's folder: two writers in one corrupt it for good."""
        add(ledger, *facts(3))
        with projected(ledger, indexes.open, root) as first, projected(ledger, indexes.open, root) as second:
            first.open()
            second.open()
            assert (first.folder, second.folder) == (root / "0", root / "1")
            add(ledger, "one more")
            first.catch_up()
            second.catch_up()
            assert all(agrees(ledger, index) for index in indexes.opened)

    def test_a_closed_projection_gives_its_folder_back(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the number of folders: the next process takes the one that is free."""
        with projected(ledger, exact.open, root) as first, projected(ledger, exact.open, root) as second:
            first.open()
            second.open()
            first.close()
            assert (first.folder, first.state) == (None, "closed")
            with projected(ledger, exact.open, root) as third:
                third.open()
                assert third.folder == root / "0"

    def test_the_folder_is_given_back_from_another_thread_too(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the pool of worker threads: whichever closes, it is seldom the one that opened."""
        with ThreadPoolExecutor(1) as opening, ThreadPoolExecutor(1) as closing:
            for _ in range(2):
                with projected(ledger, exact.open, root) as projection:
                    opening.submit(projection.open).result()
                    assert projection.folder == root / "0"
                    closing.submit(projection.close).result()

    def test_a_folder_of_another_process_is_left_alone(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the lease between processes, and that it ends with the process however that ends."""
        root.mkdir()
        command = [sys.executable, "-c", HOLD_A_LEASE, str(root / "0.lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with projected(ledger, exact.open, root) as projection:
                projection.open()
                assert projection.folder == root / "1"
            holder.kill()
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            assert projection.folder == root / "0"

    def test_the_lease_is_kept_through_a_rebuild(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the moment when the folder is moved aside: no one else may step in."""
        with projected(ledger, exact.open, root) as first, projected(ledger, exact.open, root) as second:
            first.open()
            first.rebuild()
            second.open()
            assert (first.folder, second.folder) == (root / "0", root / "1")

    def test_no_folder_left_is_an_error_that_says_so(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards against waiting for ever, and against sharing after all."""
        monkeypatch.setattr(lease, "MAX_FOLDERS", 1)
        with projected(ledger, exact.open, root) as first, projected(ledger, exact.open, root) as second:
            first.open()
            with pytest.raises(VectorIndexError, match="all 1 index folders"):
                second.open()
            assert second.state == "broken"
            assert "in use" in second.fault
            first.close()
            second.open()
            assert second.state == "ready"

    def test_a_root_that_is_no_folder_is_an_error_of_ours(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards a mistaken path in the settings."""
        root.write_text("a file")
        with projected(ledger, exact.open, root) as projection:
            with pytest.raises(VectorIndexError, match="cannot be used"):
                projection.open()
            assert projection.state == "broken"

    def test_without_a_root_the_index_lives_in_memory_and_writes_nothing(
        self, ledger: Ledger, exact: Indexes, tmp_path: Path
    ) -> None:
        """Guards the choice `vector_store.provider = "exact"`."""
        add(ledger, *facts(3))
        before = sorted(path.name for path in tmp_path.iterdir())
        with projected(ledger, lambda _: ExactIndex(), None) as projection:
            projection.open()
            add(ledger, "one more")
            projection.catch_up()
            assert (projection.folder, projection.count()) == (None, 4)
            assert projection.rebuild() == 4
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        assert exact.opened == []


class TestFollowing:
    def test_what_is_added_changed_and_deleted_is_followed(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards the whole point: after catching up, the index holds what the ledger holds."""
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            first, second, third = add(ledger, "one", "two", "three")
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            changed = write(ledger, Decision(Event.UPDATE, Fact("two, but otherwise"), second.memory.id))[0]
            gone = unit_of(ledger, third)
            write(ledger, Decision(Event.DELETE, memory_id=third.memory.id))
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert gone in indexes.last.deleted
            assert nearest(ledger, projection, "two, but otherwise", 1) == [unit_of(ledger, changed)]
            assert gone not in (nearest(ledger, projection, "three", 9) or [gone])
            write(ledger, Decision(Event.ADD, memory_id=third.memory.id))
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert nearest(ledger, projection, "three", 1) == [gone], "a restored memory keeps its number"
            assert first.memory.text == "one"

    def test_every_user_is_followed_apart(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards the wall between users, also where one batch of the log holds changes of several."""
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            (mine,), (theirs,) = add(ledger, "the same"), add(ledger, "the same", user="bert")
            projection.catch_up()
            assert agrees(ledger, indexes.last, "ana", "bert")
            assert nearest(ledger, projection, "the same") == [unit_of(ledger, mine)]
            assert nearest(ledger, projection, "the same", user="bert") == [unit_of(ledger, theirs)]
            assert nearest(ledger, projection, "the same", user="cleo") == []

    def test_a_turn_that_gets_a_neighbour_is_stored_anew(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards contextual keys: what is indexed is the key, and that moves with what stands around."""
        said = messages_from(("user", "first"), ("assistant", "second"), ("user", "third"), scope=Scope("ana"))
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            for number, message in enumerate(said, start=1):
                vectors = {message.content: direction(message.content)}
                kept = Write(Scope("ana"), Provenance("test"), (message,), vectors=vectors, embedder=EMBEDDER)
                ledger.apply(kept)
                projection.catch_up()
                assert agrees(ledger, indexes.last)
                assert indexes.last.count() == number
            assert len(indexes.last.upserted) > len(said)

    def test_a_memory_without_a_vector_joins_when_it_gets_one(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards texts that an embedder failed on: they wait outside the index, and come in later."""
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            (change,) = add(ledger, "not embedded", embedder="")
            projection.catch_up()
            assert projection.count() == 0
            seq = unit_of(ledger, change)
            ledger.give_vectors(EMBEDDER, [Embedded(seq, "not embedded", direction("not embedded"))])
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert nearest(ledger, projection, "not embedded") == [seq]

    def test_a_memory_that_loses_its_vector_leaves(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards an update while the embedder fails: the old text's vector must not stand for the new text."""
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            (change,) = add(ledger, "old")
            projection.catch_up()
            write(ledger, Decision(Event.UPDATE, Fact("new"), change.memory.id), embedder="")
            projection.catch_up()
            assert projection.count() == 0

    def test_more_changes_than_one_batch_are_followed_to_the_end(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards the seams between batches."""
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            add(ledger, *facts(2 * BATCH + 1))
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert len(indexes.last.upserted) == 2 * BATCH + 1

    def test_catching_up_before_opening_does_nothing(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the start: a write may come before the index is opened."""
        add(ledger, "one")
        with projected(ledger, exact.open, root) as projection:
            projection.catch_up()
            assert (projection.state, exact.opened) == ("closed", [])

    def test_progress_is_told_up_to_the_total(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the bar of `palimpsest rebuild`: it rises, never beyond its end, and reaches it."""
        add(ledger, *facts(2 * BATCH + 1))
        told: list[tuple[int, int]] = []
        with projected(ledger, exact.open, root) as projection:
            projection.open(lambda done, total: told.append((done, total)))
            total = 2 * BATCH + 1
            assert told == [(BATCH, total), (2 * BATCH, total), (total, total)]
            add(ledger, *facts(BATCH + 1, start=1_000))
            told.clear()
            projection.catch_up(lambda done, total: told.append((done, total)))
            assert told == [(BATCH, BATCH + 1), (BATCH + 1, BATCH + 1)]
            told.clear()
            assert projection.rebuild(lambda done, total: told.append((done, total))) == total + BATCH + 1
            assert told[-1] == (total + BATCH + 1, total + BATCH + 1)

    def test_what_is_written_while_the_index_is_built_is_in_it(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards the seam between filling and following: a change that comes meanwhile is not skipped."""
        doomed, *_ = add(ledger, *facts(BATCH + 10))

        def meanwhile() -> None:
            indexes.last.before = lambda: None
            add(ledger, "came meanwhile")
            write(ledger, Decision(Event.DELETE, memory_id=doomed.memory.id))

        indexes.before = meanwhile
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert projection.state == "ready"
            assert agrees(ledger, indexes.last)


class TestCheckpoint:
    def test_a_reopened_index_takes_only_what_is_new(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards the next start: it costs what has changed, not what there is."""
        add(ledger, *facts(BATCH + 5))
        build(ledger, indexes, root)
        build(ledger, indexes, root)
        assert indexes.last.upserted == []
        (change,) = add(ledger, "one more")
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert indexes.last.upserted == [unit_of(ledger, change)]
            assert agrees(ledger, indexes.last)
        assert not (root / "0.aside").exists()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "\0\0\0\0",
            "[]",
            "null",
            "{}",
            '{"ledger": "',
            '{"ledger": "x", "embedder": "y", "format": "z", "seq": 1, "more": 2}',
            '{"embedder": "y", "format": "z", "seq": 1}',
        ],
    )
    def test_what_is_no_checkpoint_is_not_read_as_one(self, tmp_path: Path, text: str) -> None:
        """Guards against a half-written, foreign or newer file: it says nothing about the index."""
        path = tmp_path / "checkpoint.json"
        assert Checkpoint.read(path.parent) is None
        path.write_text(text)
        assert Checkpoint.read(path.parent) is None
        Checkpoint("x", "y", "z", 7).write(path.parent)
        assert Checkpoint.read(path.parent) == Checkpoint("x", "y", "z", 7)

    @pytest.mark.parametrize("text", [None, '{"ledger": "tor'], ids=["missing", "torn"])
    def test_a_checkpoint_that_cannot_be_read_is_set_aside_with_its_index(
        self, ledger: Ledger, indexes: Indexes, root: Path, text: str | None
    ) -> None:
        """Guards a folder that nobody knows the state of: it is kept for inspection, and built anew."""
        add(ledger, *facts(3))
        build(ledger, indexes, root)
        checkpoint = root / "0" / "checkpoint.json"
        if text is None:
            checkpoint.unlink()
        else:
            checkpoint.write_text(text)
        held = sorted(path.name for path in (root / "0").iterdir())
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert projection.state == "ready"
            assert len(indexes.last.upserted) == 3
            assert agrees(ledger, indexes.last)
        assert sorted(path.name for path in (root / "0.aside").iterdir()) == held
        build(ledger, indexes, root)
        assert indexes.last.upserted == [], "the new checkpoint is whole"

    @pytest.mark.parametrize("other", [{"embedder": "another"}, {"layout": "another"}])
    def test_an_index_of_another_embedder_or_layout_is_set_aside(
        self, ledger: Ledger, indexes: Indexes, root: Path, other: dict[str, str]
    ) -> None:
        """Guards against comparing vectors that have nothing to do with each other, there and back again."""
        add(ledger, *facts(3))
        build(ledger, indexes, root)
        with projected(ledger, indexes.open, root, **other) as projection:
            projection.open()
            assert projection.state == "ready"
            assert projection.count() == (0 if "embedder" in other else 3)
        assert (root / "0.aside").is_dir()
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert len(indexes.last.upserted) == 3
            assert agrees(ledger, indexes.last)

    def test_an_index_of_another_ledger_is_set_aside(
        self, ledger: Ledger, indexes: Indexes, root: Path, tmp_path: Path
    ) -> None:
        """Guards two ledgers with one index folder: numbers of the one mean nothing in the other."""
        add(ledger, *facts(3))
        with ledger_in(tmp_path / "other.db") as other:
            add(other, "something else", "and more", "and more still")
            build(other, indexes, root)
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert agrees(ledger, indexes.last)
        assert (root / "0.aside").is_dir()

    def test_only_the_last_one_set_aside_is_kept(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the disk: rebuilding every day does not fill it."""
        add(ledger, *facts(3))
        build(ledger, exact, root)
        marks: list[str] = []
        for _ in range(3):
            marks.append((root / "0" / "exact.id").read_text())
            (root / "0" / "checkpoint.json").unlink()
            build(ledger, exact, root)
        assert (root / "0.aside" / "exact.id").read_text() == marks[-1]
        assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["0", "0.aside"]

    def test_the_checkpoint_is_replaced_in_one_step(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards against a torn file: what a crash left half-written beside it is neither read nor in the way."""
        add(ledger, *facts(3))
        build(ledger, exact, root)
        (root / "0" / "checkpoint.json.new").write_text('{"ledger": "tor')
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            assert exact.last.upserted == [], "the old checkpoint still holds"
            add(ledger, "one more")
            projection.catch_up()
        assert not (root / "0" / "checkpoint.json.new").exists()
        with ledger.read() as conn:
            assert json.loads((root / "0" / "checkpoint.json").read_text())["seq"] == memory_queries.head(conn)

    def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards a full disk: the fault is told, and the next start does over what was not noted."""
        add(ledger, *facts(3))
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            before = (root / "0" / "checkpoint.json").read_text()
            add(ledger, "one more")

            def full(_path: Path, _target: Path) -> Path:
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patched:
                patched.setattr(Path, "replace", full)
                with pytest.raises(VectorIndexError, match="No space left on device"):
                    projection.catch_up()
            assert projection.state == "broken"
            assert "No space left" in projection.fault
        assert (root / "0" / "checkpoint.json").read_text() == before
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            assert len(exact.last.upserted) == 1
            assert agrees(ledger, exact.last)


class TestDoubt:
    @pytest.mark.parametrize("users", [("ana",), ("ana", "bert")])
    def test_an_index_that_holds_too_little_is_rebuilt_when_opened(
        self, ledger: Ledger, indexes: Indexes, root: Path, users: tuple[str, ...]
    ) -> None:
        """Guards against an index that lost vectors: it would never find them again."""
        for user in users:
            add(ledger, *facts(4), user=user)
        build(ledger, indexes, root)
        behind = indexes.open(root / "0")
        behind.delete(users[-1], behind.query(users[-1], direction("fact 1"), 1))
        behind.close()
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert projection.state == "ready"
            assert agrees(ledger, indexes.last, *users)
        assert (root / "0.aside").is_dir()

    def test_an_index_that_holds_too_much_is_rebuilt_when_opened(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards against vectors that belong to nothing."""
        add(ledger, *facts(4))
        build(ledger, indexes, root)
        behind = indexes.open(root / "0")
        behind.upsert("nobody", [999], direction("nothing")[np.newaxis])
        behind.close()
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert agrees(ledger, indexes.last)

    def test_a_chroma_folder_that_lost_its_database_is_rebuilt(self, ledger: Ledger, root: Path) -> None:
        """Guards a folder of which only the checkpoint is left."""
        chroma = Indexes("chroma")
        add(ledger, *facts(4))
        build(ledger, chroma, root)
        (root / "0" / "chroma.sqlite3").unlink()
        with projected(ledger, chroma.open, root) as projection:
            projection.open()
            assert projection.state == "ready"
            assert agrees(ledger, chroma.last)

    def test_garbage_in_the_files_of_chroma_is_set_aside_and_rebuilt(self, ledger: Ledger, root: Path) -> None:
        """Guards the start after a crash during a sync, which leaves files that Chroma cannot read."""
        chroma = Indexes("chroma")
        add(ledger, *facts(4))
        with projected(ledger, chroma.open, root) as projection:
            projection.open()
            with ledger.read() as conn:
                seqs, keys = all_keys(conn, Scope("ana"), EMBEDDER)
            for _ in range(CHROMA_SYNCS_AFTER // len(seqs) + 10):
                chroma.last.upsert("ana", seqs, keys)
        synced = list((root / "0").glob("*/*.bin"))
        assert synced, "Chroma has written its graph to files of its own"
        for path in synced:
            path.write_bytes(b"garbage")
        with projected(ledger, chroma.open, root) as projection:
            projection.open()
            assert projection.state == "ready"
            assert agrees(ledger, chroma.last)
        assert [path.read_bytes() for path in (root / "0.aside").glob("*/*.bin")] == [b"garbage"] * len(synced)

    def test_garbage_in_a_chroma_folder_is_set_aside_where_no_checkpoint_vouches_for_it(
        self, ledger: Ledger, root: Path
    ) -> None:
        """Guards a folder that something else wrote to: nothing of it is opened, nothing of it is lost."""
        add(ledger, *facts(4))
        (root / "0").mkdir(parents=True)
        (root / "0" / "chroma.sqlite3").write_bytes(b"this is no database " * 500)
        with projected(ledger, (chroma := Indexes("chroma")).open, root) as projection:
            projection.open()
            assert agrees(ledger, chroma.last)
        assert (root / "0.aside" / "chroma.sqlite3").read_bytes().startswith(b"this is no database")

    def test_an_index_that_cannot_be_opened_is_set_aside_and_rebuilt(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards the start with a damaged index: it is repaired there and then."""
        add(ledger, *facts(4))
        build(ledger, indexes, root)
        tries: list[Path] = []

        def damaged_at_first(folder: Path) -> VectorIndex:
            tries.append(folder)
            if len(tries) == 1:
                raise VectorIndexError("the index is damaged")
            return indexes.open(folder)

        with projected(ledger, damaged_at_first, root) as projection:
            projection.open()
            assert (projection.state, projection.fault) == ("ready", "")
            assert agrees(ledger, indexes.last)
        assert (root / "0.aside" / "checkpoint.json").is_file()

    def test_an_index_that_can_never_be_opened_is_told(self, ledger: Ledger, root: Path) -> None:
        """Guards the doctor and the log: what is wrong is said, and searching goes on without."""

        def damaged(_folder: Path) -> VectorIndex:
            raise VectorIndexError("the index is damaged")

        add(ledger, *facts(4))
        with projected(ledger, damaged, root) as projection:
            with pytest.raises(VectorIndexError, match="the index is damaged"):
                projection.open()
            assert (projection.state, projection.fault) == ("broken", "the index is damaged")
            assert nearest(ledger, projection, "fact 1") is None

    def test_rebuilding_repairs_a_broken_one(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards the way back: after a failed write the whole index is made anew, and works again."""
        add(ledger, *facts(4))
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            add(ledger, "one more")
            indexes.last.failing = "the index cannot be written"
            with pytest.raises(VectorIndexError, match="cannot be written"):
                projection.catch_up()
            assert (projection.state, projection.fault) == ("broken", "the index cannot be written")
            projection.catch_up()
            assert projection.state == "broken", "catching up is no repair"
            assert projection.rebuild() == 5
            assert (projection.state, projection.fault) == ("ready", "")
            assert agrees(ledger, indexes.last)
            assert nearest(ledger, projection, "one more", 1) is not None

    def test_counting_before_opening_is_an_error(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards against calling a closed index empty."""
        with projected(ledger, exact.open, root) as projection, pytest.raises(VectorIndexError, match="closed"):
            projection.count()


class TestNearest:
    def test_what_changed_since_the_checkpoint_is_proposed_besides(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards reading one's own writes: a fact is found before the index has it."""
        old, changed = add(ledger, "old", "to be changed")
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            (new,) = add(ledger, "new")
            add(ledger, "of someone else", user="bert")
            write(ledger, Decision(Event.UPDATE, Fact("changed"), changed.memory.id))
            found = nearest(ledger, projection, "old", 1)
            assert found is not None
            assert found[0] == unit_of(ledger, old)
            assert {unit_of(ledger, new), 2} <= set(found)
            assert len(set(found)) == 3, "what others changed is not proposed"

    def test_before_opening_and_after_closing_there_is_none(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the first searches of a process: the caller scans the ledger instead."""
        add(ledger, "one")
        with projected(ledger, exact.open, root) as projection:
            assert nearest(ledger, projection, "one") is None
            projection.open()
            assert nearest(ledger, projection, "one") == [1]
            projection.close()
            assert nearest(ledger, projection, "one") is None

    def test_while_it_is_built_there_is_none(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards against answers from half an index."""
        add(ledger, *facts(3))
        answers: list[list[int] | None] = []
        with projected(ledger, exact.open, root) as projection:
            exact.before = lambda: answers.append(nearest(ledger, projection, "fact 1"))
            projection.open()
            assert nearest(ledger, projection, "fact 1", 1) == [2]
            projection.rebuild()
            assert nearest(ledger, projection, "fact 1", 1) == [2]
        assert answers == [None, None]

    def test_a_query_that_fails_makes_it_broken_and_is_told(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Guards the search: it goes on without the index, which says for the doctor what happened."""
        add(ledger, "one")
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            exact.last.failing = "Error finding id"
            assert nearest(ledger, projection, "one") is None
            assert (projection.state, projection.fault) == ("broken", "Error finding id")
            exact.last.failing = ""
            assert nearest(ledger, projection, "one") is None, "once in doubt, it is not asked again"
            projection.rebuild()
            assert nearest(ledger, projection, "one") == [1]

    def test_with_too_much_to_catch_up_there_is_none(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards a bulk import: beyond a limit a scan of the ledger is cheaper than the changed units."""
        monkeypatch.setattr(sync, "MAX_CHANGED", 4)
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            add(ledger, *facts(4))
            assert sorted(nearest(ledger, projection, "fact 1") or []) == [1, 2, 3, 4]
            add(ledger, "one too many")
            assert nearest(ledger, projection, "fact 1") is None
            assert projection.state == "ready"
            projection.catch_up()
            assert nearest(ledger, projection, "fact 1", 1) == [2]

    def test_the_limit_counts_units_and_not_their_changes(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards a memory that is rewritten many times: it is one unit to read."""
        monkeypatch.setattr(sync, "MAX_CHANGED", 4)
        with projected(ledger, exact.open, root) as projection:
            projection.open()
            (change,) = add(ledger, "one")
            for number in range(10):
                write(ledger, Decision(Event.UPDATE, Fact(f"one, take {number}"), change.memory.id))
            assert nearest(ledger, projection, "one") == [1]

    def test_searching_and_following_at_once_disturb_each_other_not(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards the pool of threads: searches go on while the index is written."""
        changes = add(ledger, *facts(5))
        with projected(ledger, indexes.open, root) as projection, ThreadPoolExecutor(2) as pool:
            projection.open()
            asked = [pool.submit(nearest, ledger, projection, "fact 3", 1) for _ in range(40)]
            for number in range(8):
                add(ledger, f"more {number}")
                projection.catch_up()
            answers = [each.result() for each in asked]
            assert all(answer is not None and answer[0] == unit_of(ledger, changes[3]) for answer in answers)
            assert projection.state == "ready"
            assert agrees(ledger, indexes.last)


class TestShared:
    """One index for several processes, as on a Chroma server; here it lies in memory."""

    @pytest.fixture
    def shared(self, ledger: Ledger, root: Path) -> Generator[tuple[Projection, Projection, list[Recording]]]:
        """Give two projections onto one index, and what each wrote to it."""
        index, opened = Lasting(), list[Recording]()

        def connect(_folder: Path) -> Recording:
            opened.append(Recording(index))
            return opened[-1]

        made = [Projection(ledger, EMBEDDER, connect, root, layout="test", shared=True) for _ in range(2)]
        yield made[0], made[1], opened
        for projection in made:
            projection.close()

    def test_they_take_turns_and_every_change_is_written_once(
        self, ledger: Ledger, shared: tuple[Projection, Projection, list[Recording]]
    ) -> None:
        """Guards the common checkpoint: whoever comes second starts where the first one stopped."""
        first, second, opened = shared
        add(ledger, *facts(3))
        first.open()
        second.open()
        assert [index.upserted for index in opened] == [[1, 2, 3], []]
        add(ledger, "four")
        second.catch_up()
        first.catch_up()
        add(ledger, "five")
        first.catch_up()
        second.catch_up()
        assert [index.upserted for index in opened] == [[1, 2, 3, 5], [4]]
        assert agrees(ledger, opened[0])
        assert nearest(ledger, first, "four", 1) == nearest(ledger, second, "four", 1) == [4]

    def test_a_rebuild_empties_it_first(
        self, ledger: Ledger, shared: tuple[Projection, Projection, list[Recording]]
    ) -> None:
        """Guards the repair of an index that cannot be set aside."""
        first, _, opened = shared
        add(ledger, *facts(3))
        first.open()
        opened[-1].upsert("nobody", [99], direction("nothing")[np.newaxis])
        assert first.rebuild() == 3
        assert agrees(ledger, opened[-1])


class TestStopping:
    def test_a_fill_that_is_stopped_ends_early_and_is_built_whole_at_the_next_start(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards the end of the process: it does not wait for a long build, and half of one is never used."""
        add(ledger, *facts(3 * BATCH))
        with projected(ledger, indexes.open, root) as projection:
            indexes.before = projection.stop
            projection.open()
            assert projection.stopping()
            assert len(indexes.last.upserted) == BATCH
            assert projection.state != "ready"
            assert nearest(ledger, projection, "fact 1") is None
        assert not (root / "0" / "checkpoint.json").exists()
        indexes.before = lambda: None
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert len(indexes.last.upserted) == 3 * BATCH
            assert agrees(ledger, indexes.last)

    def test_following_that_is_stopped_goes_on_where_it_was(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Guards what is done: the next start takes only the rest."""
        build(ledger, indexes, root)
        add(ledger, *facts(2 * BATCH + 1))
        with projected(ledger, indexes.open, root) as projection:
            indexes.before = projection.stop
            projection.open()
            assert len(indexes.last.upserted) == BATCH
            found = nearest(ledger, projection, "fact 99", 1)
            assert found is not None
            assert 100 in found, "what was not followed is still proposed"
        indexes.before = lambda: None
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert len(indexes.last.upserted) == BATCH + 1
            assert agrees(ledger, indexes.last)

    def test_a_projection_that_was_closed_can_be_opened_again(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Guards the doctor, which opens and closes what it looks at; closing twice is no error."""
        add(ledger, "one")
        with projected(ledger, indexes.open, root) as projection:
            for _ in range(2):
                projection.open()
                assert projection.count() == 1
                projection.close()
                projection.close()
            assert sum(len(index.upserted) for index in indexes.opened) == 1


def chroma_in(folder: Path) -> ChromaIndex:
    return ChromaIndex.open_folder(folder, "p")


class TestRepair:
    def test_a_broken_database_under_a_good_checkpoint_is_rebuilt_at_once(self, ledger: Ledger, root: Path) -> None:
        """Guards the process that meets the damage: Chroma remembers a failed open against the next one."""
        add(ledger, "one", "two")
        with projected(ledger, chroma_in, root) as projection:
            projection.open()
        (root / "0" / "chroma.sqlite3").write_bytes(b"garbage" * 999)
        with projected(ledger, chroma_in, root) as projection:
            projection.open()
            assert (projection.state, projection.count()) == ("ready", 2)

    @pytest.mark.parametrize("seq", ["5", None, [1]])
    def test_a_checkpoint_whose_number_is_none_is_rebuilt_from(self, ledger: Ledger, root: Path, seq: object) -> None:
        """Guards against trusting the names in a file and not what stands behind them."""
        add(ledger, "one")
        with projected(ledger, lambda _: ExactIndex(), root) as projection:
            projection.open()
        path = root / "0" / "checkpoint.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "seq": seq}))
        with projected(ledger, lambda _: ExactIndex(), root) as projection:
            projection.open()
            assert (projection.state, projection.count()) == ("ready", 1)

    def test_an_index_ahead_of_a_ledger_from_a_backup_is_rebuilt(
        self, ledger: Ledger, root: Path, tmp_path: Path
    ) -> None:
        """Guards a ledger put back in place: the numbers of its changes come again, the changes do not."""
        add(ledger, "one")
        with sqlite3.connect(ledger.path) as source, sqlite3.connect(tmp_path / "old.db") as backup:
            source.backup(backup)
        source.close()
        backup.close()
        add(ledger, "two", "three")
        with projected(ledger, chroma_in, root) as projection:
            projection.open()
        older = open_ledger(tmp_path / "old.db", StoppedClock())
        try:
            (change,) = add(older, "four")
            with projected(older, chroma_in, root) as projection:
                projection.open()
                assert projection.count() == 2
                assert nearest(older, projection, "four", 1) == [unit_of(older, change)]
        finally:
            older.close()

    def test_a_ledger_that_fails_while_building_leaves_it_broken_and_openable(
        self, ledger: Ledger, exact: Indexes, root: Path
    ) -> None:
        """Guards against an index that is "building" for ever."""
        add(ledger, "one")

        class Locked(ExactIndex):
            def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:  # noqa: ARG002 - the port's
                raise LedgerError("the ledger is locked")

        given: list[VectorIndex] = [Locked()]
        with projected(ledger, lambda folder: given.pop() if given else exact.open(folder), root) as projection:
            with pytest.raises(LedgerError):
                projection.open()
            assert projection.state == "broken"
            projection.open()
            assert projection.state == "ready"

    def test_a_shared_rebuild_that_is_stopped_vouches_for_nothing(self, ledger: Ledger, root: Path) -> None:
        """Guards the other processes of a shared index against half of it."""
        add(ledger, *facts(3 * BATCH))
        index = Recording(Lasting())
        one, other = (Projection(ledger, EMBEDDER, lambda _: index, root, layout="f", shared=True) for _ in range(2))
        one.open()
        other.open()
        index.before = one.stop
        one.rebuild()
        index.before = lambda: None
        one.close()
        other.catch_up()
        assert (other.state, other.count()) == ("ready", 3 * BATCH)
        other.close()
