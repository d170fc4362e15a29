"""Index folders that a restore leaves behind: they are deleted once nobody uses them, and are no alarm before."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from palimpsest.admin import backup
from palimpsest.admin.backup import back_up, restore
from palimpsest.admin.doctor import examine, verify
from palimpsest.core.files import file_lock
from palimpsest.core.settings import Settings, load_settings
from palimpsest.index.sync import index_folders
from palimpsest.memory import Memory
from tests.support.ledger_access import ignore_progress, store_memory
from tests.support.memory import StoppedClock, memory_in

pytestmark = pytest.mark.anyio


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
