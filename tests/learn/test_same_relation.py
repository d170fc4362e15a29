"""What a memory says of the same person or thing as a new fact is shown to the model, however it is worded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from tests.learn.decisions import Items, ids_of, scripted
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio

OLD = "User lives in Rotterdam."
NEW = "User keeps getting lost on the way home from the office, because the streets of Ghent are still new."
LIVES_IN_ROTTERDAM, LIVES_IN_GHENT = ["User", "lives in", "Rotterdam"], ["User", "LIVES_IN", "Ghent"]
NEARER = [
    f"The {street} on the way {way} is one of the new streets of Ghent."
    for street in ("Kouter", "Veldstraat", "Korenlei", "Graslei", "Sint-Baafsplein", "Vrijdagmarkt", "Hoogpoort")
    for way in ("home from the office", "to the office from home")
]


def learned(text: str, *relations: list[str], **rest: Any) -> str:
    return json.dumps({"facts": [{"text": text, "sources": [1], "relations": relations, **rest}]})


def said(text: str, at: str, scope: Scope = ALICE) -> Any:
    return messages_from({"role": "user", "content": text, "at": f"{at}T10:00:00Z"}, scope=scope)


async def keep(memory: Memory, texts: list[str], scope: Scope = ALICE) -> None:
    for text in texts:
        await memory.add_text(scope, text, infer=False)


async def closed(memory: Memory, scope: Scope = ALICE) -> list[StoredMemory]:
    hits = (await memory.list(scope, deleted=True)).hits
    return [(await memory.history(scope, hit.id))[0] for hit in hits]


class Model:
    """A model that finds a contradiction in what is said of a home, and keeps what it was shown."""

    def __init__(self, *extractions: str, words: tuple[str, ...] = ("Rotterdam",)) -> None:
        self.shown: list[str] = []
        self._words = words
        self.chat = scripted(list(extractions), self._decide)

    def _decide(self, _facts: Items, memories: Items) -> list[tuple[Any, ...]]:
        self.shown = [item["text"] for item in memories]
        numbers = [number for word in self._words for number in ids_of(memories, word)]
        return [(0, "DELETE", number, None) for number in numbers] or [(0, "ADD", None, None)]


async def test_an_old_address_far_from_the_new_words_is_shown_and_closed(tmp_path: Path) -> None:
    """The two texts have no word in common but "User", and more than ten others are nearer."""
    model = Model(learned(OLD, LIVES_IN_ROTTERDAM), learned(NEW, LIVES_IN_GHENT))
    with OpenAIServer(model.chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said("I live in Rotterdam", "2025-01-05"))
            await keep(memory, NEARER)
            await memory.add_messages(said("I got lost on the way home again", "2026-01-05"))
            (old,) = await closed(memory)
            assert await memory_texts(memory) == sorted([NEW, *NEARER])
    assert OLD in model.shown
    assert (old.text, old.valid_until) == (OLD, datetime(2026, 1, 5, 10, tzinfo=UTC))


async def test_it_is_not_shown_by_its_words_alone(tmp_path: Path) -> None:
    """Guards the other tests: without relations the old address is not among the nearest."""
    model = Model(learned(OLD), learned(NEW))
    with OpenAIServer(model.chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said("I live in Rotterdam", "2025-01-05"))
            await keep(memory, NEARER)
            await memory.add_messages(said("I got lost on the way home again", "2026-01-05"))
    assert OLD not in model.shown


async def test_of_two_addresses_the_one_that_was_said_later_holds_if_the_older_arrives_last(tmp_path: Path) -> None:
    """The model says that the two contradict each other. The times say which of them holds."""
    model = Model(learned(OLD, LIVES_IN_ROTTERDAM), learned(NEW, LIVES_IN_GHENT))
    with OpenAIServer(model.chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said("I live in Rotterdam", "2026-01-05"))
            await keep(memory, NEARER)
            await memory.add_messages(said("I got lost on the way home again", "2020-01-05"))
            (late,) = await closed(memory)
            assert OLD in await memory_texts(memory)
    assert OLD in model.shown
    assert (late.text, late.valid_until) == (NEW, datetime(2026, 1, 5, 10, tzinfo=UTC))


async def test_a_name_told_in_the_same_conversation_is_the_users(tmp_path: Path) -> None:
    """The memory of before the name was known says "User", and the fact says "Ana"."""
    new = NEW.replace("User", "Ana")
    told = json.loads(learned(new, ["Ana", "lives in", "Ghent"])) | {"user_name": "Ana"}
    model = Model(learned(OLD, LIVES_IN_ROTTERDAM), json.dumps(told))
    with OpenAIServer(model.chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said("I live in Rotterdam", "2025-01-05"))
            await keep(memory, NEARER)
            await memory.add_messages(said("Ana here. I got lost on the way home again", "2026-01-05"))
            assert [item.text for item in await closed(memory)] == [OLD]
    assert any("Rotterdam" in text for text in model.shown)


async def test_a_project_is_not_shown_what_holds_for_all_projects(tmp_path: Path) -> None:
    """A fact of a project does not change the user's global memories, so the model is not asked about them."""
    model = Model(learned(OLD, LIVES_IN_ROTTERDAM), learned(NEW, LIVES_IN_GHENT))
    web = Scope("alice", project="web")
    with OpenAIServer(model.chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said("I live in Rotterdam", "2025-01-05"))
            await keep(memory, NEARER, web)
            await memory.add_messages(said("I got lost on the way home again", "2026-01-05", web))
            assert OLD in await memory_texts(memory)
    assert model.shown
    assert OLD not in model.shown


async def test_of_two_people_of_one_first_name_the_other_ones_address_stays(tmp_path: Path) -> None:
    """Tom Baker's move says nothing about Tom Smith. Of the two, the same relation of the same person is shown."""
    bath, york = "Tom Baker rents a room in Bath.", "Tom Smith rents a room in York."
    new = "Tom Baker painted the front door of his new place in Leeds blue, as all the neighbours there do."
    nearer = [text.replace("Ghent", "Leeds") for text in NEARER]
    extractions = [
        learned(bath, ["Tom Baker", "lives in", "Bath"]),
        learned(york, ["Tom Smith", "lives in", "York"]),
        learned(new, ["Tom Baker", "lives in", "Leeds"]),
    ]
    model = Model(*extractions, words=("Bath",))
    with OpenAIServer(model.chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(said("Tom Baker is in Bath", "2025-01-05"))
            await keep(memory, nearer)
            await memory.add_messages(said("Tom Smith is in York", "2025-01-06"))
            await memory.add_messages(said("Tom Baker painted his door", "2026-01-05"))
            assert [item.text for item in await closed(memory)] == [bath]
            assert york in await memory_texts(memory)
