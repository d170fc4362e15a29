"""No connection to the ledger is in use during a slow call, and no key of what was erased is left in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from loopback import OpenAIServer
from palimpsest.admin.backup import back_up, restore
from palimpsest.core.models import Scope
from palimpsest.index import sync
from palimpsest.memory import Memory
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import add_all, facts_reply, is_extraction
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

REX, REX_BEFORE = "User's dog is named Rex", "User's dog was named Max"


@contextmanager
def count_connections() -> Generator[Callable[[], int]]:
    """Yield a function that returns how many connections, of every database, are in use."""
    in_use: list[object] = []

    def take(*_: object) -> None:
        in_use.append(None)

    def give_back(*_: object) -> None:
        in_use.pop()

    event.listen(Pool, "checkout", take)
    event.listen(Pool, "checkin", give_back)
    yield lambda: len(in_use)
    event.remove(Pool, "checkout", take)
    event.remove(Pool, "checkin", give_back)


async def test_no_connection_is_in_use_while_texts_are_embedded_or_a_model_is_asked(tmp_path: Path) -> None:
    """An embedder or a model that hangs must not keep a connection and its snapshot open."""
    clock, in_use = StoppedClock(), list[int]()

    def chat(request: dict[str, Any]) -> str:
        in_use.append(connections())
        return facts_reply("User's dog Rex is a terrier") if is_extraction(request) else json.dumps(add_all(request))

    with count_connections() as connections, OpenAIServer(chat) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as plain:
            rex, before = await add_text(plain, REX_BEFORE), clock.at
            clock.forward(days=1)
            memory, embedder = watched(plain, lambda: in_use.append(connections()))
            await memory.update(ALICE, rex, text=REX)
            await memory.search(ALICE, "the dog", filters={"kind": "memory"})
            await memory.search(ALICE, "What is the dog called?", as_of=before)
            assert (REX_BEFORE,) in embedder.texts, "what has changed since has no vector in the ledger"
            await memory.add_text(ALICE, "User's dog is a terrier")
            await memory.add_messages(messages_from(("user", "Rex is a terrier")))
            with plain.engine.ledger.read():
                assert connections() == 1
    assert len(server.chat_requests) > 2
    assert len(in_use) > len(server.chat_requests) + 4
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
        assert list(memory.kept_keys.users) == []
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
        assert list(memory.kept_keys.users) == []
