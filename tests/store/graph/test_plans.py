"""No call reads a whole table of the graph: each statement begins with an index, however many entities there are."""

from __future__ import annotations

import pytest

from palimpsest.core.models import Relation, Scope
from palimpsest.memory import Memory
from tests.support.graph_rows import store_stating
from tests.support.memory import ALICE, add_text, messages_from
from tests.support.plans import Executed, statements, whole_reads

pytestmark = pytest.mark.anyio

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
            await memory.graph.dossiers(where, "Ana", hops=2)
            await memory.graph.dossiers(where, "Ana", as_of=memory.engine.clock())
            await memory.graph.subgraph(where, about="me")
            await memory.graph.names(where, "A", 9)
        await memory.graph.merge(ALICE, "Ben", "Ana")
        await memory.graph.rename(ALICE, "Ana", "Anna")
        await memory.undo(ALICE)
        await memory.delete(ALICE, [memory_id])
    assert len(executed) > 100
    assert reading_too_much(memory, executed) == []
