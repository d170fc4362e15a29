"""From a conversation to the graph: what a model replies about names, step by step, and what the ledger has of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.models import NamedEntity, Relation, Scope
from palimpsest.memory import Memory
from tests.learn.decisions import Items, ids_of, scripted
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from

pytestmark = pytest.mark.anyio

WORKS_AT, LIVES_IN = "works at", "lives in"

UNREADABLE: list[Any] = [(None, None), ("?", 7), ([{}], [["Noor"]]), ({"": {"b": []}}, [[None, None, None]])]


def extracted(*facts: tuple[str, Any, Any], user_name: str | None = None) -> str:
    """Return a reply with facts, each with its entities and relations."""
    return json.dumps(
        {
            "user_name": user_name,
            "forget": [],
            "facts": [
                {"text": text, "sources": [1], "entities": entities, "relations": relations}
                for text, entities, relations in facts
            ],
        }
    )


def adds_all(facts: Items, _memories: Items) -> list[tuple[Any, ...]]:
    return [(fact["fact"], "ADD", None, None) for fact in facts]


def replaces(word: str) -> Any:
    """Return decisions that replace the memories with a word by the facts that have `text` among them."""

    def decide(facts: Items, memories: Items) -> list[tuple[Any, ...]]:
        return [(fact["fact"], "DELETE", number, None) for fact in facts for number in ids_of(memories, word)]

    return decide


async def told(memory: Memory, text: str, scope: Scope = ALICE) -> None:
    """Add one message of the user."""
    await memory.add_messages(messages_from(("user", text), scope=scope, at=memory.engine.clock()))


async def stored(memory: Memory) -> dict[str, StoredMemory]:
    """Return Alice's living memories by their texts."""
    return {item.text: item for item in (await memory.scope_contents(ALICE)).memories}


async def relations_in(memory: Memory) -> list[Relation]:
    """Return what Alice's living memories state."""
    return [relation for item in (await stored(memory)).values() for relation in item.relations]


class TestExamples:
    async def test_a_person_a_place_and_what_connects_them(self, tmp_path: Path) -> None:
        """The paper's first example: people and places are nodes with a type, and "lives in" is an edge."""
        reply = extracted(
            (
                "Noor lives in Valparaiso.",
                [{"name": "Noor", "type": "person"}, {"name": "Valparaiso", "type": "place"}],
                [["Noor", LIVES_IN, "Valparaiso"]],
            )
        )
        with OpenAIServer(scripted([reply], adds_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "My friend Noor lives in Valparaiso.")
                item = (await stored(memory))["Noor lives in Valparaiso."]

        assert item.entities == (NamedEntity("Noor", "person"), NamedEntity("Valparaiso", "place"))
        assert item.relations == (Relation("Noor", LIVES_IN, "Valparaiso"),)
        assert len(server.requests) == 1, "the graph costs no call of its own"

    async def test_a_change_of_work_closes_what_was_stated_before(self, tmp_path: Path) -> None:
        """The seeds' example: somebody who worked and lived somewhere works elsewhere now.

        Mem0's agent deletes the edge. Here its memory is closed, and the other edge stays.
        """
        clock = StoppedClock()
        before = extracted(
            ("Ilya works at Kubo Robotics.", [], [["Ilya", WORKS_AT, "Kubo Robotics"]]),
            ("Ilya lives in Tartu.", [], [["Ilya", LIVES_IN, "Tartu"]]),
        )
        now = extracted(
            (
                "Ilya teaches at the University of Graz.",
                [{"entity": "Ilya", "entity_type": "person"}, {"entity": "University of Graz", "entity_type": "org"}],
                [{"source": "Ilya", "relationship": WORKS_AT, "destination": "University of Graz"}],
            )
        )
        with OpenAIServer(scripted([before, now], replaces("Kubo"))) as server:
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "Ilya works at Kubo Robotics and lives in Tartu.")
                clock.forward(days=30)
                await told(memory, "Ilya is a professor at the University of Graz now.")
                current = await stored(memory)
                new = current["Ilya teaches at the University of Graz."]
                (old,) = await memory.predecessors(ALICE, new.id)

        assert old.memory.relations == (Relation("Ilya", WORKS_AT, "Kubo Robotics"),)
        assert old.memory.valid_until == clock.at
        assert new.entities == (NamedEntity("Ilya", "person"), NamedEntity("University of Graz", "organization"))
        assert {relation for item in current.values() for relation in item.relations} == {
            Relation("Ilya", WORKS_AT, "University of Graz"),
            Relation("Ilya", LIVES_IN, "Tartu"),
        }

    async def test_self_references_are_the_user(self, tmp_path: Path) -> None:
        """Mem0 puts the user's id for "I". Here it is the user's name, as soon as it is known."""
        replies = [
            extracted(("User prefers trains.", [["I", "person"]], [["I", "prefers", "trains"]])),
            extracted(
                ("User owns a red bicycle.", [], [["user", "owns", "red bicycle"]]),
                ("User is called Maren.", [], [["User", "is called", "Maren"]]),
                user_name="Maren",
            ),
        ]
        with OpenAIServer(scripted(replies, adds_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "I prefer trains.")
                await told(memory, "I am Maren. I own a red bicycle.")
                current = await stored(memory)

        assert current["User prefers trains."].relations == (Relation("I", "prefers", "trains"),)
        assert current["Maren owns a red bicycle."].relations == (Relation("Maren", "owns", "red bicycle"),)
        assert current["Maren is called Maren."].relations == ()

    async def test_a_trip_has_people_places_and_an_event(self, tmp_path: Path) -> None:
        """The paper's example of a journey: each detail is in one fact, and all of them meet in the same names."""
        reply = extracted(
            (
                "Pilar goes to Naoshima with Teo in June.",
                [],
                [["Pilar", "visits", "Naoshima"], ["Pilar", "travels with", "Teo"]],
            ),
            ("Teo gets seasick on ferries.", [["Teo", "person"]], []),
            (
                "Naoshima hosts the Setouchi Triennale.",
                [["Setouchi Triennale", "event"]],
                [["Naoshima", "hosts", "Setouchi Triennale"]],
            ),
        )
        with OpenAIServer(scripted([reply], adds_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "I, Pilar, go to Naoshima with Teo in June, who gets seasick. It has the Triennale.")
                current = list((await stored(memory)).values())

        names = [{entity.name for entity in item.entities} for item in current]
        assert sum("Naoshima" in of_memory for of_memory in names) == 2
        assert sum("Teo" in of_memory for of_memory in names) == 2
        assert NamedEntity("Setouchi Triennale", "event") in current[-1].entities


class TestDecisions:
    async def test_an_update_keeps_what_the_joined_text_still_states(self, tmp_path: Path) -> None:
        """A text that joins a fact with a memory states what both do, except what the fact has changed."""
        replies = [
            extracted(
                (
                    "Noor plays the oud at Cafe Mirza with Jon.",
                    [],
                    [["Noor", "plays", "oud"], ["Noor", "plays at", "Cafe Mirza"], ["Noor", "plays with", "Jon"]],
                )
            ),
            extracted(("Noor plays the oud with Ilse.", [], [["Noor", "plays with", "Ilse"]])),
        ]
        joined = "Noor plays the oud at Cafe Mirza with Ilse."
        chat = scripted(replies, lambda _, memories: [(0, "UPDATE", ids_of(memories, "oud")[0], joined)])
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "Noor plays the oud at Cafe Mirza.")
                await told(memory, "She plays with Ilse now.")
                (item,) = (await stored(memory)).values()

        assert item.text == joined
        assert set(item.relations) == {
            Relation("Noor", "plays", "oud"),
            Relation("Noor", "plays at", "Cafe Mirza"),
            Relation("Noor", "plays with", "Ilse"),
        }
        assert {"Noor", "oud", "Cafe Mirza", "Ilse"} <= {entity.name for entity in item.entities}

    async def test_a_replacement_in_other_words_states_what_the_fact_does(self, tmp_path: Path) -> None:
        """The model may word what replaces a memory; the fact's entities and relations go with it."""
        replies = [
            extracted(("Noor lives in Arica.", [], [["Noor", LIVES_IN, "Arica"]])),
            extracted(("Noor lives in Iquique.", [["Iquique", "place"]], [["Noor", LIVES_IN, "Iquique"]])),
        ]

        def decide(_facts: Items, memories: Items) -> list[tuple[Any, ...]]:
            return [(0, "DELETE", number, "Noor moved to Iquique.") for number in ids_of(memories, "Arica")]

        with OpenAIServer(scripted(replies, decide)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "Noor lives in Arica.")
                await told(memory, "Noor lives in Iquique now.")
                (item,) = (await stored(memory)).values()

        assert item.text == "Noor moved to Iquique."
        assert item.relations == (Relation("Noor", LIVES_IN, "Iquique"),)
        assert NamedEntity("Iquique", "place") in item.entities

    async def test_facts_of_one_call_that_say_the_same_state_what_each_does(self, tmp_path: Path) -> None:
        """Two facts become one memory, and nothing that one of them states is lost."""
        replies = [
            extracted(
                ("Noor works at the Rivet bakery.", [], [["Noor", WORKS_AT, "Rivet"]]),
                ("Noor works at the bakery Rivet with Jon.", [], [["Noor", "works with", "Jon"]]),
            )
        ]

        def decide(_facts: Items, memories: Items) -> list[tuple[Any, ...]]:
            first = next(item["id"] for item in memories if item.get("new") == "fact 0")
            return [(0, "ADD", None, None), (1, "UPDATE", first, "Noor works at the Rivet bakery with Jon.")]

        with OpenAIServer(scripted(replies, decide)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "Noor works at the Rivet bakery with Jon.")
                (item,) = (await stored(memory)).values()

        assert item.relations == (Relation("Noor", WORKS_AT, "Rivet"), Relation("Noor", "works with", "Jon"))


class TestSloppyReplies:
    async def test_a_pronoun_is_nobody(self, tmp_path: Path) -> None:
        """Small models give "it" and "she" as entities, and relate something with them."""
        reply = extracted(("Noor paints.", ["Noor", "it", "She"], [["Noor", "likes", "it"], ["she", "knows", "Noor"]]))
        with OpenAIServer(scripted([reply], adds_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "Noor paints.")
                (item,) = (await stored(memory)).values()
        assert [entity.name for entity in item.entities] == ["Noor"]
        assert item.relations == ()

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(("entities", "relations"), UNREADABLE, ids=str)
    async def test_names_that_cannot_be_read_cost_no_fact_and_no_call(
        self, tmp_path: Path, entities: Any, relations: Any
    ) -> None:
        """A small model that breaks these lists has not broken its reply."""
        reply = extracted(("Noor likes figs.", entities, relations))
        with OpenAIServer(scripted([reply], adds_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await told(memory, "Noor likes figs.")
                assert list(await stored(memory)) == ["Noor likes figs."]
                assert await relations_in(memory) == []
        assert len(server.requests) == 1

    async def test_a_custom_prompt_in_mem0s_form_goes_on_working(self, tmp_path: Path) -> None:
        """Its replies are bare strings, which name nothing by themselves."""
        prompt = 'Return {"facts": ["…"]} as JSON.'
        with OpenAIServer(scripted(['{"facts": ["Noor likes figs."]}'], adds_all)) as server:
            llm = llm_settings(server.base_url)
            async with memory_in(tmp_path, llm=llm, custom_fact_extraction_prompt=prompt) as memory:
                await told(memory, "Noor likes figs.")
                assert list(await stored(memory)) == ["Noor likes figs."]
        system = server.chat_requests[0]["messages"][0]["content"]
        assert system.startswith(prompt)
        assert "relations" in system

    async def test_secrets_are_in_no_name(self, tmp_path: Path) -> None:
        """A model may put into a relation what the text says of a password."""
        key = "sk-proj-" + "A1b2C3d4" * 5
        reply = extracted(
            (
                "Noor keeps a key for Rivet.",
                [key, "Rivet"],
                [["Noor", "has key", key], ["Noor", "password", "hunter2!x"]],
            )
        )
        with OpenAIServer(scripted([reply], adds_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await memory.add_messages(messages_from(("user", "I keep a key for Rivet.")))
                (item,) = (await stored(memory)).values()

        assert item.entities == (NamedEntity("Rivet"), NamedEntity("Noor"))
        assert item.relations == ()
        assert any("holds a secret: 4" in note for note in result.notes)


class TestRelationsOfATextOfTheCaller:
    @pytest.mark.parametrize("has_model", [False, True])
    async def test_they_are_stored_with_it(self, tmp_path: Path, *, has_model: bool) -> None:
        """With a model, what it decides about the text keeps them."""
        given = (Relation("Noor", LIVES_IN, "Arica"), Relation("Noor", "sister of", "Ilya"))
        with OpenAIServer(scripted([], adds_all)) as server:
            llm = llm_settings(server.base_url) if has_model else {"provider": "none"}
            async with memory_in(tmp_path, llm=llm) as memory:
                await memory.add_text(ALICE, "Ilya's parents live in Arica.", infer=False)
                await memory.add_text(ALICE, "Noor, Ilya's sister, lives in Arica.", relations=given)
                item = (await stored(memory))["Noor, Ilya's sister, lives in Arica."]
            assert len(server.chat_requests) == has_model

        assert item.relations == given

    async def test_the_same_text_again_adds_what_it_states(self, tmp_path: Path) -> None:
        """A repeated call changes nothing, and one with another relation loses none."""
        first, second = Relation("Noor", LIVES_IN, "Arica"), Relation("Noor", "likes", "Arica")
        async with memory_in(tmp_path) as memory:
            for relations in ([first], [first], [second], []):
                await memory.add_text(ALICE, "Noor lives in Arica and likes it.", relations=relations)
            (item,) = (await stored(memory)).values()

        assert item.relations == (first, second)
        assert item.revision == 2

    async def test_what_the_text_hides_is_in_no_relation(self, tmp_path: Path) -> None:
        """A password that is replaced in the text is not kept beside it."""
        async with memory_in(tmp_path) as memory:
            result = await memory.add_text(
                ALICE,
                "Noor's password is Xk29-vvq!81 at Rivet.",
                relations=[Relation("Noor", "signs in with", "Xk29-vvq!81"), Relation("Noor", "is at", "Rivet")],
            )
            (item,) = (await stored(memory)).values()

        assert "Xk29" not in item.text
        assert item.relations == (Relation("Noor", "is at", "Rivet"),)
        assert all("Xk29" not in entity.name for entity in item.entities)
        assert any("holds a secret: 1" in note for note in result.notes)
