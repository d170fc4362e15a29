"""What a ledger in PostgreSQL has beside its tables: a sequence, a table, an index, and triggers on the index log.

Whoever follows the index log asks for what comes after the newest number it knows. PostgreSQL gives numbers out when a
row is written, and a transaction that was given a lower one may commit later: its row would never be seen. So a
transaction takes a lock before it writes to the log and keeps it to its end. The last trigger tells all servers that
something has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from palimpsest.store.database.postgres import commits
from palimpsest.store.database.postgres.dialect import EDIT_NUMBERS
from palimpsest.store.database.postgres.locks import INDEX_LOG, ledger_lock
from palimpsest.store.database.postgres.nul import storable
from palimpsest.store.schema import index_log

CHANNEL = "palimpsest_changes"
"""Where servers listen for changes of others."""

LOSSLESS = "surrogateescape"
"""How bytes are read that may begin or end in the middle of a character."""

_CREATE = (
    f"CREATE SEQUENCE IF NOT EXISTS {EDIT_NUMBERS}",
    commits.CREATE,
    # Many users share the log, and each search asks it for the changes of one of them.
    f"CREATE INDEX IF NOT EXISTS changes_by_user ON {index_log.name} (user_id, seq)",
    f"""
    CREATE OR REPLACE FUNCTION palimpsest_log_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock({ledger_lock(INDEX_LOG)});
        RETURN NULL;
    END $$
    """,
    f"""
    CREATE OR REPLACE FUNCTION palimpsest_tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('{CHANNEL}', '');
        RETURN NULL;
    END $$
    """,
    f"""
    CREATE OR REPLACE TRIGGER log_in_order BEFORE INSERT ON {index_log.name}
    FOR EACH STATEMENT EXECUTE FUNCTION palimpsest_log_in_order()
    """,
    f"""
    CREATE OR REPLACE TRIGGER tell_change AFTER INSERT ON {index_log.name}
    FOR EACH STATEMENT EXECUTE FUNCTION palimpsest_tell_change()
    """,
)


def create(conn: Connection) -> None:
    """Create what is missing."""
    for statement in _CREATE:
        conn.exec_driver_sql(statement)


def names(conn: Connection) -> list[str]:
    """Return the names of all tables."""
    query = (
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace "
        "ORDER BY 1"
    )
    return list(conn.exec_driver_sql(query).scalars())


def pieces_in(conn: Connection, table: str, pieces: Sequence[bytes]) -> list[bytes]:
    """Return which pieces of texts stand in a column of text of any row of a table."""
    query = text(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() "
        "AND table_name = :table AND data_type IN ('text', 'json', 'character varying')"
    )
    columns = [f"coalesce(CAST(\"{name}\" AS text), '')" for name in conn.execute(query, {"table": table}).scalars()]
    if not columns or not pieces:
        return []
    found = text(
        f'SELECT DISTINCT piece FROM "{table}", unnest(CAST(:pieces AS bytea[])) AS piece '  # noqa: S608 - names of our own
        f"WHERE position(piece IN convert_to(concat_ws(' ', {', '.join(columns)}), 'UTF8')) > 0"
    )
    stored = {storable(piece.decode(errors=LOSSLESS)).encode(errors=LOSSLESS): piece for piece in pieces}
    return [stored[bytes(piece)] for piece in conn.execute(found, {"pieces": list(stored)}).scalars()]


def invalid_indexes(conn: Connection) -> list[str]:
    """Return the names of the indexes that PostgreSQL does not use."""
    query = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid ORDER BY 1"
    return list(conn.exec_driver_sql(query).scalars())


def size(conn: Connection) -> int:
    """Return the size in bytes of all tables with their indexes."""
    query = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
    )
    return int(conn.exec_driver_sql(query).scalar_one())
