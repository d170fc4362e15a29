"""No call reads a whole table of the graph: each statement begins with an index, however many entities there are."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from sqlalchemy import Connection, Engine, event

from palimpsest.core.models import Relation, Scope
from palimpsest.memory import Memory
from tests.support.graph_rows import store_stating
from tests.support.memory import ALICE, add_text, messages_from

pytestmark = [pytest.mark.anyio, pytest.mark.only_on("sqlite", "PostgreSQL reads small tables whole")]


# Statements with the values of their parameters.
Executed: TypeAlias = dict[str, Any]


@contextmanager
def statements() -> Generator[Executed]:
    """Collect what is executed in the block, each statement with its parameters."""
    executed: Executed = {}

    def record(_conn: Connection, _cursor: object, sql: str, values: Any, _context: object, many: bool) -> None:  # noqa: FBT001 - SQLAlchemy's call
        if sql.lstrip().upper().startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
            executed[sql] = values[0] if many else values

    event.listen(Engine, "before_cursor_execute", record)
    yield executed
    event.remove(Engine, "before_cursor_execute", record)


GRAPH = ("entities", "entity_aliases", "entity_history", "mentions", "relations")

# A search by the user alone. It reads all entities of one, unless a limit ends it.
ALL_OF_A_USER = "USING INDEX entities_by_user (user_id=?)"


def reading_too_much(memory: Memory, executed: Executed) -> list[str]:
    """Return the steps of plans that go through a table of the graph, or through all that is one user's."""
    found: list[str] = []
    with memory.engine.ledger.read() as conn:
        for sql, values in executed.items():
            for *_, step in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values):
                is_all_of_a_user = step.endswith(ALL_OF_A_USER) and "LIMIT" not in sql
                is_of_graph = any(f" {table} " in f"{step} " for table in GRAPH)
                if is_of_graph and (step.startswith("SCAN") or is_all_of_a_user):
                    found.append(f"{step}: {sql}")
    return found


async def test_calls_find_entities_by_indexes(memory: Memory) -> None:
    with statements() as executed:
        for name, town in (("Ana", "Lyon"), ("Ben", "Ghent")):
            relations = (Relation(name, "lives in", town), Relation("User", "knows", name))
            store_stating(memory, f"{name} lives in {town}", (name, "person"), relations=relations)
        memory_id = await add_text(memory, "Ana met Ben in Lyon, who lives in Ghent")
        await memory.add_messages(messages_from(("user", "Ana says hello to Ben")))
        await memory.update(ALICE, memory_id, text="Ana met Ben in Paris")
        for where in (ALICE, Scope(ALICE.user_id, "site")):
            await memory.search(where, "Where does Ana live, and what do I know?", hops=2)
            await memory.list(where, filters={"entity": "Ana"})
            await memory.graph.dossiers(where, "Ana", as_of=memory.engine.clock())
            await memory.graph.subgraph(where, about="me")
            await memory.graph.names(where, "A", 9)
        await memory.graph.merge(ALICE, "Ben", "Ana")
        await memory.graph.rename(ALICE, "Ana", "Anna")
        await memory.undo(ALICE)
        await memory.delete(ALICE, [memory_id])
    assert len(executed) > 100
    assert reading_too_much(memory, executed) == []
