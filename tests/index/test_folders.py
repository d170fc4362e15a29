"""Index folders: which index can go on, which is set aside and rebuilt, who has a folder, and what is deleted."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from palimpsest.admin import backup
from palimpsest.admin.backup import back_up, restore
from palimpsest.admin.doctor import examine, verify
from palimpsest.core.errors import VectorIndexError
from palimpsest.core.files import file_lock
from palimpsest.core.settings import Settings, load_settings
from palimpsest.index import sync
from palimpsest.index.sync import BATCH, Checkpoint, index_folders
from palimpsest.memory import Memory
from palimpsest.store import entries
from palimpsest.store.ledger import Ledger
from tests.support.ledger_access import ignore_progress, store_memory
from tests.support.memory import StoppedClock, memory_in
from tests.support.projections import Indexes, add, agrees, build, entry_of, facts, ledger_in, opened, projected

pytestmark = pytest.mark.anyio


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


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(None, data_dir=tmp_path / "data", user_id="alice", llm={"provider": "none"})


async def build_indexes(settings: Settings, number: int) -> None:
    """Let several processes build an index of one memory each, and end."""
    with ExitStack() as stack:
        for name in range(number):
            async with memory_in(settings.data_dir) as memory:
                store_memory(memory, f"User has seen film {name}")
                memory.projection.open()
            stack.enter_context(file_lock(settings.index_dir / f"{name}.lock"))


def names(settings: Settings) -> list[str]:
    """Return the names of the index folders."""
    return [folder.name for folder in index_folders(settings.index_dir)]


async def alarms(settings: Settings) -> list[str]:
    """Return what `doctor --deep` finds degraded."""
    findings = [*await examine(settings), *verify(settings, ignore_progress, repair=False)]
    return [finding.text for finding in findings if not finding.ok]


async def restored_but_killed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore a backup in a process that ends before it has cleared anything away."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    copy = back_up(settings, None, StoppedClock()).path
    with monkeypatch.context() as patch:
        patch.setattr(backup, "delete_outdated", end)
        with pytest.raises(KeyboardInterrupt):
            restore(settings, copy, StoppedClock())


async def test_a_restore_deletes_the_folders_that_nobody_uses(settings: Settings) -> None:
    """Guards `doctor`, which went on about a folder that no process will ever use again."""
    await build_indexes(settings, 3)
    copy = back_up(settings, None, StoppedClock()).path
    with file_lock(settings.index_dir / "1.lock"):
        restore(settings, copy, StoppedClock())
    assert names(settings) == ["1"], "a folder in use is left to its process"
    assert await alarms(settings) == []


async def test_the_next_server_deletes_what_a_killed_restore_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards `doctor` after a restore that was killed."""
    await build_indexes(settings, 3)
    await restored_but_killed(settings, monkeypatch)
    assert names(settings) == ["0", "1", "2"]
    assert await alarms(settings) == []
    async with memory_in(settings.data_dir) as memory:
        memory.projection.open()
    assert names(settings) == ["0"]
    assert await alarms(settings) == []


async def test_a_running_server_deletes_it_when_it_rebuilds_its_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards memories whose servers run for weeks."""
    await build_indexes(settings, 3)
    async with memory_in(settings.data_dir) as memory:
        memory.projection.open()
        await restored_but_killed(settings, monkeypatch)
        memory.projection.catch_up()
        assert names(settings) == ["0"]
        assert memory.projection.count() == 3


async def test_a_repair_deletes_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards people who start no server."""
    await build_indexes(settings, 2)
    await restored_but_killed(settings, monkeypatch)
    findings = [finding.text for finding in verify(settings, ignore_progress, repair=True)]
    assert findings[1:] == ["of an earlier state of the ledger, and in use by nobody: deleted"] * 2
    assert names(settings) == []


async def test_a_folder_of_this_ledger_is_kept(settings: Settings) -> None:
    """Guards the indexes of clients that are not running now, also those of another embedder."""
    await build_indexes(settings, 2)

    def reopen(memory: Memory) -> None:
        memory.projection.open()
        assert names(settings) == ["0", "1"]

    async with memory_in(settings.data_dir) as memory:
        reopen(memory)
    async with memory_in(settings.data_dir, embedder={"provider": "static"}) as memory:
        reopen(memory)
