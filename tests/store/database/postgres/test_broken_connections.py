"""Connections that break while something is written: what is acknowledged is there, and the rest is not."""

from __future__ import annotations

import uuid
from collections.abc import Generator

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

from palimpsest.core.clock import now
from palimpsest.core.errors import LedgerError
from palimpsest.store.ledger import open_ledger
from palimpsest.store.postgres import postgres_database
from palimpsest.store.postgres.postgres_database import PostgresDatabase
from palimpsest.store.postgres.postgres_schema import commit, was_stored
from postgresql import Cluster, own_cluster

pytestmark = [pytest.mark.nightly, pytest.mark.postgres]

INSERT = text("INSERT INTO meta(key, value) VALUES (:key, '')")

SHUT_DOWN = "server closed the connection|could not receive"
"""What psycopg says of a connection that this process has shut down."""


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Run a server of this module's own, because it is restarted."""
    with own_cluster() as cluster:
        cluster.create_database("ledger")
        open_ledger(SecretStr(cluster.url("ledger")), now).close()
        yield cluster


@pytest.fixture
def database(cluster: Cluster) -> Generator[PostgresDatabase]:
    database = PostgresDatabase.open(cluster.url("ledger"))
    yield database
    database.close()


@pytest.fixture
def engine(cluster: Cluster) -> Generator[Engine]:
    engine = create_engine(cluster.url("ledger"), isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


def _keys(database: PostgresDatabase) -> set[str]:
    with database.read() as conn:
        return set(conn.execute(text("SELECT key FROM meta")).scalars())


class TestALostCommit:
    """A commit that was sent, and not answered."""

    def test_a_write_that_a_crash_took_is_not_acknowledged(self, cluster: Cluster, database: PostgresDatabase) -> None:
        """Guards against taking another's transaction for one's own: after a crash its number is given out again."""
        others = {f"after the crash {number}" for number in range(3)}

        def write() -> None:
            with database.write("alice") as conn:
                conn.execute(INSERT, {"key": "taken"})
                cluster.restart()
                for key in others:
                    with database.write("bob") as other:
                        other.execute(INSERT, {"key": key})

        with pytest.raises(LedgerError, match="Nothing was written"):
            write()
        assert _keys(database) & {"taken", *others} == others

    def test_who_asks_first_prevents_the_write(self, database: PostgresDatabase, engine: Engine) -> None:
        """Guards against a commit that arrives late: its caller was told that nothing was written."""
        late = uuid.uuid4()
        with engine.connect() as conn, engine.connect() as asking:
            conn.exec_driver_sql("BEGIN")
            conn.execute(INSERT, {"key": "late"})
            assert not was_stored(asking, late)
            with pytest.raises(IntegrityError):
                commit(conn, late)
            conn.exec_driver_sql("ROLLBACK")
            assert not was_stored(asking, late)
        assert "late" not in _keys(database)


def test_time_is_limited_after_a_connection_was_lost_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the thread that ends statements on a frozen connection: a lost connection must not end it."""
    monkeypatch.setattr(postgres_database, "SILENCE_SECONDS", 0.0)
    database = PostgresDatabase.open(cluster.url("ledger"))
    try:
        with pytest.raises(LedgerError, match="terminating"), database.read() as conn:
            conn.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        for _ in range(2):
            with pytest.raises(LedgerError, match=SHUT_DOWN), database.read() as conn:
                conn.exec_driver_sql("SELECT pg_sleep(50)")
    finally:
        database.close()
