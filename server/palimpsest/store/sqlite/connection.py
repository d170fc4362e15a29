"""The SQLite file of a ledger: how it is created, connected to and locked.

The file is in WAL mode with `synchronous=FULL`: what is committed survives a crash. Any number of processes may have it
open. A write takes SQLite's only write lock at its beginning (`BEGIN IMMEDIATE`).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.files import file_lock, files_below, refuse_without_locks
from palimpsest.store.schema import KNOWN_REVISIONS
from palimpsest.store.sqlite import dialect
from palimpsest.store.sqlite.backup import SqliteBackups
from palimpsest.store.sqlite.errors import as_ledger_errors, unwritable_as_ledger_error
from palimpsest.store.sqlite.full_text import OPTIMIZE, SqliteFullText

BUSY_TIMEOUT_SECONDS = 30
"""How long a connection waits for the write lock."""

CACHE_KIB = 4_096
"""Page cache of a connection. SQLite's default of 2,000 KiB holds a small part of 10,000 memories."""

WAL_VERSIONS = b"\x02\x02"
"""Bytes 18 and 19 of a file in WAL mode: https://www.sqlite.org/fileformat2.html#file_format_version_numbers."""

OTHERS = 0o077
"""The permissions of everybody but the owner."""

dialect.register()


class SqliteDatabase:
    """Implement `Database` with one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = _engine(path)
        self._writing = threading.Lock()
        self.full_text = SqliteFullText()
        self.backups = SqliteBackups(path)

    @classmethod
    def open(cls, path: Path) -> SqliteDatabase:
        """Open the file, and create it if needed. Raises LedgerError."""
        with unwritable_as_ledger_error(path):
            _make_private_folder(path.parent)
        refuse_without_locks(path.parent)
        with as_ledger_errors(path), unwritable_as_ledger_error(path):
            _make_private_file(path)
            _use_wal(path)
        return cls(path)

    @property
    def location(self) -> str:
        """Return the path of the file."""
        return str(self._path)

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Return a connection that sees one state of the ledger. Raises LedgerError."""
        # The transaction is never committed: SQLite refuses a commit after it has met a damaged page.
        with as_ledger_errors(self._path), self._engine.connect() as conn, _dropped_after_failure(conn):
            yield conn

    @contextmanager
    def write(self) -> Generator[Connection]:
        """Return a connection that holds the write lock from its first statement on. Raises LedgerError."""
        with (
            as_ledger_errors(self._path),
            self._writing,
            self._engine.connect() as conn,
            _dropped_after_failure(conn),
            conn.execution_options(begin="BEGIN IMMEDIATE").begin() as transaction,
        ):
            yield transaction.connection

    @contextmanager
    def migrating(self) -> Generator[None]:
        """Let one process at a time change the schema."""
        with unwritable_as_ledger_error(self._path), file_lock(_migration_lock(self._path)):
            yield

    @contextmanager
    def embedding(self) -> Generator[bool]:
        """Give True and keep other processes from embedding in the background, or False if one is doing it."""
        lock = file_lock(self._path.with_suffix(".embedding.lock"))
        with unwritable_as_ledger_error(self._path), suppress(Timeout):
            lock.acquire(timeout=0)
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def check(self) -> str:
        """Return "ok", or the first fault of SQLite's quick check. Raises LedgerError."""
        with self.read() as conn:
            return str(conn.exec_driver_sql("PRAGMA quick_check(5)").scalars().first())

    def faults(self, conn: Connection) -> list[str]:
        """Return what SQLite finds wrong with the file, its references and its full text."""
        lines = [str(line) for line in conn.exec_driver_sql("PRAGMA integrity_check(20)").scalars() if line != "ok"]
        dangling = len(conn.exec_driver_sql("PRAGMA foreign_key_check").all())
        return lines + ([f"{dangling} rows refer to missing rows"] if dangling else [])

    def repair(self, conn: Connection) -> None:
        """Rebuild the indexes of the file."""
        conn.exec_driver_sql("REINDEX")

    def erase_free_space(self) -> bool:
        """Rewrite the file without deleted rows and empty its log. Return False if another process reads the log."""
        with as_ledger_errors(self._path), self._writing, closing(self._engine.raw_connection()) as pooled:
            conn: Any = pooled.driver_connection
            conn.execute(OPTIMIZE)
            conn.execute("VACUUM")
            (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def files(self) -> list[Path]:
        """Return every file in the folder of the ledger, and in the folders below it."""
        return files_below(self._path.parent)

    def size(self) -> int:
        """Return the size in bytes of the file and its log."""
        return sum(file.stat().st_size for file in self._path.parent.glob(f"{self._path.name}*"))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


@contextmanager
def _dropped_after_failure(conn: Connection) -> Generator[None]:
    """Close a connection for good if reading broke off: an unfinished result set holds on to an old state."""
    try:
        yield
    except PalimpsestError:
        raise
    except BaseException:
        conn.invalidate()
        raise


def _engine(path: Path) -> Engine:
    # The connection returned last is reused first, because its pages are in memory.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS},
        poolclass=QueuePool,
        pool_use_lifo=True,
    )

    @event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin with a BEGIN of ours
        for pragma in ("synchronous=FULL", "foreign_keys=ON", f"cache_size=-{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _(conn: Connection) -> None:
        conn.exec_driver_sql(conn.get_execution_options().get("begin", "BEGIN"))

    return engine


def _migration_lock(path: Path) -> Path:
    return path.with_suffix(".migrating")


def _make_private_folder(folder: Path) -> None:
    """Create the folder with mode 0700. An existing folder is made private only if it is empty."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        _make_private(folder)


def _make_private_file(path: Path) -> None:
    """Create the file with mode 0600, before SQLite creates it with the mode of the umask."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    _make_private(path)


def _use_wal(path: Path) -> None:
    """Put the file in WAL mode, one process at a time: SQLite refuses at once if two processes try."""
    with path.open("rb") as file:
        if file.read(20)[18:] == WAL_VERSIONS:
            return
    with file_lock(_migration_lock(path)), closing(sqlite3.connect(path, BUSY_TIMEOUT_SECONDS)) as conn:
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_master")}
        revision = "alembic_version" in tables and conn.execute("SELECT version_num FROM alembic_version").fetchone()
        if not tables or (revision and revision[0] in KNOWN_REVISIONS):
            conn.execute("PRAGMA journal_mode=WAL")  # a file of another program is left as it is, and refused later


def _make_private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)
