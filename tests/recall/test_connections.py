"""No connection to the ledger is in use during a slow call, and a search sees every change, whoever made it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from sqlalchemy import Connection

from loopback import OpenAIServer
from palimpsest.admin.backup import back_up, restore
from palimpsest.core.models import Decision, Event, Fact, Message, Scope
from palimpsest.core.protocols import Vector
from palimpsest.index import sync
from palimpsest.index.sync import IndexHits, Projection
from palimpsest.memory import Memory
from palimpsest.recall import features, similar
from palimpsest.recall.features import rank
from palimpsest.recall.retrieve import retrieve
from tests.support.ledger_access import write_decisions
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
    "search": lambda memory, _rex, _before: memory.search(ALICE, QUESTION),
    "search in another language": lambda memory, _rex, _before: memory.search(ALICE, "Wie heißt der Hund?"),
    "filtered search": lambda memory, _rex, _before: memory.search(ALICE, "the dog", filters={"kind": "memory"}),
    "search at an instant": lambda memory, _rex, before: memory.search(ALICE, QUESTION, as_of=before),
    "add a text": lambda memory, _rex, _before: memory.add_text(ALICE, "User's dog is a terrier"),
    "add a text as it is": lambda memory, _rex, _before: memory.add_text(ALICE, "User's dog barks", infer=False),
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


async def test_a_search_shows_one_state_of_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted while the hits are ranked is in them, and no search after that has it."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        rex, _ = await fill(memory, clock)
        deleted: list[str] = []

        def rank_after_deletion(*arguments: Any) -> Any:
            if not deleted:
                write_decisions(memory, Decision(Event.DELETE, memory_id=rex))
                deleted.append(rex)
            return rank(*arguments)

        monkeypatch.setattr(features, "rank", rank_after_deletion)
        hits = (await memory.search(ALICE, QUESTION)).hits
        assert deleted == [rex]
        assert (len(hits), rex in {hit.id for hit in hits}) == (4, True)
        hits = (await memory.search(ALICE, QUESTION)).hits
        assert (len(hits), rex in {hit.id for hit in hits}) == (3, False)


@pytest.mark.parametrize("erased", [False, True], ids=["deleted", "erased"])
async def test_what_is_deleted_during_a_comparison_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, erased: bool
) -> None:
    """A comparison reads what it found a second time."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        rex, _ = await fill(memory, clock)
        engine, texts = memory.engine, {"User's dog is Rex": None}
        (group,) = similar.similar_memories(engine, ALICE, texts, 5).values()
        assert group[0].memory.id == rex

        def retrieve_and_delete(*arguments: Any) -> Any:
            candidates = retrieve(*arguments)
            if erased:
                memory.engine.ledger.purge(ALICE, [rex])
            else:
                write_decisions(memory, Decision(Event.DELETE, memory_id=rex))
            return candidates

        monkeypatch.setattr(similar, "retrieve", retrieve_and_delete)
        (rest,) = similar.similar_memories(engine, ALICE, texts, 5).values()
    assert rest == group[1:]


async def test_texts_without_any_vector_are_ranked_by_their_words(tmp_path: Path) -> None:
    """Texts that were stored while the embedder was down are found, alone and among others."""
    async with memory_in(tmp_path) as memory:
        for text in ("The lantern hangs in the attic", "The lantern is waterproof"):
            write_decisions(memory, Decision(Event.ADD, Fact(text)))
        hits = (await memory.search(ALICE, "waterproof lantern")).hits
        assert [hit.text for hit in hits] == ["The lantern is waterproof", "The lantern hangs in the attic"]
        await memory.add_text(ALICE, "User wears a waterproof jacket")
        assert (await memory.search(ALICE, "waterproof lantern")).hits[0].text == "The lantern is waterproof"


@dataclass
class WatchedIndex:
    """Pass queries on to an index, and record how many connections were in use at each."""

    index: Projection
    connections: Callable[[], int]
    in_use: list[int] = field(default_factory=list[int])

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries."""
        self.in_use.append(self.connections())
        return self.index.query(user_id, vector, limit)

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return the entries that changed since."""
        return self.index.changed_since(conn, user_id, log_number)


INSECTS = "Which insects live behind the house?"
"""Asks for the bees below by meaning: the two have no word in common."""

BEES = "User keeps bees in the garden"


async def found(memory: Memory, scope: Scope = ALICE) -> list[str]:
    return [hit.text for hit in (await memory.search(scope, INSECTS)).hits]


async def test_the_index_is_queried_without_a_connection(tmp_path: Path) -> None:
    """An index server that hangs must not keep a snapshot open. What the index lacks is a candidate too."""
    async with memory_in(tmp_path) as memory:
        await add_text(memory, REX)
        await memory.care.rebuild()
        with count_connections() as connections:
            index = WatchedIndex(memory.projection, connections)
            other = replace(memory, engine=replace(memory.engine, index=index))
            result = await other.add_text(ALICE, "User's dog is called Rex", infer=False)
        assert result.similar[result.outcomes[0].memory.id]
        assert index.in_use
        assert set(index.in_use) == {0}
        await add_text(memory, BEES)
        assert BEES in await found(memory)


async def test_a_memory_that_another_process_adds_changes_or_deletes(tmp_path: Path) -> None:
    """Guards the keys of one process against the writes of another, and scopes: the keys of a user are those of all."""
    wasps = "User keeps wasps in the garden"
    async with memory_in(tmp_path) as memory, memory_in(tmp_path) as other:
        await add_text(memory, REX)
        assert BEES not in await found(memory)
        assert memory.kept_keys.kept_users() == ["alice"]
        bees = await add_text(other, BEES)
        assert (await found(memory))[0] == BEES
        await other.update(ALICE, bees, text=wasps)
        assert (await found(memory))[0] == wasps
        await other.delete(ALICE, [bees])
        assert await found(memory) == [REX]
        await other.restore(ALICE, bees)
        assert (await found(memory))[0] == wasps
        await memory.add_text(Scope("alice", project="honey"), BEES, infer=False)
        assert (await found(memory, Scope("alice", project="honey")))[0] == BEES
        assert BEES not in await found(memory, Scope("alice", project="other"))
        assert await found(memory, Scope("bob")) == []


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


OFFICE = "The team's office is at Hohlstrasse 188 in Zurich"
LIFE = (OFFICE, "User drinks no coffee after noon", "The printer is on the second floor", "User's cat is called Miso")
AGAIN = (f"{OFFICE}.", OFFICE.replace(" ", "  "), f"{OFFICE} !")


async def test_the_memory_that_a_new_one_repeats_or_replaces_is_named(tmp_path: Path) -> None:
    """Nothing else is named, and punctuation and white space make no difference."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:

        async def named(text: str) -> list[tuple[str, float]]:
            result = await memory.add_text(ALICE, text, infer=False)
            (outcome,) = result.outcomes
            if outcome.duplicate_of is not None:
                return [(OFFICE, 1.0)]
            return [(item.memory.text, item.likeness) for item in result.similar.get(outcome.memory.id, ())]

        for text in LIFE:
            assert await named(text) == []
        clock.forward(days=1)
        assert await named("Lina has violin lessons on Tuesdays") == []
        for text in AGAIN:
            assert await named(text) == [(OFFICE, 1.0)], text
        ((text, _),) = await named("Since March the team's office is at Technoparkstrasse 3 in Winterthur")
        assert OFFICE in text
