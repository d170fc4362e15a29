"""No statement of an everyday call goes through a whole table, whatever the size of the table.

The memory of one user is written as that of a thousand others too, and PostgreSQL is told to avoid whole tables, as it
does when they are large. A plan that has one then shows that no index serves the statement.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection, Engine, event

from palimpsest.core.models import Scope
from palimpsest.store import entries
from tests.support.ledger_access import store_memory, store_messages
from tests.support.memory import memory_in, messages_from
from tests.support.postgres import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.only_on("postgres", "SQLite has plans of its own")]

SCOPE = Scope("alice", "atlas")

OF_ONE_ROW = {"alembic_version", "meta"}
"""Tables of a few rows, for all users together."""

LARGE = {
    "changes",
    "entities",
    "entity_aliases",
    "history",
    "lexical",
    "lexical_counts",
    "means",
    "memories",
    "memory_sources",
    "mentions",
    "message_history",
    "messages",
    "vectors",
}
"""The tables that the calls of the test fill, and whose plans therefore say something."""

Statement = tuple[str, Any]


@contextmanager
def recorded() -> Generator[list[Statement]]:
    """Record the statements that this process executes."""
    statements: list[Statement] = []

    def record(_conn: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:  # noqa: FBT001 - SQLAlchemy passes it so
        is_commit = statement.endswith("COMMIT")  # several statements in one, which have no plan together
        if statement.lstrip().startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")) and not is_commit:
            statements.append((statement, parameters[0] if many else parameters))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", record)


def scans(plan: dict[str, Any], *, is_limited: bool = False) -> Iterator[str]:
    """Yield what a plan reads as a whole: a table, or an index without a condition, unless it stops at a limit."""
    kind = plan["Node Type"]
    is_limited = is_limited or kind == "Limit"
    if kind == "Seq Scan" and plan["Relation Name"] in LARGE:
        yield f"{plan['Relation Name']} ({plan.get('Filter', 'every row')})"
    is_index = kind in {"Index Scan", "Index Only Scan"} and plan["Relation Name"] in LARGE
    if is_index and "Index Cond" not in plan and not is_limited:
        yield f"{plan['Index Name']} ({plan.get('Filter', 'every row')})"
    for part in plan.get("Plans", ()):
        yield from scans(part, is_limited=is_limited)


OTHERS = 1_000
"""How many other users there are. PostgreSQL reads small tables as a whole."""


def copy_for_others(conn: psycopg.Connection) -> set[str]:
    """Write what a ledger holds as that of other users too, and return which tables hold something.

    Every id and key of theirs ends with a number.
    """
    filled: set[str] = set()
    conn.execute("SET session_replication_role = replica")  # rows that others refer to may come later
    tables = conn.execute("SELECT relname::text FROM pg_stat_user_tables ORDER BY 1").fetchall()
    for (table,) in tables:
        if table in OF_ONE_ROW:
            continue
        query = (
            "SELECT column_name::text, data_type, column_default LIKE 'nextval%%' FROM information_schema.columns "
            "WHERE table_name = %s"
        )
        columns = {name: _of_other(name, kind) for name, kind, counts in conn.execute(query, [table]) if not counts}
        copies = sql.SQL("INSERT INTO {table}({names}) SELECT {values} FROM {table} AS t, generate_series(1, %s) AS n")
        written = conn.execute(
            copies.format(
                table=sql.Identifier(table),
                names=sql.SQL(", ").join(map(sql.Identifier, columns)),
                values=sql.SQL(", ").join(columns.values()),
            ),
            [OTHERS],
        )
        filled |= {table} if written.rowcount else set()
    conn.execute("ANALYZE")
    return filled


def _of_other(name: str, kind: str) -> sql.Composed:
    """Return a column of the row of another user."""
    form: LiteralString = "t.{column}"
    if kind == "text" and name not in {"kind", "event", "role", "stage", "op", "state", "embedder", "project"}:
        form = "t.{column} || CASE WHEN t.{column} = '' THEN '' ELSE '-' || n END"
    elif kind == "uuid":
        form = "gen_random_uuid()"
    elif name in {"unit_seq", "recall_seq", "summary_id", "change", "seq"}:
        form = "t.{column} + 1000000 * n"
    elif name == "word":
        form = "t.{column} + n"
    elif name == "words" and kind == "ARRAY":
        form = "ARRAY(SELECT word + n FROM unnest(t.{column}) AS word)"
    return sql.SQL(form).format(column=sql.Identifier(name))


@pytest.mark.nightly
async def test_no_everyday_statement_scans_a_table(tmp_path: Path, postgres: PostgresStore) -> None:
    """Adding, searching, listing, looking at history, undo: with messages, memories and entities."""
    async with memory_in(tmp_path) as memory:
        with recorded() as statements:
            await memory.add_messages(
                messages_from(
                    {"role": "user", "content": "My sister Ana lives in Porto.", "name": "Sam"},
                    {"role": "assistant", "content": "Noted."},
                    scope=SCOPE,
                )
            )
            message, *_ = await store_messages(memory, ("user", "Ana got a dog, Bruno"), ("user", "Ha"), scope=SCOPE)
            store_memory(memory, "Ana has a dog called Bruno", scope=SCOPE, sources=[message.id])
            added = await memory.add_text(SCOPE, "Ana's son Leo started school in September 2026")
            memory_id = added.outcomes[0].memory.id
            await memory.update(SCOPE, memory_id, text="Ana's son Leo started school in October 2026")
            await memory.search(SCOPE, "Where does Ana live?")
            await memory.search(SCOPE, "Leo", as_of=memory.engine.clock())
            await memory.search(SCOPE, "Leo", filters={"kind": "memory"})
            await memory.history(SCOPE, memory_id)
            await memory.list(SCOPE)
            await memory.undo(SCOPE)
        with postgres.cluster.administrator(postgres.database(tmp_path / "ledger.db")) as administrator:
            assert copy_for_others(administrator) >= LARGE
        with memory.engine.ledger.read() as conn:
            for way in ("seqscan", "hashjoin", "mergejoin"):
                conn.exec_driver_sql(f"SET LOCAL enable_{way} = off")
            found = {
                f"{scan}: {statement}"
                for statement, parameters in dict(statements).items()
                for scan in scans(_plan(conn, statement, parameters))
            }
    assert not found, "\n\n".join(sorted(found))


def _plan(conn: Connection, statement: str, parameters: Any) -> dict[str, Any]:
    (plan,) = conn.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
    return plan["Plan"]


async def test_plans_are_made_for_the_values_of_a_call(tmp_path: Path) -> None:
    """Guards against plans that PostgreSQL keeps for any values: the sixth call with one goes through a whole table."""
    async with memory_in(tmp_path) as memory:
        with memory.engine.ledger.read() as conn:
            for _ in range(20):
                entries.has_missing_vectors(conn, memory.engine.embedder.fingerprint)
            kept = "SELECT sum(generic_plans)::int, sum(custom_plans)::int FROM pg_prepared_statements"
            generic, custom = conn.exec_driver_sql(kept).one()
    assert custom > 0
    assert generic == 0
