"""Whether a write was stored whose commit was not answered.

Each write leaves a row in a table, under an id that only its own server knows. A server whose connection broke during
the commit asks for that row by putting one of its own there: PostgreSQL then waits until the write has ended, and a
write that has not arrived yet can no longer be stored. The number of a transaction does not tell it, because
PostgreSQL may give it to another one after a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import count

from sqlalchemy import Connection

TABLE = "commits"

CREATE = f"""
    CREATE TABLE IF NOT EXISTS {TABLE} (
        id uuid PRIMARY KEY,
        is_stored boolean NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    )
"""

KEPT = "1 hour"
"""How long a row is kept. Whoever asks for it does so in the first half minute."""

ERASED_EVERY = 500
"""After so many writes of a process the outdated rows are erased. Set by hand: that takes some milliseconds."""

AS_TEXT: Mapping[str, bool] = {"no_parameters": True}
"""The option with which the driver takes several statements in one text."""

_ERASE = f"DELETE FROM {TABLE} WHERE at < now() - interval '{KEPT}'; "  # noqa: S608 - no value of anybody's


class Commits:
    """Commit the transactions of a process so that they can be asked for."""

    def __init__(self) -> None:
        self._number = count()

    def commit(self, conn: Connection, write: uuid.UUID) -> None:
        """Commit a transaction under a new id, in one message to the database."""
        erase = "" if next(self._number) % ERASED_EVERY else _ERASE
        leave = f"INSERT INTO {TABLE}(id, is_stored) VALUES ('{write}', true); "  # noqa: S608 - an id is no text
        conn.exec_driver_sql(f"{erase}{leave}COMMIT", execution_options=AS_TEXT)


def was_stored(conn: Connection, write: uuid.UUID) -> bool:
    """Return whether a write was committed, once it has ended. It cannot be committed any more afterwards."""
    ask = (
        f"INSERT INTO {TABLE}(id, is_stored) VALUES (%(id)s, false) "  # noqa: S608 - no value of anybody's
        "ON CONFLICT (id) DO UPDATE SET at = now() RETURNING is_stored"
    )
    return bool(conn.exec_driver_sql(ask, {"id": write}).scalar_one())
