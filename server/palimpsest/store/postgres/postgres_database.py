"""The ledger in PostgreSQL: the pool, locks, time limits, LISTEN, and errors in plain words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
import sqlalchemy as sa
from psycopg import Connection as PsycopgConnection
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from palimpsest.core.errors import LedgerError, SettingsError
from palimpsest.store.database import MAX_CAUSE_CHARS, Database, Work, errors_as_ours
from palimpsest.store.postgres import postgres_schema
from palimpsest.store.postgres.bm25 import PostgresFullText
from palimpsest.store.postgres.postgres_schema import ledger_lock, user_lock
from palimpsest.store.schema import metadata

_T = TypeVar("_T")

# PostgreSQL's errors as ours, with what to do.

# What to do, by the beginning of PostgreSQL's error code (its manual, appendix A), the longest that fits.
ADVICE = {
    "28": "Check the user and the password in ledger_url, and what this user may do",
    "3D": "Create the database that ledger_url names",
    "40P01": "Another write was in the way. Try again",
    "42501": "Give the user of ledger_url the right to create and change tables in the database",
    "42P01": "A table of the ledger is missing. Restore the database from a backup",
    "53100": "The disk of the database is full. Free some space, then try again",
    "53300": "The database has no free connection. Let it allow more of them (max_connections), or run fewer servers",
    "54000": "A name is too long for an index of the database. Shorten it",
    "55P03": "Another server has been writing for this user all the time. Try again in a moment",
    "57014": "The database took too long. Try again in a moment",
    "57P": "The database is stopping or starting. Try again in a moment",
    "08": "The database cannot be reached. Check that it runs, then try again",
    "25006": "The database only allows reading now, as a standby does. Try again once it is the primary",
    **dict.fromkeys(("22P05", "22021"), "The text has a character that PostgreSQL cannot store. Leave it out"),
}

# What to do, by a part of the message, where the driver refuses by itself and gives no code.
REFUSALS = {
    "password": ADVICE["28"],
    "does not exist": ADVICE["3D"],
    "too many": ADVICE["53300"],
    "NUL (0x00)": ADVICE["22021"],
}

UNREACHABLE = "The database cannot be reached. Check that it runs and that ledger_url is right, then try again"

NOTHING = "Nothing was written."

# What a read says: an earlier step of the same call may have written.
NOTHING_BY_THIS_STEP = "Nothing was written by this step."


@contextmanager
def as_ledger_errors(location: str, written: str = NOTHING) -> Generator[None]:
    """Raise PostgreSQL's errors as LedgerError. `written` says what was written when one occurs."""
    with errors_as_ours(location, psycopg.Error, partial(_with_advice, written), written):
        try:
            yield
        except NoFreeConnectionError as error:
            raise LedgerError(
                f"the ledger {location} could not be used: all connections of this server were in use for too long. "
                f"{written} Try again in a moment."
            ) from error


def is_lost(error: BaseException | None) -> bool:
    """Return whether an error says that the connection is gone, or the server is stopping or starting."""
    code = _code(error)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        not code or code.startswith(("08", "57P0"))
    )


def _code(error: BaseException | None) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def _with_advice(written: str, error: BaseException | None) -> str:
    """Return PostgreSQL's message, what was written, and what to do."""
    code = _code(error)
    advice = next((ADVICE[code[:length]] for length in (5, 3, 2) if code[:length] in ADVICE), "")
    if not code:
        advice = next((advice for part, advice in REFUSALS.items() if part in str(error)), "")
    if not advice and is_lost(error):
        advice = UNREACHABLE
    message = " ".join(str(error).split())[:MAX_CAUSE_CHARS].rstrip(".")
    return f"{message}. {written}{f' {advice}.' if advice else ''}"


class LimitedConnection(PsycopgConnection[Any]):
    """A connection that is given up if a statement takes longer than so many `seconds`; None is no limit.

    PostgreSQL ends a statement that takes too long by itself. If its machine has stopped, or the network swallows what
    is sent, it cannot.
    """

    seconds: float | None = None

    def wait(self, gen: PQGen[_T], *args: Any, **options: Any) -> _T:
        """Return what an exchange with the database returns. Raises OperationalError if it takes too long."""
        return super().wait(gen if self.seconds is None else self._limited(gen, self.seconds), *args, **options)

    def _limited(self, gen: PQGen[_T], seconds: float) -> PQGen[_T]:
        end = time.monotonic() + seconds
        try:
            wanted = next(gen)
            while True:  # psycopg looks every tenth of a second, whether something came or not
                ready = yield wanted
                if time.monotonic() > end:
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the database has not answered in time")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


@contextmanager
def unlimited(conn: sa.Connection) -> Generator[None]:
    """Let the statements of a connection take any time in the block."""
    driver = driver_of(conn)
    seconds, driver.seconds = driver.seconds, None
    try:
        yield
    finally:
        driver.seconds = seconds


def driver_of(conn: sa.Connection) -> LimitedConnection:
    """Return psycopg's connection."""
    return cast("LimitedConnection", conn.connection.driver_connection)


# Hear that something was written, by any server, as PostgreSQL tells it (LISTEN).


# How often who waits looks whether the listener was closed.
CLOSED_SECONDS = 0.5


class PostgresListener:
    """Implement `Listener` with a connection of its own, which is opened again when it was lost."""

    def __init__(self, connect: Callable[[], sa.Connection], location: str) -> None:
        self._connect, self._location = connect, location
        self._conn: sa.Connection | None = None
        self._is_closed = False
        self._waiting = threading.Lock()

    def wait(self, seconds: float) -> None:
        """Return when something was written, at the latest after so many seconds. Raises LedgerError."""
        end = time.monotonic() + seconds
        with as_ledger_errors(self._location), self._waiting:
            if self._is_closed:
                return
            is_new = self._conn is None
            if self._conn is None:
                self._conn = self._connect()
                self._conn.exec_driver_sql(f"LISTEN {postgres_schema.CHANNEL}")
            driver = driver_of(self._conn)
            driver.seconds = None  # it is silent until something is written
            try:
                # What was written while nobody listened has to be looked for.
                while not (is_new or self._is_closed) and time.monotonic() < end:
                    if any(driver.notifies(timeout=min(seconds, CLOSED_SECONDS), stop_after=1)):
                        break
            except psycopg.Error:
                self._drop()
                raise
            if self._is_closed:
                self._drop()

    def close(self) -> None:
        """End the wait of another thread, and the connection with it."""
        self._is_closed = True
        if self._waiting.acquire(blocking=False):  # else the one who waits closes it
            self._drop()
            self._waiting.release()

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(psycopg.Error):
                conn.invalidate()
                conn.close()


# The PostgreSQL database of a ledger: how it is connected to and locked.
#
# A read is one transaction with one snapshot (`REPEATABLE READ`). A write is one transaction that begins with the
# lock of its user, which stands for SQLite's write lock: what it reads afterwards was committed before (`READ
# COMMITTED`). Writes for different users go on at the same time, and only wait for each other at the end, where they
# write to the index log: its numbers have to grow in the order of the commits (`postgres_schema.py`).

# What a URL may begin with.
DRIVERS = ("postgresql", "postgresql+psycopg")

EXAMPLE = "postgresql+psycopg://user:password@host/database"

# PostgreSQL 14. Older versions are not maintained any more.
OLDEST_VERSION = 140_000

# How long a connection may take to open.
CONNECT_SECONDS = 10

# How long a write waits for its turn, and a call for a connection. As with SQLite.
WAIT_SECONDS = 30

# How long a write may pause between two statements. A server that is frozen then gives its locks back before those who
# wait for them give up.
PAUSE_SECONDS = 20

# How long a statement may take: the slowest that a person waits for take a few seconds.
STATEMENT_SECONDS = 60

# After so long without an answer a connection is given up. PostgreSQL itself ends the statement before that.
SILENCE_SECONDS = 75.0

# How many connections a process has at most for its calls. Its worker threads are fewer.
CONNECTIONS = 15

# How many of them stay open.
KEPT_CONNECTIONS = 5

SESSION = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET lock_timeout = '{WAIT_SECONDS}s'; "
    f"SET idle_in_transaction_session_timeout = '{STATEMENT_SECONDS}s'; SET timezone = 'UTC'; "
    # A plan that is kept for any values knows none of them, and goes through all users' rows where an index would do.
    "SET plan_cache_mode = force_custom_plan; "
    # A server that is gone gives its locks back within half a minute.
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)

# What notices that the other end is gone, in seconds, the last one in milliseconds.
NETWORK: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": WAIT_SECONDS * 1_000,
}

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{PAUSE_SECONDS}s'"
)

postgres_schema.register()


class PostgresDatabase(Database):
    """Implement `Database` with a PostgreSQL database, which any number of servers on any number of machines share."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self._engine = self._new_engine(
            poolclass=QueuePool,
            pool_size=KEPT_CONNECTIONS,
            max_overflow=CONNECTIONS - KEPT_CONNECTIONS,
            pool_timeout=WAIT_SECONDS,
            pool_use_lifo=True,
            pool_pre_ping=True,
        )
        self._sessions = self._new_engine(poolclass=NullPool)
        self._is_closed = False
        self.full_text = PostgresFullText()
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
        return str(sa.URL.create("postgresql", host=url.host, port=url.port, database=url.database))

    @property
    def dump_command(self) -> str:
        """Return the command of PostgreSQL's own copy. It asks for the password, or reads it from ~/.pgpass."""
        url = self._url
        address = sa.URL.create("postgresql", url.username, host=url.host, port=url.port, database=url.database)
        return f'pg_dump --format=custom --file=palimpsest.dump "{address}"'

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        """Return a connection that sees one state of the ledger. Raises LedgerError."""
        with as_ledger_errors(self.location, NOTHING_BY_THIS_STEP), self._begun(READ) as conn:
            yield conn
            conn.exec_driver_sql("ROLLBACK")

    @contextmanager
    def write(self, user_id: str | None = None) -> Generator[sa.Connection]:
        """Return a connection that holds the lock of a user, or of all users. Raises LedgerError."""
        with as_ledger_errors(self.location), self._begun(WRITE) as conn:
            whole = ledger_lock("whole")
            locks = f"pg_advisory_xact_lock({whole})"
            if user_id is not None:
                locks = f"pg_advisory_xact_lock_shared({whole}), pg_advisory_xact_lock({user_lock(user_id)})"
            conn.exec_driver_sql(f"SELECT {locks}")
            yield conn
            self._commit(conn)

    @contextmanager
    def _begun(self, begin: str) -> Generator[sa.Connection]:
        """Return a connection with a transaction. One that the database has closed meanwhile is replaced by another."""
        with self._engine.connect() as conn:
            try:
                conn.exec_driver_sql(begin, execution_options=postgres_schema.AS_TEXT)
                yield conn
            except BaseException:
                _roll_back(conn)
                raise

    def _commit(self, conn: sa.Connection) -> None:
        if driver_of(conn).info.transaction_status is not TransactionStatus.INTRANS:
            raise LedgerError(f"the ledger {self.location} refused a statement of this call. Nothing was written.")
        try:
            conn.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            if not is_lost(error.orig):
                raise
            raise LedgerError(
                f"the connection to the ledger {self.location} broke while a change was being stored, and it is not "
                "known whether it was. Look before you repeat it."
            ) from error

    @contextmanager
    def migrating(self) -> Generator[None]:
        """Let one process at a time change the schema."""
        with self._session(f"SELECT pg_advisory_lock({ledger_lock('schema')})"):
            yield

    @contextmanager
    def _session(self, lock: str) -> Generator[Any]:
        """Take a lock, which ends with its connection, for the block. Give what the statement returns."""
        with as_ledger_errors(self.location):
            conn = self._sessions.connect()
        with conn:
            with as_ledger_errors(self.location):
                found = conn.exec_driver_sql(lock).scalar_one()
            yield found

    @contextmanager
    def without_time_limit(self, conn: sa.Connection) -> Generator[None]:
        """Lift the limits of time of a transaction. The network's own still tell a database that is gone."""
        conn.exec_driver_sql("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        with unlimited(conn):
            yield

    def listener(self) -> PostgresListener:
        """Return what hears of every write to the ledger."""
        return PostgresListener(self._sessions.connect, self.location)

    @contextmanager
    def alone_at(self, work: Work) -> Generator[bool]:
        """Give True and keep other processes from a work in the background, or False if one is doing it."""
        with self._session(f"SELECT pg_try_advisory_lock({ledger_lock(work)})") as is_ours:
            yield bool(is_ours)

    def finish_schema(self, conn: sa.Connection) -> None:
        """Create what this database needs beside the tables."""
        postgres_schema.create(conn)

    def check(self) -> str:
        """Return "ok" if the database answers. Raises LedgerError."""
        with self.read() as conn:
            return str(conn.exec_driver_sql("SELECT 'ok'").scalar_one())

    def faults(self, conn: sa.Connection) -> list[str]:
        """Return which indexes PostgreSQL does not use, because building them broke off."""
        query = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid ORDER BY 1"
        return [f"the index {name} is not valid" for name in conn.exec_driver_sql(query).scalars()]

    def repair(self, conn: sa.Connection) -> None:
        """Rebuild the indexes of the ledger."""
        for table in metadata.sorted_tables:
            conn.exec_driver_sql(f'REINDEX TABLE "{table.name}"')

    def erase_free_space(self) -> bool:
        """Let PostgreSQL remove deleted rows from its tables and indexes. Return True."""
        with self._unlimited() as conn:
            for table in postgres_schema.names(conn):
                conn.exec_driver_sql(f'VACUUM (ANALYZE) "{table}"')
        return True

    def search_tables(self, pieces: Sequence[bytes]) -> dict[str, list[bytes]]:
        """Return for each table which of these pieces of texts a row of it contains."""
        with self._unlimited() as conn:
            return {table: postgres_schema.pieces_in(conn, table, pieces) for table in postgres_schema.names(conn)}

    @contextmanager
    def _unlimited(self) -> Generator[sa.Connection]:
        """Return a connection of its own for work that goes through whole tables, however long that takes."""
        with as_ledger_errors(self.location), self._sessions.connect() as conn, unlimited(conn):
            conn.exec_driver_sql("SET statement_timeout = 0")
            yield conn

    def size(self) -> int:
        """Return the size in bytes of the tables and their indexes."""
        query = (
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        )
        with self.read() as conn:
            return int(conn.exec_driver_sql(query).scalar_one())

    def close(self) -> None:
        """Close all connections. One that a thread still reads with is closed when it is given back."""
        self._is_closed = True
        self._engine.dispose()

    def count_on(self, conn: sa.Connection) -> None:
        """Let the numbers of new rows begin above those in use, and above those that were ever given."""
        query = (
            "SELECT table_name::text, column_name::text, pg_get_serial_sequence(quote_ident(table_name), column_name) "
            "FROM information_schema.columns WHERE table_schema = current_schema() AND column_default ~ '^nextval'"
        )
        for table, column, sequence in conn.exec_driver_sql(query).all():
            used = f'(SELECT coalesce(max("{column}"), 0) FROM "{table}")'  # noqa: S608 - names of our own
            conn.exec_driver_sql(f"SELECT setval('{sequence}', greatest(nextval('{sequence}'), {used}))")

    def _new_engine(self, **pool: Any) -> sa.Engine:
        url = self._url.set(drivername=postgres_schema.DRIVER)
        application = {"application_name": "palimpsest"} if "application_name" not in url.query else {}
        engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args={**NETWORK, **application}, **pool)

        @event.listens_for(engine, "do_connect")
        def _(_dialect: Any, _record: Any, cargs: list[Any], cparams: dict[str, Any]) -> LimitedConnection:
            driver = LimitedConnection.connect(*cargs, **cparams, autocommit=True)
            driver.execute(SESSION.encode())
            driver.seconds = SILENCE_SECONDS
            return driver

        @event.listens_for(engine, "checkin")
        def _(_: Any, record: ConnectionPoolEntry) -> None:
            if self._is_closed:
                record.invalidate()

        return engine


def _parsed(address: str) -> sa.URL:
    with suppress(ArgumentError):
        url = sa.make_url(address)
        if url.drivername in DRIVERS and url.database:
            return url
    raise SettingsError(f"ledger_url is not the URL of a PostgreSQL database. It looks like {EXAMPLE}")


def _refuse_unfit(conn: sa.Connection, location: str) -> None:
    """Raise LedgerError for a database that cannot hold a ledger."""
    version = driver_of(conn).info.server_version
    if version < OLDEST_VERSION:
        raise LedgerError(f"{location} is PostgreSQL {version // 10_000}. Use version 14 or a later one.")
    encoding = conn.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise LedgerError(f"the database {location} has the encoding {encoding}. Create one with the encoding UTF8.")


def _roll_back(conn: sa.Connection) -> None:
    """End a transaction after an error. If that fails too, the connection is closed for good."""
    if conn.closed or conn.invalidated:
        return
    try:
        conn.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        conn.invalidate()
