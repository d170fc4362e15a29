"""The relations that a search shows: of whom the question names, as they hold now or held then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Relation, Scope
from palimpsest.memory import Memory
from palimpsest.recall.hits import hit_tokens
from palimpsest.recall.search import relation_tokens
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


async def test_what_was_replaced_is_shown_for_the_time_before_and_what_was_deleted_is_not(
    memory: Memory, clock: StoppedClock
) -> None:
    where, works = "Where does Odile live?", "Where does Odile work?"
    home = state(memory, "Odile lives in Ghent", ("Odile", "lives in", "Ghent"))
    old = state(memory, "Odile works at Ferrow", ("Odile", "works at", "Ferrow"))
    then = clock()
    clock.forward(days=1)
    fact = Fact("Odile works at Quill", relations=(Relation("Odile", "works at", "Quill"),))
    write_decisions(memory, Decision(Event.ADD, fact, replaces=(old,)))
    await memory.delete(ALICE, [home])
    assert await lines(memory, where) == await lines(memory, works) == ["Odile — works at → Quill"]
    assert await lines(memory, where, as_of=then) == ["Odile — works at → Ferrow"]
    assert await lines(memory, "Who is at Ferrow?", as_of=then) == ["Odile — works at → Ferrow"]
    clock.forward(days=1)
    await memory.undo(ALICE)
    assert "Odile — lives in → Ghent" in await lines(memory, where)


async def test_relations_count_and_never_take_room_from_the_best_hit(memory: Memory) -> None:
    """Also from one that is cut: what it would lose is worth more."""
    for number in range(12):
        words = " ".join(f"stone{number}{part}" for part in range(6))
        state(memory, f"Odile counted {words}", ("Odile", "counted", f"stones {number}"))
    state(memory, f"Piet counted {' '.join(map(str, range(200)))}", ("Piet", "counted", "to 200"))
    for question, sizes in (("What did Odile count?", (50, 80, 120, 400, 800)), ("What did Piet count?", (100,))):
        for max_tokens in sizes:
            result = await memory.search(ALICE, question, max_tokens=max_tokens)
            without = await memory.search(ALICE, question, max_tokens=max_tokens, hops=0)
            assert sum(map(hit_tokens, result.hits)) + relation_tokens(result.relations) <= max_tokens
            assert result.hits[0].text == without.hits[0].text
            assert [hit.id for hit in result.hits] == [hit.id for hit in without.hits][: len(result.hits)]
            assert result.relations or max_tokens < 120


async def test_two_hops_lead_on_but_not_through_the_user(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        state(memory, "Piet is the brother of Odile", ("Odile", "brother", "Piet"))
        state(memory, "Piet repairs organs", ("Piet", "repairs", "organs"))
        state(memory, "Odile met the user", ("Odile", "met", "User"))
        state(memory, "User sails", ("User", "likes", "sailing"))
        near, question = {"Odile — brother → Piet", "Odile — met → User"}, "What does the brother of Odile do?"
        assert set(await lines(memory, question)) == near
        assert set(await lines(memory, question, hops=2)) == {*near, "Piet — repairs → organs"}
        with pytest.raises(InputError, match="hops"):
            await memory.search(ALICE, question, hops=3)
