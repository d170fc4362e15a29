"""Moving a whole ledger to PostgreSQL and back: nothing is lost, changed or served before it is complete."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from palimpsest.core.errors import InputError, LedgerError
from palimpsest.store import verify
from palimpsest.store.ledger import open_ledger
from tests.support.command_line import palimpsest
from tests.support.exports import exported
from tests.support.ledger_access import ignore_progress, ledger_faults, ledger_in
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.moving import BOB, Filled, digests, fill, moved
from tests.support.postgres import PostgresStore
from tests.support.stores import Address

pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.only_on("sqlite", "they move it to a database")]

# The tables that differ after a move: a new epoch, which the index log tells.
NEW = ("meta", "changes")


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


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
    with pytest.raises(InputError, match="already holds this ledger"):
        moved(here, file_of(here), file_of(here), clock)
    with pytest.raises(InputError, match="already holds another ledger"):
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
    assert "access tokens" in said
    there = {"PALIMPSEST_LEDGER_URL": database.get_secret_value()}
    assert "User bakes bread" in palimpsest(tmp_path, "list", settings=there)
    again = palimpsest(tmp_path, "move", "--to", str(tmp_path / "new" / "ledger.db"), settings=there)
    assert f'history_db_path = "{tmp_path / "new" / "ledger.db"}"' in again
    assert "already holds this ledger" in palimpsest(tmp_path, "move", "--to", database.get_secret_value(), code=1)
    back = {"PALIMPSEST_HISTORY_DB_PATH": str(tmp_path / "new" / "ledger.db")}
    assert "User bakes bread" in palimpsest(tmp_path, "list", settings=back)
