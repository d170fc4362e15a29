"""Mem0 with a graph (Chhikara et al. 2025, arXiv 2504.19413, section 2.2): entities, relations, and what contradicts.

What a newer relation contradicts is not deleted: it is marked as no longer valid, so that time can be asked about.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Relation
from palimpsest.memory import Memory
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import answering, decision, given
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

PEOPLE = {"Odile": "person", "Tamsin": "person", "Ferrow": "organization", "Kestrel": "organization"}

# What is said, a fact a day, with the relations that it states.
SAID = {
    "Odile works at Ferrow.": [["Odile", "works at", "Ferrow"]],
    "Tamsin also works at Ferrow.": [["Tamsin", "works at", "Ferrow"]],
    "Odile works at Kestrel.": [["Odile", "works at", "Kestrel"]],
}


def extract(request: dict[str, Any]) -> dict[str, Any]:
    facts: list[dict[str, Any]] = []
    for place, item in enumerate(given(request, "New messages"), 1):
        relations = SAID[item["text"]]
        names = {name for source, _, destination in relations for name in (source, destination)}
        entities = [{"name": name, "type": PEOPLE[name]} for name in sorted(names)]
        facts.append({"text": item["text"], "sources": [place], "entities": entities, "relations": relations})
    return {"facts": facts}


def decide(request: dict[str, Any]) -> dict[str, Any]:
    new = request["messages"][1]["content"]
    before = [item["id"] for item in given(request, "Stored memories") if "Odile works at Ferrow" in item["text"]]
    if "Odile works at Kestrel" in new.partition("Stored memories: ")[0] and before:
        return {"decisions": [decision(0, "DELETE", before[0])]}
    return {"decisions": [decision(0, "ADD")]}


async def test_a_contradicted_relation_is_kept_as_former_and_answers_as_of_then(tmp_path: Path) -> None:
    """Now and then have an answer each; the other relations of the place stay, and the entity tells both."""
    clock = StoppedClock()
    then = datetime(2026, 5, 9, 18, tzinfo=UTC)
    question = "Where does Odile work?"
    with OpenAIServer(answering(extract=extract, decide=decide)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            for text in SAID:
                await memory.add_messages(messages_from(("user", text), at=clock.at))
                clock.forward(days=1)
            now = await memory.search(ALICE, question)
            before = await memory.search(ALICE, question, as_of=then)
            at_ferrow = (await memory.graph.subgraph(ALICE, about="Ferrow")).relations
            about = await memory.graph.lines(ALICE, "Odile")
    assert [item.line for item in now.relations] == ["Odile — works at → Kestrel"]
    assert [item.line for item in before.relations if item.source == "Odile"] == ["Odile — works at → Ferrow"]
    assert before.hits[0].text == "Odile works at Ferrow."
    assert [item.source for item in at_ferrow] == ["Tamsin"]
    held = about[about.index("Held before:") + 1]
    assert held.endswith("(until 2026-05-10) Odile works at Ferrow.")
    assert "- Odile — works at → Kestrel" in about
    assert "- Odile — works at → Ferrow (until 2026-05-10)" in about


async def test_one_relation_under_two_names_is_one(tmp_path: Path) -> None:
    """Who is employed by somebody works there: the line has one chain, and a new employer names the former one."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        ferrow = [Relation("Odile", "employed by", "Ferrow")]
        old = await add_text(memory, "Since spring she has a desk by the window", since="2024", relations=ferrow)
        clock.forward(days=1)
        kestrel = [Relation("Odile", "works at", "Kestrel")]
        added = await memory.add_text(ALICE, "New badge, new canteen", since="2026", relations=kestrel, infer=False)
        line = (await memory.summary(ALICE, "timeline:Odile")).text.splitlines()
    named = [item.memory.id for found in added.similar.values() for item in found if not item.is_only_near]
    assert named == [old]
    assert [entry.partition(" [")[0] for entry in line[1:4]] == [
        "works at:",
        "- 2024 to 2026, when the next began: Ferrow",
        "- since 2026: Kestrel",
    ]


FAMILY = [
    ("Tom is married to Ines", "Tom", "is married to", "Ines"),
    ("Rosa is the mother of Ines", "Rosa", "is mother of", "Ines"),
    ("Rosa lives in Porto", "Rosa", "lives in", "Porto"),
    ("Tom's mother is Hedda", "Tom", "has mother", "Hedda"),
    ("Hedda lives in Bergen", "Hedda", "lives in", "Bergen"),
    ("Tom works at Ferrow", "Tom", "works at", "Ferrow"),
    ("Tom is head of sales at Ferrow", "Tom", "head of sales at", "Ferrow"),
]


async def test_a_question_is_answered_along_a_path_of_relations(tmp_path: Path) -> None:
    """From whom the question names, by relations that its words ask for; what is finer stands for what is coarser."""
    async with connect(tmp_path) as agent:
        for text, *relation in FAMILY:
            await agent.call_tool("add_memory", {"text": text, "relations": [relation]})

        async def asked(question: str) -> tuple[str, list[str]]:
            reply = await agent.call_tool("search_memories", {"query": question})
            lines = [line for line in reply_text(reply).splitlines() if "→" in line or "←" in line]
            return reply.structured_content.get("path", ""), lines

        path, lines = await asked("Where does the mother of Tom's wife live?")
        assert path == "Tom — is married to → Ines ← is mother of — Rosa — lives in → Porto"
        assert lines[0] == f"path: {path}"
        assert (await asked("Where does Tom's mother live?"))[0] == "Tom — has mother → Hedda — lives in → Bergen"
        path, lines = await asked("Where does Tom work?")
        assert path == ""
        assert [line for line in lines if "Ferrow" in line] == ["Tom — head of sales at → Ferrow"]
        about = reply_text(await agent.call_tool("get_summary", {"kind": "about:Tom"}))
        assert "works at →" not in about


OTHERS = """Lena drives a Volvo; Ada lives in Porto; Ada plays the cello; Otto keeps bees; Mara rents a studio;
Mara has the dog Pixel; Nando runs a bakery; Ines is married to Nando; Ines swims in the lake; Otto is allergic to nuts;
Lena collects stamps; Paul owns a sailing boat; Paul lives in Ghent; Jana sings in a choir; Jana has a garden;
Emil repairs clocks; Emil likes rye bread; Rosa lives in Bergen; Rosa drives a tram; Hedda is mother of Rosa;
Tom drives a Zoe; Tom likes plums; Lena swims in the sea; Ada rents a boat; Otto has a piano; Mara likes tea;
Nando fears dogs; Ines plays chess; Paul has a beard; Jana lives in Leith; Emil has the cat Mo; Rosa keeps hens;
Hedda likes jazz; Hedda drives a Fiat"""


async def test_a_question_near_a_relation_finds_the_memory_that_states_it(tmp_path: Path) -> None:
    """The paper's second search: "university jobs and academia" finds `works at MIT`, though the text has other words.

    The vectors of relations are in the ledger: they survive a restart, and a new one comes with a new relation.
    """
    settings: dict[str, Any] = {"embedder": {"provider": "e5"}}

    async def is_found(memory: Memory, memory_id: str) -> list[bool]:
        questions = ("university jobs and academia", "Who does research at a university?")
        found = [(await memory.search(ALICE, question, explain=True)).hits for question in questions]
        return [any(hit.id == memory_id and "relation" in hit.score_parts for hit in hits) for hits in found]

    async with memory_in(tmp_path, **settings) as memory:
        for text in OTHERS.replace("\n", " ").split("; "):
            source, verb, rest = text.split(" ", 2)
            await add_text(memory, f"{text}, as was said over dinner", relations=[Relation(source, verb, rest)])
        tom = await add_text(memory, "Tom told us about the move", relations=[Relation("Tom", "works at", "MIT")])
        assert await is_found(memory, tom) == [False, False]
        await memory.care.rebuild()
        assert await is_found(memory, tom) == [True, True]
    async with memory_in(tmp_path, **settings) as memory:
        assert await is_found(memory, tom) == [True, True]
        await memory.update(ALICE, tom, relations=[Relation("Tom", "fishes in", "the bay")])
        await memory.care.rebuild()
        assert await is_found(memory, tom) == [False, False]
        await memory.undo(ALICE)
        await memory.care.rebuild()
        assert await is_found(memory, tom) == [True, True]


async def test_the_reply_names_the_relations_that_a_replacement_closes(tmp_path: Path) -> None:
    """What holds on is stated by the successor and is not among them."""
    async with connect(tmp_path) as agent:
        told = [["Tom", "is cousin of", "user"], ["Tom", "lives in", "Wels"]]
        added = await agent.call_tool("add_memory", {"text": "My cousin Tom lives in Wels", "relations": told})
        old = added.structured_content["results"][0]["id"]
        salzburg = {"text": "Tom moved to Salzburg", "relations": [["Tom", "lives in", "Salzburg"]], "replaces": [old]}
        reply = await agent.call_tool("add_memory", salzburg)
    closed = [line for line in reply_text(reply).splitlines() if line.startswith("  closes")]
    assert closed == ["  closes Tom — lives in → Wels"]
    relation = {"source": "Tom", "relationship": "lives in", "destination": "Wels"}
    assert reply.structured_content["results"][0]["closed"] == [relation]
