"""Copy ledgers between databases, and back up those that are no file."""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from palimpsest.core.clock import Clock
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.protocols import Progress, unseen
from palimpsest.store import contextual_keys, entries, schema
from palimpsest.store.database import Database, LedgerCopy
from palimpsest.store.rows import UtcTime
from palimpsest.store.schema import HEAD, index_log, vectors
from palimpsest.store.sqlite.ledger_files import BEFORE_RESTORE, Backups
from palimpsest.store.sqlite.sqlite_database import SqliteDatabase
from palimpsest.store.upgrade import create_tables, stored_revision

# The primary key of a row.
Key: TypeAlias = tuple[Any, ...]

# The tables of a ledger, those that others refer to first. The full text is not among them.
TABLES: tuple[sa.Table, ...] = tuple(schema.metadata.sorted_tables)


def read_rows(
    conn: sa.Connection, table: sa.Table, after: Key | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a table after a key, at most `limit`, in the order of the primary key, by bytes for texts."""
    query = sa.select(table).order_by(*table.primary_key).limit(limit)
    query = query if after is None else query.where(sa.tuple_(*table.primary_key) > after)
    return [{**row} for row in conn.execute(query).mappings()]


# Make the rows of one database those of another, in one transaction.

# How many rows are read at a time. Of the largest rows, those with vectors and pages, that is a few megabytes.
BATCH = 1_000


def _copy_rows(rows: sa.Connection, target: Database, conn: sa.Connection, progress: Progress) -> Mapping[str, int]:
    """Replace all rows of the target by those that `rows` sees, and return their number by table.

    What is written is read back. Raises LedgerError for a row that the target cannot store.
    """
    for table in reversed(TABLES):
        conn.execute(sa.delete(table))
    total = sum(rows.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in TABLES)
    counted = {table.name: 0 for table in TABLES}
    for table in TABLES:
        after: Key | None = None
        while batch := read_rows(rows, table, after, BATCH):
            conn.execute(sa.insert(table), batch)
            if read_rows(conn, table, after, len(batch)) != batch:
                fault = f"does not give back the rows of {table.name} that were written to it"
                raise LedgerError(f"{target.location} {fault}. The ledger that was copied is unchanged.")
            after = tuple(batch[-1][column.name] for column in table.primary_key)
            counted[table.name] += len(batch)
            progress(sum(counted.values()), total)
    target.count_on(conn)
    contextual_keys.rebuild_full_text(conn, target.full_text)
    return counted


def begin_epoch(conn: sa.Connection, previous: str, now: datetime) -> None:
    """Begin the epoch after `previous`.

    A row of the index log for each user makes every index look at it.
    """
    newest = sa.select(
        sa.func.max(vectors.c.seq), vectors.c.user_id, sa.literal("upsert"), sa.literal(now, UtcTime())
    ).group_by(vectors.c.user_id)
    conn.execute(sa.insert(index_log).from_select(["unit_seq", "user_id", "op", "at"], newest))
    entries.begin_epoch(conn, previous)


# Backups of a ledger that is in no file of its own: each is a complete ledger in an SQLite file.
#
# So everything that makes a backup first, or restores one, works as with a ledger in a file, and a backup can be
# opened without a database server.

# What the names of the files begin with.
NAME = "shared"


class DatabaseBackups(Backups):
    """Backups of the ledger of any database, in the folder `backups` of a data directory."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Database]], data_dir: Path) -> None:
        super().__init__(data_dir / f"{NAME}.db")
        self._opened = opened

    @contextmanager
    def _ledger_file(self) -> Generator[Path]:
        """Write the ledger as one snapshot shows it to a file, and give it."""
        with self.work_folder("copying") as folder:
            path = folder / "ledger.db"
            with self._opened() as database:
                _refuse_other_schema(database)
                with closing(SqliteDatabase.open(path)) as copy, copy.write() as conn, database.read() as rows:
                    create_tables(conn, copy)
                    _copy_rows(rows, copy, conn, unseen)
            yield path


def replace_rows(database: Database, copy: Path, now: datetime, backups: Backups) -> LedgerCopy:
    """Replace all rows of a ledger by those of a copy in one transaction, and return the backup that is made before.

    Nobody writes between the two. Clients may go on: they see the restored ledger from their next call on.
    """
    _refuse_other_schema(database)
    with (
        closing(SqliteDatabase.open(copy)) as restored,
        database.write() as conn,
        database.without_time_limit(conn),
        restored.read() as rows,
    ):
        before, epoch = backups.keep(BEFORE_RESTORE, now), entries.epoch(conn)
        _copy_rows(rows, database, conn, unseen)
        begin_epoch(conn, epoch, now)
    return before


def _refuse_other_schema(database: Database) -> None:
    """Raise LedgerError unless the ledger has the schema of this version."""
    if (revision := stored_revision(database)) is None:
        raise LedgerError(f"there is no ledger in {database.location} yet. Nothing was copied.")
    if revision != HEAD:
        raise LedgerError(
            f"the ledger {database.location} has schema {revision}, which only its own tools copy: "
            f"{database.dump_command}. Nothing was copied."
        )


# Copy a whole ledger into an empty database. It stays the same ledger, with its id, and can be moved back.


@dataclass(frozen=True, slots=True)
class Moved:
    """A moved ledger: the place it was moved to, its rows by table, and until when writes to the source are in it."""

    location: str
    rows: Mapping[str, int]
    until: datetime


def move(source: Database, target: Database, clock: Clock, progress: Progress) -> Moved:
    """Copy the ledger of `source` in one transaction, and read every row back. Blocking.

    Raises InputError if the target is not empty, and LedgerError. The target is empty then, as it is after a move that
    broke off. The source is not changed, and others only read it meanwhile.
    """
    with target.migrating():
        if stored_revision(target) is not None:
            raise InputError(f"{target.location} already holds a ledger. Nothing was changed. Name an empty place")
        with (
            source.write() as rows,
            source.without_time_limit(rows),
            target.write() as conn,
            target.without_time_limit(conn),
        ):
            create_tables(conn, target)
            copied, until = _copy_rows(rows, target, conn, progress), clock()
            begin_epoch(conn, entries.epoch(conn), until)
    return Moved(target.location, copied, until)
