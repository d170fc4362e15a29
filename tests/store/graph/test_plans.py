"""No call reads a whole table of the graph: each statement begins with an index, however many entities there are."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from sqlalchemy import Connection, Engine, event

from palimpsest.core.models import Relation, Scope
from palimpsest.memory import Memory
from tests.support.graph_rows import store_stating
from tests.support.memory import ALICE, add_text, messages_from

pytestmark = pytest.mark.anyio


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


GRAPH = ("entities", "entity_aliases", "entity_history", "mentions", "relations")

ALL_OF_A_USER = "USING INDEX entities_by_user (user_id=?)"
"""A search by the user alone. It reads all entities of one, unless a limit ends it."""


def reading_too_much(memory: Memory, executed: Executed) -> list[str]:
    """Return the steps of plans that go through a table of the graph, or through all that is one user's."""
    with memory.engine.ledger.read() as conn:
        return whole_reads(conn, executed, GRAPH, ALL_OF_A_USER)


async def test_calls_find_entities_by_indexes(memory: Memory) -> None:
    scope = Scope(ALICE.user_id, "site")
    with statements() as executed:
        for name, town in (("Ana", "Lyon"), ("Ben", "Ghent")):
            relations = (Relation(name, "lives in", town), Relation("User", "knows", name))
            store_stating(memory, f"{name} lives in {town}", (name, "person"), relations=relations)
        memory_id = await add_text(memory, "Ana met Ben in Lyon, who lives in Ghent")
        await memory.add_messages(messages_from(("user", "Ana says hello to Ben")))
        await memory.update(ALICE, memory_id, text="Ana met Ben in Paris")
        for where in (ALICE, scope):
            await memory.search(where, "Where does Ana live, and what do I know?", hops=2)
            await memory.search(where, "Ana", filters={"entity": "Ana"}, as_of=memory.engine.clock())
            await memory.list(where, filters={"entity": "Ana"})
            await memory.graph.dossiers(where, "Ana")
            await memory.graph.dossiers(where, "Ana", as_of=memory.engine.clock())
            await memory.graph.subgraph(where, about="me")
            await memory.graph.names(where, "A", 9)
        await memory.graph.merge(ALICE, "Ben", "Ana")
        await memory.graph.rename(ALICE, "Ana", "Anna")
        await memory.undo(ALICE)
        await memory.delete(ALICE, [memory_id])
    assert len(executed) > 100
    assert reading_too_much(memory, executed) == []
