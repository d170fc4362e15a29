"""Each message and fact is stored once, however often it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopback import Reply
from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, StoppedClock, memory_in, memory_texts, messages_from
from tests.support.scripted_model import facts_reply, memory_with
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

HELLO = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi", "name": "Bot"})
OTHERS: dict[str, tuple[dict[str, Any], ...]] = {
    "one more": (*HELLO, {"role": "user", "content": "Bye"}),
    "one less": HELLO[:1],
    "another order": HELLO[::-1],
    "another name": (HELLO[0], {**HELLO[1], "name": "Bob"}),
    "another role": (HELLO[0], {**HELLO[1], "role": "user"}),
    "another word": (HELLO[0], {**HELLO[1], "content": "Hi!"}),
    "twice as much": (*HELLO, *HELLO),
}
MOVED = {"role": "user", "content": "I moved to Lyon"}
LEARNED = facts_reply("User lives in Lyon")


async def everything(memory: Memory) -> tuple[Any, ...]:
    """Return every edit and everything living."""
    return await memory.log(ALICE, limit=1_000), await memory.scope_contents(ALICE)


async def kept(memory: Memory, *messages: dict[str, Any], scope: Scope = ALICE) -> int:
    """Add messages and return how many were kept."""
    return (await memory.add_messages(messages_from(*messages, scope=scope, at=memory.engine.clock()))).kept_messages


@pytest.mark.parametrize("more", [{"id": "t{}"}, {"at": "2026-05-01T10:0{}:00Z"}, {"id": "t{}", "at": "2026-05-01"}])
async def test_messages_with_ids_or_times_are_always_recognized(tmp_path: Path, more: dict[str, str]) -> None:
    clock = StoppedClock()
    one, two, three = (
        {"role": "user", "content": f"Message {n}", **{key: value.format(n) for key, value in more.items()}}
        for n in range(3)
    )
    async with memory_in(tmp_path, clock) as memory:
        for batch, new in (((one, two), 2), ((one, two), 0), ((two, one), 0), ((two,), 0), ((two, three), 1)):
            clock.forward(days=1)
            result = await memory.add_messages(messages_from(*batch, at=clock.at))
            assert result.kept_messages == new
            assert ("all of these messages were known already" in result.notes) is (new == 0)
        assert len((await memory.scope_contents(ALICE)).messages) == 3


async def test_messages_without_ids_or_times_are_recognized_for_ten_minutes(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for minutes, new in ((0, 2), (0, 0), (5, 0), (5, 0), (1, 2)):
            clock.forward(minutes=minutes)
            before = await everything(memory)
            assert await kept(memory, *HELLO) == new
            assert (await everything(memory) == before) is (new == 0)
        for scope in (Scope("alice", project="web"), Scope("alice", run_id="r1")):
            assert await kept(memory, *HELLO, scope=scope) == 2
        for number, (name, batch) in enumerate(OTHERS.items()):
            scope = Scope(f"user{number}")
            assert await kept(memory, *HELLO, scope=scope) == 2
            clock.forward(seconds=1)
            assert await kept(memory, *batch, scope=scope) == len(batch), name
            clock.forward(seconds=1)
            for known in (HELLO, batch):
                assert await kept(memory, *known, scope=scope) == 0, name


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("more", [{}, {"id": "t1"}, {"at": "2026-05-01T10:00:00Z"}])
async def test_facts_are_extracted_once_when_messages_are_repeated_after_a_failure(
    tmp_path: Path, more: dict[str, str]
) -> None:
    clock = StoppedClock()
    script = [Reply(status=401), Reply("Sure!"), Reply("Sure!"), Reply(LEARNED)]
    async with memory_with(script, tmp_path, clock) as (memory, server):
        for new, learnt, requests in ((1, 0, 1), (0, 0, 3), (0, 1, 4), (0, 0, 4), (0, 0, 4)):
            result = await memory.add_messages(messages_from({**MOVED, **more}, at=clock.at))
            assert (result.kept_messages, len(result.outcomes)) == (new, learnt)
            assert len(server.chat_requests) == requests
            clock.forward(minutes=1)
        assert await memory_texts(memory) == ["User lives in Lyon"]
    async with memory_in(tmp_path / "kept") as memory:
        assert await kept(memory, {**MOVED, **more}) == 1
    async with memory_with([LEARNED], tmp_path / "kept") as (memory, _):
        result = await memory.add_messages(messages_from({**MOVED, **more}))
    assert (result.kept_messages, [change.memory.text for change in result.outcomes]) == (0, ["User lives in Lyon"])


async def test_every_tool_that_writes_can_be_called_again(tmp_path: Path) -> None:
    batch = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    with_ids = [{**message, "id": f"t{number}"} for number, message in enumerate(batch)]
    async with connect(tmp_path) as server, memory_in(tmp_path / "data") as memory:

        async def twice(tool: str, expected: str, **arguments: Any) -> list[dict[str, Any]]:
            first = await server.call_tool(tool, arguments)
            reply_text(first)
            after = await everything(memory)
            assert reply_text(await server.call_tool(tool, arguments)).startswith(expected)
            assert await everything(memory) == after
            return first.structured_content.get("results", [])

        known, said = "unchanged (duplicate of ", "unchanged\nnote: all of these messages were known already"
        (tea,) = await twice("add_memory", known, text="User likes tea", metadata={"a": 1})
        (nice,) = await twice("add_memory", known, text="User lives in Nice")
        await twice("add_memory", said, messages=batch)
        await twice("add_memory", said, messages=with_ids)
        (lyon,) = await twice("add_memory", known, text="User lives in Lyon", replaces=[nice["id"][:8]])
        of_lyon = {"memory_id": lyon["id"]}
        await twice("update_memory", f"unchanged: [{lyon['id'][:8]}]", **of_lyon, text="User lives in Metz")
        await twice("update_memory", f"unchanged (duplicate of {tea['id'][:8]})", **of_lyon, text="User likes tea")
        await twice("delete_memory", "unchanged (already deleted): ", memory_ids=[tea["id"]])
        await twice("update_memory", "unchanged (not deleted): ", memory_id=tea["id"], restore=True)
        confirmed = {"all": True, "confirm": "delete 1 memory and 4 messages"}
        await twice("delete_memory", "unchanged: nothing is stored in this scope", **confirmed)
