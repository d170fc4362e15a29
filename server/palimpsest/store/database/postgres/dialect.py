"""How PostgreSQL writes what `store/mapping.py` and `store/schema.py` define."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import Column
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler, PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import Integer, String

from palimpsest.store.database.postgres.nul import AnyJson, AnyText
from palimpsest.store.mapping import StoredJson, json_elements, json_numbers, next_number
from palimpsest.store.schema import metadata

EDIT_NUMBERS = "edit_numbers"
"""The sequence of edit numbers. Two users may write at the same time, so the highest number in use does not do."""

DRIVER = "postgresql+palimpsest"
"""What the URL of an engine begins with whose tables are made by `LedgerDialect`."""


class _Types(PGTypeCompiler):
    def visit_INTEGER(self, type_: Integer, **kw: Any) -> str:  # noqa: N802 - SQLAlchemy calls it by this name
        """Give every integer column 64 bits: the index log of many users has more rows than 32 bits can count."""
        del type_
        return "BIGINT" if isinstance(kw.get("type_expression"), Column) else "INTEGER"

    def visit_VARCHAR(self, type_: String, **kw: Any) -> str:  # noqa: N802 - likewise
        """Write text without a limit of its length, as SQLite has none, and ordered by its bytes, as SQLite does."""
        del type_
        return 'TEXT COLLATE "C"' if isinstance(kw.get("type_expression"), Column) else "TEXT"

    visit_TEXT = visit_VARCHAR  # noqa: N815 - likewise


class _Ddl(PGDDLCompiler):
    def get_column_specification(self, column: Column[Any], **kwargs: Any) -> str:
        """Return a column as it is created. Its numbers, if it counts by itself, have 64 bits."""
        return super().get_column_specification(column, **kwargs).replace(" SERIAL", " BIGSERIAL", 1)


class LedgerDialect(PGDialect_psycopg):
    """PostgreSQL with the types of a ledger, over psycopg."""

    supports_statement_cache = True
    type_compiler_cls = _Types
    ddl_compiler = _Ddl
    # The driver chooses the size of a number that it sends. With a cast, all would have 32 bits.
    colspecs: ClassVar[Any] = {**PGDialect_psycopg.colspecs, Integer: Integer, String: AnyText, StoredJson: AnyJson}


def register() -> None:
    """Teach SQLAlchemy our dialect, its compiler our constructs, and our partial indexes their conditions."""
    registry.register(DRIVER.replace("+", "."), __name__, LedgerDialect.__name__)
    compiles(json_elements, "postgresql")(_json_elements)
    compiles(json_numbers, "postgresql")(_json_numbers)
    compiles(next_number, "postgresql")(_next_number)
    for table in metadata.sorted_tables:
        for index in table.indexes:
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]


def _json_elements(element: json_elements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text({compiler.process(element.clauses, **options)})"


def _json_numbers(element: json_numbers, compiler: SQLCompiler, **options: Any) -> str:
    texts = f"json_array_elements_text({compiler.process(element.clauses, **options)})"
    return f"(SELECT CAST(texts.value AS BIGINT) AS value FROM {texts} AS texts)"  # noqa: S608 - no value of anybody's


def _next_number(element: next_number, compiler: SQLCompiler, **options: Any) -> str:
    """Take the next number of the sequence. Only if that is in use already, as after an import, set the sequence."""
    used = compiler.process(element.clauses, **options)
    taken = f"SELECT nextval('{EDIT_NUMBERS}') AS number, greatest({used}) AS used OFFSET 0"
    number = f"CASE WHEN number > used THEN number ELSE setval('{EDIT_NUMBERS}', used + 1) END"
    return f"(SELECT {number} FROM ({taken}) AS taken)"  # noqa: S608 - likewise
