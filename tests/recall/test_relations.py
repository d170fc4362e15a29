"""The relations that a search shows: of whom the question names, as they hold now or held then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Decision, Event, Fact, Relation, Scope, Undo
from palimpsest.memory import Memory
from tests.support.graph_rows import merge_entities
from tests.support.ledger_access import store_memory, write_decisions
from tests.support.memory import ALICE, StoppedClock, memory_in

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
SHED, BARN = Scope("alice", project="shed"), Scope("alice", project="barn")

Triple = tuple[str, str, str]


def state(memory: Memory, text: str, *stated: Triple, scope: Scope = ALICE, **rest: Any) -> str:
    """Add a memory that states relations, and return its id."""
    return store_memory(memory, text, scope=scope, relations=tuple(Relation(*item) for item in stated), **rest)


async def lines(memory: Memory, query: str, scope: Scope = ALICE, **options: Any) -> list[str]:
    """Return the relations that a search shows, as it shows them."""
    return [relation.line for relation in (await memory.search(scope, query, **options)).relations]


async def test_which_relations_are_shown(memory: Memory) -> None:
    """Those of whom the question names. Nearly all is about the user, so only the hits state relations of their own."""
    since: dict[str, Any] = {"valid_from": datetime(2025, 3, 1, tzinfo=UTC), "valid_from_precision": "month"}
    state(memory, "Odile works at Ferrow since March 2025", ("Odile", "works_at", "Ferrow"), **since)
    (relation,) = (await memory.search(ALICE, "Where does Odile work?")).relations
    assert relation.line == "Odile — works at → Ferrow (since 2025-03)"
    assert (relation.relationship, relation.valid_from, relation.valid_until) == ("works_at", "2025-03", "")
    assert relation.is_current
    state(memory, "User lives in Ghent", ("User", "lives in", "Ghent"))
    state(memory, "User's locker is number 4711", ("User", "has", "locker 4711"))
    assert await lines(memory, "Who works where?") == []
    assert await lines(memory, "Where do I live?", limit=1) == ["User — lives in → Ghent"]
    store_memory(memory, "User is called Mara Quist", metadata={"user_name": "Mara Quist"})
    assert await lines(memory, "Where does Mara Quist live?", limit=2) == ["Mara Quist — lives in → Ghent"]
    # A filter holds for the memories of relations. Names that were merged are one.
    state(memory, "Odi paints", ("Odi", "does", "painting"), metadata={"topic": "art"})
    assert await lines(memory, "What does Odi do?", filters={"topic": "art"}) == ["Odi — does → painting"]
    assert await lines(memory, "What does Odi do?", filters={"topic": "sport"}) == []
    merge_entities(memory, "Odi", "Odile")
    merged = {"Odile — does → painting", "Odile — works at → Ferrow (since 2025-03)"}
    assert set(await lines(memory, "What does Odi do?")) == merged


async def test_a_scope_sees_what_its_memories_state(memory: Memory) -> None:
    state(memory, "Odile lives in Ghent", ("Odile", "lives in", "Ghent"))
    state(memory, "Odile plans the shed", ("Odile", "plans", "shed roof"), scope=SHED)
    state(memory, "Odile paints the barn", ("Odile", "paints", "barn door"), scope=BARN)
    state(memory, "Odile sings", ("Odile", "sings in", "choir"), scope=BOB)
    everywhere, shed, barn = "Odile — lives in → Ghent", "Odile — plans → shed roof", "Odile — paints → barn door"
    seen = (
        (ALICE, {everywhere}),
        (SHED, {everywhere, shed}),
        (BARN, {everywhere, barn}),
        (Scope("carol"), set[str]()),
    )
    for scope, expected in (*seen, (BOB, {"Odile — sings in → choir"})):
        assert set(await lines(memory, "What about Odile?", scope)) == expected, scope
    assert await lines(memory, "And the shed roof?") == []
    assert set(await lines(memory, "What about Odile?", all_projects=True)) == {everywhere, shed, barn}


async def test_what_was_deleted_or_replaced_is_shown_for_the_time_before(tmp_path: Path) -> None:
    clock = StoppedClock()
    where, lives = "Where does Odile live?", ["Odile — lives in → Ghent"]
    async with memory_in(tmp_path / "deleted", clock) as memory:
        home = state(memory, "Odile lives in Ghent", ("Odile", "lives in", "Ghent"))
        then = clock()
        clock.forward(days=1)
        await memory.delete(ALICE, [home])
        assert await lines(memory, where) == []
        assert await lines(memory, where, as_of=then) == lives
        clock.forward(days=1)
        await memory.undo(ALICE, Undo())
        assert await lines(memory, where) == lives
        await memory.undo(ALICE, Undo(edit=1))
        assert await lines(memory, where) == []
    async with memory_in(tmp_path / "replaced", clock) as memory:
        old = state(memory, "Odile works at Ferrow", ("Odile", "works at", "Ferrow"))
        then = clock()
        clock.forward(days=1)
        fact = Fact("Odile works at Quill", relations=(Relation("Odile", "works at", "Quill"),))
        write_decisions(memory, Decision(Event.ADD, fact, replaces=(old,)))
        assert await lines(memory, "Where does Odile work?") == ["Odile — works at → Quill"]
        assert await lines(memory, "Where does Odile work?", as_of=then) == ["Odile — works at → Ferrow"]
        assert await lines(memory, "Who is at Ferrow?", hops=2) == []
        assert await lines(memory, "Who is at Ferrow?", as_of=then) == ["Odile — works at → Ferrow"]
