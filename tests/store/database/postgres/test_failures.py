"""PostgreSQL restarts, breaks connections or is silent, and several servers write: each call says what it wrote."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, select, text

from palimpsest.core.errors import LedgerError, SettingsError
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.memory import Memory
from palimpsest.store import entries, verify
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_database, open_ledger
from palimpsest.store.postgres import postgres_database
from palimpsest.store.schema import history, index_log, memories
from postgresql import Cluster, own_cluster
from tests.support.ledger_access import ignore_progress, writing
from tests.support.memory import StoppedClock
from tests.support.stores import ledger_address

pytestmark = [pytest.mark.anyio, pytest.mark.only_on("postgres", "a file cannot be restarted")]

INSERT = text("INSERT INTO meta(key, value) VALUES (:key, '')")


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Run a server that these tests alone use."""
    with own_cluster() as started:
        yield started


@pytest.fixture
def address(cluster: Cluster, tmp_path: Path) -> SecretStr:
    """Return the URL of an empty database on that server."""
    cluster.create_database(tmp_path.name)
    return SecretStr(cluster.url(tmp_path.name))


@pytest.fixture
def ledger(address: SecretStr) -> Generator[Ledger]:
    with closing(open_ledger(address, StoppedClock())) as opened:
        yield opened


def add(ledger: Ledger, statement: str, user_id: str = "alice") -> None:
    ledger.apply(Write(Scope(user_id), Provenance("test"), decisions=(Decision(Event.ADD, Fact(statement)),)))


def texts(ledger: Ledger) -> list[str]:
    with ledger.read() as conn:
        return list(conn.execute(select(memories.c.text).order_by(memories.c.seq)).scalars())


def keys(ledger: Ledger) -> set[str]:
    with ledger.read() as conn:
        return set(conn.execute(text("SELECT key FROM meta")).scalars())


@pytest.mark.nightly
def test_calls_after_a_restart_are_answered(cluster: Cluster, ledger: Ledger) -> None:
    add(ledger, "Ana plays the cello")
    cluster.restart()
    assert texts(ledger) == ["Ana plays the cello"]
    cluster.restart()
    add(ledger, "Ben plays the flute")
    cluster.stop()
    try:
        with pytest.raises(LedgerError, match=r"Nothing was written\. The database cannot be reached"):
            add(ledger, "Cem plays the harp")
    finally:
        cluster.start()
    assert texts(ledger) == ["Ana plays the cello", "Ben plays the flute"]


def test_a_write_whose_connection_is_severed_writes_nothing(cluster: Cluster, ledger: Ledger, tmp_path: Path) -> None:
    """It fails with the reason, and the next one succeeds."""
    with writing(ledger, "alice") as conn:
        conn.execute(text("CREATE TABLE other (word text)"))

    def write_half() -> None:
        with writing(ledger, "alice") as conn:
            conn.execute(text("INSERT INTO other VALUES ('half')"))
            cluster.sever(tmp_path.name)
            conn.execute(text("INSERT INTO other VALUES ('whole')"))

    with pytest.raises(LedgerError, match="Nothing was written"):
        write_half()
    with ledger.read() as conn:
        assert conn.execute(text("SELECT count(*) FROM other")).scalar_one() == 0


@pytest.mark.nightly
def test_a_database_that_does_not_answer_is_given_up(address: SecretStr, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has stopped sends nothing, not even that it has stopped."""
    monkeypatch.setattr(postgres_database, "SILENCE_SECONDS", 1.0)
    with closing(open_ledger(address, StoppedClock())) as ledger:
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


@pytest.mark.nightly
def test_a_write_does_not_wait_for_ever_for_its_turn(address: SecretStr, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else writes for the same user and does not end. Writes for other users go on."""
    hasty = postgres_database.SESSION.replace("lock_timeout = '30s'", "lock_timeout = '1s'")
    monkeypatch.setattr(postgres_database, "SESSION", hasty)
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


@pytest.mark.nightly
def test_a_write_that_a_crash_took_is_not_acknowledged(cluster: Cluster, ledger: Ledger) -> None:
    """Guards whoever wrote: nobody says that it was stored, and what others write afterwards is."""
    others = {f"after the crash {number}" for number in range(3)}

    def write() -> None:
        with writing(ledger, "alice") as conn:
            conn.execute(INSERT, {"key": "taken"})
            cluster.restart()
            for key in others:
                with writing(ledger, "bob") as other:
                    other.execute(INSERT, {"key": key})

    with pytest.raises(LedgerError, match="Look before you repeat it"):
        write()
    assert keys(ledger) & {"taken", *others} == others


@pytest.mark.nightly
@pytest.mark.parametrize("address", ["no url", "mysql://host/database", "postgresql://host"])
def test_an_address_that_cannot_be_right_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="ledger_url is not the URL of a PostgreSQL database"):
        open_ledger(SecretStr(address), StoppedClock())


@pytest.mark.nightly
def test_an_error_does_not_show_the_password(cluster: Cluster) -> None:
    with pytest.raises(LedgerError, match="Create the database that ledger_url names") as caught:
        open_ledger(SecretStr(cluster.url("nowhere")), StoppedClock())
    assert cluster.password not in str(caught.value)


USERS = ("alice", "ben", "chloe")
EACH = 8


@pytest.fixture
def servers(tmp_path: Path) -> Generator[list[Ledger]]:
    """Open a ledger twice, as two servers do."""
    address = ledger_address(tmp_path / "ledger.db")
    with closing(open_ledger(address, StoppedClock())) as one, closing(open_ledger(address, StoppedClock())) as other:
        yield [one, other]


def test_writes_for_different_users_have_edits_of_their_own(servers: list[Ledger]) -> None:
    def work(ledger: Ledger, user_id: str) -> None:
        for number in range(EACH):
            add(ledger, f"{user_id} owns book {number} of {id(ledger)}", user_id)

    threads = [threading.Thread(target=work, args=(ledger, user)) for ledger in servers for user in USERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with servers[0].read() as conn:
        numbers = list(conn.execute(select(history.c.change)).scalars())
    assert len(numbers) == len(set(numbers)) == len(threads) * EACH
    assert servers[0].read_with(verify.verify, servers[0].database, ignore_progress).texts() == []


def test_the_index_log_grows_in_the_order_of_the_commits(servers: list[Ledger]) -> None:
    """Who follows it by its newest number misses nothing: a later number is not seen before an earlier one."""
    first, second = servers
    add(first, "Alice plays the cello")
    with writing(first, "alice") as conn:
        conn.execute(index_log.insert().values(unit_seq=1, user_id="alice", op="upsert", at=StoppedClock().at))
        later = threading.Thread(target=add, args=(second, "Ben plays the flute", "ben"))
        later.start()
        with second.read() as reading:
            before = entries.newest_log_number(reading)
        later.join(0.5)
        assert later.is_alive(), "it waits to write to the log"
    later.join()
    with second.read() as reading:
        rows = entries.log_rows_after(reading, before, 9)
    assert [row.user_id for row in rows] == ["alice", "ben"]
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)


OTHERS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")


def sessions(database: SecretStr) -> int:
    """Return how many sessions the server has for a database, beside the one that asks."""
    engine = create_engine(database.get_secret_value().replace("postgresql://", "postgresql+psycopg://"))
    with closing(engine.raw_connection()) as conn, closing(conn.cursor()) as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(str(OTHERS))
        (number,) = cursor.fetchone() or (0,)
    engine.dispose()
    return int(number)


def has_no_sessions(database: SecretStr) -> bool:
    """Return whether the server has ended all sessions of a database. It takes a moment after the client's end."""
    return any(sessions(database) == 0 or time.sleep(0.05) for _ in range(200))


def test_no_session_is_left_of_what_is_closed_while_it_is_used(database: SecretStr) -> None:
    ledger = open_ledger(database, StoppedClock())
    with ledger.read() as conn:
        ledger.close()
        driver = conn.connection.driver_connection
    assert driver is not None
    assert driver.closed
    assert has_no_sessions(database)
    opened = open_database(database)
    listener = opened.listener()
    assert listener is not None
    listener.close()
    listener.wait(0)
    opened.close()
    assert has_no_sessions(database)


@pytest.mark.anyio
async def test_plans_are_made_for_the_values_of_a_call(memory: Memory) -> None:
    """Guards against plans that PostgreSQL keeps for any values: the sixth call with one goes through a whole table."""
    with memory.engine.ledger.read() as conn:
        for _ in range(20):
            entries.has_missing_vectors(conn, memory.engine.embedder.fingerprint)
        kept = "SELECT sum(generic_plans)::int, sum(custom_plans)::int FROM pg_prepared_statements"
        generic, custom = conn.exec_driver_sql(kept).one()
    assert custom > 0
    assert generic == 0
