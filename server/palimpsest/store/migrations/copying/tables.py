"""All tables of a ledger, and their rows in a form that is the same in every database.

A row is a tuple of texts, numbers, bytes and None. Times and JSON are the very texts that are stored, so nothing is
rounded or ordered anew on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from sqlalchemy import (
    JSON,
    BindParameter,
    Boolean,
    Column,
    Connection,
    String,
    Table,
    TextClause,
    TypeDecorator,
    bindparam,
    text,
)
from sqlalchemy import column as column_of
from sqlalchemy.sql.selectable import TextualSelect
from sqlalchemy.types import NullType, TypeEngine

from palimpsest.store import schema
from palimpsest.store.graph import tables as graph
from palimpsest.store.mapping import StoredJson
from palimpsest.store.views import tables as views

StoredRow: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[Any, ...]
"""The primary key of a row."""

MODULES = (schema, graph, views)
"""Where tables are defined. The metadata has those of the modules that were imported."""

TABLES: tuple[Table, ...] = tuple(schema.metadata.sorted_tables)
"""The tables of a ledger, those that others refer to first. The full text is not among them."""


@dataclass(frozen=True)
class TableRows:
    """The rows of one table, in the order of the primary key, which is by bytes for texts."""

    table: Table

    @property
    def name(self) -> str:
        """Return the name of the table."""
        return self.table.name

    def count(self, conn: Connection) -> int:
        """Return the number of rows."""
        return int(conn.execute(text(f'SELECT count(*) FROM "{self.name}"')).scalar_one())  # noqa: S608 - a name of our own

    def after(self, conn: Connection, key: Key | None, limit: int) -> list[StoredRow]:
        """Return the next rows after a key, or the first ones."""
        return self._rows(conn, self._query(after=key is not None, limited=True), after=key, limit=limit)

    def between(self, conn: Connection, after: Key | None, upto: Key | None) -> list[StoredRow]:
        """Return the rows after a key up to another one. None is no bound."""
        query = self._query(after=after is not None, upto=upto is not None)
        return self._rows(conn, query, after=after, upto=upto)

    def key(self, row: StoredRow) -> Key:
        """Return the primary key of a row."""
        return tuple(row[place] for place in self._key_places)

    def by_name(self, row: StoredRow) -> dict[str, Any]:
        """Return the values of a row by the names of their columns."""
        return dict(zip(self._names, row, strict=True))

    def put(self, conn: Connection, rows: Sequence[StoredRow]) -> None:
        """Store rows, in place of those with the same keys."""
        if rows:
            conn.execute(self._upsert, [self._values(row) for row in rows])

    def delete(self, conn: Connection, keys: Sequence[Key]) -> None:
        """Delete the rows with these keys."""
        if keys:
            conn.execute(self._delete, [_bound("k", key) for key in keys])

    def clear(self, conn: Connection) -> None:
        """Delete all rows."""
        conn.execute(text(f'DELETE FROM "{self.name}"'))  # noqa: S608 - a name of our own

    def _rows(
        self,
        conn: Connection,
        query: TextualSelect,
        after: Key | None = None,
        upto: Key | None = None,
        limit: int | None = None,
    ) -> list[StoredRow]:
        values = {**_bound("a", after or ()), **_bound("u", upto or ())}
        if limit is not None:
            values["rows"] = limit
        return [tuple(row) for row in conn.execute(query, values)]

    def _query(self, *, after: bool = False, upto: bool = False, limited: bool = False) -> TextualSelect:
        columns = ", ".join(
            f'CAST("{column.name}" AS TEXT)' if isinstance(column.type, JSON) else f'"{column.name}"'
            for column in self.table.columns
        )
        bounds = [f"{self._key} > {self._marks('a')}"] if after else []
        bounds += [f"{self._key} <= {self._marks('u')}"] if upto else []
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        order = self._key.strip("()")
        limit = " LIMIT :rows" if limited else ""
        query = text(f'SELECT {columns} FROM "{self.name}"{where} ORDER BY {order}{limit}')  # noqa: S608 - names of our own
        given = [*(self._keys_as("a") if after else ()), *(self._keys_as("u") if upto else ())]
        return query.bindparams(*given).columns(*[column_of(name, kind) for name, kind in self._kinds.items()])

    def _values(self, row: StoredRow) -> dict[str, Any]:
        values = {f"v{place}": value for place, value in enumerate(row)}
        for place in self._booleans:
            if row[place] is not None:
                values[f"v{place}"] = bool(row[place])  # SQLite gives a number, which PostgreSQL does not take
        return values

    def _marks(self, prefix: str) -> str:
        return f"({', '.join(f':{prefix}{place}' for place in range(len(self._key_places)))})"

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.table.columns)

    @cached_property
    def _key(self) -> str:
        return f"({_quoted(column.name for column in self.table.primary_key)})"

    @cached_property
    def _key_places(self) -> tuple[int, ...]:
        return tuple(self._names.index(column.name) for column in self.table.primary_key)

    @cached_property
    def _booleans(self) -> tuple[int, ...]:
        return tuple(place for place, column in enumerate(self.table.columns) if isinstance(column.type, Boolean))

    @cached_property
    def _upsert(self) -> TextClause:
        names, key = self._names, {column.name for column in self.table.primary_key}
        columns = _quoted(names)
        values = ", ".join(f":v{place}" for place in range(len(names)))
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in names if name not in key)
        action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        query = text(f'INSERT INTO "{self.name}" ({columns}) VALUES ({values}) ON CONFLICT {self._key} {action}')  # noqa: S608 - likewise
        kinds = enumerate(self._kinds.values())
        return query.bindparams(*[bindparam(f"v{place}", type_=kind) for place, kind in kinds])

    @cached_property
    def _delete(self) -> TextClause:
        query = text(f'DELETE FROM "{self.name}" WHERE {self._key} = {self._marks("k")}')  # noqa: S608 - likewise
        return query.bindparams(*self._keys_as("k"))

    @cached_property
    def _kinds(self) -> Mapping[str, TypeEngine[Any]]:
        """Return how each column is read and written: texts as texts, and everything else as it is."""
        return {column.name: _kind(column) for column in self.table.columns}

    def _keys_as(self, prefix: str) -> list[BindParameter[Any]]:
        kinds = [self._kinds[self._names[place]] for place in self._key_places]
        return [bindparam(f"{prefix}{place}", type_=kind) for place, kind in enumerate(kinds)]


ROWS = tuple(TableRows(table) for table in TABLES)
"""The rows of each table, in the order of `TABLES`."""


def _kind(column: Column[Any]) -> TypeEngine[Any]:
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    if isinstance(kind, JSON):
        return StoredJson()
    return String() if isinstance(kind, String) else NullType()


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _bound(prefix: str, key: Key) -> Mapping[str, Any]:
    return {f"{prefix}{place}": value for place, value in enumerate(key)}
