"""Open the ledger, bring its schema up to date, hand out connections.

SQLite in WAL mode with `synchronous=FULL`: what is committed survives a crash. Any number of processes may have
the file open; writes take the lock at their beginning (`BEGIN IMMEDIATE`).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import uuid
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from palimpsest.core.clock import Clock
from palimpsest.core.errors import LedgerError, LedgerTooNewError, PalimpsestError
from palimpsest.core.files import file_lock, refuse_without_locks
from palimpsest.core.models import AppliedWrite, Scope
from palimpsest.core.protocols import Progress
from palimpsest.store import verify
from palimpsest.store.schema import meta
from palimpsest.store.sqlite import backup, full_text
from palimpsest.store.writes import apply
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes import purge as purge_writes
from palimpsest.store.writes import transfer as transfer_writes

HEAD = "0004"
"""The schema this version writes; the newest file in migrations/versions."""

KNOWN = frozenset({"0001", "0002", "0003", "0004"})
BUSY_TIMEOUT_SECONDS = 30

CACHE_KIB = 4_096
"""Memory in which a connection keeps pages of the file; SQLite's own 2,000 hold a small part of 10,000 memories."""

WAL_VERSIONS = b"\x02\x02"
"""Bytes 18 and 19 of a file in WAL mode: https://www.sqlite.org/fileformat2.html#file_format_version_numbers."""

OTHERS = 0o077
"""The permissions of everybody but the owner."""

DAMAGED = "The file is damaged; palimpsest doctor --deep says how much, palimpsest restore puts a backup back"
GARBLED = (ValueError, LookupError, TypeError, SQLAlchemyError)
"""What reading a row raises whose bytes are no longer what was written."""

MAX_TOLD_CHARS = 200
"""Of what SQLite says: of a text it cannot decode, it says the text."""

ADVICE = {
    "locked": "Another process is writing; try again in a moment",
    "full": "Free some space on the disk, then call again",
    "disk I/O error": "Look at the disk: it may be full, failing or gone; then call again",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Look at its folder: it has to be there, and writable for this user",
    "vtable constructor": "The full text is damaged; palimpsest rebuild makes it anew",
    "fts5": "The full text is damaged; palimpsest rebuild makes it anew",
    "malformed": DAMAGED,
    "decode to UTF-8": DAMAGED,
    "not a database": "The file is damaged; palimpsest restore puts a backup back",
}
"""What to do, by a word of what SQLite says."""


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
        # What was read is not committed: SQLite would refuse that where it met a damaged page.
        with _mapped(self.path), self._engine.connect() as conn, _dropped_after_failure(conn):
            yield conn

    def apply(self, write: apply.Write) -> AppliedWrite:
        """Carry out a write in one transaction and say what it did.

        Raises StaleDecisionError when what the decisions were made on has changed, MemoryNotFoundError for an
        id outside the scope, LedgerError when the file cannot be written; nothing is written then.
        """
        with self._write() as conn:
            return apply.apply(conn, write, self.clock())

    def give_vectors(self, embedder: str, vectors: Sequence[entry_writes.Embedded]) -> None:
        """Write the vectors of units that had none of this embedder. Raises LedgerError."""
        with self._write() as conn:
            entry_writes.give_vectors(conn, embedder, vectors, self.clock())

    def rebuild_full_text(self) -> int:
        """Write the full-text rows anew from the memories and messages and return their number."""
        with self._write() as conn:
            return entry_writes.rebuild_full_text(conn)

    def purge(self, scope: Scope, owner_ids: Sequence[str] | None) -> purge_writes.PurgeSelection:
        """Erase memories and turns, or all of a scope, from the rows, and return what that was. Raises LedgerError."""
        with self._write() as conn:
            return purge_writes.purge(conn, scope, owner_ids, self.clock())

    def scrub(self) -> bool:
        """Write the file anew without what was erased; say whether its log could be emptied too. Raises LedgerError."""
        with _mapped(self.path), self._writing, closing(self._engine.raw_connection()) as pooled:
            conn: Any = pooled.driver_connection
            conn.execute(full_text.MERGE)
            conn.execute("VACUUM")
            (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not busy:
            with self._write() as conn:
                purge_writes.note_scrubbed(conn)
        return not busy

    @property
    def unscrubbed(self) -> bool:
        """Say whether a purge was cut off before the file was written anew. Raises LedgerError."""
        with self.read() as conn:
            return purge_writes.is_unscrubbed(conn)

    def reserve_edits(self, state: transfer_writes.ImportState, edits: int) -> None:
        """Keep numbers of edits for an import. Raises LedgerError."""
        with self._write() as conn:
            transfer_writes.reserve_edits(conn, state, edits)

    def import_items(
        self, user_id: str, items: Sequence[transfer_writes.Item], state: transfer_writes.ImportState
    ) -> None:
        """Store items of an import in one transaction; `state` says how many were new. Raises LedgerError."""
        with self._write() as conn:
            transfer_writes.import_items(conn, user_id, items, state, self.clock())

    def verify(self, told: Progress) -> verify.Faults:
        """Hold every row against the others. Raises LedgerError where the file cannot be read."""
        with self.read() as conn:
            return verify.verify(conn, told)

    def mend(self, faults: verify.Faults) -> None:
        """Write anew what does not agree. Raises LedgerError."""
        with self._write() as conn:
            if faults.file:
                conn.exec_driver_sql("REINDEX")
            verify.mend(conn, faults, self.clock())

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
    with _writable(path):
        _make_private_folder(path.parent)
    refuse_without_locks(path.parent)
    with _mapped(path), _writable(path):
        _make_private_file(path)
        _use_wal(path)
    engine = _engine(path)
    try:
        with _mapped(path), _writable(path):
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
    with (
        engine.connect() as plain,
        _dropped_after_failure(plain),
        plain.execution_options(begin="BEGIN IMMEDIATE").begin() as transaction,
    ):
        yield transaction.connection


@contextmanager
def _dropped_after_failure(conn: Connection) -> Generator[None]:
    """Close a connection for good where reading broke off: a row set that is still open holds on to an old state."""
    try:
        yield
    except PalimpsestError:
        raise
    except BaseException:
        conn.invalidate()
        raise


def _engine(path: Path) -> Engine:
    # The connection given back last comes first: its pages are in memory.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS},
        poolclass=QueuePool,
        pool_use_lifo=True,
    )

    @event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in ("synchronous=FULL", "foreign_keys=ON", f"cache_size=-{CACHE_KIB}"):
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

    with file_lock(path.with_suffix(".migrating")):
        with engine.begin() as conn:
            if (current := _revision(conn)) == HEAD:
                return
        if revision is not None:
            backup.keep_copy(path, f"schema-{current}", now)
        config = alembic.config.Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with _writing(engine) as conn:
            config.attributes["connection"] = conn
            alembic.command.upgrade(config, HEAD)
            entry_writes.renew(conn, now)
            if revision is None:
                conn.execute(meta.insert().values(key="ledger_id", value=str(uuid.uuid4())))


def _make_private_folder(folder: Path) -> None:
    """Make the folder (0700); one that is there and empty is ours to keep from others, any other is not."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        _keep_from_others(folder)


def _make_private_file(path: Path) -> None:
    """Make the file (0600) before SQLite does, which would leave it to the umask."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    _keep_from_others(path)


def _use_wal(path: Path) -> None:
    """Put the file in WAL mode, one process at a time: SQLite refuses the change, and does not wait, where two try."""
    with path.open("rb") as file:
        if file.read(20)[18:] == WAL_VERSIONS:
            return
    with file_lock(path.with_suffix(".migrating")), closing(sqlite3.connect(path, BUSY_TIMEOUT_SECONDS)) as conn:
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_master")}
        ours = "alembic_version" in tables and conn.execute("SELECT version_num FROM alembic_version").fetchone()
        if not tables or (ours and ours[0] in KNOWN):
            conn.execute("PRAGMA journal_mode=WAL")  # a file of something else is left as it is, and refused


def _keep_from_others(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)


@contextmanager
def _writable(path: Path) -> Generator[None]:
    """Raise what the system says of a place that cannot be written as ours."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be opened for writing: {error.strerror}. Nothing was written. Make the file "
            "and its folder writable for this user, or set data_dir to another place."
        ) from error


@contextmanager
def _mapped(path: Path) -> Generator[None]:
    """Raise SQLite's errors as ours."""
    try:
        yield
    except DBAPIError as error:
        raise LedgerError(f"the ledger {path} could not be used: {_told(error.orig)}") from error
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} could not be used: {_told(error)}") from error
    except GARBLED as error:
        told = f"a row of it does not read back ({type(error).__name__}: {str(error)[:MAX_TOLD_CHARS]})"
        raise LedgerError(f"the ledger {path} could not be used: {told}. Nothing was written. {DAMAGED}.") from error


def _told(error: BaseException | None) -> str:
    """Return what SQLite or the system says, that nothing was written, and what to do."""
    advice = next((f" {text}." for word, text in ADVICE.items() if word in str(error)), "")
    return f"{str(error)[:MAX_TOLD_CHARS]}. Nothing was written.{advice}"
