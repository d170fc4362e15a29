"""Copies of a ledger's SQLite file: made while it is in use, read back, and restored.

A copy is made with SQLite's online backup under a temporary name, read back, and then renamed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path

from palimpsest.core.errors import LedgerError
from palimpsest.core.files import file_lock, files_below
from palimpsest.store.database.protocols import LedgerCopy, Restored
from palimpsest.store.database.sqlite.write_turn import turn_to_write
from palimpsest.store.schema import metadata

KEPT = 5
"""How many copies of one occasion are kept. Older ones are deleted."""

FOLDER = "backups"

TIMEOUT_SECONDS = 30
"""How long a copy or a restore waits for another process."""

UNFINISHED = ".half"
"""What the name of a copy ends in until it is complete."""

TABLES = tuple(table.name for table in metadata.sorted_tables)
"""The tables of a ledger, those that others refer to first. The full text is not among them."""


class SqliteBackups:
    """Implement `Backups` for the SQLite file of a ledger."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.parent / FOLDER

    @property
    def name(self) -> str:
        """Return what the names of the files begin with."""
        return self._path.stem

    def copy(self, target: Path) -> LedgerCopy:
        """Copy the ledger to a new file and read the copy back. Raises LedgerError, and leaves no file then."""
        return _copy(self._path, target)

    def keep(self, occasion: str, now: datetime) -> LedgerCopy:
        """Copy the ledger into its backup folder and delete the oldest copies of the same occasion."""
        return self.keep_copy_of(self._path, occasion, now)

    def keep_copy_of(self, ledger: Path, occasion: str, now: datetime) -> LedgerCopy:
        """Copy a ledger's file into the backup folder and delete the oldest copies of the same occasion."""
        with self._naming():
            copy = self._new_copy_of(ledger, occasion, now)
            kept = sorted(
                self._folder.glob(f"{self.name}-{occasion}-*.db"), key=lambda file: (file.stat().st_mtime, file.name)
            )
            for file in kept[:-KEPT]:
                file.unlink()
        return copy

    def new_copy_of(self, ledger: Path, occasion: str, now: datetime) -> LedgerCopy:
        """Copy a ledger's file into the backup folder, where it stays."""
        with self._naming():
            return self._new_copy_of(ledger, occasion, now)

    def _new_copy_of(self, ledger: Path, occasion: str, now: datetime) -> LedgerCopy:
        start = f"{self.name}-{occasion}-"
        self._delete_unfinished(start)
        return _copy(ledger, _free_name(self._folder, f"{start}{now:%Y%m%dT%H%M%SZ}"))

    def rescue(self, conn: sqlite3.Connection) -> LedgerCopy:
        """Copy what a connection sees, whose files may be deleted, into the backup folder. Raises LedgerError."""
        name = f"{self._path.stem}-rescued"
        with self._naming():
            self._delete_unfinished(name)
            return _copy_from(lambda: nullcontext(conn), _free_name(self._folder, name))

    def files(self) -> list[Path]:
        """Return the files in the backup folder."""
        return files_below(self._folder)

    def inspect(self, file: Path) -> LedgerCopy:
        """Read a copy through and return what it holds. Raises LedgerError if it is damaged or not a ledger."""
        return _inspect(file)

    def holds(self, file: Path, memory_ids: Sequence[str], message_ids: Sequence[str]) -> bool:
        """Return whether a copy has rows of any of these memories and messages. A damaged copy has none."""
        try:
            with _opened(file) as conn:
                return any(
                    conn.execute(f"SELECT 1 FROM {table} WHERE id = ?", (owner_id,)).fetchone()  # noqa: S608 - two names of our own
                    for table, ids in (("memories", memory_ids), ("messages", message_ids))
                    for owner_id in ids
                )
        except sqlite3.Error:
            return False

    def restore(
        self, file: Path, now: datetime, migrate: Callable[[Path], None], refuse_if_in_use: Callable[[], None]
    ) -> Restored:
        """Put a copy in the ledger's place, after a copy of the present ledger. Raises LedgerError.

        Clients may stay connected: they see the restored ledger from their next call on. A ledger that SQLite cannot
        read is moved aside as a whole, which no client may use at that moment.
        """
        _inspect(file)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._path.parent / "restoring"
        with file_lock(folder.with_suffix(".lock")):
            shutil.rmtree(folder, ignore_errors=True)  # left over from a restore that was interrupted
            try:
                copy = _copy(file, folder / "ledger.db")
                migrate(copy.path)
                return Restored(copy, self._put_in_place(copy.path, now, migrate, refuse_if_in_use))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _naming(self) -> AbstractContextManager[object]:
        """Let one process at a time choose a name in the backup folder."""
        return file_lock(self._path.with_suffix(".copying"))

    def _delete_unfinished(self, name: str) -> None:
        """Delete copies whose names begin so and that a killed process has left unfinished. The caller has a lock."""
        for file in self._folder.glob(f"{name}*{UNFINISHED}"):
            file.unlink(missing_ok=True)

    def _put_in_place(
        self, copy: Path, now: datetime, migrate: Callable[[Path], None], refuse_if_in_use: Callable[[], None]
    ) -> Path | None:
        """Put a copy with the present schema in place. Return the copy of the previous ledger, if there was one."""
        if not self._path.exists():
            self._drop_log()
            _copy(copy, self._path)
            return None
        try:
            _inspect(self._path)
            migrate(self._path)
        except LedgerError:
            refuse_if_in_use()
            before = self._set_aside(now)
            self._drop_log()
            _copy(copy, self._path)
            return before
        name = f"{self._path.stem}-before-restore-"
        self._delete_unfinished(name)
        before = _free_name(self._folder, f"{name}{now:%Y%m%dT%H%M%SZ}")
        self._replace_all_rows(copy, before)
        return before

    def _replace_all_rows(self, copy: Path, before: Path) -> None:
        """Copy the ledger to `before` and put the rows of `copy` into it, in one transaction.

        The transaction holds the write lock, so no write of another process falls between the two. Raises LedgerError.
        """
        try:
            with (
                turn_to_write(self._path, TIMEOUT_SECONDS),
                closing(sqlite3.connect(self._path, TIMEOUT_SECONDS, isolation_level=None)) as conn,
            ):
                conn.execute("PRAGMA synchronous=FULL")
                conn.execute("ATTACH ? AS copy", (str(copy),))
                conn.execute("BEGIN IMMEDIATE")
                try:
                    _copy(self._path, before)
                    _replace_rows(conn)
                    conn.execute("COMMIT")
                except BaseException:
                    conn.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise LedgerError(f"{copy} could not be restored: {error}. The ledger is unchanged.") from error

    def _set_aside(self, now: datetime) -> Path:
        """Copy a damaged ledger and its log byte by byte into the backup folder, so that nothing of it is lost."""
        target = _free_name(self._folder, f"{self._path.stem}-damaged-{now:%Y%m%dT%H%M%SZ}")
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for ending in ("", "-wal"):
                part = self._path.with_name(self._path.name + ending)
                if part.exists():
                    shutil.copyfile(part, target.with_name(target.name + ending))
                    target.with_name(target.name + ending).chmod(0o600)
        except OSError as error:
            raise LedgerError(f"the damaged ledger could not be copied: {error}. Nothing was changed.") from error
        return target

    def _drop_log(self) -> None:
        """Delete the log of a ledger file that is gone. SQLite would apply it to the file that is put there."""
        for ending in ("-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> LedgerCopy:
    return _copy_from(lambda: _opened(source), target)


def _copy_from(source: Callable[[], AbstractContextManager[sqlite3.Connection]], target: Path) -> LedgerCopy:
    half = target.with_name(f"{target.name}{UNFINISHED}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half.unlink(missing_ok=True)
        os.close(os.open(half, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600))
        with source() as original, closing(sqlite3.connect(half)) as copy:
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # the copy is a single file
        content = _inspect(half)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        half.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the copy {target} could not be made: {error}. The ledger is unchanged.") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):  # the same fault may prevent the clean-up
                half.with_name(half.name + ending).unlink(missing_ok=True)
    return LedgerCopy(target, content.revision, content.memories, content.messages)


def _free_name(folder: Path, stem: str) -> Path:
    """Return a path for a new copy. A second copy within the same second gets a number."""
    path, number = folder / f"{stem}.db", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.db"
    return path


def _inspect(path: Path) -> LedgerCopy:
    if not path.is_file():
        is_there = path.exists()
        raise LedgerError(f"{path} is not a plain file. Nothing was read" if is_there else f"there is no file {path}")
    try:
        with _opened(path) as conn:
            (verdict,) = conn.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise LedgerError(f"{path} is damaged: {verdict}")
            revision = conn.execute("SELECT version_num FROM alembic_version").fetchone()
            counts = [conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("memories", "messages")]  # noqa: S608 - two names of our own
    except sqlite3.Error as error:
        raise LedgerError(f"{path} is not a ledger that can be read: {error}") from error
    return LedgerCopy(path, str(revision[0]) if revision else "", *counts)


def _replace_rows(conn: sqlite3.Connection) -> None:
    epoch = conn.execute("SELECT value FROM main.meta WHERE key = 'epoch'").fetchone()
    for table in TABLES:
        conn.execute(f"DELETE FROM main.{table}")  # noqa: S608 - names of our own
        columns = ", ".join(row[1] for row in conn.execute(f"PRAGMA copy.table_info({table})"))
        conn.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM copy.{table}")  # noqa: S608 - likewise
    # The present full text may be damaged without any sign of it, so it is created again as in the copy.
    schema = "SELECT name, sql FROM copy.sqlite_master WHERE name IN ('lexical', 'lexical_terms') ORDER BY name"
    tables = dict(conn.execute(schema).fetchall())
    for table in reversed(tables):
        conn.execute(f"DROP TABLE main.{table}")
    for statement in tables.values():
        conn.execute(statement)
    columns = "rowid, scope, own, context, facts"
    conn.execute(f"INSERT INTO main.lexical({columns}) SELECT {columns} FROM copy.lexical")  # noqa: S608 - likewise
    # A new epoch tells every index that it follows other rows now, and a row of the index log makes it look.
    later = str(int(epoch[0]) + 1 if epoch else 1)
    conn.execute("INSERT OR REPLACE INTO main.meta(key, value) VALUES ('epoch', ?)", (later,))
    conn.execute(
        "INSERT INTO main.changes(unit_seq, user_id, op, at) "
        "SELECT max(seq), user_id, 'upsert', strftime('%Y-%m-%dT%H:%M:%f000Z') FROM main.vectors GROUP BY user_id"
    )
    # A model's reply about the ledger as it was before must not be stored in this one: see `purge.ERASED_AT`.
    conn.execute(
        "INSERT OR REPLACE INTO main.meta(key, value) "
        "SELECT 'erased_at', CAST(seq AS TEXT) FROM main.sqlite_sequence WHERE name = 'changes'"
    )


@contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection]:
    """Open the file of a ledger for reading only."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", TIMEOUT_SECONDS, uri=True)) as conn:
        yield conn
