"""A limit of time for each statement that also holds if the database does not answer any more.

PostgreSQL ends a statement that takes too long by itself. If its machine has stopped, or the network swallows what is
sent, it cannot. Then a thread of this process shuts the connection down, and the statement fails at once.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection as PsycopgConnection
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

LOOK_SECONDS = 1.0
"""How often the thread looks. Set by hand: a second more is nothing beside the limit."""


UNLIMITED = "palimpsest_unlimited"
"""The key among what SQLAlchemy keeps with a connection."""


class TimeLimit:
    """Shut down connections of engines on which a statement takes longer than so many seconds.

    The thread starts with the first statement and ends with `close`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: dict[int, tuple[float, PsycopgConnection[Any]]] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, engine: Engine) -> None:
        """Limit the statements of an engine."""
        event.listen(engine, "before_cursor_execute", self._begin)
        event.listen(engine, "after_cursor_execute", self._end)

    @contextmanager
    def lifted(self, conn: Connection) -> Generator[None]:
        """Let the statements of a connection take any time in the block."""
        info = conn.info
        info[UNLIMITED] = True
        try:
            yield
        finally:
            del info[UNLIMITED]

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self, conn: Connection, *_: Any) -> None:
        if conn.info.get(UNLIMITED):
            return
        driver = driver_of(conn)
        self._began[id(driver)] = time.monotonic(), driver
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closing.is_set():
                    self._thread = threading.Thread(target=self._watch, name="palimpsest-time-limit", daemon=True)
                    self._thread.start()

    def _end(self, conn: Connection, *_: Any) -> None:
        self._began.pop(id(driver_of(conn)), None)

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            for key, began in list(self._began.items()):
                started, driver = began
                if not driver.closed and driver.info.transaction_status is not TransactionStatus.ACTIVE:
                    continue  # the statement has failed: the next one on this connection begins anew
                is_too_long = time.monotonic() - started > self._seconds
                if (driver.closed or is_too_long) and self._began.get(key) == began:
                    self._began.pop(key, None)
                    shut_down(driver)


def driver_of(conn: Connection) -> PsycopgConnection[Any]:
    """Return psycopg's connection."""
    driver: Any = conn.connection.driver_connection
    return driver


def shut_down(driver: PsycopgConnection[Any]) -> None:
    """End both directions of a connection, so that whoever waits for it goes on."""
    with suppress(OSError, psycopg.Error):  # it is closed already
        copy = socket.socket(fileno=os.dup(driver.fileno()))
        with copy:
            copy.shutdown(socket.SHUT_RDWR)
