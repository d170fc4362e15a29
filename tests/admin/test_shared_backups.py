"""Backups of a ledger in PostgreSQL: whole ledgers in files of their own, which are restored in one transaction."""

from __future__ import annotations

import stat
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from palimpsest.admin.backup import back_up, restore, stored_backups
from palimpsest.core.errors import LedgerError
from palimpsest.core.settings import Settings
from palimpsest.store import copying, verify
from palimpsest.store.ledger import open_ledger
from tests.support.ledger_access import ignore_progress, ledger_faults, store_memory
from tests.support.ledger_files import search_texts
from tests.support.memory import StoppedClock, memory_in
from tests.support.moving import BOB, digests, fill, settings_for

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.postgres,
    pytest.mark.only_on("sqlite", "they name their databases themselves"),
]

# The tables that a restore adds to: a new epoch, which the index log tells.
OF_EPOCHS = ("meta", "changes")


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def settings(tmp_path: Path, database: SecretStr) -> Settings:
    return settings_for(tmp_path / "data", database)


@pytest.mark.nightly
async def test_a_backup_is_a_whole_ledger_and_is_restored_under_a_server_that_goes_on(
    settings: Settings, database: SecretStr, clock: StoppedClock
) -> None:
    """Guards every row of every user, the present state, which is kept, and open servers, which see it."""
    async with memory_in(settings.data_dir, clock, ledger_url=database) as memory:
        await fill(memory, clock)
        copy, before = back_up(settings, None, clock), digests(database, without=OF_EPOCHS)
        assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600
        assert (copy.memories, copy.messages) == (12, 8)
        assert [backup.path for backup in stored_backups(settings)] == [copy.path]
        assert digests(copy.path) == digests(database)
        assert ledger_faults(copy.path) == []
        assert not (settings.data_dir / "copying").exists()
        store_memory(memory, "User bakes bread")
        await memory.delete_all(BOB)
        newer = digests(database)
        restored = restore(settings, copy.path, clock)
        assert digests(database, without=OF_EPOCHS) == before
        assert restored.before is not None
        assert digests(restored.before) == newer
        assert "User bakes bread" not in await search_texts(memory, "What does the user bake?")
        assert "User lives in Zürich" in await search_texts(memory, "Where does the user live?")
        store_memory(memory, "User plays the cello")
    with closing(open_ledger(database, clock)) as ledger:
        assert ledger.read_with(verify.verify, ledger.database, ignore_progress).texts() == []


def _break_off(*_: object) -> None:
    raise LedgerError("it broke off")


@pytest.mark.nightly
async def test_what_cannot_be_restored_changes_nothing(
    settings: Settings, database: SecretStr, clock: StoppedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the present ledger: a restore that breaks off in the middle is no restore."""
    async with memory_in(tmp_path / "file", clock) as memory:
        store_memory(memory, "User likes tea")
    async with memory_in(settings.data_dir, clock, ledger_url=database) as memory:
        store_memory(memory, "User bakes bread")
        before = digests(database)
        monkeypatch.setattr(copying, "begin_epoch", _break_off)
        with pytest.raises(LedgerError, match="broke off"):
            restore(settings, tmp_path / "file" / "ledger.db", clock)
        assert digests(database) == before
        assert "User bakes bread" in await search_texts(memory, "What does the user bake?")
