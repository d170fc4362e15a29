"""What a memory that is replaced hands on: metadata, relations that still hold, and the user's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Relation, Scope
from palimpsest.memory import Memory
from tests.support.ledger_access import row_faults
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio

RELATIONS = json.loads((Path(__file__).parent / "replaced_relations.json").read_text("utf-8"))


async def replaced(memory: Memory, scope: Scope, old: dict[str, Any], new: dict[str, Any]) -> tuple[str, str]:
    """Add a text and another one that replaces it, and return the ids of both."""
    first = (await memory.add_text(scope, infer=False, **old)).outcomes[0].memory.id
    second = (await memory.add_text(scope, infer=False, replaces=[first], **new)).outcomes[0].memory.id
    return first, second


async def test_a_relation_stays_unless_the_new_text_ends_it(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        for number, case in enumerate(RELATIONS):
            scope = Scope(f"user{number}")
            old, states = ([Relation(*item) for item in case[key]] for key in ("relations", "states"))
            new = {"text": case["new"], "relations": states or None}
            await replaced(memory, scope, {"text": case["old"], "relations": old}, new)
            drawn = (await memory.graph.subgraph(scope)).relations
            said = {item.name for item in states}
            left = [item.name for item in old if item.name in {relation.relationship for relation in drawn}]
            expected = [item.name for item in old if item.name in {*case["stay"], *said}]
            assert left == expected, case["new"]


async def test_metadata_stays_unless_the_call_gives_another(tmp_path: Path) -> None:
    given = {"pinned": 1, "source": "crm", "ticket": 7, "expires_at": "2027-01-01"}
    async with memory_in(tmp_path) as memory:
        new = {"text": "Ana is on call for payments", "metadata": {"ticket": 8, "source": None}}
        first, second = await replaced(memory, ALICE, {"text": "Ana is on call", "metadata": given}, new)
        (stored,) = (await memory.scope_contents(ALICE)).memories
        assert (stored.id, stored.metadata) == (second, {"pinned": 1, "ticket": 8, "expires_at": "2027-01-01"})
        again = await add_text(memory, "Bo is on call")
        told = await memory.add_text(ALICE, "Bo is on call", replaces=[second], infer=False)
        assert any("expires_at 2027-01-01 stays" in note for note in told.notes)
        assert (await memory.scope_contents(ALICE)).memories[0].metadata == stored.metadata, "a known text has it too"
        await memory.undo(ALICE)
        kept = {item.id: item.metadata for item in (await memory.scope_contents(ALICE)).memories}
        assert kept == {second: stored.metadata, again: {}}
        await memory.undo(ALICE)
        await memory.undo(ALICE)
        (stored,) = (await memory.scope_contents(ALICE)).memories
        assert (stored.id, stored.metadata) == (first, given)


async def test_a_new_value_takes_the_place_of_one_that_was_handed_on(tmp_path: Path) -> None:
    """Guards a text that does not tell what it states: nobody who reads it would find the contradiction."""
    stated = (("cousin of", "User"), ("works as", "plumber"), ("lives in", "Wels"))
    old = {"text": "My cousin Tom is a plumber in Wels", "relations": [Relation("Tom", *each) for each in stated]}
    new = {"text": "Tom moved to Salzburg", "relations": [Relation("Tom", "lives in", "Salzburg")]}
    async with memory_in(tmp_path) as memory:
        await replaced(memory, ALICE, old, new)
        await add_text(memory, "Tom is a carpenter", relations=[Relation("Tom", "works as", "carpenter")])
        kept = ["Tom — cousin of → User", "Tom — lives in → Salzburg"]
        assert await lines(memory) == [*kept, "Tom — works as → carpenter"]
        await memory.undo(ALICE)
        assert await lines(memory) == [*kept, "Tom — works as → plumber"]
        assert await row_faults(memory) == []


async def lines(memory: Memory) -> list[str]:
    """Return the relations that hold now."""
    return sorted(item.line for item in (await memory.graph.subgraph(ALICE)).relations)
