"""The database restarts or stops, connections break, or nothing answers: no call hangs, and each says what it wrote."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import Connection, Engine, create_engine, event, select, text
from sqlalchemy.exc import IntegrityError

from palimpsest.core.errors import LedgerError, SettingsError
from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.postgres import postgres_database
from palimpsest.store.postgres.postgres_schema import commit, was_stored
from palimpsest.store.schema import memories
from postgresql import Cluster, own_cluster
from tests.support.ledger_access import writing
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from

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


def add(ledger: Ledger, statement: str) -> None:
    ledger.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.ADD, Fact(statement)),)))


def texts(ledger: Ledger) -> list[str]:
    with ledger.read() as conn:
        return list(conn.execute(select(memories.c.text).order_by(memories.c.seq)).scalars())


def keys(ledger: Ledger) -> set[str]:
    with ledger.read() as conn:
        return set(conn.execute(text("SELECT key FROM meta")).scalars())


@contextmanager
def at_commit(moment: str, do: Callable[[], object]) -> Generator[None]:
    """Do something before or after every commit until the block ends."""

    def listener(_conn: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.endswith("COMMIT"):
            do()

    event.listen(Engine, f"{moment}_cursor_execute", listener)
    try:
        yield
    finally:
        event.remove(Engine, f"{moment}_cursor_execute", listener)


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


@pytest.mark.nightly
def test_a_commit_that_did_not_happen_is_no_success(ledger: Ledger, cluster: Cluster, tmp_path: Path) -> None:
    """The connection broke before the database was told to commit."""
    severed = at_commit("before", lambda: cluster.sever(tmp_path.name))
    with severed, pytest.raises(LedgerError, match="Nothing was written"):
        add(ledger, "Ana plays the cello")
    assert texts(ledger) == []


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
    """Guards against taking another's transaction for one's own: after a crash its number is given out again."""
    others = {f"after the crash {number}" for number in range(3)}

    def write() -> None:
        with writing(ledger, "alice") as conn:
            conn.execute(INSERT, {"key": "taken"})
            cluster.restart()
            for key in others:
                with writing(ledger, "bob") as other:
                    other.execute(INSERT, {"key": key})

    with pytest.raises(LedgerError, match="Nothing was written"):
        write()
    assert keys(ledger) & {"taken", *others} == others


@pytest.mark.nightly
def test_who_asks_first_prevents_the_write(ledger: Ledger, address: SecretStr) -> None:
    """Guards against a commit that arrives late: its caller was told that nothing was written."""
    late, engine = uuid.uuid4(), create_engine(address.get_secret_value(), isolation_level="AUTOCOMMIT")
    with engine.connect() as conn, engine.connect() as asking:
        conn.exec_driver_sql("BEGIN")
        conn.execute(INSERT, {"key": "late"})
        assert not was_stored(asking, late)
        with pytest.raises(IntegrityError):
            commit(conn, late)
        conn.exec_driver_sql("ROLLBACK")
    engine.dispose()
    assert "late" not in keys(ledger)


@pytest.mark.nightly
def test_time_is_limited_after_a_connection_was_lost_too(address: SecretStr, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the thread that ends statements on a frozen connection: a lost connection must not end it."""
    monkeypatch.setattr(postgres_database, "SILENCE_SECONDS", 0.0)
    with closing(open_ledger(address, StoppedClock())) as ledger:
        with pytest.raises(LedgerError, match="terminating"), ledger.read() as conn:
            conn.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        lost = "server closed the connection|could not receive"
        for _ in range(2):
            with pytest.raises(LedgerError, match=lost), ledger.read() as conn:
                conn.exec_driver_sql("SELECT pg_sleep(50)")


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_an_error_does_not_show_the_password(cluster: Cluster) -> None:
    with pytest.raises(LedgerError, match="Create the database that ledger_url names") as caught:
        open_ledger(SecretStr(cluster.url("nowhere")), StoppedClock())
    assert cluster.password not in str(caught.value)


WRITES: dict[str, Callable[[Memory, str], Awaitable[WriteResult]]] = {
    "add_text": lambda memory, _: memory.add_text(ALICE, "User lives in Porto.", infer=False),
    "add_messages": lambda memory, _: memory.add_messages(messages_from(("user", "I have moved to Porto."))),
    "delete": lambda memory, memory_id: memory.delete(ALICE, [memory_id]),
    "set_tags": lambda memory, memory_id: memory.update(ALICE, memory_id, tags=["home"]),
    "delete_all": lambda memory, _: memory.delete_all(ALICE),
    "undo": lambda memory, _: memory.undo(ALICE),
}


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("name", WRITES)
async def test_a_write_is_acknowledged_if_the_database_has_it(
    name: str, cluster: Cluster, address: SecretStr, tmp_path: Path
) -> None:
    """Guards against an error after the work: who repeats an undo because of it would undo one edit more."""
    settings: dict[str, Any] = {"ledger_url": address}
    async with memory_in(tmp_path, **settings) as memory:
        memory_id = await add_text(memory, "User lives in Braga.")
        before = (await memory.log(ALICE, limit=1))[0].number
        try:
            with at_commit("after", cluster.stop):
                result = await WRITES[name](memory, memory_id)
        finally:
            cluster.start()
        assert result.outcomes or result.kept_messages
        assert (await memory.log(ALICE, limit=1))[0].number == before + 1
