"""Several servers write at the same time: whose turn it is, in which order others hear of it, and what they leave."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, select, text

from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store import contextual_keys, entries, verify
from palimpsest.store.apply import Write
from palimpsest.store.entries import next_edit_number, reserve_edit_numbers
from palimpsest.store.ledger import Ledger, open_database, open_ledger
from palimpsest.store.schema import history, index_log
from tests.support.ledger_access import ignore_progress, writing
from tests.support.memory import StoppedClock, memory_in
from tests.support.stores import ledger_address

pytestmark = pytest.mark.only_on("postgres", "SQLite lets one write at a time")

USERS = ("alice", "ben", "chloe")
EACH = 8


@pytest.fixture
def servers(tmp_path: Path) -> Generator[list[Ledger]]:
    """Open a ledger twice, as two servers do."""
    address = ledger_address(tmp_path / "ledger.db")
    with closing(open_ledger(address, StoppedClock())) as one, closing(open_ledger(address, StoppedClock())) as other:
        yield [one, other]


def add(ledger: Ledger, user_id: str, statement: str) -> None:
    ledger.apply(Write(Scope(user_id), Provenance("test"), decisions=(Decision(Event.ADD, Fact(statement)),)))


def test_writes_for_different_users_have_edits_of_their_own(servers: list[Ledger]) -> None:
    def work(ledger: Ledger, user_id: str) -> None:
        for number in range(EACH):
            add(ledger, user_id, f"{user_id} owns book {number} of {id(ledger)}")

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
    add(first, "alice", "Alice plays the cello")
    with writing(first, "alice") as conn:
        conn.execute(index_log.insert().values(unit_seq=1, user_id="alice", op="upsert", at=StoppedClock().at))
        later = threading.Thread(target=add, args=(second, "ben", "Ben plays the flute"))
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


def test_a_write_for_all_users_waits_for_the_others(servers: list[Ledger]) -> None:
    first, second = servers
    with writing(first, "alice"):
        whole = threading.Thread(target=second.run, args=(contextual_keys.rebuild_full_text, second.full_text))
        whole.start()
        whole.join(0.5)
        assert whole.is_alive()
    whole.join()


def test_a_reserved_edit_number_is_not_given_out(servers: list[Ledger]) -> None:
    with writing(servers[0]) as conn:
        reserved = next_edit_number(conn) + 100
        reserve_edit_numbers(conn, reserved)
    with writing(servers[1], "alice") as conn:
        assert next_edit_number(conn) > reserved


def test_a_listener_hears_what_another_server_writes(servers: list[Ledger]) -> None:
    first, second = servers
    listener = first.database.listener()
    assert listener is not None
    listener.wait(60)  # it listens from now on
    add(second, "ben", "Ben plays the flute")
    listener.wait(60)
    waiting = threading.Thread(target=listener.wait, args=(600,))
    waiting.start()
    listener.close()
    waiting.join()


@pytest.mark.anyio
async def test_plans_are_made_for_the_values_of_a_call(tmp_path: Path) -> None:
    """Guards against plans that PostgreSQL keeps for any values: the sixth call with one goes through a whole table."""
    async with memory_in(tmp_path) as memory:
        with memory.engine.ledger.read() as conn:
            for _ in range(20):
                entries.has_missing_vectors(conn, memory.engine.embedder.fingerprint)
            kept = "SELECT sum(generic_plans)::int, sum(custom_plans)::int FROM pg_prepared_statements"
            generic, custom = conn.exec_driver_sql(kept).one()
    assert custom > 0
    assert generic == 0


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


def test_no_session_is_left_of_what_is_closed_while_it_is_used(database: SecretStr) -> None:
    ledger = open_ledger(database, StoppedClock())
    with ledger.read() as conn:
        ledger.close()
        driver = conn.connection.driver_connection
    assert driver is not None
    assert driver.closed
    assert sessions(database) == 0
    opened = open_database(database)
    listener = opened.listener()
    assert listener is not None
    listener.close()
    listener.wait(0)
    opened.close()
    assert sessions(database) == 0
