"""Each fact is stored once if several clients write at the same moment: threads, processes, slow models."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Decision, Event, Fact, Undo
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory
from tests.support.ledger_access import ledger_in, write_elsewhere, writing
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, memory_texts, messages_from
from tests.support.scripted_model import facts_reply, given, is_extraction, memory_with, reply_to_decide

pytestmark = pytest.mark.anyio

# After this many seconds a gate that no second request reaches is a failure.
PATIENCE = 60.0


async def at_once(*calls: Callable[[], Awaitable[WriteResult]]) -> list[WriteResult]:
    """Make calls at the same moment, and return their results."""
    results: list[WriteResult] = []

    async def run(call: Callable[[], Awaitable[WriteResult]]) -> None:
        results.append(await call())

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)
    return results


async def test_the_same_text_many_times_is_one_memory(tmp_path: Path) -> None:
    """Only the database can hold a text unique: one call adds it, the others find it."""
    async with memory_in(tmp_path) as one, memory_in(tmp_path) as other:
        results = await at_once(*(partial(at.add_text, ALICE, "User plays the cello") for at in (one, other) * 4))
        assert sorted(outcome.event for result in results for outcome in result.outcomes) == ["ADD", *["NONE"] * 7]
        assert await memory_texts(one) == ["User plays the cello"]
        assert len(await one.log(ALICE)) == 1


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("more", [{"id": "t{}"}, {"at": "2026-05-01T10:0{}:00Z"}, {}])
async def test_the_same_messages_are_kept_once(tmp_path: Path, more: dict[str, str]) -> None:
    """A client may send a call to another server too, a minute later."""
    batch = [
        {"role": "user", "content": text, **{key: value.format(number) for key, value in more.items()}}
        for number, text in enumerate(("Hello", "Is it raining?"))
    ]
    later = StoppedClock()
    later.forward(minutes=1)
    async with memory_in(tmp_path) as one, memory_in(tmp_path, later) as other:
        said = [messages_from(*batch, at=at.engine.clock()) for at in (one, other)]
        results = await at_once(partial(one.add_messages, said[0]), partial(other.add_messages, said[1]))
        assert sorted(result.kept_messages for result in results) == [0, 2]
        messages = (await one.scope_contents(ALICE)).messages
        assert [message.content for message in messages] == ["Hello", "Is it raining?"]
        assert len(await one.log(ALICE)) == 1


async def test_facts_are_extracted_from_the_same_messages_once(tmp_path: Path) -> None:
    """No comparison of texts would find the same fact in two wordings."""
    gate, said = threading.Barrier(2), messages_from(("user", "I have a cat"))

    def chat(request: dict[str, Any]) -> str:
        if is_extraction(request):
            gate.wait(PATIENCE)
            return facts_reply(f"User has a cat, as {threading.get_ident()} words it")
        return reply_to_decide(request)

    async with memory_with(chat, tmp_path) as (one, server):
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as other:
            early, late = sorted(
                await at_once(partial(one.add_messages, said), partial(other.add_messages, said)),
                key=lambda result: -len(result.outcomes),
            )
        assert [outcome.event for outcome in early.outcomes] == [Event.ADD]
        assert "another call has learned from these messages meanwhile" in late.notes
        assert len(await memory_texts(one)) == 1
        asked, edits = len(server.chat_requests), await one.log(ALICE)
        await one.add_messages(said)
        assert (len(server.chat_requests), await one.log(ALICE)) == (asked, edits)


Changes = Callable[[], object]


@asynccontextmanager
async def thinking(folder: Path, *changes: Changes) -> AsyncGenerator[tuple[Memory, OpenAIServer]]:
    """Open a memory whose model decides by what it is shown. One change is made during each of its first requests."""
    left = list(changes)

    def chat(request: dict[str, Any]) -> str:
        if left:
            left.pop(0)()
        return facts_reply("User lives in Lyon") if is_extraction(request) else reply_to_decide(request)

    async with memory_with(chat, folder) as opened:
        yield opened
    assert left == []


def elsewhere(folder: Path, *decisions: Decision, **rest: Any) -> Changes:
    """Return a function that changes the same memory as another process does."""
    return lambda: write_elsewhere(folder, *decisions, **rest)


def shown(server: OpenAIServer) -> list[list[str]]:
    """Return which memories each request for decisions showed."""
    asked = [given(request, "Stored memories") for request in server.chat_requests if not is_extraction(request)]
    return [[item["text"] for item in memories] for memories in asked]


async def test_a_memory_that_was_changed_meanwhile_is_decided_on_as_it_is_now(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        nice = await add_text(memory, "User lives in Nice")
    changes = [
        elsewhere(tmp_path, Decision(Event.UPDATE, Fact("User has a house in Nice"), nice)),
        elsewhere(tmp_path, Decision(Event.UPDATE, Fact("User lives in Rennes"), nice)),
        elsewhere(tmp_path, undo=Undo()),
    ]
    async with thinking(tmp_path, *changes) as (memory, server):
        result = await memory.add_text(ALICE, "User lives in Lyon")
        assert await memory_texts(memory) == ["User has a house in Nice", "User lives in Lyon"]
    assert result.notes == ()
    assert shown(server) == [
        ["User lives in Nice"],
        ["User has a house in Nice"],
        ["User lives in Rennes"],
        ["User has a house in Nice"],
    ]


async def test_a_text_is_stored_as_it_is_if_memories_keep_changing(tmp_path: Path) -> None:
    changes = [elsewhere(tmp_path, Decision(Event.ADD, Fact(f"User lives in street {n}"))) for n in range(5)]
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User lives in Nice")
    async with thinking(tmp_path, *changes) as (memory, server):
        result = await memory.add_text(ALICE, "User lives in Lyon")
        assert len(await memory_texts(memory)) == 7
    assert len(server.chat_requests) == 5
    assert "other clients kept changing this memory" in result.notes[0]


async def test_a_message_that_is_deleted_during_extraction_is_not_learned_from(tmp_path: Path) -> None:
    said_now = messages_from(("user", "I moved to Lyon"))
    delete_message = elsewhere(tmp_path, Decision(Event.DELETE, memory_id=said_now[0].id, kind="message"))
    async with thinking(tmp_path, delete_message) as (memory, server):
        assert (await memory.add_messages(said_now)).outcomes == ()
        assert await memory_texts(memory) == []
        again = await memory.add_messages(said_now)
        assert "1 of these messages were deleted before and stay deleted" in again.notes[1]
    assert len(server.chat_requests) == 1


async def test_reads_do_not_wait_for_writes_that_wait_for_another_process(tmp_path: Path, memory: Memory) -> None:
    """Guards lists and searches beside many adds: while another process writes, only the adds wait."""
    texts = [f"Note number {number}" for number in range(20)]
    await add_text(memory, "User plays the harp")
    with ledger_in(tmp_path) as other:
        async with anyio.create_task_group() as tasks:
            with writing(other):
                for text in texts:
                    tasks.start_soon(add_text, memory, text)
                with anyio.fail_after(PATIENCE / 4):
                    await anyio.wait_all_tasks_blocked()
                    assert await memory_texts(memory) == ["User plays the harp"]
                    [hit] = (await memory.search(ALICE, "harp")).hits
                    assert hit.text == "User plays the harp"
    assert set(await memory_texts(memory)) == {"User plays the harp", *texts}
