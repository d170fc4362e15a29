"""Checkpoints: which index can go on, and which is set aside and rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.errors import VectorIndexError
from palimpsest.index.sync import BATCH, Checkpoint
from palimpsest.store import entries
from palimpsest.store.ledger import Ledger
from tests.support.projections import Indexes, add, agrees, build, entry_of, facts, ledger_in, opened


class TestCheckpoint:
    def test_a_reopened_index_applies_only_new_changes(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """The cost of the next start depends on what changed, not on the size of the ledger."""
        add(ledger, *facts(BATCH + 5))
        build(ledger, indexes, root)
        build(ledger, indexes, root)
        assert indexes.last.upserted == []
        (outcome,) = add(ledger, "one more")
        with opened(ledger, indexes.open, root):
            assert indexes.last.upserted == [entry_of(ledger, outcome)]
            assert agrees(ledger, indexes.last)
        assert not (root / "0.aside").exists()

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("other", [{"embedder": "another"}, {"layout": "another"}])
    def test_an_index_of_another_embedder_or_layout_is_set_aside(
        self, ledger: Ledger, indexes: Indexes, root: Path, other: dict[str, str]
    ) -> None:
        """Vectors of two embedders are never compared, also not after changing back."""
        add(ledger, *facts(3))
        build(ledger, indexes, root)
        with opened(ledger, indexes.open, root, **other) as projection:
            assert projection.state == "ready"
            assert projection.count() == (0 if "embedder" in other else 3)
        assert (root / "0.aside").is_dir()
        with opened(ledger, indexes.open, root):
            assert len(indexes.last.upserted) == 3
            assert agrees(ledger, indexes.last)

    def test_an_index_of_another_ledger_is_set_aside(
        self, ledger: Ledger, indexes: Indexes, root: Path, tmp_path: Path
    ) -> None:
        """If two ledgers share an index folder, the entry numbers of one mean nothing in the other."""
        add(ledger, *facts(3))
        with ledger_in(tmp_path / "other.db") as other:
            add(other, "something else", "and more", "and more still")
            build(other, indexes, root)
        with opened(ledger, indexes.open, root):
            assert agrees(ledger, indexes.last)
        assert (root / "0.aside").is_dir()

    def test_only_the_last_index_set_aside_is_kept(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Repeated rebuilds do not fill the disk."""
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
        """A partly written file that a crash left beside the checkpoint is not read, and the next write replaces it."""
        add(ledger, *facts(3))
        build(ledger, exact, root)
        (root / "0" / "checkpoint.json.new").write_text('{"ledger": "tor')
        with opened(ledger, exact.open, root) as projection:
            assert exact.last.upserted == [], "the old checkpoint is still valid"
            add(ledger, "one more")
            projection.catch_up()
        assert not (root / "0" / "checkpoint.json.new").exists()
        with ledger.read() as conn:
            newest = entries.newest_log_number(conn)
        checkpoint = Checkpoint.read(root / "0")
        assert checkpoint is not None
        assert checkpoint.log_number == newest

    def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a full disk the error is reported, and the next start repeats what the checkpoint does not cover."""
        add(ledger, *facts(3))
        with opened(ledger, exact.open, root) as projection:
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
        with opened(ledger, exact.open, root):
            assert len(exact.last.upserted) == 1
            assert agrees(ledger, exact.last)
