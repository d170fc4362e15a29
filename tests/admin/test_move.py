"""A ledger in PostgreSQL: moved there and back, backed up and restored, and migrated by command alone."""

from __future__ import annotations

import stat
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from palimpsest.admin.backup import back_up, restore, stored_backups
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.settings import Settings
from palimpsest.store import copying, verify
from palimpsest.store.ledger import open_ledger
from palimpsest.store.schema import HEAD
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.exports import exported
from tests.support.ledger_access import ignore_progress, ledger_faults, ledger_in, store_memory
from tests.support.ledger_files import search_texts
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.moving import BOB, Filled, digests, fill, moved, settings_for
from tests.support.next_version import NEXT, PURPOSE, become_the_next_version
from tests.support.postgres import PostgresStore
from tests.support.stores import Address

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.postgres,
    pytest.mark.only_on("sqlite", "they name their databases themselves"),
]


# The tables that differ after a move: a new epoch, which the index log tells.
NEW = ("meta", "changes")


@pytest.fixture
async def filled(tmp_path: Path, clock: StoppedClock) -> Filled:
    async with memory_in(tmp_path / "here", clock) as memory:
        return await fill(memory, clock)


def file_of(folder: Path) -> Path:
    return folder / "ledger.db"


async def exports(folder: Path, place: Address, clock: StoppedClock) -> list[bytes]:
    url = {} if isinstance(place, Path) else {"ledger_url": place}
    found: list[bytes] = []
    for user in (ALICE.user_id, BOB.user_id):
        async with memory_in(folder, clock, **url, user_id=user) as memory:  # pyright: ignore[reportArgumentType] - settings
            found.append(await exported(memory))
    return found


@pytest.mark.nightly
@pytest.mark.usefixtures("filled")
async def test_a_ledger_moves_there_and_back(tmp_path: Path, database: SecretStr, clock: StoppedClock) -> None:
    """Guards a moved ledger: every row, every export and the id are the same, and the source is as it was."""
    here, back = file_of(tmp_path / "here"), file_of(tmp_path / "back")
    before, written = digests(here), await exports(tmp_path / "here", here, clock)
    done = moved(tmp_path / "here", here, database, clock)
    assert digests(here) == before
    assert (done.rows["memories"], done.until) == (12, clock.at)
    assert digests(database, without=NEW) == digests(here, without=NEW)
    assert await exports(tmp_path / "there", database, clock) == written
    moved(tmp_path / "there", database, back, clock)
    assert digests(back, without=(*NEW, "recalls", "recalled")) == digests(here, without=(*NEW, "recalls", "recalled"))
    assert await exports(tmp_path / "back", back, clock) == written
    with ledger_in(tmp_path / "here") as one, ledger_in(tmp_path / "back") as other:
        assert one.id == other.id
    assert ledger_faults(back) == []
    with closing(open_ledger(database, clock)) as ledger:
        assert ledger.read_with(verify.verify, ledger.database, ignore_progress).texts() == []


@pytest.mark.nightly
@pytest.mark.usefixtures("filled")
async def test_a_move_that_broke_off_leaves_nothing(tmp_path: Path, database: SecretStr, clock: StoppedClock) -> None:
    """Guards against a part of a ledger that somebody takes for the whole: the next move finds an empty database."""
    here = file_of(tmp_path / "here")

    def break_off(done: int, total: int) -> None:
        if 2 * done > total:
            raise LedgerError("killed")

    with pytest.raises(LedgerError, match="killed"):
        moved(tmp_path / "here", here, database, clock, break_off)
    moved(tmp_path / "here", here, database, clock)
    assert digests(database, without=NEW) == digests(here, without=NEW)


@pytest.mark.usefixtures("filled")
async def test_a_place_that_holds_something_is_refused(
    tmp_path: Path, database: SecretStr, clock: StoppedClock, postgres: PostgresStore
) -> None:
    """Guards other ledgers and other programs against being written over."""
    here = tmp_path / "here"
    with pytest.raises(InputError, match="already holds a ledger"):
        moved(here, file_of(here), file_of(here), clock)
    with pytest.raises(InputError, match="already holds a ledger"):
        moved(here, file_of(here), postgres.address(tmp_path / "ledger.db"), clock)
    with postgres.cluster.administrator(database.get_secret_value().rpartition("/")[2]) as conn:
        conn.execute("CREATE TABLE theirs (id int)")
    with pytest.raises(LedgerError, match="another program"):
        moved(here, file_of(here), database, clock)
    with pytest.raises(LedgerError, match="there is no ledger"):
        moved(tmp_path / "none", file_of(tmp_path / "none"), database, clock)


@pytest.mark.nightly
async def test_the_command_says_what_to_set(tmp_path: Path, database: SecretStr) -> None:
    """Guards who moves by hand: the reply names the setting, and what stays where it was."""
    palimpsest(tmp_path, "add", "User bakes bread")
    said = palimpsest(tmp_path, "move", "--to", database.get_secret_value())
    assert "copied 1 memory" in said
    assert "ledger_url" in said
    assert "backups stay in" in said
    there = {"PALIMPSEST_LEDGER_URL": database.get_secret_value()}
    assert "User bakes bread" in palimpsest(tmp_path, "list", settings=there)
    again = palimpsest(tmp_path, "move", "--to", str(tmp_path / "new" / "ledger.db"), settings=there)
    assert f'history_db_path = "{tmp_path / "new" / "ledger.db"}"' in again
    assert "already holds a ledger" in palimpsest(tmp_path, "move", "--to", database.get_secret_value(), code=1)
    back = {"PALIMPSEST_HISTORY_DB_PATH": str(tmp_path / "new" / "ledger.db")}
    assert "User bakes bread" in palimpsest(tmp_path, "list", settings=back)


# The tables that a restore adds to: a new epoch, which the index log tells.
OF_EPOCHS = ("meta", "changes")


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


def test_a_shared_database_is_migrated_by_command_alone(
    tmp_path: Path, database: SecretStr, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards servers of the old version: no server migrates what they use, and the error says what to do."""
    there = {"PALIMPSEST_LEDGER_URL": database.get_secret_value()}
    palimpsest(tmp_path, "add", "User plays the cello", settings=there)
    become_the_next_version(monkeypatch, tmp_path)
    with pytest.raises(LedgerError, match=rf"has schema {HEAD}.*pg_dump --format=custom.*palimpsest migrate"):
        open_ledger(database, StoppedClock())
    planned = palimpsest(tmp_path, "migrate", "--dry-run", settings=there)
    assert NEXT in planned
    assert PURPOSE.rstrip(".") in planned
    with pytest.raises(LedgerError, match=f"has schema {HEAD}"):
        open_ledger(database, StoppedClock())
    asked = palimpsest(tmp_path, "migrate", code=1, answer="n\n", settings=there)
    assert "pg_dump" in asked
    password = database.get_secret_value().split(":")[2].split("@")[0]
    assert password not in planned + asked
    assert palimpsest_json(tmp_path, "migrate", "--yes", settings=there)["done"]
    with closing(open_ledger(database, StoppedClock())) as ledger, ledger.read() as conn:
        assert conn.exec_driver_sql("SELECT mood FROM memories").scalars().all() == ["calm"]
    assert "up to date" in palimpsest(tmp_path, "migrate", settings=there)
    palimpsest(tmp_path, "add", "User bakes bread", settings=there)
    assert "User bakes bread" in palimpsest(tmp_path, "search", "bread", settings=there)
    assert "User plays the cello" in palimpsest(tmp_path, "search", "cello", settings=there)


def test_a_file_is_migrated_after_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the same command on a file: it shows the steps, and makes the backup itself."""
    palimpsest(tmp_path, "add", "User bakes bread")
    become_the_next_version(monkeypatch, tmp_path)
    steps = palimpsest_json(tmp_path, "migrate", "--dry-run")["steps"]
    assert [step["to"] for step in steps] == [NEXT]
    assert "migrated" in palimpsest(tmp_path, "migrate")
    assert list((tmp_path / "data" / "backups").glob(f"ledger-schema-{HEAD}-*.db"))
    assert "User bakes bread" in palimpsest(tmp_path, "search", "bread")
