"""The database restarts, connections break, or nothing answers: a call is answered or fails plainly, and none hangs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import Connection, Engine, event, select, text

from palimpsest.core.errors import LedgerError, SettingsError
from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.postgres import postgres_database
from palimpsest.store.schema import memories
from postgresql import Cluster, own_cluster
from tests.support.ledger_access import writing
from tests.support.memory import ALICE, StoppedClock

pytestmark = [pytest.mark.nightly, pytest.mark.only_on("postgres", "a file cannot be restarted")]


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Run a server that these tests alone use."""
    with own_cluster() as started:
        yield started


@pytest.fixture
def own_ledger(cluster: Cluster, tmp_path: Path) -> Generator[Ledger]:
    """Yield an empty ledger on that server."""
    name = tmp_path.name
    cluster.create_database(name)
    with closing(open_ledger(SecretStr(cluster.url(name)), StoppedClock())) as opened:
        yield opened


def add(ledger: Ledger, statement: str) -> None:
    ledger.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.ADD, Fact(statement)),)))


def texts(ledger: Ledger) -> list[str]:
    with ledger.read() as conn:
        return list(conn.execute(select(memories.c.text).order_by(memories.c.seq)).scalars())


@contextmanager
def heard(name: str, listener: Callable[..., None]) -> Generator[None]:
    """Call a function at an event of every engine until the block ends."""
    event.listen(Engine, name, listener)
    try:
        yield
    finally:
        event.remove(Engine, name, listener)


def test_calls_after_a_restart_are_answered(cluster: Cluster, own_ledger: Ledger) -> None:
    """Connections from before are replaced without a word."""
    add(own_ledger, "Ana plays the cello")
    cluster.restart()
    assert texts(own_ledger) == ["Ana plays the cello"]
    cluster.restart()
    add(own_ledger, "Ben plays the flute")
    assert texts(own_ledger) == ["Ana plays the cello", "Ben plays the flute"]


def test_a_call_fails_plainly_while_the_database_is_stopped(cluster: Cluster, own_ledger: Ledger) -> None:
    """What was acknowledged is there when the database is back."""
    add(own_ledger, "Ana plays the cello")
    cluster.stop()
    try:
        with pytest.raises(LedgerError, match=r"Nothing was written\. The database cannot be reached"):
            add(own_ledger, "Ben plays the flute")
    finally:
        cluster.start()
    assert texts(own_ledger) == ["Ana plays the cello"]


def test_a_write_whose_connection_is_severed_writes_nothing(
    cluster: Cluster, own_ledger: Ledger, tmp_path: Path
) -> None:
    """It fails with the reason, and the next one succeeds."""
    with writing(own_ledger, "alice") as conn:
        conn.execute(text("CREATE TABLE other (word text)"))

    def write_half() -> None:
        with writing(own_ledger, "alice") as conn:
            conn.execute(text("INSERT INTO other VALUES ('half')"))
            cluster.sever(tmp_path.name)
            conn.execute(text("INSERT INTO other VALUES ('whole')"))

    with pytest.raises(LedgerError, match="Nothing was written"):
        write_half()
    with own_ledger.read() as conn:
        assert conn.execute(text("SELECT count(*) FROM other")).scalar_one() == 0


def test_a_commit_that_did_not_happen_is_no_success(own_ledger: Ledger, cluster: Cluster, tmp_path: Path) -> None:
    """The connection broke before the database was told to commit."""

    def break_before_commit(_conn: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.endswith("COMMIT"):
            cluster.sever(tmp_path.name)

    with heard("before_cursor_execute", break_before_commit), pytest.raises(LedgerError, match="Nothing was written"):
        add(own_ledger, "Ana plays the cello")
    assert texts(own_ledger) == []


def test_a_database_that_does_not_answer_is_given_up(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has stopped sends nothing, not even that it has stopped."""
    monkeypatch.setattr(postgres_database, "SILENCE_SECONDS", 1.0)
    cluster.create_database(tmp_path.name)
    with closing(open_ledger(SecretStr(cluster.url(tmp_path.name)), StoppedClock())) as ledger:
        frozen: list[int] = []

        def read_of_a_frozen_server() -> None:
            with ledger.read() as conn:
                frozen.append(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
                os.kill(frozen[0], signal.SIGSTOP)
                conn.exec_driver_sql("SELECT 1")

        try:
            with pytest.raises(LedgerError, match="could not be used"):
                read_of_a_frozen_server()
        finally:
            for process in frozen:
                os.kill(process, signal.SIGCONT)
        assert texts(ledger) == []


def test_a_write_does_not_wait_for_ever_for_its_turn(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else writes for the same user and does not end. Writes for other users go on."""
    monkeypatch.setattr(
        postgres_database, "SESSION", postgres_database.SESSION.replace("lock_timeout = '30s'", "lock_timeout = '1s'")
    )
    cluster.create_database(tmp_path.name)
    address = SecretStr(cluster.url(tmp_path.name))
    with (
        closing(open_ledger(address, StoppedClock())) as first,
        closing(open_ledger(address, StoppedClock())) as second,
    ):
        holds, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with writing(first, "alice"):
                holds.set()
                may_end.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        try:
            holds.wait()
            with writing(second, "ben"):
                pass
            with pytest.raises(LedgerError, match="Another server has been writing"):
                add(second, "Ana plays the cello")
        finally:
            may_end.set()
            holder.join()
        add(second, "Ana plays the cello")
        assert texts(second) == ["Ana plays the cello"]


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("no url", "ledger_url is no URL"),
        ("mysql://host/database", "ledger_url begins with mysql"),
        ("postgresql://host", "ledger_url names no database"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(address: str, part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        open_ledger(SecretStr(address), StoppedClock())


def test_an_error_does_not_show_the_password(cluster: Cluster) -> None:
    """The database does not exist; the text names the place and what to do."""
    with pytest.raises(LedgerError, match="Create the database that ledger_url names") as caught:
        open_ledger(SecretStr(cluster.url("nowhere")), StoppedClock())
    assert cluster.password not in str(caught.value)
