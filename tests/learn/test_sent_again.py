"""Each fact is stored once, however often it is sent: a repeated call changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.models import Event, Scope
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, memory_texts, messages_from
from tests.support.scripted_model import facts_reply, reply_to_decide
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio


async def everything(memory: Memory) -> tuple[Any, ...]:
    """Return every edit and everything living."""
    return await memory.log(ALICE, limit=1_000), await memory.scope_contents(ALICE)


@dataclass
class Known:
    """The ids of the first contents: two living memories, a deleted one, two messages."""

    tea: str
    nice: str
    deleted: str
    message: str
    deleted_message: str


async def first_contents(memory: Memory) -> Known:
    tea = await add_text(memory, "User likes oolong", metadata={"a": 1})
    nice = await add_text(memory, "User lives in Nice")
    deleted = await add_text(memory, "User fears spiders")
    await memory.add_messages(messages_from(("user", "I play the cello"), ("user", "Which strings?")), infer=False)
    message, deleted_message = (stored.id for stored in (await memory.scope_contents(ALICE)).messages)
    await memory.delete(ALICE, [deleted, deleted_message])
    return Known(tea, nice, deleted, message, deleted_message)


Call = Callable[[Memory, Known], Awaitable[WriteResult]]

CALLS: dict[str, Call] = {
    "add": lambda memory, _: memory.add_text(ALICE, "User has a dog", metadata={"k": 1}),
    "add a text that is there with metadata": lambda memory, _: memory.add_text(
        ALICE, "User likes oolong", metadata={"a": None, "b": [2]}
    ),
    "replace": lambda memory, known: memory.add_text(ALICE, "User lives in Lyon", replaces=[known.nice, known.tea[:8]]),
    "replace by a text that is there": lambda memory, known: memory.add_text(
        ALICE, "User lives in Nice", replaces=[known.tea]
    ),
    "update the text": lambda memory, known: memory.update(ALICE, known.tea, text="User likes sencha"),
    "update the metadata": lambda memory, known: memory.update(ALICE, known.tea, metadata={"a": None, "b": {"c": 1}}),
    "update to what another says": lambda memory, known: memory.update(ALICE, known.nice, text="user likes OOLONG"),
    "delete": lambda memory, known: memory.delete(ALICE, [known.nice, known.message]),
    "delete all": lambda memory, _: memory.delete_all(ALICE),
    "restore": lambda memory, known: memory.restore(ALICE, known.deleted),
    "restore a message": lambda memory, known: memory.restore(ALICE, known.deleted_message),
}


class TestSentAgain:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("what", CALLS)
    async def test_a_repeated_call_changes_nothing(self, tmp_path: Path, what: str) -> None:
        """A client may time out after the write was done. The repeated call says so and adds no row."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            known = await first_contents(memory)
            before = await everything(memory)
            first = await CALLS[what](memory, known)
            after = await everything(memory)
            assert after != before
            clock.forward(minutes=5)
            again = await CALLS[what](memory, known)
            assert await everything(memory) == after
        assert all(change.event is not Event.NONE or change.replaced for change in first.outcomes)
        assert {change.event for change in again.outcomes} <= {Event.NONE}

    async def test_a_repeated_text_that_a_model_decided_on_changes_nothing(self, tmp_path: Path) -> None:
        """A reconciled text does not contradict its own memory."""
        with OpenAIServer(reply_to_decide) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await add_text(memory, "User lives in Nice")
                (change,) = (await memory.add_text(ALICE, "User lives in Lyon")).outcomes
                after = await everything(memory)
                (again,) = (await memory.add_text(ALICE, "User lives in Lyon")).outcomes
                assert await everything(memory) == after
        assert change.previous == "User lives in Nice"
        assert (again.event, again.duplicate_of) == (Event.NONE, change.memory.id)

    async def test_a_text_that_facts_were_extracted_from_is_extracted_once(self, tmp_path: Path) -> None:
        """With `infer` True the text is a message, and facts are extracted from a message once."""
        clock = StoppedClock()
        with OpenAIServer([facts_reply("User lives in Lyon")]) as server:
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "I moved to Lyon", infer=True)
                after = await everything(memory)
                clock.forward(minutes=5)
                await memory.add_text(ALICE, "I moved to Lyon", infer=True)
                assert await everything(memory) == after
        assert len(server.chat_requests) == 1


HELLO = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi", "name": "Bot"})


class TestTurnsSentAgain:
    @pytest.mark.parametrize(
        "more", [{"id": "t{}"}, {"at": "2026-05-01T10:0{}:00Z"}, {"id": "t{}", "at": "2026-05-01"}]
    )
    async def test_messages_with_ids_or_times_are_always_recognized(self, tmp_path: Path, more: dict[str, str]) -> None:
        """An import can be repeated as a whole, in part, in another order, or together with new messages."""
        clock = StoppedClock()
        one, two, three = (
            {"role": "user", "content": f"Message {n}", **{key: value.format(n) for key, value in more.items()}}
            for n in range(3)
        )
        async with memory_in(tmp_path, clock) as memory:
            for batch, kept in (((one, two), 2), ((one, two), 0), ((two, one), 0), ((two,), 0), ((two, three), 1)):
                clock.forward(days=1)
                result = await memory.add_messages(messages_from(*batch, at=clock.at))
                assert result.kept_messages == kept
                assert ("all of these messages were known already" in result.notes) is (kept == 0)
            assert len((await memory.scope_contents(ALICE)).messages) == 3

    @pytest.mark.parametrize(("minutes", "kept"), [(0, 0), (5, 0), (10, 0), (11, 2)])
    async def test_messages_without_ids_or_times_are_recognized_for_ten_minutes(
        self, tmp_path: Path, minutes: int, kept: int
    ) -> None:
        """A retry is recognized. What is said again later was said twice."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            assert (await memory.add_messages(messages_from(*HELLO, at=clock.at))).kept_messages == 2
            after = await everything(memory)
            clock.forward(minutes=minutes)
            assert (await memory.add_messages(messages_from(*HELLO, at=clock.at))).kept_messages == kept
            assert (await everything(memory) == after) is (kept == 0)

    @pytest.mark.parametrize(
        "batch",
        [
            (*HELLO, {"role": "user", "content": "Bye"}),
            HELLO[:1],
            HELLO[::-1],
            (HELLO[0], {**HELLO[1], "name": "Bob"}),
            (HELLO[0], {**HELLO[1], "role": "user"}),
            (HELLO[0], {**HELLO[1], "content": "Hi!"}),
            (*HELLO, *HELLO),
        ],
        ids=["one more", "one less", "another order", "another name", "another role", "another word", "twice as much"],
    )
    async def test_another_batch_a_moment_later_is_new(self, tmp_path: Path, batch: Sequence[dict[str, Any]]) -> None:
        """Only a call with exactly the same messages is taken for a retry."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            await memory.add_messages(messages_from(*HELLO, at=clock.at))
            clock.forward(seconds=1)
            assert (await memory.add_messages(messages_from(*batch, at=clock.at))).kept_messages == len(batch)
            clock.forward(seconds=1)
            for known in (HELLO, batch):
                assert (await memory.add_messages(messages_from(*known, at=clock.at))).kept_messages == 0

    async def test_the_same_batch_of_another_scope_is_new(self, tmp_path: Path) -> None:
        """Messages are recognized within their scope only."""
        async with memory_in(tmp_path) as memory:
            for scope in (ALICE, Scope("bob"), Scope("alice", project="web"), Scope("alice", run_id="r1")):
                assert (await memory.add_messages(messages_from(*HELLO, scope=scope))).kept_messages == 2

    @pytest.mark.parametrize("more", [{}, {"at": "2026-05-01T10:00:00Z"}])
    async def test_two_equal_messages_of_one_call_stay_two(self, tmp_path: Path, more: dict[str, str]) -> None:
        """The same words may be said twice in a row."""
        clock = StoppedClock()
        twice = [{"role": "user", "content": "No!", **more}] * 2
        async with memory_in(tmp_path, clock) as memory:
            for kept in (2, 0, 0):
                assert (await memory.add_messages(messages_from(*twice, at=clock.at))).kept_messages == kept
                clock.forward(minutes=1)
            assert len((await memory.scope_contents(ALICE)).messages) == 2

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("more", [{}, {"id": "t1"}, {"at": "2026-05-01T10:00:00Z"}])
    async def test_facts_are_extracted_once_when_messages_are_repeated_after_a_failure(
        self, tmp_path: Path, more: dict[str, str]
    ) -> None:
        """Messages that were kept while the model failed can be sent again to learn from them."""
        clock = StoppedClock()
        message = {"role": "user", "content": "I moved to Lyon", **more}
        script = [Reply(status=401), Reply("Sure!"), Reply("Sure!"), Reply(facts_reply("User lives in Lyon"))]
        with OpenAIServer(script) as server:
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
                for kept, learnt, requests in ((1, 0, 1), (0, 0, 3), (0, 1, 4), (0, 0, 4), (0, 0, 4)):
                    result = await memory.add_messages(messages_from(message, at=clock.at))
                    assert (result.kept_messages, len(result.outcomes)) == (kept, learnt)
                    assert len(server.chat_requests) == requests
                    clock.forward(minutes=1)
                assert await memory_texts(memory) == ["User lives in Lyon"]

    async def test_a_conversation_without_facts_is_not_read_again(self, tmp_path: Path) -> None:
        """That no facts were found is a result too, and costs the model no second request."""
        with OpenAIServer([facts_reply()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for _ in range(2):
                    await memory.add_messages(messages_from(*HELLO))
        assert len(server.chat_requests) == 1

    async def test_messages_kept_without_a_model_are_learned_from_when_there_is_one(self, tmp_path: Path) -> None:
        """A default installation can get a model later."""
        message = {"role": "user", "content": "I moved to Lyon", "id": "t1"}
        async with memory_in(tmp_path) as memory:
            assert (await memory.add_messages(messages_from(message))).kept_messages == 1
        with OpenAIServer([facts_reply("User lives in Lyon")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await memory.add_messages(messages_from(message))
        assert (result.kept_messages, [change.memory.text for change in result.outcomes]) == (0, ["User lives in Lyon"])


async def test_every_tool_that_writes_can_be_called_again(tmp_path: Path) -> None:
    """Through the server, the second reply says that nothing had to be done."""
    async with connect(tmp_path) as server, memory_in(tmp_path / "data") as memory:

        async def twice(tool: str, expected: str, **arguments: Any) -> list[dict[str, Any]]:
            first = await server.call_tool(tool, arguments)
            reply_text(first)
            after = await everything(memory)
            again = reply_text(await server.call_tool(tool, arguments))
            assert again.startswith(expected)
            assert await everything(memory) == after
            return first.structured_content.get("results", [])

        (tea,) = await twice("add_memory", "unchanged (duplicate of ", text="User likes tea", metadata={"a": 1})
        (nice,) = await twice("add_memory", "unchanged (duplicate of ", text="User lives in Nice")
        batch = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
        await twice("add_memory", "unchanged\nnote: all of these messages were known already", messages=batch)
        with_ids = [{**message, "id": f"t{number}"} for number, message in enumerate(batch)]
        await twice("add_memory", "unchanged\nnote: all of these messages were known already", messages=with_ids)
        (lyon,) = await twice(
            "add_memory", "unchanged (duplicate of ", text="User lives in Lyon", replaces=[nice["id"][:8]]
        )
        known = {"memory_id": lyon["id"]}
        await twice("update_memory", f"unchanged: [{lyon['id'][:8]}]", **known, text="User lives in Metz")
        await twice("update_memory", f"unchanged (duplicate of {tea['id'][:8]})", **known, text="User likes tea")
        await twice("delete_memory", "unchanged (already deleted): ", memory_ids=[tea["id"]])
        await twice("update_memory", "unchanged (not deleted): ", memory_id=tea["id"], restore=True)
        confirmed = {"all": True, "confirm": "delete 1 memory and 4 messages"}
        await twice("delete_memory", "unchanged: nothing is stored in this scope", **confirmed)
