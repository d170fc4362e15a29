"""Leases on index folders: one projection per folder, released with the process."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palimpsest.core.errors import VectorIndexError
from palimpsest.index import sync
from palimpsest.store.ledger import Ledger
from tests.support.projections import Indexes, add, agrees, facts, opened, projected

HOLD_A_LEASE = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


class TestLease:
    def test_two_projections_never_share_a_folder(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Two writers in one Chroma folder would corrupt it permanently."""
        add(ledger, *facts(3))
        with projected(ledger, indexes.open, root) as first, projected(ledger, indexes.open, root) as second:
            first.open()
            second.open()
            assert (first.folder, second.folder) == (root / "0", root / "1")
            add(ledger, "one more")
            first.catch_up()
            second.catch_up()
            assert all(agrees(ledger, index) for index in indexes.opened)

    def test_a_closed_projection_releases_its_folder(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """The next process uses the released folder, so the number of folders does not grow."""
        with projected(ledger, exact.open, root) as first, projected(ledger, exact.open, root) as second:
            first.open()
            second.open()
            first.close()
            assert (first.folder, first.state) == (None, "closed")
            with projected(ledger, exact.open, root) as third:
                third.open()
                assert third.folder == root / "0"

    def test_another_thread_can_release_the_folder(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """The worker thread that closes a projection is seldom the one that opened it."""
        with ThreadPoolExecutor(1) as opening, ThreadPoolExecutor(1) as closing:
            for _ in range(2):
                with projected(ledger, exact.open, root) as projection:
                    opening.submit(projection.open).result()
                    assert projection.folder == root / "0"
                    closing.submit(projection.close).result()

    def test_a_folder_leased_by_another_process_is_not_used(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Another process's lease is respected, and it ends when that process is killed."""
        root.mkdir()
        command = [sys.executable, "-c", HOLD_A_LEASE, str(root / "0.lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with opened(ledger, exact.open, root) as projection:
                assert projection.folder == root / "1"
            holder.kill()
        with opened(ledger, exact.open, root) as projection:
            assert projection.folder == root / "0"

    def test_the_lease_is_kept_through_a_rebuild(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """No other projection can lease a folder while its content is moved aside."""
        with projected(ledger, exact.open, root) as first, projected(ledger, exact.open, root) as second:
            first.open()
            first.rebuild()
            second.open()
            assert (first.folder, second.folder) == (root / "0", root / "1")

    def test_an_error_says_that_all_folders_are_in_use(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Opening neither waits forever nor shares a folder."""
        monkeypatch.setattr(sync, "MAX_FOLDERS", 1)
        with projected(ledger, exact.open, root) as first, projected(ledger, exact.open, root) as second:
            first.open()
            with pytest.raises(VectorIndexError, match="all 1 index folders"):
                second.open()
            assert second.state == "broken"
            assert "in use" in second.fault
            first.close()
            second.open()
            assert second.state == "ready"

    def test_a_root_that_is_a_file_is_a_vector_index_error(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """The settings may name a wrong path."""
        root.write_text("a file")
        with projected(ledger, exact.open, root) as projection:
            with pytest.raises(VectorIndexError, match="cannot be used"):
                projection.open()
            assert projection.state == "broken"
