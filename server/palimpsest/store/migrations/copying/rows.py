"""Make the rows of one database equal to those of another, in batches that are each stored for good.

What is equal already is only compared. So the same function copies a ledger, goes on with a copy that broke off, brings
in what was written meanwhile, and proves that both are the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection

from palimpsest.core.errors import LedgerError
from palimpsest.core.protocols import Progress
from palimpsest.store.database.protocols import Database, Loading
from palimpsest.store.migrations.copying.tables import ROWS, Key, StoredRow, TableRows

BATCH = 1_000
"""How many rows are read at a time. Of the largest rows, those with vectors and pages, that is a few megabytes."""


class TooSlowError(Exception):
    """The rows could not be compared in the time given."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The number of rows of each table that are equal in both databases, and how many were not before."""

    rows: Mapping[str, int]
    written: int


def make_equal(source: Connection, target: Database, progress: Progress, until: float | None = None) -> Compared:
    """Make the rows of `target` those that `source` sees. What is written is read back.

    Raises LedgerError for a row that the target cannot store, and TooSlowError at the monotonic time `until`. The
    batches before stay.
    """
    total = sum(rows.count(source) for rows in ROWS)
    done = written = 0
    counted: dict[str, int] = {}
    for rows in ROWS:
        last, counted[rows.name] = None, 0
        while True:
            if until is not None and time.monotonic() > until:
                raise TooSlowError
            batch = rows.after(source, last, BATCH)
            upto = rows.key(batch[-1]) if len(batch) == BATCH else None
            written += _make_batch_equal(target, rows, batch, last, upto)
            counted[rows.name] += len(batch)
            done += len(batch)
            progress(done, max(done, total))
            if upto is None:
                break
            last = upto
    return Compared(counted, written)


def _make_batch_equal(
    target: Database, rows: TableRows, batch: Sequence[StoredRow], last: Key | None, upto: Key | None
) -> int:
    """Make the rows of a range equal. Return how many of them were not."""
    with target.read() as conn:
        stored = rows.between(conn, last, upto)
    if stored == batch:
        return 0
    known, wanted = {rows.key(row): row for row in stored}, {rows.key(row): row for row in batch}
    gone = [key for key in known if key not in wanted]
    new = [row for key, row in wanted.items() if known.get(key) != row]
    refuse_unfit(target.loading, target.location, rows, new)
    with target.write() as conn:
        rows.delete(conn, gone)
        rows.put(conn, new)
        if rows.between(conn, last, upto) != batch:
            raise _not_given_back(target.location, rows)
    return len(gone) + len(new)


def _not_given_back(location: str, rows: TableRows) -> LedgerError:
    return LedgerError(
        f"{location} does not give back the rows of the table {rows.name} that were written to it. The ledger that was "
        "copied is unchanged."
    )


def replace_all(source: Connection, target: Connection, loading: Loading, location: str) -> None:
    """Replace all rows in the transaction of `target`. Raises LedgerError for a row that it cannot store."""
    for rows in reversed(ROWS):
        rows.clear(target)
    for rows in ROWS:
        last: Key | None = None
        while batch := rows.after(source, last, BATCH):
            refuse_unfit(loading, location, rows, batch)
            rows.put(target, batch)
            after, last = last, rows.key(batch[-1])
            if rows.between(target, after, last) != batch:
                raise _not_given_back(location, rows)


def refuse_unfit(loading: Loading, location: str, rows: TableRows, new: Sequence[StoredRow]) -> None:
    """Raise LedgerError if the database cannot store one of the rows."""
    for row in new:
        reason = loading.unfit(rows.table, rows.by_name(row))
        if reason:
            name = ", ".join(f"{value}" for value in islice(rows.key(row), 3))
            owner = rows.by_name(row).get("id", "")
            raise LedgerError(
                f"{location} cannot store the row {name!r} of the table {rows.name}"
                f"{f' (its id is {owner})' if owner else ''}: {reason}. The ledger that was copied is unchanged. "
                "Change or purge what it belongs to, then try again."
            )
