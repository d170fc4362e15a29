"""Copy a whole ledger into an empty database. It stays the same ledger, with its id, and can be moved back.

While the copy is being made, the target has no revision that any version opens. All rows are copied from one state of
the source, then compared with a newer one that includes what was written meanwhile. A copy that broke off goes on in
the same way: what is there is compared and not copied again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection, select, text

from palimpsest.core.clock import Clock
from palimpsest.core.errors import InputError
from palimpsest.core.protocols import Progress
from palimpsest.store.database.protocols import Database
from palimpsest.store.migrations.copying.complete import begin_epoch
from palimpsest.store.migrations.copying.rows import Compared, TooSlowError, make_equal
from palimpsest.store.migrations.copying.tables import TABLES
from palimpsest.store.migrations.upgrade import UNFINISHED, create_tables, revision_in
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.schema import HEAD, meta
from palimpsest.store.writes import entries

LOCKED_SECONDS = 20.0
"""How long writes of clients wait at most while the rows are compared. They would give up after 30 seconds."""

Shown: TypeAlias = Callable[[str], AbstractContextManager[Progress]]
"""Shows the progress of a part of the work."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A moved ledger: the place it was moved to, its rows by table, and until when writes to the source are in it."""

    location: str
    rows: Mapping[str, int]
    until: datetime


def move(source: Database, target: Database, clock: Clock, shown: Shown) -> Moved:
    """Copy the ledger of `source`, and compare every row of both. Blocking.

    Raises InputError if the target is not empty, and LedgerError. A target that is not finished is not opened by
    anybody, and another call goes on with it. The source is not changed.
    """
    with source.read() as conn:
        ledger_id = _ledger_id(conn)
    with target.migrating(), target.loading.in_any_order():
        _begin(target, ledger_id)
        with source.read() as conn, shown("copying") as progress:
            make_equal(conn, target, progress)
        with shown("comparing") as progress:
            compared, counters, until = _with_newest(source, target, clock, progress)
        with target.write() as conn, target.without_time_limit(conn), shown("making the indexes") as progress:
            _finish(conn, target, counters, clock(), progress)
    return Moved(target.location, compared.rows, until)


def _begin(target: Database, ledger_id: str) -> None:
    """Create the tables, without what would slow down copying or refuse an order. Raises InputError."""
    with target.read() as conn:
        revision = revision_in(conn, target.location)
        if revision == UNFINISHED:
            copied = conn.execute(_COPIED).scalar_one()
            if copied != ledger_id:
                raise InputError(
                    f"{target.location} holds a part of another ledger, which palimpsest move was copying. Nothing was "
                    "changed. Name an empty database or a new file"
                )
            return
        if revision is not None:
            same = revision == HEAD and _ledger_id(conn) == ledger_id
            raise InputError(
                f"{target.location} already holds {'this ledger' if same else 'another ledger'}. Nothing was changed. "
                "Name an empty database or a new file"
            )
    with target.write() as conn:
        create_tables(conn, target)
        target.loading.drop_references(conn)
        for table in TABLES:
            for index in table.indexes:
                index.drop(conn)
        conn.execute(text("CREATE TABLE unfinished_move (ledger_id TEXT NOT NULL)"))
        conn.execute(text("INSERT INTO unfinished_move VALUES (:ledger_id)"), {"ledger_id": ledger_id})
        conn.execute(_SET_REVISION, {"revision": UNFINISHED})


_COPIED = text("SELECT ledger_id FROM unfinished_move")
_SET_REVISION = text("UPDATE alembic_version SET version_num = :revision")


def _with_newest(
    source: Database, target: Database, clock: Clock, progress: Progress
) -> tuple[Compared, Mapping[str, int], datetime]:
    """Compare all rows while nobody writes to the source, or, if that takes too long, with one state of it."""
    try:
        with source.write() as conn:
            compared = make_equal(conn, target, progress, time.monotonic() + LOCKED_SECONDS)
            return compared, source.loading.counters(conn), clock()
    except TooSlowError:
        with source.read() as conn:
            until = clock()
            counters = source.loading.counters(conn)
            return make_equal(conn, target, progress), counters, until


def _finish(conn: Connection, target: Database, counters: Mapping[str, int], now: datetime, progress: Progress) -> None:
    """Create the indexes and the full text, and let the ledger be opened."""
    for number, table in enumerate(TABLES):
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            index.create(conn)
        progress(number, len(TABLES) + 1)
    target.loading.create_references(conn)
    entries.rebuild_full_text(conn, target.full_text)
    target.loading.count_on(conn, counters)
    begin_epoch(conn, log_queries.epoch(conn), now)
    conn.execute(text("DROP TABLE unfinished_move"))
    conn.execute(_SET_REVISION, {"revision": HEAD})
    progress(len(TABLES) + 1, len(TABLES) + 1)


def _ledger_id(conn: Connection) -> str:
    return conn.execute(select(meta.c.value).where(meta.c.key == "ledger_id")).scalar_one()
