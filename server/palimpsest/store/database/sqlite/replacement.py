"""When the files of an open ledger are replaced or deleted: save what they hold, and go on if that is safe.

A connection still reads and writes the files that it opened, so everything that was acknowledged is in them. It is
copied to a backup. Then the log is written to the ledger that it belongs to, unless another process has written that
ledger with another log meanwhile, whose pages would be overwritten.

If the same ledger is at the path, in another file, it is opened there. Otherwise the process has to be started again:
what follows the ledger would have to be replaced with it, and SQLite shares the index of a log, deleted or not, among
all connections of a process to the same file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from palimpsest.core.errors import LedgerError
from palimpsest.store.database.sqlite.backup import SqliteBackups
from palimpsest.store.database.sqlite.open_files import LedgerConnection, LedgerFiles, log_is_empty
from palimpsest.store.database.sqlite.write_turn import wrote_last

_IDENTITY = "SELECT (SELECT value FROM meta WHERE key = 'ledger_id'), (SELECT version_num FROM alembic_version)"
"""The id and the schema of a ledger: what a process has read when it opened it."""

_STOPPED = "This process neither reads nor writes any more."


def settle(conn: LedgerConnection, backups: SqliteBackups) -> tuple[str, bool]:
    """Save what a connection whose files were replaced or deleted still sees.

    Return what happened and what to do, and whether the ledger at the path can be opened in its place. The caller has
    the turn to write.
    """
    now = LedgerFiles.at(conn.path)
    saved = _copied(conn, backups)
    is_written_back = _is_written_back(conn)
    if now.ledger == conn.files.ledger:
        what = f"the log of the ledger {conn.path} (the file ending in -wal or -shm) was deleted or replaced"
        if is_written_back or now.log == conn.files.log:
            advice = f"The ledger is complete. {_STOPPED} Start its client again."
            return f"{what} while this process was using it. {saved} {advice}", False
    elif now.ledger is None:
        what = f"the ledger {conn.path} was deleted or moved"
    else:
        what = f"the ledger {conn.path} was replaced by another file"
        if is_written_back and _is_same_ledger(conn):
            advice = "From the next call on, the ledger in its place is used. Call again."
            return f"{what} while this process was using it. {saved} {advice}", True
    advice = f"{_STOPPED} Close all clients, then restore the copy, or another ledger, with palimpsest restore."
    return f"{what} while this process was using it. {saved} {advice}", False


def _copied(conn: LedgerConnection, backups: SqliteBackups) -> str:
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
    try:
        (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        return False
    return not busy


def _is_same_ledger(conn: LedgerConnection) -> bool:
    """Return whether the ledger at the path has the same id and schema as that of a connection."""
    try:
        with closing(sqlite3.connect(f"{conn.path.absolute().as_uri()}?mode=rw", uri=True)) as other:
            return other.execute(_IDENTITY).fetchone() == conn.execute(_IDENTITY).fetchone()
    except sqlite3.Error:
        return False
