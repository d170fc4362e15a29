"""The entities and relations of a fact, in the forms in which models reply them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palimpsest.core.errors import CutOffReplyError
from palimpsest.core.models import MAX_NAME_CHARS, Fact, NamedEntity, Relation
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.extract import MAX_ENTITIES, MAX_RELATIONS, Conversation, Extraction, extract
from palimpsest.llm.prompts import PromptFiles
from tests.support.scripted_model import NOW, ScriptedModel, message

pytestmark = pytest.mark.anyio

LIVES_IN = Relation("Ana", "lives in", "Lyon")
SPELLINGS: list[Any] = [
    [["Ana", "lives in", "Lyon"]],
    [{"source": "Ana", "relationship": "lives in", "destination": "Lyon"}],
    [{"source": "Ana", "relation": "lives in", "target": "Lyon", "source_type": "person"}],
    [{"source_node": "Ana", "relationship": "lives in", "destination_node": "Lyon"}],
    {"source": "Ana", "relationship": "lives in", "destination": "Lyon"},
    ["Ana -- lives in -- Lyon"],
    "Ana -> lives in -> Lyon",
    ["Ana", "lives in", "Lyon"],
    [[" Ana ", "lives\nin", "Lyon"], ["ana", "LIVES_IN", "lyon"], ["Ana", "lives in"], None, 5, {"source": "Ana"}],
    [["Ana", "lives in", ""], ["", "lives in", "Lyon"], ["Ana", None, "Lyon"], ["Ana", "lives in", "Lyon"]],
    [["Ana", "lives in", "unknown"], ["Lyon", "is", "Lyon"], ["Ana", "lives in", "Lyon"], ["Ana", "-", "!"]],
]

UNREADABLE: list[Any] = [None, [], {}, "", 7, True, [None], [[]], [{}], [[[]]], "nothing", ["Ana"]]


async def extraction(*facts: Any, user_name: str = "", speaker: str = "", user: str | None = None) -> Extraction:
    """Return what a scripted model extracts from one message, asked once."""
    model = ScriptedModel([json.dumps({"user_name": user, "facts": facts})])
    said = message("I am Ana and live in Lyon with my sister Ines.", "said-1", name=speaker)
    prompt = PromptFiles(NEEDED_PROMPTS).get("extract")
    return await extract(model, prompt, Conversation([said], user_name=user_name), NOW)


async def fact_with(text: str = "Ana lives in Lyon.", **names: Any) -> Fact:
    """Return the one fact of a reply with these entities and relations."""
    (fact,) = (await extraction({"text": text, "sources": [1], **names})).facts
    return fact


@pytest.mark.parametrize("relations", SPELLINGS, ids=str)
async def test_relations_are_read_in_the_forms_that_models_give(relations: Any) -> None:
    """Guards Mem0's forms and small models: what is no relation is left out, and nothing is asked for again."""
    fact = await fact_with(relations=relations)

    assert fact.relations == (LIVES_IN,)
    assert fact.entities == (NamedEntity("Ana"), NamedEntity("Lyon"))


@pytest.mark.parametrize(
    "entities",
    [
        [{"name": "Ana", "type": "person"}, {"name": "Lyon", "type": "place"}],
        [{"entity": "Ana", "entity_type": "Person"}, {"entity": "Lyon", "entity_type": "location"}],
        [["Ana", "person"], ["Lyon", "city"]],
        {"Ana": "person", "Lyon": "place"},
        [{"name": "ANA", "type": "mood"}, {"name": "Ana", "type": "person"}, ["Lyon", "place"], ["lyon", "event"], "?"],
        [
            {"name": "Ana", "type": "person", "age": 3},
            {"type": "place"},
            {"name": ""},
            None,
            2.5,
            [],
            ["Lyon", "place"],
        ],
    ],
    ids=str,
)
async def test_entities_are_read_in_the_forms_that_models_give(entities: Any) -> None:
    """Guards the same for entities. Each is there once, with a type if one of its mentions has one."""
    fact = await fact_with(entities=entities)

    assert fact.entities == (NamedEntity("Ana", "person"), NamedEntity("Lyon", "place"))
    assert fact.relations == ()


@pytest.mark.parametrize("value", UNREADABLE, ids=repr)
async def test_what_cannot_be_read_costs_nothing(value: Any) -> None:
    """Guards the fact: its names and relations are never a reason to ask again, or to lose it."""
    fact = await fact_with(entities=value, relations=value)

    assert fact.text == "Ana lives in Lyon."
    assert fact.relations == ()


async def test_an_unknown_type_is_other_and_a_bare_name_has_none() -> None:
    """Guards the types: the ledger knows eight."""
    fact = await fact_with(entities=["Lyon", {"name": "Miso", "type": "cat"}, {"name": "Ines", "type": ["person"]}])

    assert fact.entities == (NamedEntity("Lyon"), NamedEntity("Miso"), NamedEntity("Ines"))


@pytest.mark.parametrize("me", ["I", "User", "the user", "me", "Nutzer", "用户"])
async def test_the_user_has_one_name(me: str) -> None:
    """Guards that "I", "User" and the user's name are one entity, named as in the text of the fact."""
    reply = {
        "text": "User lives in Lyon with her sister Ines.",
        "entities": [{"name": me, "type": "other"}, {"name": "Ana", "type": "person"}, ["Ines", "person"]],
        "relations": [[me, "lives in", "Lyon"], ["Ines", "sister of", me], ["User's sister", "is called", "Ines"]],
    }

    told = (await extraction(reply, user="Ana")).facts
    known = (await extraction(reply, user_name="Ana")).facts
    named = (await extraction(reply, speaker="Ana")).facts
    (unknown,) = (await extraction(reply)).facts

    assert told == known
    for (fact,) in (told, known, named):
        assert fact.text.startswith("Ana lives")
        assert fact.entities[:2] == (NamedEntity("Ana", "person"), NamedEntity("Ines", "person"))
        assert fact.relations == (
            LIVES_IN,
            Relation("Ines", "sister of", "Ana"),
            Relation("Ana's sister", "is called", "Ines"),
        )
    assert unknown.entities[0] == NamedEntity(me, "person")


async def test_what_tells_two_people_apart_stays_in_their_names() -> None:
    """Guards people of one name."""
    fact = await fact_with(
        "Tom the plumber is a friend of Tom, Ana's cousin.", relations=[["Tom (plumber)", "friend of", "Tom (cousin)"]]
    )

    assert [entity.name for entity in fact.entities] == ["Tom (plumber)", "Tom (cousin)"]


async def test_too_much_and_too_long_is_left_out_and_said() -> None:
    """Guards the bounds of a fact: what is beyond them is named, and nothing is asked for again."""
    long = "x" * (MAX_NAME_CHARS + 1)
    many = [f"Name {number}" for number in range(MAX_ENTITIES + 3)]
    found = await extraction(
        {"text": "Ana has a long name.", "entities": [long, "Ana"], "relations": [["Ana", "is called", long]]},
        {"text": "Many were there.", "entities": many},
        {"text": "Ana knows many.", "relations": [["Ana", "knows", name] for name in many]},
    )

    assert [len(fact.entities) for fact in found.facts] == [1, MAX_ENTITIES, MAX_RELATIONS + 1]
    assert [len(fact.relations) for fact in found.facts] == [0, 0, MAX_RELATIONS]
    too_long, too_many = found.left_out
    assert "2 names" in too_long
    assert f"{3 + len(many) - MAX_RELATIONS} entities and relations" in too_many


async def test_a_repeated_fact_has_what_each_says_it_names() -> None:
    """Guards a fact that stands twice in a reply: nothing of either is lost."""
    (fact,) = (
        await extraction(
            {"text": "Ana lives in Lyon.", "sources": [1], "entities": [["Ana", "person"]]},
            {"text": "Ana lives in Lyon.", "sources": [1], "relations": [["Ana", "lives in", "Lyon"]]},
        )
    ).facts

    assert fact.entities == (NamedEntity("Ana", "person"), NamedEntity("Lyon"))
    assert fact.relations == (LIVES_IN,)


async def test_a_reply_that_was_cut_off_keeps_what_is_whole() -> None:
    """Guards lists inside a fact: a fact that was cut off in the middle of them is left out."""
    facts = [{"text": f"Ana met Tom {number}.", "relations": [["Ana", "met", f"Tom {number}"]]} for number in (1, 2)]
    whole = json.dumps({"facts": facts})
    cut = CutOffReplyError("cut off", whole[: whole.rindex("met")])
    prompt = PromptFiles(NEEDED_PROMPTS).get("extract")
    found = await extract(ScriptedModel([cut]), prompt, Conversation([message("I met Tom.")]), NOW)

    assert [fact.relations for fact in found.facts] == [(Relation("Ana", "met", "Tom 1"),)]
    assert found.is_cut
