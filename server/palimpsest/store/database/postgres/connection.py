"""The PostgreSQL database of a ledger: how it is connected to and locked.

A read is one transaction with one snapshot (`REPEATABLE READ`). A write is one transaction that begins with the lock of
its user, which stands for SQLite's write lock: what it reads afterwards was committed before (`READ COMMITTED`). Writes
for different users go on at the same time, and only wait for each other at the end, where they write to the index log:
its numbers have to grow in the order of the commits (`tables.py`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from palimpsest.core.errors import LedgerError, SettingsError
from palimpsest.store.database.postgres import dialect, nul, tables
from palimpsest.store.database.postgres.commits import AS_TEXT, Commits, was_stored
from palimpsest.store.database.postgres.errors import NOTHING_BY_THIS_STEP, as_ledger_errors, is_lost
from palimpsest.store.database.postgres.full_text import PostgresFullText
from palimpsest.store.database.postgres.listener import PostgresListener
from palimpsest.store.database.postgres.loading import PostgresLoading
from palimpsest.store.database.postgres.locks import SCHEMA, WHOLE, ledger_lock, user_lock, work_lock
from palimpsest.store.database.postgres.time_limit import TimeLimit, driver_of
from palimpsest.store.database.protocols import Work
from palimpsest.store.schema import metadata

DRIVERS = ("postgresql", "postgresql+psycopg")
"""What a URL may begin with."""

EXAMPLE = "postgresql+psycopg://user:password@host/database"

OLDEST_VERSION = 140_000
"""PostgreSQL 14. Older versions are not maintained any more."""

CONNECT_SECONDS = 10
"""How long a connection may take to open."""

WAIT_SECONDS = 30
"""How long a write waits for its turn, and a call for a connection. As with SQLite."""

PAUSE_SECONDS = 20
"""How long a write may pause between two statements. A server that is frozen then gives its locks back before those who
wait for them give up."""

STATEMENT_SECONDS = 60
"""How long a statement may take. Set by hand: the slowest that a person waits for take a few seconds."""

SILENCE_SECONDS = 75.0
"""After so long without an answer a connection is given up. PostgreSQL itself ends the statement before that."""

SETTLE_SECONDS = 20.0
"""How long a write whose commit was not answered asks what became of it."""

RETRY_SECONDS = 0.2
"""How often it asks."""

CONNECTIONS = 15
"""How many connections a process has at most for its calls. Its worker threads are fewer."""

KEPT_CONNECTIONS = 5
"""How many of them stay open."""

SESSION = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET lock_timeout = '{WAIT_SECONDS}s'; "
    f"SET idle_in_transaction_session_timeout = '{STATEMENT_SECONDS}s'; SET timezone = 'UTC'; "
    # A plan that is kept for any values knows none of them, and goes through all users' rows where an index would do.
    "SET plan_cache_mode = force_custom_plan; "
    # A server that is gone gives its locks back within half a minute.
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)

NETWORK: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": WAIT_SECONDS * 1_000,
}
"""What notices that the other end is gone, in seconds, the last one in milliseconds."""

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{PAUSE_SECONDS}s'"
)

dialect.register()


class PostgresDatabase:
    """Implement `Database` with a PostgreSQL database, which any number of servers on any number of machines share."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._limit = TimeLimit(SILENCE_SECONDS)
        self._engine = self._new_engine(
            poolclass=QueuePool,
            pool_size=KEPT_CONNECTIONS,
            max_overflow=CONNECTIONS - KEPT_CONNECTIONS,
            pool_timeout=WAIT_SECONDS,
            pool_use_lifo=True,
        )
        self._sessions = self._new_engine(poolclass=NullPool)
        self._commits = Commits()
        self.full_text = PostgresFullText()
        self.loading = PostgresLoading()
        self.migrates_when_opened = False

    @classmethod
    def open(cls, address: str) -> PostgresDatabase:
        """Connect to the database of a URL. Raises SettingsError for a URL that is none, and LedgerError."""
        database = cls(_parsed(address))
        try:
            with database.read() as conn:
                _refuse_unfit(conn, database.location)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def location(self) -> str:
        """Return the address of the database without the user and the password."""
        url = self._url
        return str(URL.create("postgresql", host=url.host, port=url.port, database=url.database))

    @property
    def dump_command(self) -> str:
        """Return the command of PostgreSQL's own copy. It asks for the password, or reads it from ~/.pgpass."""
        url = self._url
        address = URL.create("postgresql", url.username, host=url.host, port=url.port, database=url.database)
        return f'pg_dump --format=custom --file=palimpsest.dump "{address}"'

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Return a connection that sees one state of the ledger. Raises LedgerError."""
        with as_ledger_errors(self.location, NOTHING_BY_THIS_STEP), self._begun(READ) as conn:
            yield conn
            conn.exec_driver_sql("ROLLBACK")

    @contextmanager
    def write(self, user_id: str | None = None) -> Generator[Connection]:
        """Return a connection that holds the lock of a user, or of all users. Raises LedgerError."""
        with as_ledger_errors(self.location), self._begun(WRITE) as conn:
            whole = ledger_lock(WHOLE)
            locks = f"pg_advisory_xact_lock({whole})"
            if user_id is not None:
                locks = f"pg_advisory_xact_lock_shared({whole}), pg_advisory_xact_lock({user_lock(user_id)})"
            conn.exec_driver_sql(f"SELECT {locks}")
            yield conn
            self._commit(conn)

    @contextmanager
    def _begun(self, begin: str) -> Generator[Connection]:
        """Return a connection with a transaction. One that the database has closed meanwhile is replaced by another."""
        conn = self._engine.connect()
        try:
            try:
                conn.exec_driver_sql(begin, execution_options=AS_TEXT)
            except DBAPIError as error:
                if not is_lost(error.orig):
                    raise
                conn.close()
                conn = self._engine.connect()
                conn.exec_driver_sql(begin, execution_options=AS_TEXT)
            yield conn
        except BaseException:
            _roll_back(conn)
            raise
        finally:
            conn.close()

    def _commit(self, conn: Connection) -> None:
        if driver_of(conn).info.transaction_status is not TransactionStatus.INTRANS:
            raise LedgerError(f"the ledger {self.location} refused a statement of this call. Nothing was written.")
        write = uuid.uuid4()
        try:
            self._commits.commit(conn, write)
        except DBAPIError as error:
            if not is_lost(error.orig):
                raise
            self._settle(write, error)

    def _settle(self, write: uuid.UUID, lost: DBAPIError) -> None:
        """Ask how a transaction ended whose commit was not answered. Raises LedgerError if it was not committed."""
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            with suppress(DBAPIError), self._sessions.connect() as conn:
                if was_stored(conn, write):
                    return
                raise LedgerError(
                    f"the connection to the ledger {self.location} broke. Nothing was written. Try again."
                ) from lost
            time.sleep(RETRY_SECONDS)
        raise LedgerError(
            f"the connection to the ledger {self.location} broke while a change was being stored, and the database "
            "does not say whether it was. Look before you repeat it."
        ) from lost

    @contextmanager
    def migrating(self) -> Generator[None]:
        """Let one process at a time change the schema."""
        with as_ledger_errors(self.location):
            conn = self._sessions.connect()
        with conn:
            with as_ledger_errors(self.location):
                conn.exec_driver_sql(f"SELECT pg_advisory_lock({ledger_lock(SCHEMA)})")
            yield

    @contextmanager
    def without_time_limit(self, conn: Connection) -> Generator[None]:
        """Lift the limits of time of a transaction. The network's own still tell a database that is gone."""
        conn.exec_driver_sql("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        with self._limit.lifted(conn):
            yield

    def listener(self) -> PostgresListener:
        """Return what hears of every write to the ledger."""
        return PostgresListener(self._sessions.connect, self.location)

    @contextmanager
    def alone_at(self, work: Work) -> Generator[bool]:
        """Give True and keep other processes from a work in the background, or False if one is doing it.

        The lock ends with its connection.
        """
        with as_ledger_errors(self.location):
            conn = self._sessions.connect()
        with conn:
            with as_ledger_errors(self.location):
                is_ours = conn.exec_driver_sql(f"SELECT pg_try_advisory_lock({work_lock(work)})").scalar_one()
            yield bool(is_ours)

    def finish_schema(self, conn: Connection) -> None:
        """Create what this database needs beside the tables."""
        tables.create(conn)

    def check(self) -> str:
        """Return "ok" if the database answers. Raises LedgerError."""
        with self.read() as conn:
            return str(conn.exec_driver_sql("SELECT 'ok'").scalar_one())

    def faults(self, conn: Connection) -> list[str]:
        """Return which indexes PostgreSQL does not use, because building them broke off."""
        return [f"the index {name} is not valid" for name in tables.invalid_indexes(conn)]

    def repair(self, conn: Connection) -> None:
        """Rebuild the indexes of the ledger."""
        for table in metadata.sorted_tables:
            conn.exec_driver_sql(f'REINDEX TABLE "{table.name}"')

    def erase_free_space(self) -> bool:
        """Let PostgreSQL remove deleted rows from its tables and indexes. Return True."""
        with self._unlimited() as conn:
            for table in tables.names(conn):
                conn.exec_driver_sql(f'VACUUM (ANALYZE) "{table}"')
        return True

    def search_tables(self, pieces: Sequence[bytes]) -> dict[str, list[bytes]]:
        """Return for each table which of these pieces of texts a row of it contains."""
        with self._unlimited() as conn:
            return {table: tables.pieces_in(conn, table, pieces) for table in tables.names(conn)}

    @contextmanager
    def _unlimited(self) -> Generator[Connection]:
        """Return a connection of its own for work that goes through whole tables, however long that takes."""
        with as_ledger_errors(self.location), self._sessions.connect() as conn, self._limit.lifted(conn):
            conn.exec_driver_sql("SET statement_timeout = 0")
            yield conn

    def files(self) -> list[Path]:
        """Return no files: the database may be on another machine."""
        return []

    def size(self) -> int:
        """Return the size in bytes of the tables and their indexes."""
        with self.read() as conn:
            return tables.size(conn)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        self._limit.close()

    def _new_engine(self, **pool: Any) -> Engine:
        url = self._url.set(drivername=dialect.DRIVER)
        application = {"application_name": "palimpsest"} if "application_name" not in url.query else {}
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            connect_args={**NETWORK, **application},
            json_serializer=nul.dumps,
            json_deserializer=nul.loads,
            **pool,
        )

        @event.listens_for(engine, "connect")
        def _(driver: Any, _: Any) -> None:
            driver.autocommit = True
            driver.execute(SESSION)

        self._limit.watch(engine)
        return engine


def _parsed(address: str) -> URL:
    try:
        url = make_url(address)
    except ArgumentError:
        raise SettingsError(f"ledger_url is no URL. It looks like {EXAMPLE}") from None
    if url.drivername not in DRIVERS:
        raise SettingsError(f"ledger_url begins with {url.drivername}, which is unknown. Use postgresql+psycopg://")
    if not url.database:
        raise SettingsError(f"ledger_url names no database. It looks like {EXAMPLE}")
    return url


def _refuse_unfit(conn: Connection, location: str) -> None:
    """Raise LedgerError for a database that cannot hold a ledger."""
    version = driver_of(conn).info.server_version
    if version < OLDEST_VERSION:
        raise LedgerError(f"{location} is PostgreSQL {version // 10_000}. Use version 14 or a later one.")
    encoding = conn.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise LedgerError(f"the database {location} has the encoding {encoding}. Create one with the encoding UTF8.")


def _roll_back(conn: Connection) -> None:
    """End a transaction after an error. If that fails too, the connection is closed for good."""
    if conn.closed or conn.invalidated:
        return
    try:
        conn.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        conn.invalidate()
