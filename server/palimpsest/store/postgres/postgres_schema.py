"""What only PostgreSQL's schema has: types, a trigger and a counter."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from sqlalchemy import Column, Connection, String, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler, PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import Integer

from palimpsest.store.database import Work
from palimpsest.store.rows import json_elements, next_number
from palimpsest.store.schema import index_log, metadata

# The option with which the driver takes several statements in one text.
AS_TEXT: Mapping[str, bool] = {"no_parameters": True}


# Advisory locks: whose turn it is to write for a user, to change the schema, to work in the background.
#
# Each is a pair of numbers. PostgreSQL releases them when a transaction or a connection ends, also when its client
# is killed.

# The first number of locks that belong to the whole ledger. The letters "pali", so that others do not choose it.
LEDGER = 0x70616C69

# The first number of the locks of users.
USER = 0x70616C75

# What there is a lock for: writing to all users' rows, the end of the index log, the schema, or work.
Lock: TypeAlias = Literal["whole", "log", "schema"] | Work

# The second number of each is its place. Servers of one ledger have to agree on it.
NUMBERS: tuple[Lock, ...] = ("whole", "log", "schema", "embedding", "jobs", "graph", "index")


def ledger_lock(lock: Lock) -> str:
    """Return the arguments of a lock of the whole ledger."""
    return f"{LEDGER}, {NUMBERS.index(lock)}"


def user_lock(user_id: str) -> str:
    """Return the arguments of the lock of a user. Two users may share one, which only lets them wait for each other."""
    digest = hashlib.blake2b(user_id.encode(), digest_size=4).digest()
    return f"{USER}, {int.from_bytes(digest, 'big', signed=True)}"


# How PostgreSQL writes what `store/rows.py` and `store/schema.py` define.

# The sequence of edit numbers. Two users may write at the same time, so the highest number in use does not do.
EDIT_NUMBERS = "edit_numbers"

# What the URL of an engine begins with whose tables are made by `LedgerDialect`.
DRIVER = "postgresql+palimpsest"


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
    colspecs: ClassVar[Any] = {**PGDialect_psycopg.colspecs, Integer: Integer}


def register() -> None:
    """Teach SQLAlchemy our dialect, and our partial indexes their conditions."""
    registry.register(DRIVER.replace("+", "."), __name__, LedgerDialect.__name__)
    for table in metadata.sorted_tables:
        for index in table.indexes:
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]


@compiles(json_elements, "postgresql")
def _json_elements(element: json_elements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text({compiler.process(element.clauses, **options)})"


@compiles(next_number, "postgresql")
def _next_number(element: next_number, compiler: SQLCompiler, **options: Any) -> str:
    """Take the next number of the sequence. Only if that is in use already, as after an import, set the sequence."""
    used = compiler.process(element.clauses, **options)
    taken = f"SELECT nextval('{EDIT_NUMBERS}') AS number, greatest({used}) AS used OFFSET 0"
    number = f"CASE WHEN number > used THEN number ELSE setval('{EDIT_NUMBERS}', used + 1) END"
    return f"(SELECT {number} FROM ({taken}) AS taken)"  # noqa: S608 - likewise


# What a ledger in PostgreSQL has beside its tables: a sequence, an index, and a trigger on the index log.
#
# Whoever follows the index log asks for what comes after the newest number it knows. PostgreSQL gives numbers out
# when a row is written, and a transaction that was given a lower one may commit later: its row would never be seen.
# So a transaction takes a lock before it writes to the log and keeps it to its end. Then PostgreSQL tells all
# servers that something has changed.

# Where servers listen for changes of others.
CHANNEL = "palimpsest_changes"

_CREATE = (
    f"CREATE SEQUENCE IF NOT EXISTS {EDIT_NUMBERS}",
    # Many users share the log, and each search asks it for the changes of one of them.
    f"CREATE INDEX IF NOT EXISTS changes_by_user ON {index_log.name} (user_id, seq)",
    f"""
    CREATE OR REPLACE FUNCTION palimpsest_log_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock({ledger_lock("log")});
        PERFORM pg_notify('{CHANNEL}', '');
        RETURN NULL;
    END $$
    """,
    f"""
    CREATE OR REPLACE TRIGGER log_in_order BEFORE INSERT ON {index_log.name}
    FOR EACH STATEMENT EXECUTE FUNCTION palimpsest_log_in_order()
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
    return [bytes(piece) for piece in conn.execute(found, {"pieces": list(pieces)}).scalars()]
