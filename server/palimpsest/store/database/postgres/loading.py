"""How a ledger in PostgreSQL takes in the rows of another ledger, and what it cannot store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from sqlalchemy import Connection, String, Table, UniqueConstraint, inspect, text

from palimpsest.store.schema import metadata

MAX_INDEXED_BYTES = 2_600
"""How long the texts of one index row may be together. PostgreSQL takes 2,704 bytes with their headers."""

MAX_BYTES_OF_CHARACTER = 4


class PostgresLoading:
    """Implement `Loading` for PostgreSQL."""

    def in_any_order(self) -> AbstractContextManager[None]:
        """Do nothing: the references are dropped."""
        return nullcontext()

    def drop_references(self, conn: Connection) -> None:
        """Drop the foreign keys."""
        inspector = inspect(conn)
        for table in metadata.sorted_tables:
            for key in inspector.get_foreign_keys(table.name):
                conn.exec_driver_sql(f'ALTER TABLE "{table.name}" DROP CONSTRAINT "{key["name"]}"')

    def create_references(self, conn: Connection) -> None:
        """Create the foreign keys. PostgreSQL refuses if a row refers to a missing row."""
        for table in metadata.sorted_tables:
            for column in table.columns:
                for key in column.foreign_keys:
                    other = key.column
                    conn.exec_driver_sql(
                        f'ALTER TABLE "{table.name}" ADD FOREIGN KEY ("{column.name}") '
                        f'REFERENCES "{other.table.name}" ("{other.name}")'
                    )

    def unfit(self, table: Table, row: Mapping[str, Any]) -> str:
        """Return why PostgreSQL cannot store a row, or "" if it can."""
        for names in _indexed(table):
            texts = [value for name in names if isinstance(value := row[name], str)]
            if sum(map(len, texts)) * MAX_BYTES_OF_CHARACTER <= MAX_INDEXED_BYTES:
                continue
            size = sum(len(value.encode()) for value in texts)
            if size > MAX_INDEXED_BYTES:
                return f"its {' and '.join(names)} have {size:,} bytes, and an index takes {MAX_INDEXED_BYTES:,}"
        return ""

    def counters(self, conn: Connection) -> dict[str, int]:
        """Return the highest number that was ever given to a row, by table."""
        found: dict[str, int] = {}
        for name, sequence in _sequences(conn).items():
            value, is_called = conn.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()  # noqa: S608 - a name of our own
            found[name] = int(value) if is_called else 0
        return found

    def count_on(self, conn: Connection, counters: Mapping[str, int]) -> None:
        """Let the numbers of new rows begin above these and above those in use."""
        given = self.counters(conn)
        for name, sequence in _sequences(conn).items():
            (column,) = metadata.tables[name].primary_key
            used = conn.exec_driver_sql(f'SELECT max("{column.name}") FROM "{name}"').scalar()  # noqa: S608 - likewise
            highest = max(counters.get(name, 0), given[name], used or 0)
            values = {"sequence": sequence, "value": max(highest, 1), "is_called": highest > 0}
            conn.execute(text("SELECT setval(CAST(:sequence AS regclass), :value, :is_called)"), values)


@cache
def _indexed(table: Table) -> tuple[tuple[str, ...], ...]:
    """Return the names of the text columns of each index, and of the keys."""
    keys = [key for key in table.constraints if isinstance(key, UniqueConstraint)]
    found = [[*index.columns] for index in table.indexes] + [[*key.columns] for key in (table.primary_key, *keys)]
    named = (tuple(column.name for column in columns if isinstance(column.type, String)) for columns in found)
    return tuple(names for names in dict.fromkeys(named) if names)


def _sequences(conn: Connection) -> dict[str, str]:
    """Return the sequence that numbers the rows of each table that has one."""
    found: dict[str, str] = {}
    for table in metadata.sorted_tables:
        columns = [*table.primary_key]
        if len(columns) == 1:
            query = text("SELECT pg_get_serial_sequence(:table, :column)")
            values = {"table": f'"{table.name}"', "column": columns[0].name}
            sequence = conn.execute(query, values).scalar()
            if sequence is not None:
                found[table.name] = str(sequence)
    return found
