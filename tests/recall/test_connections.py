"""Texts are embedded, and models asked, while no database connection is in use."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Decision, Event, Fact, Message, Provenance
from palimpsest.memory import Memory
from palimpsest.recall import similar
from palimpsest.recall.retrieve import retrieve
from palimpsest.store.apply import Write
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from
from tests.support.open_connections import count_connections
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

REX, REX_BEFORE = "User's dog is named Rex", "User's dog was named Max"
LISBON = "The team retreat takes place in Lisbon"
SAID: tuple[Message, ...] = messages_from(("user", "We moved to a flat by the river"), ("user", "Rex likes the river"))


async def fill(memory: Memory, clock: StoppedClock) -> tuple[str, datetime]:
    """Store memories and messages, then update one memory. Return its id and an instant before the update."""
    added = await memory.add_text(ALICE, REX_BEFORE, infer=False)
    await memory.add_text(ALICE, LISBON, infer=False)
    await memory.add_messages(SAID, infer=False)
    before = clock.at
    clock.forward(days=1)
    await memory.update(ALICE, added.outcomes[0].memory.id, text=REX)
    return added.outcomes[0].memory.id, before


CALLS: dict[str, Callable[[Memory, str, datetime], Awaitable[Any]]] = {
    "search": lambda memory, _rex, _before: memory.search(ALICE, "What is the dog called?"),
    "search in another language": lambda memory, _rex, _before: memory.search(ALICE, "Wie heißt der Hund?"),
    "filtered search": lambda memory, _rex, _before: memory.search(ALICE, "the dog", filters={"kind": "memory"}),
    "search at an instant": lambda memory, _rex, before: memory.search(ALICE, "What is the dog called?", as_of=before),
    "add a text": lambda memory, _rex, _before: memory.add_text(ALICE, "User's dog is a terrier"),
    "add a text as it is": lambda memory, _rex, _before: memory.add_text(ALICE, "User's dog is a terrier", infer=False),
    "add messages": lambda memory, _rex, _before: memory.add_messages(messages_from(("user", "Rex is a terrier"))),
    "update": lambda memory, rex, _before: memory.update(ALICE, rex, text="User's dog is named Rexy"),
}


def model_reply(request: dict[str, Any]) -> str:
    """Extract one fact, and decide to add it."""
    if "New messages: " in request["messages"][1]["content"]:
        return json.dumps({"facts": [{"text": "User's dog Rex is a terrier", "sources": [1]}]})
    return json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("call", CALLS)
async def test_no_connection_is_in_use_while_texts_are_embedded_or_a_model_is_asked(tmp_path: Path, call: str) -> None:
    """An embedder or a model that hangs must not keep a connection and its snapshot open."""
    clock = StoppedClock()
    with count_connections() as connections:
        in_use: list[int] = []

        def chat(request: dict[str, Any]) -> str:
            in_use.append(connections())
            return model_reply(request)

        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as plain:
                rex, before = await fill(plain, clock)
                memory, embedder = watched(plain, lambda: in_use.append(connections()))
                await CALLS[call](memory, rex, before)
                with plain.engine.ledger.read():
                    assert connections() == 1
    assert embedder.texts or embedder.queries
    assert embedder.words or "search" not in call or "language" in call
    assert server.chat_requests or call not in ("add a text", "add messages")
    assert set(in_use) == {0}


async def test_a_text_of_the_past_is_embedded_after_the_ledger_was_read(tmp_path: Path) -> None:
    """A text that has changed since has no vector in the ledger and is embedded during the search."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as plain:
        _, before = await fill(plain, clock)
        memory, embedder = watched(plain)
        result = await memory.search(ALICE, "What was the dog called?", as_of=before)
    assert result.hits[0].text == REX_BEFORE
    assert (REX_BEFORE,) in embedder.texts


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("erased", [False, True], ids=["deleted", "erased"])
@pytest.mark.parametrize("past", [False, True], ids=["now", "at an instant"])
async def test_a_hit_that_is_deleted_during_a_search_is_dropped(tmp_path: Path, *, erased: bool, past: bool) -> None:
    """A search reads its hits a second time. A search at an instant returns them from its first read."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as plain:
        rex, _ = await fill(plain, clock)
        gone: list[str] = []

        def delete() -> None:
            if embedder.queries and not gone:  # the query is embedded already, and the candidates are read
                gone.extend(_delete(plain, rex, erased=erased))

        memory, embedder = watched(plain, delete)
        result = await memory.search(ALICE, "What is the dog called?", as_of=clock.at if past else None)
    assert gone == [rex]
    assert len(result.hits) == (4 if past else 3)
    assert (rex in {hit.id for hit in result.hits}) is past


@pytest.mark.parametrize("erased", [False, True], ids=["deleted", "erased"])
async def test_a_memory_that_is_deleted_during_a_comparison_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, erased: bool
) -> None:
    """The comparison reads the memories a second time."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        rex, _ = await fill(memory, clock)
        engine, texts = memory.engine, {"User's dog is Rex": None}
        (group,) = similar.similar_memories(engine.ledger, engine.embedder, engine.index, ALICE, texts, 5).values()
        assert group[0].memory.id == rex

        def retrieve_and_delete(*arguments: Any) -> Any:
            candidates = retrieve(*arguments)
            _delete(memory, rex, erased=erased)
            return candidates

        monkeypatch.setattr(similar, "retrieve", retrieve_and_delete)
        (rest,) = similar.similar_memories(engine.ledger, engine.embedder, engine.index, ALICE, texts, 5).values()
    assert rest == group[1:]


def _delete(memory: Memory, memory_id: str, *, erased: bool) -> list[str]:
    """Delete or erase a memory, as another process could, and return its id."""
    if erased:
        memory.engine.ledger.purge(ALICE, [memory_id])
    else:
        decisions = (Decision(Event.DELETE, memory_id=memory_id),)
        memory.engine.ledger.apply(Write(ALICE, Provenance("test"), decisions=decisions))
    return [memory_id]


async def test_texts_without_any_vector_are_ranked_by_their_words(tmp_path: Path) -> None:
    """Texts that were stored while the embedder was down are found, alone and among others."""
    async with memory_in(tmp_path) as memory:
        for text in ("The lantern hangs in the attic", "The lantern is waterproof"):
            write = Write(ALICE, Provenance("test"), decisions=(Decision(Event.ADD, Fact(text)),))
            memory.engine.ledger.apply(write)
        hits = (await memory.search(ALICE, "waterproof lantern")).hits
        assert [hit.text for hit in hits] == ["The lantern is waterproof", "The lantern hangs in the attic"]
        await memory.add_text(ALICE, "User wears a waterproof jacket")
        assert (await memory.search(ALICE, "waterproof lantern")).hits[0].text == "The lantern is waterproof"
