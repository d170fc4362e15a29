"""A filter by entity: any name of it, in searches, lists and at an instant, for memories and messages."""

from __future__ import annotations

from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Scope
from palimpsest.memory import Memory
from tests.support.graph_rows import merge_entities
from tests.support.ledger_access import store_memory, store_messages, write_decisions
from tests.support.memory import ALICE, StoppedClock

pytestmark = pytest.mark.anyio

SHED = Scope("alice", project="shed")

ODILE = "Odile lives in Ghent"
PIET = "Piet and Odile sail together"
FERROW = "Ferrow makes bells"
USER = "User is 41"
NAMED = {ODILE: ("Odile", "Ghent"), PIET: ("Piet", "Odile"), FERROW: ("Ferrow",), USER: ("User",)}

FOUND: tuple[tuple[dict[str, Any], set[str]], ...] = (
    ({"entity": "Odile"}, {ODILE, PIET}),
    ({"entity": " ODILE's "}, {ODILE, PIET}),
    ({"entity": {"eq": "Piet"}}, {PIET}),
    ({"entity": {"ne": "Odile"}}, {FERROW, USER}),
    ({"entity": {"in": ["Ferrow", "Piet"]}}, {FERROW, PIET}),
    ({"entity": {"nin": ["Ferrow", "Piet"]}}, {ODILE, USER}),
    ({"entity": "me"}, {USER}),
    ({"AND": [{"entity": "Odile"}, {"entity": "Piet"}]}, {PIET}),
    ({"OR": [{"entity": "Ghent"}, {"entity": "Ferrow"}]}, {ODILE, FERROW}),
    ({"NOT": {"entity": "Odile"}}, {FERROW, USER}),
    ({"entity": "Odile", "kind": "message"}, set()),
)
REFUSED: tuple[tuple[Any, str], ...] = (
    ({"gt": "A"}, "cannot use 'gt'; use eq, ne, in, nin"),
    (None, "needs a name"),
    ("?!", "needs a name"),
    ({"in": "Odile"}, "needs a list"),
)


def add(memory: Memory, text: str, *names: str, scope: Scope = ALICE, **labels: Any) -> str:
    """Add a memory that names entities, and return its id."""
    return store_memory(memory, text, scope=scope, entities=tuple(map(NamedEntity, names)), **labels)


def fill(memory: Memory) -> None:
    """Add four memories, which name Odile, Ghent, Piet, Ferrow and the user."""
    for text, names in NAMED.items():
        add(memory, text, *names)


async def shown(memory: Memory, filters: dict[str, Any], scope: Scope = ALICE) -> set[str]:
    """Return the texts that a filter leaves, which a search, a list and a search of this instant agree on."""
    search = {hit.text for hit in (await memory.search(scope, "bells and boats", filters=filters, limit=50)).hits}
    now = memory.engine.clock()
    past = await memory.search(scope, "bells and boats", filters=filters, limit=50, as_of=now)
    assert {hit.text for hit in (await memory.list(scope, filters=filters)).hits} == search
    assert {hit.text for hit in past.hits} == search
    return search


async def test_it_leaves_what_mentions_the_entity(memory: Memory) -> None:
    fill(memory)
    for filters, expected in FOUND:
        assert await shown(memory, filters) == expected, filters
    for condition, text in REFUSED:
        with pytest.raises(InputError, match=text):
            await memory.list(ALICE, filters={"entity": condition})
    # Imported memories may have such a key. New ones may not.
    store_memory(memory, "Invoice 7", metadata={"entity": "GmbH"})
    result = await memory.search(ALICE, "invoice", filters={"entity": "GmbH"})
    assert result.hits == ()
    assert {"Invoice 7"} == await shown(memory, {"metadata.entity": "GmbH"})


async def test_every_name_of_an_entity_finds_it(memory: Memory) -> None:
    fill(memory)
    add(memory, "Odette Quist paints", "Odette Quist")
    result = await memory.search(ALICE, "Odile", filters={"entity": "Odille"})
    assert result.hits == ()
    assert result.notes == ("no memory here speaks of 'Odille'; did you mean 'Odile'?",)
    page = await memory.list(ALICE, filters={"entity": {"in": ["Odette", "Piet"]}})
    assert [hit.text for hit in page.hits] == ["Odette Quist paints", PIET]
    by_words = "nobody and nothing is known as 'Odette', so these were found by its words"
    assert page.notes == (f"{by_words}; did you mean 'Odette Quist'?",)
    add(memory, "Odi sings", "Odi")
    merge_entities(memory, "Odi", "Odile")
    for name in ("Odi", "odi", "Odile"):
        assert await shown(memory, {"entity": name}) == {ODILE, PIET, "Odi sings"}
    add(memory, "User is called Mara", "User", metadata={"user_name": "Mara"})
    assert await shown(memory, {"entity": "Mara"}) == {USER, "User is called Mara"}


async def test_a_message_is_found_by_what_was_learned_from_it(memory: Memory) -> None:
    stored = await store_messages(memory, ("user", "My friend moved to Ghent"), ("user", "It rains"))
    memory_id = add(memory, ODILE, "Odile", sources=(stored[0].id,))
    of_messages = {"kind": "message", "entity": "Odile"}
    assert await shown(memory, of_messages) == {"My friend moved to Ghent"}
    assert await shown(memory, {"kind": "message", "entity": {"ne": "Odile"}}) == {"It rains"}
    await memory.delete(ALICE, [memory_id])
    page = await memory.list(ALICE, filters={"entity": "Odile"}, deleted=True)
    assert ([hit.text for hit in page.hits], page.notes) == ([ODILE], ())


async def test_at_an_instant_the_names_of_then_count(memory: Memory, clock: StoppedClock) -> None:
    memory_id = add(memory, "Odile has the key", "Odile")
    then = clock()
    clock.forward(days=1)
    fact = Fact("Piet has the key", entities=(NamedEntity("Piet"),))
    write_decisions(memory, Decision(Event.UPDATE, fact, memory_id))
    cases = (("Odile", set[str](), {"Odile has the key"}), ("Piet", {fact.text}, set[str]()))
    for name, now_texts, then_texts in cases:
        assert await shown(memory, {"entity": name}) == now_texts
        past = await memory.search(ALICE, "who has the key", filters={"entity": name}, as_of=then)
        assert ({hit.text for hit in past.hits}, past.notes) == (then_texts, ())


async def test_a_project_is_not_filtered_by_names_of_others(memory: Memory) -> None:
    fill(memory)
    add(memory, "Odile roofs the shed", "Odile", "shed", scope=SHED)
    assert await shown(memory, {"entity": "Odile"}) == {ODILE, PIET}
    assert await shown(memory, {"entity": "Odile"}, SHED) == {ODILE, PIET, "Odile roofs the shed"}
    result = await memory.search(ALICE, "roofs", filters={"entity": "shed"})
    assert (result.hits, result.notes) == ((), ("no memory here speaks of 'shed'",))
