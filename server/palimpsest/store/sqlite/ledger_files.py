"""Files of a ledger: backups, replaced files, and the queue of writers."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

from palimpsest.core.errors import LedgerError, logged, raised_as
from palimpsest.core.files import file_lock, files_below
from palimpsest.store.database import LedgerCopy

# A lock between processes that is granted about in the order in which they ask for it.
#
# SQLite's own lock is not. Who finds it held sleeps and asks again, up to a tenth of a second later, and under load
# some wait for seconds while others pass. So there are two locks: a process takes the first, asks with it for the
# second every few milliseconds, and then gives the first back. Only one process at a time asks for the second, so
# nobody passes it, and those behind it are too few to wait long: of eight that write all the time, for half a second.
#
# The lock keeps order and nothing else. What must not happen at the same time is kept apart by the database.

# The pause between two attempts: in the line, which moves on with every write, and at its head, where others wait.
LINE_SECONDS, TURN_SECONDS = 0.004, 0.0005


@contextmanager
def in_turn(path: Path, timeout: float) -> Generator[None]:
    """Wait in line for the lock on `path`, and hold it for the block. The line is a lock on a file beside it.

    The system releases it when the process ends, also when it is killed. Raises TimeoutError after `timeout` seconds,
    and OSError if the files cannot be opened or locked.
    """
    line, end = file_lock(path.with_name(f"{path.stem}.next{path.suffix}")), time.monotonic() + timeout
    with line.acquire(timeout, poll_interval=LINE_SECONDS):
        turn = file_lock(path).acquire(max(0.0, end - time.monotonic()), poll_interval=TURN_SECONDS)
    with turn:
        yield


# Which files a connection has open, so that it is noticed if others are put in their places.
#
# SQLite opens the ledger, its log (`-wal`) and the index of the log (`-shm`) once and goes on with them, whatever
# happens to their names. If a file is replaced or deleted, a connection therefore writes to a file that nobody else
# reads.

# The device and the inode of a file, or None if there is no file.
FileId: TypeAlias = tuple[int, int] | None

# Page cache of a connection. SQLite's default of 2,000 KiB holds a small part of 10,000 memories.
CACHE_KIB = 4_096


class LedgerFiles(NamedTuple):
    """The files of a ledger: its database, its log and the index of its log."""

    ledger: FileId
    log: FileId
    log_index: FileId

    @classmethod
    def at(cls, path: Path) -> LedgerFiles:
        """Return the files that are at the path of a ledger now."""
        # SQLite puts the log beside the file that a link points to.
        name = os.path.realpath(path) if path.is_symlink() else os.fspath(path)
        return cls(_file_id(name), _file_id(f"{name}-wal"), _file_id(f"{name}-shm"))


def _file_id(name: str) -> FileId:
    try:
        status = os.stat(name)  # noqa: PTH116 - every call of a ledger does this, and a Path takes longer
    except OSError:
        return None
    return status.st_dev, status.st_ino


class LedgerConnection(sqlite3.Connection):
    """A connection to the SQLite file of a ledger. `files` are those that it has open, `opened` all that are open."""

    path: Path
    files: LedgerFiles
    opened: set[LedgerConnection]

    @classmethod
    def open(cls, path: Path, timeout: float, opened: set[LedgerConnection]) -> LedgerConnection:
        """Connect to a file that exists, and belong to `opened` until it is closed.

        `timeout` is how many seconds a statement waits for a lock.
        """
        ledger = LedgerFiles.at(path).ledger
        uri = f"{path.absolute().as_uri()}?mode=rw"
        conn = sqlite3.connect(uri, timeout, uri=True, isolation_level=None, check_same_thread=False, factory=cls)
        conn.path, conn.opened = path, opened
        for pragma in ("synchronous=FULL", "foreign_keys=ON", f"cache_size=-{CACHE_KIB}", "schema_version"):
            conn.execute(f"PRAGMA {pragma}").fetchall()  # the last one reads the file, which opens the log
        conn.files = LedgerFiles.at(path)._replace(ledger=ledger)
        opened.add(conn)
        return conn

    @property
    def is_current(self) -> bool:
        """Return whether the files that it has open are those at the path of the ledger.

        A copy of a ledger has no log until the first connection turns it on. The others open it with their next
        statement.
        """
        present = LedgerFiles.at(self.path)
        if self.files.log is None and self.files.ledger == present.ledger:
            self.files = present
        return self.files == present

    def close(self) -> None:
        """Close the connection, unless its files are no longer in their places.

        The last connection that SQLite closes writes its log to the ledger and deletes the log by its name, which may
        be another one by then, with writes that nobody else has.
        """
        if self.is_current:
            super().close()
            self.opened.discard(self)
        else:
            # It stays open until the process ends: Python closes connections that it finds unused.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def log_is_empty(files: LedgerFiles) -> bool:
    """Return whether an open log, which may be deleted, has no content. Elsewhere than on Linux it cannot be seen."""
    if sys.platform != "linux":
        return False
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was closed just now
            status = descriptor.stat()
            if (status.st_dev, status.st_ino) == files.log:
                return status.st_size == 0
    return False


# Whose turn it is to write a ledger, and which files the last writer had open.

logger = logging.getLogger(__name__)


@contextmanager
def turn_to_write(path: Path, timeout: float) -> Generator[None]:
    """Wait in line for the turn to write a ledger, and keep it for the block. Raises LedgerError after `timeout`.

    The turn only keeps order: SQLite's own lock keeps two writers apart, also one who did not wait in line. So if the
    turn cannot be locked, because the disk is full or read-only, SQLite says what is wrong, or writes.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(in_turn(_turn(path), timeout))
        except TimeoutError:
            raise LedgerError(
                f"the ledger {path} could not be used: another process has been writing for {timeout:g} seconds. "
                "Nothing was written. Try again in a moment."
            ) from None
        except OSError as error:
            logger.warning("this write does not wait in line, because %s cannot be locked: %s", _turn(path), error)
        yield


def note_writer(path: Path, files: LedgerFiles) -> None:
    """Note which files the writer whose turn it is has open."""
    if not wrote_last(path, files):
        with logged(logger, f"{_turn(path)} cannot be written", OSError):
            _turn(path).write_text(repr(tuple(files)), "ascii")


def wrote_last(path: Path, files: LedgerFiles) -> bool:
    """Return whether the last writer of a ledger had these files open."""
    return _noted(path) == repr(tuple(files))


def was_written(path: Path) -> bool:
    """Return whether the very file that is at the path of a ledger was written to before."""
    return _noted(path).startswith(f"({LedgerFiles.at(path).ledger!r}, ")


def _noted(path: Path) -> str:
    with suppress(OSError, ValueError):
        return _turn(path).read_text("ascii")
    return ""


def _turn(path: Path) -> Path:
    return path.with_suffix(".writing.lock")


# Copies of a ledger's SQLite file: made while it is in use, read back, and restored.
#
# A copy is made with SQLite's online backup under a temporary name, read back, and then renamed.

# How many copies of one occasion are kept. Older ones are deleted.
KEPT = 5

FOLDER = "backups"

# How long a copy or a restore waits for another process.
TIMEOUT_SECONDS = 30

# What the name of a copy ends in until it is complete.
UNFINISHED = ".half"

# The occasion of the copies that a restore makes.
BEFORE_RESTORE = "before-restore"


class Backups:
    """Copies of one ledger, each an SQLite file in the folder `backups` beside the ledger's file. Blocking.

    They can be made while the ledger is in use, and they exist if it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.parent / FOLDER

    @property
    def name(self) -> str:
        """Return what the names of the files begin with."""
        return self._path.stem

    def copy(self, target: Path) -> LedgerCopy:
        """Copy the ledger to a new file and read the copy back. Raises LedgerError, and leaves no file then."""
        with self._ledger_file() as ledger:
            return copied(ledger, target)

    def keep(self, occasion: str, now: datetime) -> LedgerCopy:
        """Copy the ledger into the backup folder and delete the oldest copies of the same occasion.

        Those that a restore makes stay: nothing else has what it replaced.
        """
        start = f"{self.name}-{occasion}-"
        with self._ledger_file() as ledger, self._naming():
            self._delete_unfinished(start)
            copy = copied(ledger, _free_name(self._folder, f"{start}{now:%Y%m%dT%H%M%SZ}"))
            kept = sorted(self._folder.glob(f"{start}*.db"), key=lambda file: (file.stat().st_mtime, file.name))
            for file in kept[:-KEPT] if occasion != BEFORE_RESTORE else ():
                file.unlink()
        return copy

    def _ledger_file(self) -> AbstractContextManager[Path]:
        """Give a file that holds the ledger."""
        return nullcontext(self._path)

    def rescue(self, conn: sqlite3.Connection) -> LedgerCopy:
        """Copy what a connection sees, whose files may be deleted, into the backup folder. Raises LedgerError."""
        name = f"{self._path.stem}-rescued"
        with self._naming():
            self._delete_unfinished(name)
            return copied(conn, _free_name(self._folder, name))

    def files(self) -> list[Path]:
        """Return the files in the backup folder."""
        return files_below(self._folder)

    def inspect(self, file: Path) -> LedgerCopy:
        """Read a copy through and return what it holds. Raises LedgerError if it is damaged or not a ledger."""
        if not file.is_file():
            raise LedgerError(f"there is no file {file}, or it is not a plain file. Nothing was read")
        return _read_back(file)

    def holds(self, file: Path, memory_ids: Sequence[str], message_ids: Sequence[str]) -> bool:
        """Return whether a copy has rows of any of these memories and messages. A damaged copy has none."""
        with suppress(sqlite3.Error), _opened(file) as conn:
            return any(
                conn.execute(f"SELECT 1 FROM {table} WHERE id = ?", (owner_id,)).fetchone()  # noqa: S608 - two names of our own
                for table, ids in (("memories", memory_ids), ("messages", message_ids))
                for owner_id in ids
            )
        return False

    @contextmanager
    def work_folder(self, name: str) -> Generator[Path]:
        """Give an empty folder for the files that are being made, to one process at a time."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._path.parent / name
        with file_lock(folder.with_suffix(".lock")):
            shutil.rmtree(folder, ignore_errors=True)  # left over from a process that was killed
            folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _naming(self) -> AbstractContextManager[object]:
        """Let one process at a time choose a name in the backup folder."""
        return file_lock(self._path.with_suffix(".copying"))

    def _delete_unfinished(self, name: str) -> None:
        """Delete copies whose names begin so and that a killed process has left unfinished. The caller has a lock."""
        for file in self._folder.glob(f"{name}*{UNFINISHED}"):
            file.unlink(missing_ok=True)

    def set_aside(self, now: datetime) -> Path:
        """Copy a damaged ledger and its log byte by byte into the backup folder, so that nothing of it is lost."""
        target = _free_name(self._folder, f"{self._path.stem}-damaged-{now:%Y%m%dT%H%M%SZ}")
        with raised_as(LedgerError, "the damaged ledger could not be copied", ". Nothing was changed.", OSError):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for ending in ("", "-wal"):
                part = self._path.with_name(self._path.name + ending)
                if part.exists():
                    shutil.copyfile(part, target.with_name(target.name + ending))
                    target.with_name(target.name + ending).chmod(0o600)
        return target

    def replace(self, copy: Path) -> None:
        """Put a copy in the place of a ledger that is missing, or that was set aside. Raises LedgerError."""
        for ending in ("-wal", "-shm"):  # SQLite would apply them to the file that is put there
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        copied(copy, self._path)


def copied(source: Path | sqlite3.Connection, target: Path) -> LedgerCopy:
    """Copy a file, or what a connection sees, to a new file. Raises LedgerError."""
    half = target.with_name(f"{target.name}{UNFINISHED}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half.unlink(missing_ok=True)
        os.close(os.open(half, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600))
        opened = _opened(source) if isinstance(source, Path) else nullcontext(source)
        with opened as original, closing(sqlite3.connect(half)) as copy:
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # the copy is a single file
        content = _read_back(half)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        half.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the copy {target} could not be made: {error}. The ledger is unchanged.") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):  # the same fault may prevent the clean-up
                half.with_name(half.name + ending).unlink(missing_ok=True)
    return replace(content, path=target)


def _free_name(folder: Path, stem: str) -> Path:
    """Return a path for a new copy. A second copy within the same second gets a number."""
    path, number = folder / f"{stem}.db", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.db"
    return path


def _read_back(path: Path) -> LedgerCopy:
    with raised_as(LedgerError, f"{path} is not a ledger that can be read", "", sqlite3.Error), _opened(path) as conn:
        (verdict,) = conn.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise LedgerError(f"{path} is damaged: {verdict}")
        revision = conn.execute("SELECT version_num FROM alembic_version").fetchone()
        counts = [conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("memories", "messages")]  # noqa: S608 - two names of our own
    return LedgerCopy(path, str(revision[0]) if revision else "", *counts)


def _opened(path: Path) -> closing[sqlite3.Connection]:
    """Open the file of a ledger for reading only."""
    return closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", TIMEOUT_SECONDS, uri=True))


# When the files of an open ledger are replaced or deleted: save what they hold.
#
# A connection still reads and writes the files that it opened, so everything that was acknowledged is in them. It is
# copied to a backup. Then the log is written to the ledger that it belongs to, unless another process has written
# that ledger with another log meanwhile, whose pages would be overwritten.
#
# The process has to be started again: what follows the ledger would have to be replaced with it, and SQLite shares the
# index of a log, deleted or not, among all connections of a process to the same file.

_STOPPED = "This process neither reads nor writes any more."


def settle(conn: LedgerConnection, backups: Backups) -> str:
    """Save what a connection whose files were replaced or deleted still sees.

    Return what happened and what to do. The caller has the turn to write.
    """
    now = LedgerFiles.at(conn.path)
    saved = _copied(conn, backups)
    is_written_back = _is_written_back(conn)
    advice = f"{_STOPPED} Close all clients, then restore the copy, or another ledger, with palimpsest restore."
    if now.ledger == conn.files.ledger:
        what = f"the log of the ledger {conn.path} (the file ending in -wal or -shm) was deleted or replaced"
        if is_written_back or now.log == conn.files.log:
            advice = f"The ledger is complete. {_STOPPED} Start its client again."
    elif now.ledger is None:
        what = f"the ledger {conn.path} was deleted or moved"
    else:
        what = f"the ledger {conn.path} was replaced by another file"
    return f"{what} while this process was using it. {saved} {advice}"


def _copied(conn: LedgerConnection, backups: Backups) -> str:
    try:
        return f"Everything acknowledged until then was copied to {backups.rescue(conn).path}."
    except LedgerError as error:
        return f"What this process still sees could not be copied: {error}"


def _is_written_back(conn: LedgerConnection) -> bool:
    """Write the log of a connection to its ledger, if that is safe. Return whether nothing is in the log any more."""
    if log_is_empty(conn.files):
        return True  # another process that has the same log open has done this
    if not wrote_last(conn.path, conn.files):
        return False
    with suppress(sqlite3.Error):
        (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy
    return False
