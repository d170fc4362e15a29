"""A ledger that is closed while something still uses it: no connection stays open."""

from __future__ import annotations

from contextlib import closing

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, text

from palimpsest.store.ledger import open_database, open_ledger
from tests.support.memory import StoppedClock

pytestmark = [pytest.mark.postgres, pytest.mark.only_on("sqlite", "they name their databases themselves")]

OTHERS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")


def sessions(database: SecretStr) -> int:
    """Return how many sessions the server has for a database, beside the one that asks."""
    engine = create_engine(database.get_secret_value().replace("postgresql://", "postgresql+psycopg://"))
    with closing(engine.raw_connection()) as conn, closing(conn.cursor()) as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(str(OTHERS))
        (number,) = cursor.fetchone() or (0,)
    engine.dispose()
    return int(number)


def test_a_connection_that_is_given_back_after_the_end_is_closed(database: SecretStr) -> None:
    """Guards a read whose client has gone: it ends in its thread after the ledger was closed."""
    ledger = open_ledger(database, StoppedClock())
    with ledger.read() as conn:
        ledger.close()
        driver = conn.connection.driver_connection
    assert driver is not None
    assert driver.closed
    assert sessions(database) == 0


def test_a_listener_that_is_closed_while_it_connects_leaves_nothing(database: SecretStr) -> None:
    """Guards a server that ends right after its start: nobody closes what is opened afterwards."""
    opened = open_database(database)
    listener = opened.listener()
    assert listener is not None
    listener.close()
    listener.wait(0)
    opened.close()
    assert sessions(database) == 0
