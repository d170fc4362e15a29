"""Copy ledgers between databases, and back up those that are no file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from palimpsest.core.clock import Clock
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.protocols import Progress
from palimpsest.store import contextual_keys, entries, schema
from palimpsest.store.database import Database, LedgerCopy
from palimpsest.store.rows import StoredJson, UtcTime
from palimpsest.store.schema import HEAD, index_log, vectors
from palimpsest.store.sqlite.ledger_files import BEFORE_RESTORE, Backups, RestoreSteps
from palimpsest.store.sqlite.sqlite_database import SqliteDatabase
from palimpsest.store.upgrade import UNFINISHED, create_tables, revision_in, stored_revision

# All tables of a ledger, and their rows in a form that is the same in every database.
#
# A row has texts, numbers, bytes and None, by column. Times and JSON are the very texts that are stored, so nothing
# is rounded or ordered anew on the way.

StoredRow: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[Any, ...]
"""The primary key of a row."""

TABLES: tuple[sa.Table, ...] = tuple(schema.metadata.sorted_tables)
"""The tables of a ledger, those that others refer to first. The full text is not among them."""


def _as_stored(table: sa.Table) -> sa.Table:
    """Return a table whose times and JSON are the very texts that are stored."""
    columns = (sa.Column(column.name, _kind(column), primary_key=column.primary_key) for column in table.columns)
    return sa.Table(table.name, sa.MetaData(), *columns)


def _kind(column: sa.Column[Any]) -> TypeEngine[Any]:
    kind = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    return StoredJson() if isinstance(kind, sa.JSON) else kind


def read_rows(
    conn: sa.Connection, table: sa.Table, after: Key | None = None, upto: Key | None = None, limit: int | None = None
) -> list[StoredRow]:
    """Return the rows of a table after a key up to another one, at most `limit`. None is no bound.

    They are in the order of the primary key, which is by bytes for texts.
    """
    key = sa.tuple_(*table.primary_key)
    query = sa.select(*map(_as_text, table.columns)).order_by(*table.primary_key).limit(limit)
    query = query if after is None else query.where(key > after)
    query = query if upto is None else query.where(key <= upto)
    return [{**row} for row in conn.execute(query).mappings()]


def _key(table: sa.Table, row: StoredRow) -> Key:
    return tuple(row[column.name] for column in table.primary_key)


def _replace(conn: sa.Connection, table: sa.Table, gone: Sequence[Key], new: Sequence[StoredRow]) -> None:
    """Delete the rows with some keys, and store new rows."""
    names = [f"key_{column.name}" for column in table.primary_key]
    is_row = (column == sa.bindparam(name) for column, name in zip(table.primary_key, names, strict=True))
    if gone:
        conn.execute(sa.delete(table).where(*is_row), [dict(zip(names, key, strict=True)) for key in gone])
    if new:
        conn.execute(sa.insert(table), new)


def _as_text(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    is_json = isinstance(column.type, StoredJson)
    return sa.type_coerce(sa.cast(column, sa.Text), column.type).label(column.name) if is_json else column


STORED = tuple(map(_as_stored, TABLES))
"""The tables as their rows are copied, in the order of `TABLES`."""


# Make the rows of one database equal to those of another, in batches that are each stored for good.
#
# What is equal already is only compared. So the same function copies a ledger, and goes on with a copy that broke off.

BATCH = 1_000
"""How many rows are read at a time. Of the largest rows, those with vectors and pages, that is a few megabytes."""


class Batch(NamedTuple):
    """The rows of a table from after a key up to another one. The last batch of a table has no bound."""

    table: sa.Table
    rows: list[StoredRow]
    after: Key | None
    upto: Key | None

    def stored(self, conn: sa.Connection) -> list[StoredRow]:
        """Return the rows that a database has between the two keys."""
        return read_rows(conn, self.table, self.after, self.upto)

    def refuse_other(self, conn: sa.Connection, database: Database) -> None:
        """Raise LedgerError if a database does not give back these rows."""
        if self.stored(conn) != self.rows:
            raise LedgerError(
                f"{database.location} does not give back the rows of the table {self.table.name} that were written "
                "to it. The ledger that was copied is unchanged."
            )


def _batches(source: sa.Connection) -> Iterator[Batch]:
    for table in STORED:
        after: Key | None = None
        while True:
            rows = read_rows(source, table, after, limit=BATCH)
            upto = _key(table, rows[-1]) if len(rows) == BATCH else None
            yield Batch(table, rows, after, upto)
            if upto is None:
                break
            after = upto


def make_equal(source: sa.Connection, target: Database, progress: Progress) -> Mapping[str, int]:
    """Make the rows of `target` those that `source` sees, and return their number by table.

    What is written is read back. Raises LedgerError for a row that the target cannot store. The batches before stay.
    """
    total = sum(source.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in TABLES)
    counted = {table.name: 0 for table in TABLES}
    for batch in _batches(source):
        _make_batch_equal(target, batch)
        counted[batch.table.name] += len(batch.rows)
        done = sum(counted.values())
        progress(done, max(done, total))
    return counted


def _make_batch_equal(target: Database, batch: Batch) -> None:
    with target.read() as conn:
        stored = batch.stored(conn)
    if stored == batch.rows:
        return
    table = batch.table
    known, wanted = {_key(table, row): row for row in stored}, {_key(table, row): row for row in batch.rows}
    gone = [key for key, row in known.items() if wanted.get(key) != row]
    new = [row for key, row in wanted.items() if known.get(key) != row]
    with target.write() as conn:
        _replace(conn, table, gone, new)
        batch.refuse_other(conn, target)


def replace_all(source: sa.Connection, target: sa.Connection, database: Database) -> None:
    """Replace all rows in the transaction of `target`. Raises LedgerError for a row that it cannot store."""
    for table in reversed(TABLES):
        target.execute(sa.delete(table))
    for batch in _batches(source):
        _replace(target, batch.table, (), batch.rows)
        batch.refuse_other(target, database)


# What makes a ledger of copied rows: a new epoch, and numbers that go on above those in use.


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

Opened: TypeAlias = Callable[[], AbstractContextManager[Database]]
"""Opens the database of a ledger, or gives the open one."""

NAME = "shared"
"""What the names of the files begin with."""


class DatabaseBackups(Backups):
    """Backups of the ledger of any database, in the folder `backups` of a data directory."""

    def __init__(self, opened: Opened, data_dir: Path) -> None:
        super().__init__(data_dir / f"{NAME}.db")
        self._opened = opened

    @contextmanager
    def _ledger_file(self) -> Generator[Path]:
        """Write the ledger to a file, and give it."""
        with self._work_folder() as folder:
            with self._opened() as database:
                path = _written_to_file(database, folder)
            yield path

    def _put_in_place(self, copy: Path, now: datetime, steps: RestoreSteps) -> Path:
        def kept(database: Database) -> LedgerCopy:
            with self._naming():
                return self._new_copy_of(_written_to_file(database, copy.parent), BEFORE_RESTORE, now)

        return steps.replace_rows(copy, now, kept).path  # only a file has an older schema, or is replaced as a whole


def replace_rows(opened: Opened, copy: Path, now: datetime, keep: Callable[[Database], LedgerCopy]) -> LedgerCopy:
    """Replace all rows of a ledger by those of a copy in one transaction, and return what `keep` makes of it before.

    Nobody writes between the two. Clients may go on: they see the restored ledger from their next call on.
    """
    with opened() as database, closing(SqliteDatabase.open(copy)) as restored:
        _refuse_other_schema(database)
        with database.write() as conn, database.without_time_limit(conn), restored.read() as rows:
            before = keep(database)
            epoch = entries.epoch(conn)
            replace_all(rows, conn, database)
            database.count_on(conn, restored.counters(rows))
            contextual_keys.rebuild_full_text(conn, database.full_text)
            begin_epoch(conn, epoch, now)
    return before


def _written_to_file(database: Database, folder: Path) -> Path:
    """Write the ledger as one snapshot shows it to a file in a folder."""
    _refuse_other_schema(database)
    path = folder / "ledger.db"
    with closing(SqliteDatabase.open(path)) as copy:
        with copy.write() as conn:
            create_tables(conn, copy)
        with copy.write() as conn:
            with database.read() as rows:
                replace_all(rows, conn, copy)
                copy.count_on(conn, database.counters(rows))
            contextual_keys.rebuild_full_text(conn, copy.full_text)
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


# Copy a whole ledger into an empty database. It stays the same ledger, with its id, and can be moved back.
#
# While the copy is being made, nobody writes to the source, and the target has no revision that any version opens. A
# copy that broke off goes on: what is there is compared and not copied again.

Shown: TypeAlias = Callable[[str], AbstractContextManager[Progress]]
"""Shows the progress of a part of the work."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A moved ledger: the place it was moved to, its rows by table, and until when writes to the source are in it."""

    location: str
    rows: Mapping[str, int]
    until: datetime


def move(source: Database, target: Database, clock: Clock, shown: Shown) -> Moved:
    """Copy the ledger of `source`, and read every row back. Blocking.

    Raises InputError if the target is not empty, and LedgerError. A target that is not finished is not opened by
    anybody, and another call goes on with it. The source is not changed, and others only read it meanwhile.
    """
    with source.read() as conn:
        ledger_id = entries.meta_value(conn, "ledger_id")
    with target.migrating(), target.in_any_order():
        _begin(target, ledger_id)
        with source.write() as conn, source.without_time_limit(conn), shown("copying") as progress:
            copied = make_equal(conn, target, progress)
            counters, until = source.counters(conn), clock()
        with target.write() as conn, target.without_time_limit(conn), shown("making the indexes") as progress:
            _finish(conn, target, counters, clock(), progress)
    return Moved(target.location, copied, until)


def _begin(target: Database, ledger_id: str | None) -> None:
    """Create the tables, without what would slow down copying or refuse an order. Raises InputError."""
    with target.read() as conn:
        revision = revision_in(conn, target.location)
        if revision == UNFINISHED:
            if conn.execute(_COPIED).scalar_one() == ledger_id:
                return
            held = "holds a part of another ledger, which palimpsest move was copying"
        else:
            same = revision == HEAD and entries.meta_value(conn, "ledger_id") == ledger_id
            held = f"already holds {'this' if same else 'another'} ledger"
        if revision is not None:
            raise InputError(f"{target.location} {held}. Nothing was changed. Name an empty database or a new file")
    with target.write() as conn:
        create_tables(conn, target)
        target.drop_references(conn)
        for table in TABLES:
            for index in table.indexes:
                index.drop(conn)
        conn.execute(sa.text("CREATE TABLE unfinished_move (ledger_id TEXT NOT NULL)"))
        conn.execute(sa.text("INSERT INTO unfinished_move VALUES (:ledger_id)"), {"ledger_id": ledger_id})
        conn.execute(_SET_REVISION, {"revision": UNFINISHED})


_COPIED = sa.text("SELECT ledger_id FROM unfinished_move")
_SET_REVISION = sa.text("UPDATE alembic_version SET version_num = :revision")


def _finish(
    conn: sa.Connection, target: Database, counters: Mapping[str, int], now: datetime, progress: Progress
) -> None:
    """Create the indexes and the full text, and let the ledger be opened."""
    for number, table in enumerate(TABLES):
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            index.create(conn)
        progress(number, len(TABLES) + 1)
    target.create_references(conn)
    contextual_keys.rebuild_full_text(conn, target.full_text)
    target.count_on(conn, counters)
    begin_epoch(conn, entries.epoch(conn), now)
    conn.execute(sa.text("DROP TABLE unfinished_move"))
    conn.execute(_SET_REVISION, {"revision": HEAD})
    progress(len(TABLES) + 1, len(TABLES) + 1)
