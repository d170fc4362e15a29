"""How an SQLite ledger takes in the rows of another ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Table, text

from palimpsest.core.errors import LedgerError


class SqliteLoading:
    """Implement `Loading` for SQLite."""

    def __init__(self, location: str, unchecked: Callable[[], AbstractContextManager[None]]) -> None:
        self._location = location
        self._unchecked = unchecked

    def in_any_order(self) -> AbstractContextManager[None]:
        """Let connections that are opened meanwhile store rows that refer to missing rows."""
        return self._unchecked()

    def drop_references(self, conn: Connection) -> None:
        """Drop nothing: references belong to SQLite's tables, and each connection checks them or not."""

    def create_references(self, conn: Connection) -> None:
        """Raise LedgerError if a row refers to a missing row."""
        dangling = len(conn.exec_driver_sql("PRAGMA foreign_key_check").all())
        if dangling:
            raise LedgerError(f"{dangling} rows of {self._location} refer to missing rows. The copy is not complete.")

    def unfit(self, table: Table, row: Mapping[str, Any]) -> str:
        """Return "": SQLite stores everything that another database gives."""
        del table, row
        return ""

    def counters(self, conn: Connection) -> dict[str, int]:
        """Return the highest number that was ever given to a row, by table."""
        rows = conn.execute(text("SELECT name, seq FROM sqlite_sequence"))
        return {str(name): int(seq) for name, seq in rows}

    def count_on(self, conn: Connection, counters: Mapping[str, int]) -> None:
        """Let the numbers of new rows begin above these and above those in use."""
        used = self.counters(conn)
        counting = {str(name) for name in conn.execute(_COUNTING).scalars()}
        for name in counters.keys() & counting:
            conn.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": name})
            highest = max(counters[name], used.get(name, 0))
            conn.execute(text("INSERT INTO sqlite_sequence VALUES (:name, :seq)"), {"name": name, "seq": highest})


_COUNTING = text("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'")
