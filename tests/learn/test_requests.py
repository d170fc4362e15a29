"""Requests to forget next to facts, in Mem0's form, and those that are not granted or not answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.models import Scope
from tests.learn.decisions import Items, ids_of, scripted
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio

REQUEST = "Please forget what I said about Mark."
DRINKS, ALLERGIC = "User's ex-husband Mark drinks too much.", "User is allergic to hazelnuts."


def asks(what: str = "Mark") -> str:
    return json.dumps({"facts": [], "forget": [{"forget": what, "sources": [1]}]})


def forgets_mark(_facts: Items, memories: Items) -> list[tuple[Any, ...]]:
    return [(0, "DELETE", number, None) for number in ids_of(memories, "Mark")]


def tells(text: str, *, forget: str = "", asked_in: int = 1) -> str:
    wishes = [{"forget": forget, "sources": [asked_in]}] if forget else []
    return json.dumps({"facts": [{"text": text, "sources": [1]}], "forget": wishes})


class TestRequestsAmongFacts:
    async def test_a_fact_and_the_request_to_forget_it_in_one_call(self, tmp_path: Path) -> None:
        """The fact is not stored, and neither its turn nor the request is found."""
        chat = scripted(
            [tells("Mark owes User 4000 euros.", forget="what Mark owes", asked_in=2)],
            lambda _facts, memories: [
                (0, "ADD", None, None),
                *((1, "DELETE", item["id"], None) for item in memories if "new" in item),
            ],
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await memory.add_messages(
                    messages_from(("user", "Mark owes me 4000 euros."), ("user", "Please forget that."))
                )
                assert await memory_texts(memory) == []
                assert (await memory.search(ALICE, "What does Mark owe?")).hits == ()
        assert any("forgotten" in note and "Mark owes User 4000 euros." in note for note in result.notes)

    async def test_the_facts_of_a_message_that_is_forgotten_are_not_stored(self, tmp_path: Path) -> None:
        """A model that names the message alone has overlooked the fact that it tells."""
        chat = scripted(
            [tells("Mark owes User 4000 euros.", forget="what Mark owes", asked_in=2)],
            lambda _facts, memories: [
                (0, "ADD", None, None),
                *((1, "DELETE", item["id"], None) for item in memories if "message" in item),
            ],
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(
                    messages_from(("user", "Mark owes me 4000 euros."), ("user", "Please forget that."))
                )
                assert await memory_texts(memory) == []

    @pytest.mark.parametrize("event", ["NONE", "DELETE"])
    async def test_a_fact_about_a_message_shown_for_a_request_is_added(self, tmp_path: Path, event: str) -> None:
        """A message is no memory that a fact could be known by or contradict."""
        chat = scripted(
            [tells("User lives in Oslo.", forget="Mark")],
            lambda _facts, memories: [
                (0, event, ids_of(memories, "Rome")[0], None),
                *((1, "DELETE", number, None) for number in ids_of(memories, "Mark")),
            ],
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(
                    messages_from(("user", "I live in Rome."), ("user", "Mark drinks.")), infer=False
                )
                await memory.add_messages(messages_from(("user", "I moved to Oslo. Forget Mark.")))
                assert await memory_texts(memory) == ["User lives in Oslo."]
                texts = [hit.text for hit in (await memory.search(ALICE, "Rome")).hits]
        assert "I live in Rome." in texts

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("event", ["UPDATE", "DELETE"])
    async def test_a_memory_that_is_forgotten_is_not_stored_again_in_other_words(
        self, tmp_path: Path, event: str
    ) -> None:
        """The text of an UPDATE or DELETE may quote the memory. The fact is kept in its own words."""
        chat = scripted(
            [tells("User stopped drinking.", forget="Mark")],
            lambda _facts, memories: [
                (0, event, ids_of(memories, "Mark")[0], "User stopped drinking; ex Mark drinks."),
                *((1, "DELETE", number, None) for number in ids_of(memories, "Mark")),
            ],
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User's ex Mark drinks.", infer=False)
                await memory.add_messages(messages_from(("user", "I stopped drinking. Forget Mark.")))
                assert await memory_texts(memory) == ["User stopped drinking."]

    async def test_an_old_fact_that_contradicts_what_is_forgotten_is_kept(self, tmp_path: Path) -> None:
        """It is not stored as closed by a memory that is gone."""
        chat = scripted(
            [tells("User lives in Oslo.", forget="Rome")],
            lambda facts, memories: [(item["fact"], "DELETE", ids_of(memories, "Rome")[0], None) for item in facts],
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User lives in Rome.", infer=False)
                message = {"role": "user", "content": "I live in Oslo. Forget Rome.", "at": "2020-01-01T10:00:00Z"}
                await memory.add_messages(messages_from(message))
                assert await memory_texts(memory) == ["User lives in Oslo."]


class TestWhatHoldsNoMore:
    async def test_what_was_replaced_can_be_forgotten(self, tmp_path: Path) -> None:
        """The former address is forgotten with the turn that told it, and the present one stays."""
        rome, oslo = "User lives in Rome.", "User lives in Oslo."
        forgets_rome = json.dumps({"facts": [], "forget": [{"forget": "that User lived in Rome", "sources": [1]}]})

        def decide(facts: Items, memories: Items) -> list[tuple[Any, ...]]:
            past = [item["id"] for item in memories if item.get("past")] if "forget" in facts[0] else [0]
            return [(0, "DELETE", number, None) for number in past]

        with OpenAIServer(scripted([tells(rome), tells(oslo), forgets_rome], decide)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "I live in Rome.")))
                await memory.add_messages(messages_from(("user", "I've moved to Oslo.")))
                await memory.add_messages(messages_from(("user", "Forget that I lived in Rome.")))
                assert await memory_texts(memory) == [oslo]
                texts = [hit.text for hit in (await memory.search(ALICE, "Rome")).hits]
        assert not any("Rome" in text for text in texts)


class TestRequestsThatAreNotGranted:
    async def test_the_message_of_a_request_that_fits_nothing_stays(self, tmp_path: Path) -> None:
        """Whoever asks for nothing that is stored does not lose the rest of the message."""
        chat = scripted(
            [json.dumps({"facts": [], "forget": [{"forget": "the code of the safe", "sources": [1]}]})],
            lambda _facts, _memories: [(0, "NONE", None, None)],
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, ALLERGIC, infer=False)
                turn = "Forget the code of the safe. My mother's pierogi need 300 g of flour."
                await memory.add_messages(messages_from(("user", turn)))
                texts = [hit.text for hit in (await memory.search(ALICE, "pierogi")).hits]
        assert turn in texts

    async def test_a_request_that_the_model_leaves_out_is_asked_again_and_then_named(self, tmp_path: Path) -> None:
        """That nothing fits would not be true."""
        chat = scripted(
            [tells("User lives in Oslo.", forget="Mark")], lambda _facts, _memories: [(0, "ADD", None, None)]
        )
        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "Mark drinks.", infer=False)
                result = await memory.add_messages(messages_from(("user", "I live in Oslo. Forget Mark.")))
                assert await memory_texts(memory) == ["Mark drinks.", "User lives in Oslo."]
                assert "no decision about fact 1" in server.chat_requests[2]["messages"][-1]["content"]
        assert any("decided nothing about it; ask again: Mark" in note for note in result.notes)
        assert not any("nothing stored fits" in note for note in result.notes)

    async def test_decisions_that_are_cut_off_are_named(self, tmp_path: Path) -> None:
        """The request came after the cut."""
        added = '{"decisions": [{"fact": 0, "event": "ADD", "memory": null, "text": null}, {"fact": 1, "ev'
        cut = Reply(added, finish_reason="length")
        with OpenAIServer([tells("User lives in Oslo.", forget="Mark"), cut]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "Mark drinks.", infer=False)
                result = await memory.add_messages(messages_from(("user", "I live in Oslo. Forget Mark.")))
        assert any("cut off" in note for note in result.notes)
        assert any("ask again: Mark" in note for note in result.notes)

    async def test_a_request_in_a_project_names_what_is_stored_for_all_projects(self, tmp_path: Path) -> None:
        """It stays, and the reply does not deny that it is there."""
        with OpenAIServer(scripted([asks()], forgets_mark)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "Mark drinks too much.", infer=False)
                project = Scope("alice", "garden")
                result = await memory.add_messages(messages_from(("user", REQUEST), scope=project))
                assert await memory_texts(memory) == ["Mark drinks too much."]
        assert any("stored for all projects" in note and "Mark drinks too much." in note for note in result.notes)
        assert not any("nothing stored fits" in note for note in result.notes)

    async def test_more_turns_than_the_model_sees_take_a_second_request(self, tmp_path: Path) -> None:
        """Of turns fewer are shown than of memories, and that is said too."""
        turns = [("user", f"Mark played song number {number} in the rain.") for number in range(15)]
        with OpenAIServer(scripted([asks()], forgets_mark)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(*turns), infer=False)
                result = await memory.add_messages(messages_from(("user", REQUEST)))
        assert any("more may fit" in note for note in result.notes)


class TestMem0sForm:
    async def test_a_deletion_is_what_the_user_asked_for(self, tmp_path: Path) -> None:
        """Its items name neither a fact nor a request. If there is a request, a DELETE is the request's."""
        deletes = json.dumps({"memory": [{"id": "0", "text": DRINKS, "event": "DELETE"}]})
        with OpenAIServer([asks(), deletes]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, DRINKS, infer=False)
                result = await memory.add_messages(messages_from(("user", REQUEST)))
                assert await memory_texts(memory) == []
        assert any("forgotten" in note and DRINKS in note for note in result.notes)

    async def test_a_deletion_that_names_no_fact_is_not_forgotten(self, tmp_path: Path) -> None:
        """Nobody asked for that: the memory held until the fact that resembles it, and its turn is still shown."""
        rome = json.dumps({"facts": [{"text": "User lives in Rome.", "sources": [1]}]})
        oslo = json.dumps({"facts": [{"text": "User lives in Oslo now.", "sources": [1]}]})
        deletes = [
            {"id": "0", "text": "User lives in Rome.", "event": "DELETE"},
            {"id": "1", "text": "User lives in Oslo now.", "event": "ADD"},
        ]
        with OpenAIServer([rome, oslo, json.dumps({"memory": deletes})]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "I live in Rome.")))
                await memory.add_messages(messages_from(("user", "I'm in Oslo.")))
                assert await memory_texts(memory) == ["User lives in Oslo now."]
                (hit,) = (await memory.list(ALICE, deleted=True)).hits
                closed, _ = await memory.history(ALICE, hit.id)
                texts = [hit.text for hit in (await memory.search(ALICE, "Rome")).hits]
        assert (closed.text, closed.is_forgotten) == ("User lives in Rome.", False)
        assert "I live in Rome." in texts
