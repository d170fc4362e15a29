"""The relations that a search shows: of whom the question names, as they hold now or held then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Merge, Provenance, Relation, Scope, Undo
from palimpsest.memory import Memory
from palimpsest.recall.hits import hit_tokens
from palimpsest.recall.search import MAX_RELATIONS, relation_tokens
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_named
from tests.support.ledger_access import store_memory, write_decisions
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from
from tests.support.scripted_model import is_extraction, reply_to_decide

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


def extracted(*facts: tuple[str, Sequence[tuple[str, str]], Sequence[Triple]]) -> str:
    """Return an extraction's reply: texts from the first message, with entities and their types, and relations."""
    return json.dumps(
        {
            "facts": [
                {
                    "text": text,
                    "sources": [1],
                    "entities": [{"name": name, "type": kind} for name, kind in entities],
                    "relations": stated,
                }
                for text, entities, stated in facts
            ]
        }
    )


GHENT = extracted(
    (
        "Odile lives in Ghent.",
        [("Odile", "person"), ("Ghent", "place")],
        [("Odile", "lives in", "Ghent")],
    ),
    (
        "Odile works at Ferrow.",
        [("Odile", "person"), ("Ferrow", "organization")],
        [("Odile", "works at", "Ferrow")],
    ),
)
PORTO = extracted(
    (
        "Odile lives in Porto.",
        [("odile", "person"), ("Porto", "place")],
        [("odile", "lives in", "Porto")],
    )
)


async def test_a_move_from_extraction_to_both_retrievals(tmp_path: Path) -> None:
    """Guards the example of Mem0's paper, with made-up people: the contradiction is found, and nothing is lost."""
    extractions = iter((GHENT, PORTO))

    def chat(request: dict[str, Any]) -> str:
        return next(extractions) if is_extraction(request) else reply_to_decide(request)

    clock = StoppedClock()
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(messages_from(("user", "My friend Odile lives in Ghent and works at Ferrow")))
            first = await memory.search(ALICE, "In which town does Odile live?")
            assert [relation.line for relation in first.relations] == [
                "Odile — lives in → Ghent",
                "Odile — works at → Ferrow",
            ]
            assert [relation.memory_id for relation in first.relations] == [hit.id for hit in first.hits[:2]]
            then = clock()
            clock.forward(days=30)
            await memory.add_messages(messages_from(("user", "Odile moved, she lives in Porto now"), at=clock()))
            # Along the edges of the entity, whatever else the question says.
            assert set(await lines(memory, "tell me about ODILE")) == {
                "Odile — lives in → Porto",
                "Odile — works at → Ferrow",
            }
            # And by the likeness of the question to the text of the relation, which is its memory's.
            assert (await lines(memory, "Does Odile work at Ferrow?"))[0] == "Odile — works at → Ferrow"
            assert (await lines(memory, "Does Odile live in Porto?"))[0] == "Odile — lives in → Porto"
            past = await memory.search(ALICE, "Where does Odile live?", as_of=then)
            assert past.relations == first.relations
            assert sum(request["path"].endswith("/chat/completions") for request in server.requests) == 3


async def test_times_are_as_exact_as_they_are_known(tmp_path: Path) -> None:
    since: dict[str, Any] = {"valid_from": datetime(2025, 3, 1, tzinfo=UTC), "valid_from_precision": "month"}
    async with memory_in(tmp_path) as memory:
        state(memory, "Odile works at Ferrow since March 2025", ("Odile", "works_at", "Ferrow"), **since)
        (relation,) = (await memory.search(ALICE, "Where does Odile work?")).relations
    assert relation.line == "Odile — works at → Ferrow (since 2025-03)"
    assert (relation.relationship, relation.valid_from, relation.valid_until) == ("works_at", "2025-03", "")
    assert relation.is_current


async def test_a_question_that_names_nobody_shows_none(tmp_path: Path) -> None:
    """Nearly everything is about the user, so only what the search found says something of the user's own."""
    async with memory_in(tmp_path) as memory:
        state(memory, "Odile works at Ferrow", ("Odile", "works at", "Ferrow"))
        state(memory, "User lives in Ghent", ("User", "lives in", "Ghent"))
        state(memory, "User's locker is number 4711", ("User", "has", "locker 4711"))
        assert await lines(memory, "Who works where?") == []
        assert await lines(memory, "Where do I live?", limit=1) == ["User — lives in → Ghent"]
        store_memory(memory, "User is called Mara Quist", metadata={"user_name": "Mara Quist"})
        assert await lines(memory, "Where does Mara Quist live?", limit=2) == ["Mara Quist — lives in → Ghent"]


async def test_two_hops_lead_on_but_not_through_the_user(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        state(memory, "Piet is the brother of Odile", ("Odile", "brother", "Piet"))
        state(memory, "Piet repairs organs", ("Piet", "repairs", "organs"))
        state(memory, "Odile met the user", ("Odile", "met", "User"))
        state(memory, "User sails", ("User", "likes", "sailing"))
        near = {"Odile — brother → Piet", "Odile — met → User"}
        assert set(await lines(memory, "What does the brother of Odile do?")) == near
        assert set(await lines(memory, "What does the brother of Odile do?", hops=2)) == {
            *near,
            "Piet — repairs → organs",
        }


async def test_relations_further_away_are_refused(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match="hops"):
            await memory.search(ALICE, "Where does Odile live?", hops=3)


async def test_at_most_five_are_shown_each_once_and_first_those_of_the_first_hits(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        for number, thing in enumerate(("drums", "chess", "rice", "tulips", "maps", "kites", "bread")):
            state(memory, f"Odile has a box of {thing}, number {number}", ("Odile", "owns", thing))
        state(memory, "Odile's tulips stand in a box in the cellar", ("Odile", "OWNS", "Tulips"))
        shown = await lines(memory, "Does Odile have tulips?")
    assert len(shown) == MAX_RELATIONS
    assert sum("tulips" in line.lower() for line in shown) == 1
    assert "tulips" in shown[0].lower()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("max_tokens", [50, 80, 120, 400, 800])
async def test_relations_count_and_never_take_room_from_the_best_hit(tmp_path: Path, max_tokens: int) -> None:
    async with memory_in(tmp_path) as memory:
        for number in range(12):
            words = " ".join(f"stone{number}{part}" for part in range(6))
            state(memory, f"Odile counted {words}", ("Odile", "counted", f"stones {number}"))
        result = await memory.search(ALICE, "What did Odile count?", max_tokens=max_tokens)
        without = await memory.search(ALICE, "What did Odile count?", max_tokens=max_tokens, hops=0)
    assert sum(map(hit_tokens, result.hits)) + relation_tokens(result.relations) <= max_tokens
    assert result.hits[0] == without.hits[0]
    assert [hit.id for hit in result.hits] == [hit.id for hit in without.hits][: len(result.hits)]
    assert result.relations or max_tokens < 120


async def test_a_long_best_hit_leaves_no_room(tmp_path: Path) -> None:
    """Guards a hit that is cut for the sake of relations: what it would lose is worth more."""
    async with memory_in(tmp_path) as memory:
        state(memory, f"Odile counted {' '.join(map(str, range(200)))}", ("Odile", "counted", "to 200"))
        shown = await memory.search(ALICE, "What did Odile count?", max_tokens=100)
        assert shown.hits == (await memory.search(ALICE, "What did Odile count?", max_tokens=100, hops=0)).hits


async def test_a_filter_holds_for_the_memories_of_relations(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        state(memory, "Odile paints", ("Odile", "does", "painting"), metadata={"topic": "art"})
        state(memory, "Odile runs", ("Odile", "does", "running"), metadata={"topic": "sport"})
        assert await lines(memory, "What does Odile do?", filters={"topic": "art"}) == ["Odile — does → painting"]


async def test_a_scope_sees_what_its_memories_state(tmp_path: Path) -> None:
    """A project sees what is global and its own; users and other projects see nothing of it."""
    async with memory_in(tmp_path) as memory:
        state(memory, "Odile lives in Ghent", ("Odile", "lives in", "Ghent"))
        state(memory, "Odile plans the shed", ("Odile", "plans", "shed roof"), scope=SHED)
        state(memory, "Odile paints the barn", ("Odile", "paints", "barn door"), scope=BARN)
        state(memory, "Odile sings", ("Odile", "sings in", "choir"), scope=BOB)
        everywhere = "Odile — lives in → Ghent"
        question = "What about Odile?"
        assert await lines(memory, question) == [everywhere]
        assert set(await lines(memory, question, SHED)) == {everywhere, "Odile — plans → shed roof"}
        assert set(await lines(memory, question, BARN)) == {everywhere, "Odile — paints → barn door"}
        assert await lines(memory, question, BOB) == ["Odile — sings in → choir"]
        assert await lines(memory, question, Scope("carol")) == []
        assert await lines(memory, "And the shed roof?") == []
        of_all = await lines(memory, question, all_projects=True)
        assert set(of_all) == {everywhere, "Odile — plans → shed roof", "Odile — paints → barn door"}


async def test_a_deleted_memory_states_nothing_until_that_is_undone(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        home = state(memory, "Odile lives in Ghent", ("Odile", "lives in", "Ghent"))
        then = clock()
        clock.forward(days=1)
        await memory.delete(ALICE, [home])
        assert await lines(memory, "Where does Odile live?") == []
        assert await lines(memory, "Where does Odile live?", as_of=then) == ["Odile — lives in → Ghent"]
        clock.forward(days=1)
        await memory.undo(ALICE, Undo())
        assert await lines(memory, "Where does Odile live?") == ["Odile — lives in → Ghent"]
        await memory.undo(ALICE, Undo(edit=1))
        assert await lines(memory, "Where does Odile live?") == []


async def test_a_replaced_relation_is_shown_for_the_time_before(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old = state(memory, "Odile works at Ferrow", ("Odile", "works at", "Ferrow"))
        then = clock()
        clock.forward(days=1)
        fact = Fact("Odile works at Quill", relations=(Relation("Odile", "works at", "Quill"),))
        write_decisions(memory, Decision(Event.ADD, fact, replaces=(old,)))
        question = "Where does Odile work?"
        assert await lines(memory, question) == ["Odile — works at → Quill"]
        assert await lines(memory, question, as_of=then) == ["Odile — works at → Ferrow"]
        assert await lines(memory, "Who is at Ferrow?", hops=2) == []
        assert await lines(memory, "Who is at Ferrow?", as_of=then) == ["Odile — works at → Ferrow"]


async def test_merged_names_are_one(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        state(memory, "Odile Marchand lives in Ghent", ("Odile Marchand", "lives in", "Ghent"))
        state(memory, "Odi sings alto", ("Odi", "sings", "alto"))
        engine = memory.engine
        with engine.ledger.read() as conn:
            named = entities_named(conn, ALICE, ["Odi", "Odile Marchand"])
        merge = Merge(named["odi"][0].id, named["odile marchand"][0].id)
        engine.ledger.apply(Write(ALICE, Provenance("test"), entity_edits=(merge,)))
        assert set(await lines(memory, "What does Odi do?")) == {
            "Odile Marchand — sings → alto",
            "Odile Marchand — lives in → Ghent",
        }


async def test_the_hits_are_the_same_with_and_without_a_graph(tmp_path: Path) -> None:
    """The graph proposes no candidates and changes no score."""
    texts = ("Odile lives in Ghent", "Odile works at Ferrow", "Piet is the brother of Odile", "Ferrow makes bells")
    results: list[list[tuple[str, float]]] = []
    for folder, has_graph in (("plain", False), ("graph", True)):
        async with memory_in(tmp_path / folder) as memory:
            for text in texts:
                words = text.split()
                state(memory, text, *([(words[0], words[1], words[-1])] if has_graph else []))
            hits = (await memory.search(ALICE, "Where does the sister of Piet work?")).hits
            results.append([(hit.text, hit.score) for hit in hits])
    assert results[0] == results[1]
