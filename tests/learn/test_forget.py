"""Requests to forget: what goes, what stays, and that nothing of it is shown again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Event, Undo
from palimpsest.memory import Memory
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from
from tests.support.scripted_model import is_extraction

pytestmark = pytest.mark.anyio

TURN = "My ex-husband Mark drinks too much; we divorced in 2024. Also, I'm allergic to hazelnuts."
REQUEST = "Please forget what I said about Mark."
DRINKS, DIVORCED, ALLERGIC = (
    "User's ex-husband Mark drinks too much.",
    "User and Mark divorced in 2024.",
    "User is allergic to hazelnuts.",
)
ABOUT_MARK = (
    "Mark was born in Ghent in 1981.",
    "User married Mark in 2009.",
    "Mark plays the trumpet in a brass band.",
    "Mark's mother has diabetes.",
    "Mark owes User 4,000 euros.",
    "Mark works night shifts at the steel mill.",
    "Mark's new girlfriend is called Sandra.",
    "Mark broke his wrist while skiing in 2018.",
    "The house in Aalst still belongs to Mark and User.",
)
LEARNED = json.dumps({"facts": [{"text": text, "sources": [1]} for text in (DRINKS, DIVORCED, ALLERGIC)]})


def asks(what: str = "what User said about Mark") -> str:
    return json.dumps({"facts": [], "forget": [{"forget": what, "sources": [1]}]})


def model(request: dict[str, Any]) -> str:
    """Reply as the prompts ask: extract the facts of the turn, pass on the request, and delete what names Mark."""
    if is_extraction(request):
        return LEARNED if "hazelnuts" in request["messages"][1]["content"].split("New messages: ")[1] else asks()
    facts, memories = (json.loads(part) for part in prompt_of(request).split("\n\nStored memories: "))
    decisions = [{"fact": fact["fact"], "event": "ADD"} for fact in facts if "text" in fact]
    decisions += [
        {"fact": fact["fact"], "event": "DELETE", "memory": item["id"], "text": ""}
        for fact in facts
        for item in memories
        if "forget" in fact and "Mark" in item["text"]
    ]
    return json.dumps({"decisions": decisions})


def prompt_of(request: dict[str, Any]) -> str:
    return str(request["messages"][1]["content"]).removeprefix("New facts: ")


async def learn_and_forget(memory: Memory) -> Any:
    await memory.add_messages(messages_from(("user", TURN)))
    return await memory.add_messages(messages_from(("user", REQUEST)))


class TestForget:
    async def test_what_was_asked_for_goes_and_the_reply_says_so(self, tmp_path: Path) -> None:
        """The memories that the request means are deleted, the others stay, and the texts are named."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await learn_and_forget(memory)
                assert await memory_texts(memory) == [ALLERGIC]
        deleted = {change.memory.text for change in result.outcomes if change.event is Event.DELETE}
        assert {DRINKS, DIVORCED} <= deleted
        assert any("forgotten" in note and DRINKS in note and DIVORCED in note for note in result.notes)

    async def test_neither_the_turn_nor_the_request_is_found_again(self, tmp_path: Path) -> None:
        """A turn with a forgotten fact is not shown whole, although another fact of it still stands."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await learn_and_forget(memory)
                for question in ("Does my ex-husband drink?", "Mark", "What should be forgotten?"):
                    texts = [hit.text for hit in (await memory.search(ALICE, question)).hits]
                    assert not any("Mark" in text for text in texts), question
                texts = [hit.text for hit in (await memory.search(ALICE, "hazelnuts")).hits]
        assert texts == [ALLERGIC]

    async def test_an_undo_brings_everything_back(self, tmp_path: Path) -> None:
        """Forgetting is an edit: one undo restores the memories, the turn and the request."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await learn_and_forget(memory)
                await memory.undo(ALICE, Undo())
                assert await memory_texts(memory) == sorted([ALLERGIC, DIVORCED, DRINKS])
                texts = {hit.text for hit in (await memory.search(ALICE, "what was said about Mark")).hits}
        assert {DRINKS, REQUEST} <= texts

    async def test_a_message_that_nothing_was_learned_from_can_be_meant(self, tmp_path: Path) -> None:
        """Turns kept without a model are forgotten too."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "Mark drinks too much.")), infer=False)
                await memory.add_messages(messages_from(("user", REQUEST)))
                assert (await memory.search(ALICE, "Does Mark drink?")).hits == ()

    async def test_everything_about_a_person_is_forgotten_however_little_it_resembles_the_request(
        self, tmp_path: Path
    ) -> None:
        """The model sees many memories for each request, because what it does not see is not forgotten."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for text in ABOUT_MARK:
                    await memory.add_text(ALICE, text, infer=False)
                await memory.add_text(ALICE, ALLERGIC, infer=False)
                await memory.add_messages(messages_from(("user", REQUEST)))
                assert await memory_texts(memory) == [ALLERGIC]

    async def test_more_than_the_model_sees_takes_a_second_request(self, tmp_path: Path) -> None:
        """A person who is told that more may fit asks again; in silence the rest would be taken for forgotten."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for number in range(40):
                    await memory.add_text(ALICE, f"Mark's song number {number} is about rain.", infer=False)
                first = await memory.add_messages(messages_from(("user", REQUEST)))
                assert await memory_texts(memory) != []
                assert any("more may fit" in note for note in first.notes)
                second = await memory.add_messages(messages_from(("user", f"{REQUEST} All of it.")))
                assert await memory_texts(memory) == []
        assert not any("more may fit" in note for note in second.notes)

    async def test_a_request_that_fits_nothing_is_named(self, tmp_path: Path) -> None:
        """Nothing is guessed: what fits no memory is said."""
        with OpenAIServer([asks("the code of the safe")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await memory.add_messages(messages_from(("user", "Forget the code of the safe.")))
        assert any("nothing stored fits: the code of the safe" in note for note in result.notes)

    async def test_only_the_user_can_ask(self, tmp_path: Path) -> None:
        """A message of the assistant makes nothing be forgotten, and the reply says so."""
        with OpenAIServer(model) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", TURN)))
                result = await memory.add_messages(messages_from(("assistant", REQUEST)))
                assert len(await memory_texts(memory)) == 3
        assert any("only the user can ask" in note for note in result.notes)
