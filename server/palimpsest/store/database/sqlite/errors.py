"""SQLite's errors as ours, with what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from palimpsest.core.errors import LedgerError

DAMAGED = (
    "The file is damaged. See how badly with palimpsest doctor --deep, and restore a backup with palimpsest restore"
)

UNREADABLE_ROW = (ValueError, LookupError, TypeError, SQLAlchemyError)
"""What reading a row raises if its bytes are damaged."""

MAX_CAUSE_CHARS = 200
"""SQLite quotes a text that it cannot decode, and that may be long."""

ADVICE = {
    "locked": "Another process is writing. Try again in a moment",
    "full": "Free some disk space, then try again",
    "disk I/O error": "Check the disk: it may be full, failing or gone. Then try again",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Check its folder: it has to exist and be writable for this user",
    "vtable constructor": "The full text is damaged. Rebuild it with palimpsest rebuild",
    "fts5": "The full text is damaged. Rebuild it with palimpsest rebuild",
    "malformed": DAMAGED,
    "decode to UTF-8": DAMAGED,
    "not a database": "The file is damaged. Restore a backup with palimpsest restore",
}
"""What to do, by a part of SQLite's message."""


@contextmanager
def as_ledger_errors(path: Path) -> Generator[None]:
    """Raise SQLite's errors as LedgerError."""
    try:
        yield
    except DBAPIError as error:
        raise LedgerError(f"the ledger {path} could not be used: {_with_advice(error.orig)}") from error
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} could not be used: {_with_advice(error)}") from error
    except UNREADABLE_ROW as error:
        cause = f"a row cannot be read ({type(error).__name__}: {str(error)[:MAX_CAUSE_CHARS]})"
        raise LedgerError(f"the ledger {path} could not be used: {cause}. Nothing was written. {DAMAGED}.") from error


@contextmanager
def unwritable_as_ledger_error(path: Path) -> Generator[None]:
    """Raise the operating system's errors about a place that cannot be written as LedgerError."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be opened for writing: {error.strerror}. Nothing was written. Make the file "
            "and its folder writable for this user, or set data_dir to another place."
        ) from error


def _with_advice(error: BaseException | None) -> str:
    """Return SQLite's message, that nothing was written, and what to do."""
    advice = next((f" {text}." for part, text in ADVICE.items() if part in str(error)), "")
    return f"{str(error)[:MAX_CAUSE_CHARS]}. Nothing was written.{advice}"
