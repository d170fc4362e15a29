"""Backups of a ledger that is in no file of its own: each is a complete ledger in an SQLite file.

So everything that makes a backup first, or restores one, works as with a ledger in a file, and a backup can be opened
without a database server.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from palimpsest.core.errors import LedgerError
from palimpsest.core.files import file_lock
from palimpsest.store.database.protocols import Database, LedgerCopy, Restored
from palimpsest.store.database.sqlite.backup import SqliteBackups
from palimpsest.store.database.sqlite.connection import SqliteDatabase
from palimpsest.store.migrations.copying.complete import begin_epoch
from palimpsest.store.migrations.copying.rows import replace_all
from palimpsest.store.migrations.upgrade import create_tables, stored_revision
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.schema import HEAD
from palimpsest.store.writes import entries

Opened: TypeAlias = Callable[[], AbstractContextManager[Database]]
"""Opens the database of a ledger, or gives the open one."""

NAME = "shared"
"""What the names of the files begin with."""


class DatabaseBackups:
    """Implement `Backups` for the ledger of any database, in the folder `backups` of a data directory."""

    def __init__(self, opened: Opened, data_dir: Path | None) -> None:
        self._opened = opened
        self._data_dir = data_dir

    @property
    def name(self) -> str:
        """Return what the names of the files begin with."""
        return NAME

    def copy(self, target: Path) -> LedgerCopy:
        """Copy the ledger to a new file and read the copy back. Raises LedgerError, and leaves no file then."""
        with self._folder() as folder, self._opened() as database:
            return SqliteBackups(_ledger_file(database, folder)).copy(target)

    def keep(self, occasion: str, now: datetime) -> LedgerCopy:
        """Copy the ledger into the backup folder and delete the oldest copies of the same occasion."""
        with self._folder() as folder, self._opened() as database:
            return self._files.keep_copy_of(_ledger_file(database, folder), occasion, now)

    def files(self) -> list[Path]:
        """Return the files in the backup folder."""
        return self._files.files()

    def inspect(self, file: Path) -> LedgerCopy:
        """Read a copy through and return what it holds. Raises LedgerError if it is damaged or not a ledger."""
        return self._files.inspect(file)

    def holds(self, file: Path, memory_ids: Sequence[str], message_ids: Sequence[str]) -> bool:
        """Return whether a copy has rows of any of these memories and messages. A damaged copy has none."""
        return self._files.holds(file, memory_ids, message_ids)

    def restore(
        self, file: Path, now: datetime, migrate: Callable[[Path], None], refuse_if_in_use: Callable[[], None]
    ) -> Restored:
        """Put the rows of a copy in the place of all rows, after a copy of these, in one transaction.

        Servers may go on: they see the restored ledger from their next call on. Raises LedgerError.
        """
        del refuse_if_in_use  # only a file is ever replaced as a whole
        self.inspect(file)
        with self._folder() as folder, self._opened() as database:
            copy = SqliteBackups(file).copy(folder / "restored.db")
            migrate(copy.path)
            with closing(SqliteDatabase.open(copy.path)) as restored:
                return Restored(copy, self._put_in_place(restored, database, folder, now))

    def _put_in_place(self, restored: Database, database: Database, folder: Path, now: datetime) -> Path:
        """Replace all rows, and return the copy of the previous ones. Nobody writes between the two."""
        _refuse_other_schema(database)
        with database.write() as conn, database.without_time_limit(conn), restored.read() as rows:
            before = self._files.new_copy_of(_ledger_file(database, folder), "before-restore", now)
            epoch = log_queries.epoch(conn)
            replace_all(rows, conn, database.loading, database.location)
            database.loading.count_on(conn, restored.loading.counters(rows))
            entries.rebuild_full_text(conn, database.full_text)
            begin_epoch(conn, epoch, now)
        return before.path

    @property
    def _place(self) -> Path:
        """Return the data directory. Raises LedgerError if there is none."""
        if self._data_dir is None:
            raise LedgerError("this ledger was opened without a data directory, which its backups would be in")
        return self._data_dir

    @property
    def _files(self) -> SqliteBackups:
        return SqliteBackups(self._place / f"{NAME}.db")

    @contextmanager
    def _folder(self) -> Generator[Path]:
        """Give an empty folder for the files that are being made, to one process at a time."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._place / "copying"
        with file_lock(folder.with_suffix(".lock")):
            shutil.rmtree(folder, ignore_errors=True)  # left over from a process that was killed
            folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def _ledger_file(database: Database, folder: Path) -> Path:
    """Write the ledger as one snapshot shows it to a file in a folder."""
    _refuse_other_schema(database)
    path = folder / "ledger.db"
    with closing(SqliteDatabase.open(path)) as copy:
        with copy.write() as conn:
            create_tables(conn, copy)
        with copy.write() as conn:
            with database.read() as rows:
                replace_all(rows, conn, copy.loading, copy.location)
                copy.loading.count_on(conn, database.loading.counters(rows))
            entries.rebuild_full_text(conn, copy.full_text)
    return path


def _refuse_other_schema(database: Database) -> None:
    """Raise LedgerError unless the ledger has the schema of this version."""
    revision = stored_revision(database)
    if revision is None:
        raise LedgerError(f"there is no ledger in {database.location} yet. Nothing was copied.")
    if revision != HEAD:
        raise LedgerError(
            f"the ledger {database.location} has schema {revision}, which only its own tools copy: "
            f"{database.dump_command}. Nothing was copied."
        )
