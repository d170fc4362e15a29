"""Copies of the ledger: taken while it is in use, read back before they count, and put in its place.

SQLite's online backup; a copy is made beside its name and gets that name once it is whole.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from palimpsest.core.errors import LedgerError
from palimpsest.core.files import file_lock

KEPT = 5
"""How many copies of one occasion are kept; the older ones go."""

FOLDER = "backups"

TABLES = (
    "meta",
    "messages",
    "message_history",
    "memories",
    "history",
    "memory_sources",
    "summaries",
    "vectors",
    "means",
    "changes",
)
"""What a ledger holds, besides the full text that is made from it; those that others refer to first."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Hold what a copy of a ledger holds, as it was read back."""

    path: Path
    revision: str
    memories: int
    messages: int


def copy_ledger(source: Path, target: Path) -> Copy:
    """Copy a ledger that may be in use to a new file, and read it back. Raises LedgerError, and leaves no file then."""
    half = target.with_name(f"{target.name}.half")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half.unlink(missing_ok=True)
        os.close(os.open(half, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600))
        with _opened(source) as theirs, closing(sqlite3.connect(half)) as ours:
            theirs.backup(ours)
            ours.execute("PRAGMA journal_mode=DELETE")  # the copy is one file
        found = look_at(half)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        half.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the copy {target} could not be made: {error}. The ledger is as it was.") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):  # what hindered it hinders this too
                half.with_name(half.name + ending).unlink(missing_ok=True)
    return Copy(target, found.revision, found.memories, found.messages)


def keep_copy(source: Path, occasion: str, now: datetime) -> Copy:
    """Copy a ledger into the folder of backups beside it, and let the oldest of the same occasion go."""
    folder = source.parent / FOLDER
    with file_lock(source.with_suffix(".copying")):  # two at once would take one name
        found = copy_ledger(source, free_name(folder, f"{source.stem}-{occasion}-{now:%Y%m%dT%H%M%SZ}"))
        mine = sorted(folder.glob(f"{source.stem}-{occasion}-*.db"), key=lambda file: (file.stat().st_mtime, file.name))
        for old in mine[:-KEPT]:
            old.unlink()
    return found


def free_name(folder: Path, stem: str) -> Path:
    """Return the path for a new copy; a second one within the same second gets a number."""
    path, number = folder / f"{stem}.db", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.db"
    return path


def set_aside(damaged: Path, now: datetime) -> Path:
    """Copy a ledger that SQLite cannot read, byte by byte, with its log, so that nothing of it is lost."""
    target = free_name(damaged.parent / FOLDER, f"{damaged.stem}-damaged-{now:%Y%m%dT%H%M%SZ}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for ending in ("", "-wal"):
            part = damaged.with_name(damaged.name + ending)
            if part.exists():
                shutil.copyfile(part, target.with_name(target.name + ending))
                target.with_name(target.name + ending).chmod(0o600)
    except OSError as error:
        raise LedgerError(f"the damaged ledger could not be set aside: {error}. Nothing was changed.") from error
    return target


def look_at(path: Path) -> Copy:
    """Read a copy through and say what it holds. Raises LedgerError where it is damaged or no ledger."""
    if not path.is_file():
        raise LedgerError(f"there is no file {path}")
    try:
        with _opened(path) as conn:
            (verdict,) = conn.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise LedgerError(f"{path} does not read back: {verdict}")
            revision = conn.execute("SELECT version_num FROM alembic_version").fetchone()
            counts = [conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("memories", "messages")]  # noqa: S608 - two names of our own
    except sqlite3.Error as error:
        raise LedgerError(f"{path} is no ledger that can be read: {error}") from error
    return Copy(path, str(revision[0]) if revision else "", *counts)


def holds(path: Path, memory_ids: Sequence[str], message_ids: Sequence[str]) -> bool:
    """Say whether a copy has rows of any of these memories and turns; one that cannot be read has none to show."""
    try:
        with _opened(path) as conn:
            return any(
                conn.execute(f"SELECT 1 FROM {table} WHERE id = ?", (owner_id,)).fetchone()  # noqa: S608 - our names
                for table, ids in (("memories", memory_ids), ("messages", message_ids))
                for owner_id in ids
            )
    except sqlite3.Error:
        return False


def put_in_place(copy: Path, path: Path, before: Path) -> None:
    """Put what a copy holds into a ledger in use, in one transaction, after a copy of what was there to `before`.

    The copy has the ledger's own schema. No write of another process falls between the two. Raises LedgerError.
    """
    try:
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as conn:
            conn.execute("PRAGMA synchronous=FULL")
            conn.execute("ATTACH ? AS copy", (str(copy),))
            conn.execute("BEGIN IMMEDIATE")
            try:
                copy_ledger(path, before)
                _replace_rows(conn)
                conn.execute("COMMIT")
            except BaseException:
                conn.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        raise LedgerError(f"{copy} could not be put in place: {error}. The ledger is as it was.") from error


def _replace_rows(conn: sqlite3.Connection) -> None:
    epoch = conn.execute("SELECT value FROM main.meta WHERE key = 'epoch'").fetchone()
    for table in TABLES:
        conn.execute(f"DELETE FROM main.{table}")  # noqa: S608 - names of our own
        columns = ", ".join(row[1] for row in conn.execute(f"PRAGMA copy.table_info({table})"))
        conn.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM copy.{table}")  # noqa: S608 - likewise
    # The full text here may be damaged without a sign of it: it is made anew, as the copy has it.
    made = "SELECT name, sql FROM copy.sqlite_master WHERE name IN ('lexical', 'lexical_terms') ORDER BY name"
    tables = dict(conn.execute(made).fetchall())
    for table in reversed(tables):
        conn.execute(f"DROP TABLE main.{table}")
    for statement in tables.values():
        conn.execute(statement)
    columns = "rowid, scope, own, context, facts"
    conn.execute(f"INSERT INTO main.lexical({columns}) SELECT {columns} FROM copy.lexical")  # noqa: S608 - likewise
    # A number of its own tells every index that it follows something else now, and a change makes it look.
    later = str(int(epoch[0]) + 1 if epoch else 1)
    conn.execute("INSERT OR REPLACE INTO main.meta(key, value) VALUES ('epoch', ?)", (later,))
    conn.execute(
        "INSERT INTO main.changes(unit_seq, user_id, op, at) "
        "SELECT max(seq), user_id, 'upsert', strftime('%Y-%m-%dT%H:%M:%f000Z') FROM main.vectors GROUP BY user_id"
    )
    # What a model was shown of the ledger as it was before is not stored into this one; see purging.ERASED_AT.
    conn.execute(
        "INSERT OR REPLACE INTO main.meta(key, value) "
        "SELECT 'erased_at', CAST(seq AS TEXT) FROM main.sqlite_sequence WHERE name = 'changes'"
    )


@contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection]:
    """Open a ledger's file for reading only."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as conn:
        yield conn
