"""A filter by entity: any name of it, in searches, lists and at an instant, for memories and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Merge, NamedEntity, Provenance, Scope
from palimpsest.memory import Memory
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_named
from tests.support.ledger_access import store_memory, store_messages, write_decisions
from tests.support.memory import ALICE, StoppedClock, memory_in

pytestmark = pytest.mark.anyio

SHED = Scope("alice", project="shed")

ODILE = "Odile lives in Ghent"
PIET = "Piet and Odile sail together"
FERROW = "Ferrow makes bells"
USER = "User is 41"


def add(memory: Memory, text: str, *names: str, scope: Scope = ALICE, **labels: Any) -> str:
    """Add a memory that names entities, and return its id."""
    return store_memory(memory, text, scope=scope, entities=tuple(map(NamedEntity, names)), **labels)


def fill(memory: Memory) -> None:
    """Add four memories, which name Odile, Ghent, Piet, Ferrow and the user."""
    add(memory, ODILE, "Odile", "Ghent")
    add(memory, PIET, "Piet", "Odile")
    add(memory, FERROW, "Ferrow")
    add(memory, USER, "User")


async def shown(memory: Memory, filters: dict[str, Any], scope: Scope = ALICE) -> set[str]:
    """Return the texts that a filter leaves, which a search, a list and a search of this instant agree on."""
    search = {hit.text for hit in (await memory.search(scope, "bells and boats", filters=filters, limit=50)).hits}
    now = memory.engine.clock()
    past = await memory.search(scope, "bells and boats", filters=filters, limit=50, as_of=now)
    assert {hit.text for hit in (await memory.list(scope, filters=filters)).hits} == search
    assert {hit.text for hit in past.hits} == search
    return search


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("provider", ["chroma", "exact"])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"entity": "Odile"}, [ODILE, PIET]),
        ({"entity": " ODILE's "}, [ODILE, PIET]),
        ({"entity": {"eq": "Piet"}}, [PIET]),
        ({"entity": {"ne": "Odile"}}, [FERROW, USER]),
        ({"entity": {"in": ["Ferrow", "Piet"]}}, [FERROW, PIET]),
        ({"entity": {"nin": ["Ferrow", "Piet"]}}, [ODILE, USER]),
        ({"entity": "me"}, [USER]),
        ({"AND": [{"entity": "Odile"}, {"entity": "Piet"}]}, [PIET]),
        ({"OR": [{"entity": "Ghent"}, {"entity": "Ferrow"}]}, [ODILE, FERROW]),
        ({"NOT": {"entity": "Odile"}}, [FERROW, USER]),
        ({"entity": "Odile", "kind": "message"}, list[str]()),
    ],
    ids=str,
)
async def test_it_leaves_what_mentions_the_entity(
    tmp_path: Path, provider: str, filters: dict[str, Any], expected: list[str]
) -> None:
    async with memory_in(tmp_path, vector_store={"provider": provider}) as memory:
        fill(memory)
        assert await shown(memory, filters) == set(expected)


async def test_every_name_of_a_merged_entity_finds_it(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        fill(memory)
        add(memory, "Odi sings", "Odi")
        ledger = memory.engine.ledger
        with ledger.read() as conn:
            named = entities_named(conn, ALICE, ["Odi", "Odile"])
        merge = Merge(named["odi"][0].id, named["odile"][0].id)
        ledger.apply(Write(ALICE, Provenance("test"), entity_edits=(merge,)))
        assert await shown(memory, {"entity": "Odi"}) == await shown(memory, {"entity": "Odile"})
        assert await shown(memory, {"entity": "odi"}) == {ODILE, PIET, "Odi sings"}


async def test_the_name_that_a_memory_tells_is_the_users(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        fill(memory)
        told = "User is called Mara"
        store_memory(memory, told, metadata={"user_name": "Mara"}, entities=(NamedEntity("User"),))
        assert await shown(memory, {"entity": "Mara"}) == {USER, told}


async def test_a_message_is_found_by_what_was_learned_from_it(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        stored = await store_messages(memory, ("user", "My friend moved to Ghent"), ("user", "It rains"))
        store_memory(memory, ODILE, sources=(stored[0].id,), entities=(NamedEntity("Odile"),))
        of_messages = {"kind": "message", "entity": "Odile"}
        assert await shown(memory, of_messages) == {"My friend moved to Ghent"}
        assert await shown(memory, {"kind": "message", "entity": {"ne": "Odile"}}) == {"It rains"}


async def test_at_an_instant_the_names_of_then_count(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        memory_id = add(memory, "Odile has the key", "Odile")
        then = clock()
        clock.forward(days=1)
        fact = Fact("Piet has the key", entities=(NamedEntity("Piet"),))
        write_decisions(memory, Decision(Event.UPDATE, fact, memory_id))
        for name, now_texts, then_texts in (
            ("Odile", set[str](), {"Odile has the key"}),
            ("Piet", {fact.text}, set[str]()),
        ):
            assert await shown(memory, {"entity": name}) == now_texts
            past = await memory.search(ALICE, "who has the key", filters={"entity": name}, as_of=then)
            assert {hit.text for hit in past.hits} == then_texts
            assert past.notes == ()


async def test_deleted_memories_are_listed_by_entity(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        memory_id = add(memory, ODILE, "Odile")
        await memory.delete(ALICE, [memory_id])
        page = await memory.list(ALICE, filters={"entity": "Odile"}, deleted=True)
        assert [hit.text for hit in page.hits] == [ODILE]
        assert page.notes == ()


async def test_a_project_is_not_filtered_by_names_of_others(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        fill(memory)
        add(memory, "Odile roofs the shed", "Odile", "shed", scope=SHED)
        assert await shown(memory, {"entity": "Odile"}) == {ODILE, PIET}
        assert await shown(memory, {"entity": "Odile"}, SHED) == {ODILE, PIET, "Odile roofs the shed"}
        result = await memory.search(ALICE, "roofs", filters={"entity": "shed"})
        assert result.hits == ()
        assert result.notes == ("no memory here speaks of 'shed'",)


async def test_an_unknown_name_finds_nothing_and_near_ones_are_named(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        fill(memory)
        add(memory, "Odette Quist paints", "Odette Quist")
        result = await memory.search(ALICE, "Odile", filters={"entity": "Odille"})
        assert result.hits == ()
        assert result.notes == ("no memory here speaks of 'Odille'; did you mean 'Odile'?",)
        page = await memory.list(ALICE, filters={"entity": {"in": ["Odette", "Piet"]}})
        assert page.notes == ("no memory here speaks of 'Odette'; did you mean 'Odette Quist'?",)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ({"gt": "A"}, "cannot use 'gt'; use eq, ne, in, nin"),
        (None, "needs a name"),
        (41, "needs a name"),
        ("?!", "needs a name"),
        ({"in": "Odile"}, "needs a list"),
        ({"in": ["Odile", None]}, "needs a name"),
    ],
    ids=str,
)
async def test_what_is_no_name_is_refused(tmp_path: Path, condition: Any, text: str) -> None:
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match=text):
            await memory.list(ALICE, filters={"entity": condition})


async def test_a_key_of_that_name_in_the_metadata_stays_reachable(tmp_path: Path) -> None:
    """Memories of before, and imported ones, may have one. New ones may not."""
    async with memory_in(tmp_path) as memory:
        store_memory(memory, "Invoice 7", metadata={"entity": "GmbH"})
        result = await memory.search(ALICE, "invoice", filters={"entity": "GmbH"})
        assert result.hits == ()
        assert "the key of that name in the metadata is 'metadata.entity'" in result.notes[-1]
        assert {"Invoice 7"} == await shown(memory, {"metadata.entity": "GmbH"})
