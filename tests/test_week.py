"""What an agent meets in a week with this memory: old talk beside what is known now, names nobody knows, long texts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Relation
from tests.support.learning_jobs import do_due_jobs
from tests.support.mcp_client import reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

OTHERS = ("Daniel Osei is the plumber", "Invoices go out on the 5th", "Mira leads the tides team", "Ana lives in Lyon")


@pytest.mark.parametrize(
    ("said", "known", "question", "first"),
    [
        ("I am supposed to move on the 12th", "The move on 12 December is off", "When do I move?", "known"),
        ("My dentist is Dr. Ito on Main Street", "User's dentist is Dr. Berg now", "Who is my dentist?", "known"),
        ("Boxes and tape for the move are in the cellar", "The move is off", "Where are tape and boxes?", "said"),
    ],
)
async def test_what_is_known_now_comes_before_older_talk_about_the_same(
    tmp_path: Path, said: str, known: str, question: str, first: str
) -> None:
    """A message with more of what is asked for keeps its place, and so does one of a question about the past."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, embedder={"provider": "e5"}) as memory:
        for text in OTHERS:
            await add_text(memory, text)
        await memory.add_messages(messages_from(("user", said), ("assistant", "Good to know.")))
        clock.forward(days=14)
        await add_text(memory, known)
        hits = (await memory.search(ALICE, question)).hits
        assert hits[0].text == {"known": known, "said": said}[first]
        later = {hit.text: hit.later for hit in hits}
        assert bool(later[said]) is (first == "known")


async def test_a_message_leads_to_the_memory_that_tells_its_matter(tmp_path: Path) -> None:
    """Another one of the website has the words of the question, too."""
    clock = StoppedClock()
    said = "La mezza pensione la voglio a 28 euro a persona, non 25 come l'anno scorso. Cambialo anche sul sito."
    async with memory_in(tmp_path, clock, embedder={"provider": "e5"}) as memory:
        for text in OTHERS:
            await add_text(memory, text)
        await memory.add_messages(messages_from(("user", said), ("assistant", "Va bene.")))
        clock.forward(days=1)
        told = await add_text(memory, "La mezza pensione all'agriturismo costa 28 euro a persona dal 2027.")
        await add_text(memory, "Davide ripara il modulo del sito, che non lascia scegliere la mezza pensione.")
        hits = (await memory.search(ALICE, "Quando scade il nome del sito internet?")).hits
        assert {hit.text: hit.later for hit in hits}[said] == told


async def test_a_message_is_read_with_the_talk_around_it(tmp_path: Path) -> None:
    """Three messages before and after, each with its id, and where the whole conversation is."""
    talk = [{"role": "user", "content": f"Step {number} of the recipe is easy"} for number in range(12)]
    async with connect(tmp_path) as agent:
        await agent.call_tool("add_memory", {"messages": talk})
        found = await agent.call_tool("list_memories", {"filters": {"kind": "message", "words": "Step 5"}})
        message = reply_results(found)[0]
        read = await agent.call_tool("get_history", {"memory_id": message["id"]})
        around = [each["text"] for each in read.structured_content["around"]]
        assert around == ["" if number == 5 else talk[number]["content"] for number in range(2, 9)]
        text = reply_text(read)
        assert "Step 2 of" in text
        assert "Step 9 of" not in text
        assert "around it, in conversation://" in text


async def test_a_name_that_nobody_is_known_by_is_found_by_its_words(tmp_path: Path) -> None:
    """Also that of somebody who only spoke. A name that stands nowhere stays an error that names those near to it."""
    async with memory_in(tmp_path) as memory:
        deploys = await add_text(memory, "freight-lake deploys on Fridays only")
        await add_text(memory, "Ana lives in Lyon")
        await memory.add_messages(messages_from({"role": "user", "content": "We sail on Sunday", "name": "Tomke"}))
        about = await memory.summary(ALICE, "about:freight-lake")
        assert "freight-lake deploys on Fridays only" in about.text
        assert about.sources == (deploys,)
        assert "Tomke said: We sail on Sunday" in (await memory.summary(ALICE, "about:Tomke")).text
        with pytest.raises(InputError, match="Did you mean Ana"):
            await memory.summary(ALICE, "about:Anna")
        found = await memory.search(ALICE, "deploy", filters={"entity": "freight-lake"})
        assert [hit.id for hit in found.hits] == [deploys]
        assert any("by its words" in note for note in found.notes)
        listed = await memory.list(ALICE, filters={"entity": "freight-lake"})
        assert [hit.id for hit in listed.hits] == [deploys]


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("Ana is allergic to nuts. She lives in Lyon. Her dog is called Pixel.", True),
        ("Never give M.G. grapefruit juice: it interacts with the statin. She reacts badly.", False),
        ("Dr. Osei sees people on Tuesdays, e.g. without an appointment. Call first!", False),
    ],
)
async def test_several_facts_in_one_text_are_told(tmp_path: Path, text: str, *, is_told: bool) -> None:
    """They are stored as they were sent."""
    async with memory_in(tmp_path) as memory:
        result = await memory.add_text(ALICE, text)
        assert result.outcomes[0].memory.text == text
        assert any("sentences are one memory" in note for note in result.notes) is is_told


async def test_a_rule_about_a_person_is_a_procedure(tmp_path: Path) -> None:
    """Other memories about people say nothing about how to work."""
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "M.G. has lived in Leeds since 2019")
        await add_text(memory, "Never give M.G. grapefruit juice: it interacts with the statin")
        procedures = (await memory.summary(ALICE, "procedures")).text
        assert "grapefruit juice" in procedures
        assert "Leeds" not in procedures


async def test_what_a_plan_replaces_holds_until_the_plan_begins(tmp_path: Path) -> None:
    """Then it is history. The reply has both, each with its time."""
    clock = StoppedClock()
    clock.at = datetime(2026, 11, 29, tzinfo=UTC)
    async with memory_in(tmp_path, clock) as memory:
        for text in OTHERS:
            await add_text(memory, text)
        costs = [[Relation("shop", "costs", price)] for price in ("100 euros", "120 euros")]
        old = await add_text(memory, "The rent of the shop is 100 euros", relations=costs[0])
        new = "The rent of the shop is 120 euros from January 2027"
        await add_text(memory, new, since="2027-01", replaces=[old], relations=costs[1])
        hits = (await memory.search(ALICE, "How much is the rent of the shop?")).hits
        assert [hit.text for hit in hits[:2]] == ["The rent of the shop is 100 euros", new]
        assert (hits[0].until, hits[1].since) == ("2027-01", "2027-01")
        clock.at = datetime(2027, 2, 1, tzinfo=UTC)
        hits = (await memory.search(ALICE, "How much is the rent of the shop?")).hits
        assert hits[0].text == new
        assert old not in [hit.id for hit in hits]


async def test_what_was_replaced_held_until_its_successor_began(tmp_path: Path) -> None:
    """Also if both were told later than that."""
    clock = StoppedClock()
    clock.at = datetime(2026, 11, 29, tzinfo=UTC)
    async with memory_in(tmp_path, clock) as memory:
        delft = await add_text(memory, "Olga lives in Delft")
        await add_text(memory, "Olga lives in Leiden", since="2026-06", replaces=[delft])
        old = (await memory.history(ALICE, delft))[0]
        assert old.until == "2026-06"
        found = (await memory.search(ALICE, "Where does Olga live?", held_at="2026-08")).hits
        assert found[0].text == "Olga lives in Leiden"
        found = (await memory.search(ALICE, "Where does Olga live?", held_at="2026-03")).hits
        assert found[0].text == "Olga lives in Delft"


async def test_a_dropped_plan_is_told_as_dropped_and_relations_are_those_of_the_time_asked_for(tmp_path: Path) -> None:
    """Both in the line of a life and beside the hits of a search."""
    clock = StoppedClock()
    clock.at = datetime(2026, 11, 1, tzinfo=UTC)
    async with memory_in(tmp_path, clock) as memory:
        pool = [Relation("Practice West", "gets", "hydrotherapy pool")]
        plan = await add_text(memory, "Practice West gets a pool", since="2027-02", relations=pool)
        boss = [Relation("Lotte", "leads", "Practice West")]
        await add_text(memory, "Lotte leads Practice West", since="2026-11", relations=boss)
        clock.forward(days=10)
        await add_text(memory, "The pool of Practice West is cancelled", replaces=[plan], since="2026-11-11")
        told = (await memory.summary(ALICE, "timeline:Practice West")).text
        assert "was planned for 2027-02, dropped on 2026-11-11: hydrotherapy pool" in told
        now = await memory.search(ALICE, "Who leads Practice West?")
        before = await memory.search(ALICE, "Who leads Practice West?", held_at="2026-05")
        assert [[relation.source for relation in found.relations] for found in (now, before)] == [["Lotte"], []]


async def test_a_text_that_replaces_a_memory_of_no_project_stays_one_memory(tmp_path: Path) -> None:
    """An agent adds it, reads in the reply what it contradicts, and adds the same text once more with `replaces`."""
    text = "The opening hours of practice West are nine to six"
    async with connect(tmp_path, PALIMPSEST_PROJECT="west") as client:
        of_none = {"text": "The opening hours are nine to five", "scope": {"project": None}}
        old = reply_results(await client.call_tool("add_memory", of_none))[0]["id"]
        for replaces in ({}, {"replaces": [old]}):
            await client.call_tool("add_memory", {"text": text, **replaces})
        listed = reply_results(await client.call_tool("list_memories", {}))
        assert [memory["text"] for memory in listed] == [text]


@pytest.mark.parametrize(
    ("known", "told", "is_near"),
    [
        ("The parents' committee meets on the first Wednesday", "The committee gathers on the second Monday", True),
        ("Price labels are handwritten in red", "All shelf prices come from the label machine", True),
        ("Run the tests with pytest -x from the root", "Use `nox -s unit` for running the test suite", True),
        ("The lorry needs new tyres", "Maeve is allergic to cats", False),
    ],
)
async def test_what_a_text_may_change_is_named_as_near(tmp_path: Path, known: str, told: str, *, is_near: bool) -> None:
    """Whether one changes the other no vector tells; the agent can."""
    async with connect(tmp_path) as agent:
        for text in (*OTHERS, known):
            await agent.call_tool("add_memory", {"text": text})
        result = await agent.call_tool("add_memory", {"text": told})
        assert ("near [" in reply_text(result)) is is_near
        near = result.structured_content["results"][0].get("near", [])
        assert (known in [item["text"] for item in near]) is is_near


async def test_a_settled_conflict_keeps_neither_the_old_state_nor_the_wrong_day(tmp_path: Path) -> None:
    """The same text added again with `replaces` states what it stated, and the old state ends when it says it began."""
    async with connect(tmp_path) as agent:
        old = {"text": "The GP of Wouter is Dr. Peeters", "relations": [["Wouter", "has GP", "Dr. Peeters"]]}
        new = {"text": "Wouter switched to Dr. Van Hecke", "relations": [["Wouter", "has GP", "Dr. Van Hecke"]]}
        first = reply_results(await agent.call_tool("add_memory", old))[0]["id"]
        await agent.call_tool("add_memory", new)
        settled = {"text": new["text"], "since": "2026-10", "replaces": [first]}
        reply = reply_text(await agent.call_tool("add_memory", settled))
        assert "Van Hecke (since 2026-10)" in reply
        assert "closes Wouter — has GP → Dr. Peeters" in reply
        assert reply.count("→ Dr. Peeters") == 1
        timeline = reply_text(await agent.call_tool("get_summary", {"kind": "timeline:Wouter"}))
        assert "- until 2026-10: Dr. Peeters" in timeline
        assert timeline.index("Peeters") < timeline.index("since 2026-10: Dr. Van Hecke")
        hits = reply_results(await agent.call_tool("search_memories", {"query": "who is the GP of Wouter now"}))
        assert "Van Hecke" in hits[0]["text"]


async def test_a_state_that_comes_back_keeps_its_first_time(tmp_path: Path) -> None:
    """A plan that is called off leaves the time before it, and the state that goes on, in the line of a life."""
    clock = StoppedClock(datetime(2026, 11, 20, tzinfo=UTC))
    async with memory_in(tmp_path, clock) as memory:
        street = [Relation("Ada", "lives at", "Sleepstraat")]
        old = await add_text(memory, "Ada lives at Sleepstraat", since="2021-06", relations=street)
        planned = [Relation("Ada", "lives at", "Kortestraat")]
        plan = await add_text(
            memory, "Ada moves into Kortestraat", since="2026-12-05", relations=planned, replaces=[old]
        )
        clock.forward(days=8)
        off = "The move is off, Ada stays at Sleepstraat"
        await add_text(memory, off, since="2026-11-28", relations=street, replaces=[plan])
        line = (await memory.summary(ALICE, "timeline:Ada")).text
        assert "- since 2021-06: Sleepstraat" in line
        assert "nothing is known" not in line


OF_RUTH = (
    "Ruth Calloway lives in Leeds",
    "Ruth has a blue Skoda",
    "Ruth's debit card is new",
    "Ruth is registered with Dr Marsh",
    "Ruth plays bass in a band",
    "Ruth climbs on Mondays with a friend",
    "Ruth works at Tallow since March",
    "Ruth drinks peppermint tea",
    "Ruth wants the commits in the imperative",
    "Ruth keeps the codes of the alarm in a safe place",
)

# A memory, what replaces a part of it on 4 January, each with relations, and a question that the other part answers.
GOES_ON = [
    (
        (
            "Ruth's husband Owen is a nurse at St James",
            ["user", "is married to", "Owen"],
            ["Owen", "works at", "St James"],
        ),
        ("Owen starts at Calderdale", ["Owen", "works at", "Calderdale"]),
        "Who is Ruth Calloway married to?",
    ),
    (
        ("Brais vive en Lugo y lo trata la doctora Otero", ["Brais", "has GP", "Otero"], ["Brais", "lives in", "Lugo"]),
        ("Brais se muda a Ourense", ["Brais", "lives in", "Ourense"]),
        "Otero",
    ),
    (
        ("Der Chor probt im Saal, dort singt Amara", ["Amara", "singt in", "Chor"], ["Chor", "probt in", "Saal"]),
        ("Der Chor probt künftig in der Aula", ["Chor", "probt in", "Aula"]),
        "Wo singt Amara?",
    ),
]


@pytest.mark.parametrize(("old", "new", "question"), GOES_ON, ids=["spouse", "doctor", "choir"])
@pytest.mark.parametrize("days", [0, 60])
async def test_what_is_still_stated_goes_on(
    tmp_path: Path, old: tuple[str, list[str], list[str]], new: tuple[str, list[str]], question: str, days: int
) -> None:
    """A memory of which a part is replaced ends nothing else that it told, before and after the day."""
    clock = StoppedClock(datetime(2026, 11, 19, tzinfo=UTC))
    text, lasting, ended = old
    async with memory_in(tmp_path, clock, embedder={"provider": "e5"}) as memory:
        for other in (*OTHERS, *OF_RUTH):
            await add_text(memory, other)
        await add_text(memory, "I am Ruth Calloway", relations=[Relation("user", "is called", "Ruth Calloway")])
        first = await add_text(memory, text, relations=[Relation(*lasting), Relation(*ended)])
        clock.forward(days=1)
        plan = await add_text(memory, new[0], since="2027-01-04", relations=[Relation(*new[1])], replaces=[first])
        clock.forward(days=days)
        await do_due_jobs(memory)
        found = [await memory.search(ALICE, question, held_at=held_at) for held_at in ("", "2027-02")]
        line = (await memory.summary(ALICE, f"timeline:{lasting[2]}")).text
        about = (await memory.summary(ALICE, f"about:{lasting[2]}", held_at="2026-12")).text
    who = lasting[0].replace("user", "Ruth Calloway")
    stated = f"{who} — {lasting[1]} → {lasting[2]}"
    for result in found:
        assert result.confident
        assert stated in result.relation_lines
    if who == lasting[0]:  # of the user only the relation tells
        assert [result.hits[0].id for result in found] == [plan if days else first, plan]
    assert f"- known since 2026-11-19: {who} [{first[:8]}]" in line
    assert f"- {stated}\n" in f"{about}\n"


async def test_the_same_relation_of_the_same_thing_is_named_first(tmp_path: Path) -> None:
    """Whatever the relation is called, and also if the new state is a plan."""
    states = {
        "termkast stores its terms in SQLite": (["termkast", "stores terms in", "SQLite"], ""),
        "Wouter lives at Sleepstraat": (["Wouter", "lives at", "Sleepstraat"], ""),
        "The redb migration is done, rusqlite goes out": (["termkast", "stores terms in", "redb"], ""),
        "The family moves in December": (["Wouter", "lives at", "Kortestraat"], "2099-12-05"),
    }
    async with connect(tmp_path) as agent:
        added: list[list[str]] = []
        for text, (relation, since) in states.items():
            given = {"text": text, "relations": [relation], "since": since}
            (result,) = reply_results(await agent.call_tool("add_memory", given))
            added.append([item["text"] for item in (*result.get("similar", ()), *result.get("near", ()))])
        known = list(states)
    assert [names[:1] for names in added[2:]] == [known[:1], known[1:2]]
