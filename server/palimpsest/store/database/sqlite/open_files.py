"""Which files a connection has open, so that it is noticed if others are put in their places.

SQLite opens the ledger, its log (`-wal`) and the index of the log (`-shm`) once and goes on with them, whatever happens
to their names. If a file is replaced or deleted, a connection therefore writes to a file that nobody else reads.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
from pathlib import Path
from typing import NamedTuple, TypeAlias

FileId: TypeAlias = tuple[int, int] | None
"""The device and the inode of a file, or None if there is no file."""

CACHE_KIB = 4_096
"""Page cache of a connection. SQLite's default of 2,000 KiB holds a small part of 10,000 memories."""


class LedgerFiles(NamedTuple):
    """The files of a ledger: its database, its log and the index of its log."""

    ledger: FileId
    log: FileId
    log_index: FileId

    @classmethod
    def at(cls, path: Path) -> LedgerFiles:
        """Return the files that are at the path of a ledger now."""
        name = os.fspath(path)
        if path.is_symlink():
            name = os.path.realpath(name)  # SQLite puts the log beside the file that a link points to
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
        conn = sqlite3.connect(
            uri, timeout, uri=True, isolation_level=None, check_same_thread=False, factory=LedgerConnection
        )
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
            self.keep_open()

    def keep_open(self) -> None:
        """Leave the connection open until the process ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # Python closes connections that it finds unused


def log_is_empty(files: LedgerFiles) -> bool:
    """Return whether an open log, which may be deleted, has no content. Elsewhere than on Linux it cannot be seen."""
    if sys.platform != "linux":
        return False
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            status = descriptor.stat()
        except OSError:
            continue  # it was closed just now
        if (status.st_dev, status.st_ino) == files.log:
            return status.st_size == 0
    return False
