"""Open the ledger, bring its schema up to date, hand out connections.

SQLite in WAL mode with `synchronous=FULL`: what is committed survives a crash. Any number of processes may have
the file open; writes take the lock at their beginning (`BEGIN IMMEDIATE`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, select
from sqlalchemy.exc import DBAPIError, OperationalError

from palimpsest.clock import Clock
from palimpsest.errors import LedgerError, LedgerTooNewError
from palimpsest.ledger import units, writing
from palimpsest.ledger.tables import meta
from palimpsest.records import Change

HEAD = "0002"
"""The schema this version writes; the newest file in migrations/versions."""

KNOWN = frozenset({"0001", "0002"})
BUSY_TIMEOUT_SECONDS = 30
KEPT_BACKUPS = 5


class Ledger:
    """Give read connections and the one way to write. Blocking: call it in a worker thread."""

    def __init__(self, engine: Engine, path: Path, clock: Clock) -> None:
        self._engine = engine
        self._writing = threading.Lock()
        self.path = path
        self.clock = clock

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Give a connection that sees one state of the ledger. Raises LedgerError."""
        with _mapped(self.path), self._engine.begin() as conn:
            yield conn

    def apply(self, write: writing.Write) -> list[Change]:
        """Carry out a write in one transaction and say what each decision did.

        Raises StaleDecisionError when what the decisions were made on has changed, MemoryNotFoundError for an
        id outside the scope, LedgerError when the file cannot be written; nothing is written then.
        """
        with self._write() as conn:
            return writing.apply(conn, write, self.clock())

    def give_vectors(self, embedder: str, vectors: Sequence[units.Embedded]) -> None:
        """Write the vectors of units that had none of this embedder. Raises LedgerError."""
        with self._write() as conn:
            units.give_vectors(conn, embedder, vectors, self.clock())

    def rebuild_lexical(self) -> int:
        """Write the full-text rows anew from the memories and messages and return their number."""
        with self._write() as conn:
            return units.rebuild_lexical(conn)

    @property
    def id(self) -> str:
        """Return the id this ledger was born with."""
        with self.read() as conn:
            return conn.execute(select(meta.c.value).where(meta.c.key == "ledger_id")).scalar_one()

    def check(self) -> str:
        """Return "ok", or what SQLite finds wrong with the file. Raises LedgerError."""
        with self.read() as conn:
            return str(conn.exec_driver_sql("PRAGMA quick_check(5)").scalars().first())

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _write(self) -> Generator[Connection]:
        with _mapped(self.path), self._writing, _writing(self._engine) as conn:
            yield conn


def open_ledger(path: Path, clock: Clock) -> Ledger:
    """Open the ledger file, made or migrated where needed.

    Raises LedgerTooNewError for a schema of a newer version, LedgerError where the file cannot be used.
    """
    _make_private(path)
    engine = _engine(path)
    try:
        with _mapped(path):
            with engine.begin() as conn:
                revision = _revision(conn)
            _refuse_newer(path, revision)
            if revision != HEAD:
                _migrate(engine, path, revision, clock())
    except BaseException:
        engine.dispose()
        raise
    return Ledger(engine, path, clock)


def _refuse_newer(path: Path, revision: str | None) -> None:
    if revision is not None and revision not in KNOWN:
        raise LedgerTooNewError(
            f"the ledger {path} has schema {revision}, which this version does not know (it knows up to {HEAD}). "
            "Nothing was changed. Upgrade palimpsest-mcp, or choose another data_dir."
        )


@contextmanager
def _writing(engine: Engine) -> Generator[Connection]:
    """Give a connection that has the write lock from its first statement on."""
    with engine.connect() as plain, plain.execution_options(begin="BEGIN IMMEDIATE").begin() as transaction:
        yield transaction.connection


def _engine(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_TIMEOUT_SECONDS})

    @event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _(conn: Connection) -> None:
        conn.exec_driver_sql(conn.get_execution_options().get("begin", "BEGIN"))

    return engine


def _revision(conn: Connection) -> str | None:
    """Return the schema's revision; None for a new file. Raises LedgerError for a foreign database."""
    tables = set(inspect(conn).get_table_names())
    if "alembic_version" in tables:
        found = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one_or_none()
        if found is not None:
            return str(found)
    elif tables:
        raise LedgerError(
            f"{conn.engine.url.database} is an SQLite file of something else. Nothing was changed. "
            "Set data_dir or history_db_path to another place."
        )
    return None


def _migrate(engine: Engine, path: Path, revision: str | None, now: datetime) -> None:
    """Bring the schema to HEAD, after a backup of what is there; one process at a time."""
    import alembic.command  # noqa: PLC0415 - half a second that only a schema behind has to pay
    import alembic.config  # noqa: PLC0415 - likewise
    from filelock import FileLock  # noqa: PLC0415 - likewise

    with FileLock(path.with_suffix(".migrating"), mode=0o600):
        with engine.begin() as conn:
            if (current := _revision(conn)) == HEAD:
                return
            if revision is not None:
                _backup(conn, path, f"{current}-{now:%Y%m%dT%H%M%SZ}")
        config = alembic.config.Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with _writing(engine) as conn:
            config.attributes["connection"] = conn
            alembic.command.upgrade(config, HEAD)
            if revision is None:
                conn.execute(meta.insert().values(key="ledger_id", value=str(uuid.uuid4())))


def _backup(conn: Connection, path: Path, label: str) -> Path:
    """Copy the ledger by SQLite's online backup, read the copy back, and keep the newest few."""
    folder = path.parent / "backups"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / f"{path.stem}-{label}.db"
    source: Any = conn.connection.driver_connection
    copy = sqlite3.connect(target)
    try:
        source.backup(copy)
        (verdict,) = copy.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            raise LedgerError(f"the backup {target} does not read back: {verdict}. The ledger was not migrated.")
    finally:
        copy.close()
    target.chmod(0o600)
    for old in sorted(folder.glob(f"{path.stem}-*.db"), key=lambda file: file.stat().st_mtime)[:-KEPT_BACKUPS]:
        old.unlink()
    return target


def _make_private(path: Path) -> None:
    """Make the folder (0700) and the file (0600) before SQLite does, which would leave them to the umask."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be opened for writing: {error.strerror}") from error


@contextmanager
def _mapped(path: Path) -> Generator[None]:
    """Raise SQLite's errors as ours."""
    try:
        yield
    except OperationalError as error:
        cause = str(error.orig)
        advice = "; try again in a moment" if "locked" in cause else ""
        raise LedgerError(f"the ledger {path} could not be used: {cause}. Nothing was written{advice}.") from error
    except DBAPIError as error:
        raise LedgerError(f"the ledger {path} refused: {error.orig}. Nothing was written.") from error
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the ledger {path} could not be used: {error}. Nothing was written.") from error
