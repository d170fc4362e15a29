"""No connection to the ledger is in use during a slow call, and a search sees every change, whoever made it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from loopback import OpenAIServer
from palimpsest.admin.backup import back_up, restore
from palimpsest.core.models import Message, Scope
from palimpsest.index import sync
from palimpsest.memory import Memory
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.open_connections import count_connections
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

REX, REX_BEFORE = "User's dog is named Rex", "User's dog was named Max"
LISBON = "The team retreat takes place in Lisbon"
SAID: tuple[Message, ...] = messages_from(("user", "We moved to a flat by the river"), ("user", "Rex likes the river"))
QUESTION = "What is the dog called?"


async def fill(memory: Memory, clock: StoppedClock) -> tuple[str, datetime]:
    """Store memories and messages, then update one memory. Return its id and an instant before the update."""
    rex = await add_text(memory, REX_BEFORE)
    await add_text(memory, LISBON)
    await memory.add_messages(SAID, infer=False)
    before = clock.at
    clock.forward(days=1)
    await memory.update(ALICE, rex, text=REX)
    return rex, before


CALLS: dict[str, Callable[[Memory, str, datetime], Awaitable[Any]]] = {
    "filtered search": lambda memory, _rex, _before: memory.search(ALICE, "the dog", filters={"kind": "memory"}),
    "search at an instant": lambda memory, _rex, before: memory.search(ALICE, QUESTION, as_of=before),
    "add a text": lambda memory, _rex, _before: memory.add_text(ALICE, "User's dog is a terrier"),
    "add messages": lambda memory, _rex, _before: memory.add_messages(messages_from(("user", "Rex is a terrier"))),
    "update": lambda memory, rex, _before: memory.update(ALICE, rex, text="User's dog is named Rexy"),
}


async def test_no_connection_is_in_use_while_texts_are_embedded_or_a_model_is_asked(tmp_path: Path) -> None:
    """An embedder or a model that hangs must not keep a connection and its snapshot open."""
    clock = StoppedClock()
    in_use: list[int] = []

    def chat(request: dict[str, Any]) -> str:
        in_use.append(connections())
        if "New messages: " in request["messages"][1]["content"]:
            return json.dumps({"facts": [{"text": "User's dog Rex is a terrier", "sources": [1]}]})
        return json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})

    with count_connections() as connections, OpenAIServer(chat) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as plain:
            rex, before = await fill(plain, clock)
            for name, call in CALLS.items():
                memory, embedder = watched(plain, lambda: in_use.append(connections()))
                asked = len(server.chat_requests)
                await call(memory, rex, before)
                with plain.engine.ledger.read():
                    assert connections() == 1
                assert embedder.texts or embedder.queries, name
                assert len(server.chat_requests) > asked or name not in ("add a text", "add messages")
                if name == "search at an instant":  # what has changed since has no vector in the ledger
                    assert (REX_BEFORE,) in embedder.texts
    assert set(in_use) == {0}


# Asks for the bees below by meaning: the two have no word in common.
INSECTS = "Which insects live behind the house?"

BEES = "User keeps bees in the garden"


async def found(memory: Memory, scope: Scope = ALICE) -> list[str]:
    return [hit.text for hit in (await memory.search(scope, INSECTS)).hits]


async def test_no_keys_are_left_of_what_was_purged_or_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector says much of what its text said; a restored ledger has other entries. Too many keys are not kept."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, REX)
        bees = await add_text(memory, BEES)
        assert (await found(memory))[0] == BEES
        assert (await memory.care.purge(ALICE, [bees])).clean
        assert memory.kept_keys.kept_users() == []
        assert await found(memory) == [REX]
        copy = await anyio.to_thread.run_sync(lambda: back_up(memory.settings, None, clock).path)
        await add_text(memory, BEES)
        assert (await found(memory))[0] == BEES
        await anyio.to_thread.run_sync(lambda: restore(memory.settings, copy, clock))
        assert await found(memory) == [REX]
        await add_text(memory, BEES)
        assert (await found(memory))[0] == BEES
    monkeypatch.setattr(sync, "MAX_NUMBERS", 0)
    async with memory_in(tmp_path, clock) as memory:
        assert (await found(memory))[0] == BEES
        await memory.care.rebuild()
        assert (await found(memory))[0] == BEES
        assert memory.kept_keys.kept_users() == []
