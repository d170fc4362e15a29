"""Each fact is stored once if several clients write at the same moment: threads, processes, slow models."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Decision, Edit, Event, Fact, Message, Undo
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory
from tests.support.ledger_access import ledger_in, stored_rows, write_elsewhere, writing
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, memory_texts, messages_from
from tests.support.scripted_model import facts_reply, given, is_extraction, memory_with, reply_to_decide

pytestmark = pytest.mark.anyio

PATIENCE = 60.0
"""After this many seconds a gate that no second request reaches is a failure."""


@dataclass
class Pair:
    """Two servers with one memory and one model. Two requests with the name of a gate wait for each other."""

    folder: Path
    server: OpenAIServer = field(init=False)
    memories: list[Memory] = field(default_factory=list[Memory])
    gates: dict[str, threading.Barrier] = field(default_factory=dict[str, threading.Barrier])

    def __post_init__(self) -> None:
        self.server = OpenAIServer(self.chat)

    def chat(self, request: dict[str, Any]) -> str:
        """Answer a request. Two requests with the name of a gate in them are answered when both have arrived."""
        prompt = request["messages"][1]["content"]
        for name, gate in self.gates.items():
            if name in prompt:
                gate.wait(PATIENCE)
        if is_extraction(request):
            return facts_reply(f"User has a cat, as {threading.get_ident()} words it")
        return reply_to_decide(request)

    async def add_texts(self, *texts: Sequence[str], infer: bool | None = None) -> list[WriteResult]:
        """Add texts to the first memory and others to the second, all at the same moment."""
        calls = [
            partial(at.add_text, ALICE, text, infer=infer)
            for at, of in zip(self.memories, texts, strict=True)
            for text in of
        ]
        return await _at_once(calls)

    async def add_messages(self, *said: dict[str, Any], infer: bool | None = None) -> list[WriteResult]:
        """Send each memory the same messages at the same moment."""
        return await _at_once(
            [partial(at.add_messages, messages_from(*said, at=at.engine.clock()), infer=infer) for at in self.memories]
        )

    def stored(self) -> tuple[list[str], list[Edit], list[Message]]:
        """Return the texts of the memories, every edit, and the messages."""
        stored = stored_rows(self.folder, ALICE)
        return [memory.text for memory in stored.memories], [*stored.edits], [*stored.messages]


async def _at_once(calls: Sequence[Callable[[], Awaitable[WriteResult]]]) -> list[WriteResult]:
    results: list[WriteResult] = []

    async def run(call: Callable[[], Awaitable[WriteResult]]) -> None:
        results.append(await call())

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)
    return results


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncGenerator[Pair]:
    new_pair = Pair(tmp_path)
    async with AsyncExitStack() as stack:
        stack.enter_context(new_pair.server)
        for minutes in (0, 1):
            clock = StoppedClock()
            clock.forward(minutes=minutes)
            opened = memory_in(tmp_path, clock, llm=llm_settings(new_pair.server.base_url))
            new_pair.memories.append(await stack.enter_async_context(opened))
        yield new_pair


def events_of(results: Sequence[WriteResult]) -> list[str]:
    return sorted(outcome.event for result in results for outcome in result.outcomes)


class TestAtOnce:
    async def test_the_same_text_many_times_is_one_memory(self, pair: Pair) -> None:
        """Only the database can hold a text unique: one call adds it, the others find it."""
        cello = ["User plays the cello"] * 4
        assert events_of(await pair.add_texts(cello, cello, infer=False)) == ["ADD", *["NONE"] * 7]
        believed, edits, _ = pair.stored()
        assert (believed, len(edits)) == (cello[:1], 1)

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("more", [{"id": "t{}"}, {"at": "2026-05-01T10:0{}:00Z"}, {}])
    async def test_the_same_messages_are_kept_once(self, pair: Pair, more: dict[str, str]) -> None:
        """A client may send a call to another server too, a minute later."""
        batch = [
            {"role": "user", "content": text, **{key: value.format(number) for key, value in more.items()}}
            for number, text in enumerate(("Hello", "Is it raining?"))
        ]
        assert sorted(result.kept_messages for result in await pair.add_messages(*batch, infer=False)) == [0, 2]
        _, edits, messages = pair.stored()
        assert [message.content for message in messages] == ["Hello", "Is it raining?"]
        assert len(edits) == 1

    async def test_contradicting_texts_decided_on_at_the_same_moment_leave_one_memory(self, pair: Pair) -> None:
        """Both models see the old memory, and one of them has to decide again."""
        await pair.add_texts(["User lives in Nice"], [], infer=False)
        pair.gates["User lives in Nice"] = threading.Barrier(2)
        cities = ("User lives in Lyon", "User lives in Metz")
        results = await pair.add_texts(cities[:1], cities[1:])
        # The server whose clock is a minute behind says so, if the other one writes first.
        assert [note for result in results for note in result.notes if "clock is behind" not in note] == []
        assert len(pair.server.chat_requests) == 3
        believed, edits, _ = pair.stored()
        assert len(believed) == 1
        steps = [(step.event, step.before or step.after) for edit in reversed(edits) for step in edit.steps]
        first, last = cities if believed == [cities[1]] else cities[::-1]
        assert steps == [
            (Event.ADD, "User lives in Nice"),
            (Event.ADD, first),
            (Event.DELETE, "User lives in Nice"),
            (Event.ADD, last),
            (Event.DELETE, first),
        ]

    async def test_facts_are_extracted_from_the_same_messages_once(self, pair: Pair) -> None:
        """No comparison of texts would find the same fact in two wordings."""
        cat = {"role": "user", "content": "I have a cat"}
        pair.gates["I have a cat"] = threading.Barrier(2)
        results = await pair.add_messages(cat)
        del pair.gates["I have a cat"]
        assert events_of(results) == ["ADD"]
        (late,) = (result for result in results if not result.outcomes)
        assert "another call has learned from these messages meanwhile" in late.notes
        believed, edits, messages = pair.stored()
        assert (len(believed), len(messages), len(edits)) == (1, 1, 2)
        asked_before = len(pair.server.chat_requests)
        await pair.add_messages(cat)
        assert len(pair.server.chat_requests) == asked_before
        assert pair.stored()[1] == edits


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


class TestDecidedAgain:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("how", ["added", "changed", "deleted", "restored"])
    async def test_a_change_to_an_unrelated_memory_costs_no_other_request(self, tmp_path: Path, how: str) -> None:
        """A decision holds as long as nothing it was made on has changed."""
        unrelated = "The build runs on Tuesdays"
        async with memory_in(tmp_path) as memory:
            await add_text(memory, "User lives in Nice with the cat Miso")
            for number in range(12):  # more than a model is shown
                await add_text(memory, f"Miso, the cat of the user in Lyon, has toy number {number}")
            other = await add_text(memory, unrelated)
            if how == "restored":
                await memory.delete(ALICE, [other])
        decisions = {
            "added": Decision(Event.ADD, Fact("Peanuts make the sister ill")),
            "changed": Decision(Event.UPDATE, Fact(unrelated, metadata={"k": 1}), other),
            "deleted": Decision(Event.DELETE, memory_id=other),
            "restored": Decision(Event.ADD, memory_id=other),
        }[how]
        async with thinking(tmp_path, elsewhere(tmp_path, decisions)) as (memory, server):
            result = await memory.add_text(ALICE, "User lives in Lyon with the cat Miso")
            assert "User lives in Nice with the cat Miso" not in await memory_texts(memory)
        (offered,) = shown(server)
        assert unrelated not in offered
        assert result.notes == ()

    async def test_a_memory_that_was_changed_meanwhile_is_decided_on_as_it_is_now(self, tmp_path: Path) -> None:
        """What another client wrote while the model thought is decided on, however often."""
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

    async def test_a_text_is_stored_as_it_is_if_memories_keep_changing(self, tmp_path: Path) -> None:
        """A call does not ask the model forever, and does not lose its text."""
        changes = [elsewhere(tmp_path, Decision(Event.ADD, Fact(f"User lives in street {n}"))) for n in range(5)]
        async with memory_in(tmp_path) as memory:
            await add_text(memory, "User lives in Nice")
        async with thinking(tmp_path, *changes) as (memory, server):
            result = await memory.add_text(ALICE, "User lives in Lyon")
            assert len(await memory_texts(memory)) == 7
        assert len(server.chat_requests) == 5
        assert "other clients kept changing this memory" in result.notes[0]

    async def test_a_message_that_is_deleted_during_extraction_is_not_learned_from(self, tmp_path: Path) -> None:
        """No fact of a deleted message is stored later."""
        said_now = messages_from(("user", "I moved to Lyon"))
        delete_message = elsewhere(tmp_path, Decision(Event.DELETE, memory_id=said_now[0].id, kind="message"))
        async with thinking(tmp_path, delete_message) as (memory, server):
            assert (await memory.add_messages(said_now)).outcomes == ()
            assert await memory_texts(memory) == []
            again = await memory.add_messages(said_now)
            assert "1 of these messages were deleted before and stay deleted" in again.notes[1]
        assert len(server.chat_requests) == 1


async def test_reads_do_not_wait_for_writes_that_wait_for_another_process(tmp_path: Path) -> None:
    """Guards lists and searches beside many adds: while another process writes, only the adds wait."""
    texts = [f"Note number {number}" for number in range(20)]
    async with memory_in(tmp_path) as memory:
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
