"""Whose turn it is to write a ledger, and which files the last writer had open."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from palimpsest.core.errors import LedgerError
from palimpsest.store.database.sqlite.fair_lock import in_turn
from palimpsest.store.database.sqlite.open_files import LedgerFiles

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
        try:
            _turn(path).write_text(repr(tuple(files)), "ascii")
        except OSError as error:
            logger.warning("%s cannot be written: %s", _turn(path), error)


def wrote_last(path: Path, files: LedgerFiles) -> bool:
    """Return whether the last writer of a ledger had these files open."""
    try:
        return _turn(path).read_text("ascii") == repr(tuple(files))
    except (OSError, ValueError):
        return False


def was_written(path: Path) -> bool:
    """Return whether the very file that is at the path of a ledger was written to before."""
    try:
        return _turn(path).read_text("ascii").startswith(f"({LedgerFiles.at(path).ledger!r}, ")
    except (OSError, ValueError):
        return False


def _turn(path: Path) -> Path:
    return path.with_suffix(".writing.lock")
