"""Damaged indexes and failing writes: what is set aside, rebuilt and reported."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from palimpsest.core.errors import LedgerError, VectorIndexError
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Vector, VectorIndex
from palimpsest.index.chroma_folder import ChromaIndex
from palimpsest.store.ledger import Ledger, open_ledger
from tests.support.exact_index import ExactIndex
from tests.support.ledger_access import all_keys
from tests.support.memory import StoppedClock
from tests.support.projections import (
    EMBEDDER,
    Indexes,
    add,
    agrees,
    build,
    direction,
    entry_of,
    facts,
    nearest,
    projected,
)

CHROMA_SYNCS_AFTER = 1_000
"""Writes to one collection after which Chroma, with its default settings, writes its graph to files."""


class TestDamagedIndex:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("users", [("ana",), ("ana", "bert")])
    def test_an_index_with_too_few_vectors_is_rebuilt_when_opened(
        self, ledger: Ledger, indexes: Indexes, root: Path, users: tuple[str, ...]
    ) -> None:
        """An index that lost vectors would never find them again."""
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

    def test_an_index_with_too_many_vectors_is_rebuilt_when_opened(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """Such vectors belong to no entry."""
        add(ledger, *facts(4))
        build(ledger, indexes, root)
        behind = indexes.open(root / "0")
        behind.upsert("nobody", [999], direction("nothing")[np.newaxis])
        behind.close()
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            assert agrees(ledger, indexes.last)

    def test_a_chroma_folder_that_lost_its_database_is_rebuilt(self, ledger: Ledger, root: Path) -> None:
        """The folder has a valid checkpoint, but the database is missing."""
        chroma = Indexes("chroma")
        add(ledger, *facts(4))
        build(ledger, chroma, root)
        (root / "0" / "chroma.sqlite3").unlink()
        with projected(ledger, chroma.open, root) as projection:
            projection.open()
            assert projection.state == "ready"
            assert agrees(ledger, chroma.last)

    @pytest.mark.nightly
    def test_garbage_in_the_files_of_chroma_is_set_aside_and_rebuilt(self, ledger: Ledger, root: Path) -> None:
        """A crash during Chroma's own sync leaves files that it cannot read."""
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

    def test_garbage_in_a_chroma_folder_without_a_checkpoint_is_set_aside(self, ledger: Ledger, root: Path) -> None:
        """Foreign content in the folder is neither opened nor lost."""
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
        """A damaged index is repaired at the start."""
        add(ledger, *facts(4))
        build(ledger, indexes, root)
        attempts: list[Path] = []

        def damaged_at_first(folder: Path) -> VectorIndex:
            attempts.append(folder)
            if len(attempts) == 1:
                raise VectorIndexError("the index is damaged")
            return indexes.open(folder)

        with projected(ledger, damaged_at_first, root) as projection:
            projection.open()
            assert (projection.state, projection.fault) == ("ready", "")
            assert agrees(ledger, indexes.last)
        assert (root / "0.aside" / "checkpoint.json").is_file()

    def test_an_index_that_can_never_be_opened_is_reported(self, ledger: Ledger, root: Path) -> None:
        """The error is reported, and searches work without the index."""

        def damaged(_folder: Path) -> VectorIndex:
            raise VectorIndexError("the index is damaged")

        add(ledger, *facts(4))
        with projected(ledger, damaged, root) as projection:
            with pytest.raises(VectorIndexError, match="the index is damaged"):
                projection.open()
            assert (projection.state, projection.fault) == ("broken", "the index is damaged")
            assert nearest(ledger, projection, "fact 1") is None

    def test_a_rebuild_repairs_a_broken_index(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """After a failed write, a rebuild makes the index usable again."""
        add(ledger, *facts(4))
        with projected(ledger, indexes.open, root) as projection:
            projection.open()
            add(ledger, "one more")
            indexes.last.failing = "the index cannot be written"
            with pytest.raises(VectorIndexError, match="cannot be written"):
                projection.catch_up()
            assert (projection.state, projection.fault) == ("broken", "the index cannot be written")
            projection.catch_up()
            assert projection.state == "broken", "catching up does not repair"
            assert projection.rebuild() == 5
            assert (projection.state, projection.fault) == ("ready", "")
            assert agrees(ledger, indexes.last)
            assert nearest(ledger, projection, "one more", 1) is not None

    def test_counting_before_opening_is_an_error(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """A closed index must not look empty."""
        with projected(ledger, exact.open, root) as projection, pytest.raises(VectorIndexError, match="closed"):
            projection.count()


def chroma_in(folder: Path) -> ChromaIndex:
    return ChromaIndex.open_folder(folder, "p")


class TestRepair:
    def test_a_damaged_database_with_a_valid_checkpoint_is_rebuilt(self, ledger: Ledger, root: Path) -> None:
        """Chroma remembers a failed attempt to open a folder, which must not block the rebuild."""
        add(ledger, "one", "two")
        with projected(ledger, chroma_in, root) as projection:
            projection.open()
        (root / "0" / "chroma.sqlite3").write_bytes(b"garbage" * 999)
        with projected(ledger, chroma_in, root) as projection:
            projection.open()
            assert (projection.state, projection.count()) == ("ready", 2)

    @pytest.mark.parametrize("number", ["5", None, [1]])
    def test_a_checkpoint_with_an_invalid_number_is_not_used(self, ledger: Ledger, root: Path, number: object) -> None:
        """The values in the file are checked, not only the keys."""
        add(ledger, "one")
        with projected(ledger, lambda _: ExactIndex(), root) as projection:
            projection.open()
        path = root / "0" / "checkpoint.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "log_number": number}))
        with projected(ledger, lambda _: ExactIndex(), root) as projection:
            projection.open()
            assert (projection.state, projection.count()) == ("ready", 1)

    def test_an_index_ahead_of_a_restored_ledger_is_rebuilt(self, ledger: Ledger, root: Path, tmp_path: Path) -> None:
        """A restored ledger uses the same log numbers again for other rows."""
        add(ledger, "one")
        with sqlite3.connect(ledger.location) as source, sqlite3.connect(tmp_path / "old.db") as backup:
            source.backup(backup)
        source.close()
        backup.close()
        add(ledger, "two", "three")
        with projected(ledger, chroma_in, root) as projection:
            projection.open()
        older = open_ledger(tmp_path / "old.db", StoppedClock())
        try:
            (outcome,) = add(older, "four")
            with projected(older, chroma_in, root) as projection:
                projection.open()
                assert projection.count() == 2
                assert nearest(older, projection, "four", 1) == [entry_of(older, outcome)]
        finally:
            older.close()

    def test_after_a_ledger_error_during_a_build_the_index_can_be_opened(
        self, ledger: Ledger, exact: Indexes, root: Path
    ) -> None:
        """The index must not stay "building" forever."""
        add(ledger, "one")

        class Locked(ExactIndex):
            def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:  # noqa: ARG002 - the port's
                raise LedgerError("the ledger is locked")

        locked: list[VectorIndex] = [Locked()]
        with projected(ledger, lambda folder: locked.pop() if locked else exact.open(folder), root) as projection:
            with pytest.raises(LedgerError):
                projection.open()
            assert projection.state == "broken"
            projection.open()
            assert projection.state == "ready"
