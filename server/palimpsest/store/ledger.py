"""The ledger: read connections, and the one way to write.

Every change goes through a method of `Ledger`. It is one transaction that holds the database's write lock from its
beginning. Any number of threads and processes may write, and the lock lets one of them in at a time. A decision made
on rows that have changed since is refused with StaleDecisionError. Its caller then decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pydantic import SecretStr
from sqlalchemy import Connection, update

from palimpsest.core.clock import UTC_FOR_ALL, Clock, Zones
from palimpsest.core.errors import LedgerError, SettingsError, raised_as
from palimpsest.core.files import make_private_folder
from palimpsest.core.git_project import Repository
from palimpsest.core.models import AppliedWrite, Scope
from palimpsest.store import apply, entries, projects, purge, usage
from palimpsest.store import jobs as job_queries
from palimpsest.store.database import Database
from palimpsest.store.schema import meta
from palimpsest.store.sqlite.ledger_files import Backups
from palimpsest.store.sqlite.sqlite_database import SqliteDatabase
from palimpsest.store.upgrade import refuse_newer, upgrade

P = ParamSpec("P")
T = TypeVar("T")


class Ledger:
    """The memories, messages, history and vectors of all users in one database.

    Blocking: call it in a worker thread. Every method raises LedgerError if the database cannot be used. A user may
    have `max_memories`, or with 0 any number. The days of a user begin as `zones` says.
    """

    def __init__(
        self, database: Database, backups: Backups, clock: Clock, max_memories: int = 0, zones: Zones = UTC_FOR_ALL
    ) -> None:
        self.zones = zones
        self.database = database
        self.full_text = database.full_text
        self.backups = backups
        self.clock = clock
        self._max_memories = max_memories

    def now(self, user_id: str) -> datetime:
        """Return the time of this ledger's clock in the zone of a user."""
        return self.zones.clock(self.clock, user_id)()

    @property
    def location(self) -> str:
        """Name the place of the ledger for messages."""
        return self.database.location

    def read(self) -> AbstractContextManager[Connection]:
        """Return a connection that sees one state of the ledger."""
        return self.database.read()

    @contextmanager
    def _write(self, user_id: str | None = None) -> Generator[Connection]:
        """Return a connection that holds the write lock of a user, or of all users.

        Raises LedgerTooNewError if a newer version has migrated the ledger meanwhile.
        """
        with self.database.write(user_id) as conn:
            refuse_newer(conn, self.location)
            yield conn

    def run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Do a piece of work in one transaction that holds the write lock of all users."""
        with self._write() as conn:
            return work(conn, *args, **options)

    def run_for(
        self, user_id: str, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Do a piece of work in one transaction that holds the write lock of a user."""
        with self._write(user_id) as conn:
            return work(conn, *args, **options)

    def read_with(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Read in one snapshot."""
        with self.read() as conn:
            return work(conn, *args, **options)

    def apply(self, write: apply.Write) -> AppliedWrite:
        """Carry out a write in one transaction and return what it did.

        Raises StaleDecisionError if rows that the decisions were made on have changed, MemoryNotFoundError for an id
        outside the scope, InputError if the user would have too many memories, and LedgerError if the database cannot
        be written. Nothing is written then.
        """
        return self.apply_as_one([write])[0]

    def apply_as_one(self, writes: Sequence[apply.Write]) -> Sequence[AppliedWrite]:
        """Carry out writes in several scopes of a user in one transaction, as one edit. Raises as `apply`."""
        applied: list[AppliedWrite] = []
        with self._write(writes[0].scope.user_id if writes else None) as conn:
            for write in writes:
                edit = applied[0].edit if applied else write.edit
                numbered, now = replace(write, edit=edit), self.now(write.scope.user_id)
                applied.append(apply.apply(conn, self.full_text, numbered, now, self._max_memories))
        return applied

    def note_recalls(self, new: Sequence[usage.NewRecall], since: datetime | None, epoch: str | None) -> str:
        """Note recalls, unless rows were erased after an epoch, and erase those of before a time; with None all.

        Return the epoch. The question of a recall may quote what was erased after it.
        """
        with self._write() as conn:
            current = entries.epoch(conn)
            if epoch in (None, current):
                moved = [replace(item, scope=projects.current_scope(conn, item.scope)) for item in new]
                usage.note_recalls(conn, moved)
            usage.erase_outdated(conn, since)
            return current

    def queue_job(self, scope: Scope, request: job_queries.JobRequest) -> None:
        """Queue work in the background. In a write of a client, use `Write.later`."""
        with self._write(scope.user_id) as conn:
            job_queries.enqueue(conn, projects.current_scope(conn, scope), request, self.clock())

    def project_of(self, user_id: str, repository: Repository) -> str:
        """Return the project of a repository, or "" outside of one, and record what the project is known by.

        Raises InputError if the name of a new project is not valid.
        """
        with self.read() as conn:
            project, new_aliases = projects.identify(conn, user_id, repository)
        if new_aliases:
            with self._write(user_id) as conn:  # another process may have been quicker
                project, new_aliases = projects.identify(conn, user_id, repository)
                projects.record(conn, user_id, new_aliases, self.clock())
        return project

    def purge(self, scope: Scope, owner_ids: Sequence[str] | None) -> purge.PurgeSelection:
        """Erase the rows of memories and messages, or of a whole scope, and return what was erased."""
        return self.run(purge.purge, self.full_text, scope, owner_ids, self.clock())

    def erase_free_space(self) -> bool:
        """Rewrite the database so that erased rows leave no trace. Return False if part of it is still in use."""
        if complete := self.database.erase_free_space():
            self.run(purge.note_free_space_erased)
        return complete

    @property
    def id(self) -> str:
        """Return the id that the ledger was created with."""
        return self.read_with(entries.meta_value, "ledger_id") or ""

    def try_to_write(self) -> None:
        """Write what is there already, and so find out whether the database can be written. Raises LedgerError."""
        with self._write() as conn:
            conn.execute(update(meta).values(value=meta.c.value).where(meta.c.key == "ledger_id"))

    def close(self) -> None:
        """Close all connections."""
        self.database.close()


def open_ledger(
    place: Path | SecretStr,
    clock: Clock,
    max_memories: int = 0,
    *,
    data_dir: Path | None = None,
    zones: Zones = UTC_FOR_ALL,
) -> Ledger:
    """Open the ledger in an SQLite file, or in the database of a URL. It is created or migrated if needed.

    A user may have `max_memories`, or with 0 any number. Backups of a database are in the data directory.
    Raises SettingsError for a URL that is none, LedgerTooNewError for the schema of a newer version, and LedgerError if
    the file or the database cannot be used.
    """
    if data_dir is not None and not isinstance(place, Path):  # a ledger in a file makes its folder by itself
        with raised_as(LedgerError, f"the folder {data_dir} cannot be used", ". Nothing was written.", OSError):
            make_private_folder(data_dir)
    database = open_database(place)
    backups = backups_of(place, data_dir or Path())
    try:
        upgrade(database, backups, clock())
    except BaseException:
        database.close()
        raise
    return Ledger(database, backups, clock, max_memories, zones)


def open_database(place: Path | SecretStr) -> Database:
    """Open the database that a ledger is in, or is to be in. Raises SettingsError and LedgerError."""
    if isinstance(place, Path):
        return SqliteDatabase.open(place)
    if find_spec("psycopg") is None:
        raise SettingsError("ledger_url needs a driver. Nothing was opened. Install palimpsest-mcp[postgres].")
    from palimpsest.store.postgres.postgres_database import PostgresDatabase  # noqa: PLC0415 - the driver is an extra

    return PostgresDatabase.open(place.get_secret_value())


def backups_of(place: Path | SecretStr, data_dir: Path) -> Backups:
    """Return the copies of the ledger at a place, which may be missing or damaged."""
    if isinstance(place, Path):
        return Backups(place)
    from palimpsest.store.copying import DatabaseBackups  # noqa: PLC0415 - as above

    return DatabaseBackups(lambda: closing(open_database(place)), data_dir)
