"""How a database would carry out statements: which of them read tables as a whole."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, event

Executed: TypeAlias = dict[str, Any]
"""Statements with the values of their parameters."""


@contextmanager
def statements() -> Generator[Executed]:
    """Collect what is executed in the block, each statement with its parameters."""
    executed: Executed = {}

    def record(_conn: Connection, _cursor: object, sql: str, values: Any, _context: object, many: bool) -> None:  # noqa: FBT001 - SQLAlchemy's call
        reads = sql.lstrip().upper().startswith(("SELECT", "WITH", "UPDATE", "DELETE"))
        if reads and not sql.endswith("COMMIT"):  # PostgreSQL commits with a note of the commit, in one message
            executed[sql] = values[0] if many else values

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield executed
    finally:
        event.remove(Engine, "before_cursor_execute", record)


def whole_reads(conn: Connection, executed: Executed, tables: Iterable[str], too_wide: str = "") -> list[str]:
    """Return the steps of plans that go through a whole table of these, with their statements.

    `too_wide` is the end of a step of SQLite's that reads too much as well, unless a limit ends it.
    """
    steps = _postgres_steps if conn.dialect.name == "postgresql" else _sqlite_steps
    names = set(tables)
    return [
        f"{step}: {' '.join(sql.split())}"
        for sql, values in executed.items()
        for step in steps(conn, sql, values, names, too_wide)
    ]


def _sqlite_steps(conn: Connection, sql: str, values: Any, tables: set[str], too_wide: str) -> Iterator[str]:
    for *_, step in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values):
        is_too_wide = too_wide and step.endswith(too_wide) and "LIMIT" not in sql
        if step.split()[1:2] and step.split()[1] in tables and (step.startswith("SCAN") or is_too_wide):
            yield step


def _postgres_steps(conn: Connection, sql: str, values: Any, tables: set[str], _: str) -> Iterator[str]:
    """Yield the steps of a plan for tables that are too large to be read. Those of a test are not."""
    for way in ("seqscan", "hashjoin", "mergejoin"):
        conn.exec_driver_sql(f"SET LOCAL enable_{way} = off")
    (plan,) = conn.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).scalar_one()
    for node, is_limited in _nodes(plan["Plan"], is_limited=False):
        by_condition = node["Node Type"] == "Bitmap Heap Scan" or "Index Cond" in node
        if node.get("Relation Name") in tables and "Scan" in node["Node Type"] and not by_condition and not is_limited:
            yield f"{node['Node Type']} {node['Relation Name']} {node.get('Index Name', '')}"


def _nodes(node: Mapping[str, Any], *, is_limited: bool) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the nodes of a plan, and whether a limit ends the reading of an index in its order."""
    yield node, is_limited and node["Node Type"] != "Seq Scan"
    for part in node.get("Plans", ()):
        yield from _nodes(part, is_limited=is_limited or node["Node Type"] == "Limit")
