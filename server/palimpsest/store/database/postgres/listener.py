"""Hear that something was written, by any server, as PostgreSQL tells it (LISTEN)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from sqlalchemy import Connection

from palimpsest.store.database.postgres.errors import as_ledger_errors
from palimpsest.store.database.postgres.tables import CHANNEL
from palimpsest.store.database.postgres.time_limit import driver_of, shut_down


class PostgresListener:
    """Implement `Listener` with a connection of its own, which is opened again when it was lost."""

    def __init__(self, connect: Callable[[], Connection], location: str) -> None:
        self._connect = connect
        self._location = location
        self._conn: Connection | None = None
        self._driver: psycopg.Connection[Any] | None = None
        self._is_closed = False

    def wait(self, seconds: float) -> None:
        """Return when something was written, at the latest after so many seconds. Raises LedgerError."""
        with as_ledger_errors(self._location):
            if self._driver is None:
                self._conn = self._connect()
                self._conn.exec_driver_sql(f"LISTEN {CHANNEL}")
                self._driver = driver_of(self._conn)
                return  # what was written while nobody listened has to be looked for
            try:
                for _ in self._driver.notifies(timeout=seconds, stop_after=1):
                    pass
            except psycopg.Error:
                self._drop()
                if not self._is_closed:
                    raise

    def close(self) -> None:
        """End the wait of another thread, and the connection."""
        self._is_closed = True
        if self._driver is not None:
            shut_down(self._driver)

    def _drop(self) -> None:
        conn, self._conn, self._driver = self._conn, None, None
        if conn is not None:
            with suppress(psycopg.Error):
                conn.invalidate()
                conn.close()
