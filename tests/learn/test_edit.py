"""Edits by hand: each can be undone through the facade, the tools and the commands; what a replaced memory hands on."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.clock import parse_date, shown_date
from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Relation, Scope
from palimpsest.memory import Memory
from palimpsest.server import advice
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.ledger_access import row_faults, write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio


@dataclass
class Known:
    """The ids of the first contents: two living memories, a deleted and a superseded one, two messages."""

    tea: str
    nice: str
    deleted: str
    superseded: str
    message: str
    deleted_message: str


async def first_contents(memory: Memory) -> Known:
    tea = await add_text(memory, "User likes oolong", metadata={"a": 1, "b": "x"})
    superseded = await add_text(memory, "User lives in Paris")
    nice = await add_text(memory, "User lives in Nice", replaces=[superseded])
    deleted = await add_text(memory, "User fears spiders")
    await memory.add_messages(messages_from(("user", "I play the cello"), ("assistant", "Which strings?")), infer=False)
    message, deleted_message = (stored.id for stored in (await memory.scope_contents(ALICE)).messages)
    await memory.delete(ALICE, [deleted, deleted_message])
    return Known(tea, nice, deleted, superseded, message, deleted_message)


async def test_an_impossible_change_is_refused_with_the_next_step(memory: Memory) -> None:
    """Of what was superseded more than once the last successor is named."""
    known = await first_contents(memory)
    metz = await add_text(memory, "User lives in Metz", replaces=[known.nice])
    edits = await memory.log(ALICE)
    wrong: list[tuple[Awaitable[object], str]] = [
        (memory.update(ALICE, known.deleted, text="x"), r"is deleted already.*restore=true"),
        (memory.update(ALICE, known.superseded, metadata={"k": 1}), rf"superseded by '{metz[:8]}'"),
        (memory.update(ALICE, known.message, text="x"), r"is a message of a conversation.*delete_memory"),
        (memory.add_text(ALICE, "x", replaces=[known.deleted]), r"is deleted already"),
        (memory.add_text(ALICE, "x", replaces=[known.superseded]), rf"replaced by '{metz[:8]}'.*Metz"),
        (memory.add_text(ALICE, "x", replaces=[known.message]), r"is a message of a conversation"),
        (memory.delete(ALICE, [known.tea, "00000000-0000"]), r"no memory '00000000-0000'"),
        (memory.restore(ALICE, "0000000"), r"at least its first 8 characters"),
    ]
    for work, error_pattern in wrong:
        with pytest.raises(InputError) as error:
            await work
        assert re.search(error_pattern, advice.error_text(error.value, advice.TOOLS))
    assert await memory.log(ALICE) == edits


async def test_a_restore_is_refused_beside_the_same_text_and_noted_beside_a_successor(memory: Memory) -> None:
    known = await first_contents(memory)
    result = await memory.restore(ALICE, known.superseded)
    assert result.notes == (f"[{known.nice[:8]}], which had replaced it, is current too; delete one if they disagree",)
    assert (await memory.restore(ALICE, known.superseded)).notes == ()
    await memory.undo(ALICE)
    await memory.delete(ALICE, [known.nice])
    assert (await memory.restore(ALICE, known.superseded)).notes == ()
    twin = await add_text(memory, "user lives in NICE")
    with pytest.raises(InputError, match=f"{twin[:8]} already says the same, so {known.nice[:8]} was left"):
        await memory.restore(ALICE, known.nice)


async def test_an_id_is_accepted_as_agents_write_it_and_never_ambiguous(memory: Memory) -> None:
    known = await first_contents(memory)
    tea, short, cat = known.tea, known.tea[:8], await add_text(memory, "User has a cat")
    for argument in (tea, short.upper(), f"[{short}] 2026-05-08 oolong", f"id:{tea}", tea.replace("-", "")):
        assert (await memory.history(ALICE, argument)).memory.id == tea
    for argument in (f"{short}, {cat[:8]}", f"{short}zzzz", f"the memory {short}", "facade"):
        with pytest.raises(InputError):
            await memory.delete(ALICE, [argument])
    result = await memory.delete(ALICE, [tea, short, f"[{short.upper()}]", known.deleted])
    assert [change.event for change in result.outcomes] == [Event.DELETE, Event.NONE]


async def test_an_update_never_coarsens_a_date(memory: Memory) -> None:
    def dated(text: str, date: str) -> Fact:
        at, precision = parse_date(date) or (None, "")
        dates: dict[str, Any] = {"happened_at": at, "valid_from": at}
        return Fact(text, happened_precision=precision, valid_from_precision=precision, **dates)

    for number, (old, new, kept) in enumerate(
        (
            ("2026-05-08", "2026-05", "2026-05-08"),
            ("2026-05-08", "2026", "2026-05-08"),
            ("2026-05", "2026-05-08", "2026-05-08"),
            ("2026-05-08", "2026-06", "2026-06"),
            ("2026", "2026-05", "2026-05"),
            ("2026-05-08", "", "2026-05-08"),
            ("", "2026-05", "2026-05"),
        )
    ):
        added = write_decisions(memory, Decision(Event.ADD, dated(f"User saw vet {number}", old)))
        update = Decision(Event.UPDATE, dated(f"User saw vet {number} with Rex", new), added.outcomes[0].memory.id)
        stored = write_decisions(memory, update).outcomes[0].memory
        assert stored.happened_at is not None
        assert shown_date(stored.happened_at, stored.happened_precision) == stored.since == kept, (old, new)


async def test_the_commands_show_edits_and_undo_them(tmp_path: Path) -> None:
    clock = StoppedClock(datetime(2020, 1, 2, 12, tzinfo=UTC))
    async with memory_in(tmp_path / "data", clock) as memory:
        tea = await add_text(memory, "User likes [green] tea")
        clock.forward(hours=1)
        await memory.update(ALICE, tea, text="User likes coffee")
        clock.forward(hours=1)
        await memory.delete_all(ALICE)
    assert palimpsest(tmp_path, "log").splitlines() == [
        "#3 2020-01-02T14:00:00Z delete",
        f"  deleted [{tea[:8]}] User likes coffee",
        "#2 2020-01-02T13:00:00Z update",
        f"  updated [{tea[:8]}] User likes coffee (was: User likes [green] tea)",
        "#1 2020-01-02T12:00:00Z add",
        f"  added [{tea[:8]}] User likes [green] tea",
    ]
    assert palimpsest(tmp_path, "undo").startswith(f"added: [{tea[:8]}] User likes coffee")
    (undone,) = palimpsest_json(tmp_path, "undo", "--since", "2020-01-02T12:30:00Z")["results"]
    assert (undone["event"], undone["memory"]) == ("UPDATE", "User likes [green] tea")
    assert "edit 2 was changed again" in palimpsest(tmp_path, "undo", "--edit", "2", code=1)
    both = palimpsest(tmp_path, "undo", "--edit", "1", "--since", "2020-01-02", code=1)
    assert "--edit and --since exclude each other. Nothing was undone. Give one of them" in both
    assert palimpsest(tmp_path, "undo", "--edit", "5").startswith(f"updated: [{tea[:8]}] User likes coffee (was: ")
    async with memory_in(tmp_path / "data") as memory:
        makers = [(edit.provenance.stage, edit.provenance.caller) for edit in await memory.log(ALICE, limit=3)]
        assert makers == [("undo 5", "cli"), ("undo since 2020-01-02T12:30:00Z", "cli"), ("undo 3", "cli")]
        assert await memory_texts(memory) == ["User likes coffee"]


RELATIONS = json.loads((Path(__file__).parent / "replaced_relations.json").read_text("utf-8"))


async def replaced(memory: Memory, scope: Scope, old: dict[str, Any], new: dict[str, Any]) -> tuple[str, str]:
    """Add a text and another one that replaces it, and return the ids of both."""
    first = (await memory.add_text(scope, infer=False, **old)).outcomes[0].memory.id
    second = (await memory.add_text(scope, infer=False, replaces=[first], **new)).outcomes[0].memory.id
    return first, second


async def test_a_relation_stays_unless_the_new_text_ends_it(memory: Memory) -> None:
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


async def test_metadata_stays_unless_the_call_gives_another(memory: Memory) -> None:
    given = {"pinned": 1, "source": "crm", "ticket": 7, "expires_at": "2027-01-01"}
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


async def test_metadata_given_with_another_memorys_text_goes_to_that_memory(memory: Memory) -> None:
    """If an update gives a memory the text of another one, its metadata goes to the one that stays."""
    known = await first_contents(memory)
    result = await memory.update(ALICE, known.nice, text="user likes OOLONG", metadata={"c": 3, "b": None})
    (tea,) = (await memory.scope_contents(ALICE)).memories
    assert (tea.id, tea.text, tea.metadata) == (known.tea, "User likes oolong", {"a": 1, "c": 3})
    # If two clients send this at the same moment, the second one finds it done.
    oolong = Fact("User likes oolong")
    again = (Decision(Event.UPDATE, oolong, known.nice), Decision(Event.ADD, oolong, replaces=(known.nice,)))
    outcomes = [*result.outcomes, *(one for each in again for one in write_decisions(memory, each).outcomes)]
    assert [change.event for change in outcomes] == [Event.DELETE, Event.NONE, Event.NONE]
    assert {change.duplicate_of for change in outcomes} == {known.tea}


async def test_an_edit_of_a_text_names_the_hints_that_it_leaves(memory: Memory) -> None:
    """They may fit the old text alone."""
    asks = ["What will the daughter study?"]
    memory_id = await add_text(memory, "Inês wants to study biology in Faro", hints=asks)
    left = await memory.update(ALICE, memory_id, text="Inês finishes school in June 2027")
    assert left.notes == ("its hints stay: What will the daughter study?; replace them if they don't fit",)
    assert (await memory.update(ALICE, memory_id, text="Inês finishes school in July 2027", hints=[])).notes == ()
    await memory.update(ALICE, memory_id, hints=[f"When is she done with school {n}" for n in range(9)])
    (note,) = (await memory.update(ALICE, memory_id, text="Inês finishes school in May 2027")).notes
    assert "school 2, When is she done with…; replace them" in note


async def test_a_new_value_takes_the_place_of_one_that_was_handed_on(memory: Memory) -> None:
    """Guards a text that does not tell what it states: nobody who reads it would find the contradiction."""
    stated = (("cousin of", "User"), ("works as", "plumber"), ("lives in", "Wels"))
    old = {"text": "My cousin Tom is a plumber in Wels", "relations": [Relation("Tom", *each) for each in stated]}
    new = {"text": "Tom moved to Salzburg", "relations": [Relation("Tom", "lives in", "Salzburg")]}
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
