"""What a session begins with: what the brief says, what it never says, and how long it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.core.models import Scope, Undo
from palimpsest.hooks import spool
from palimpsest.hooks.brief import MAX_BRIEF_TOKENS
from palimpsest.hooks.events import find_brief
from palimpsest.memory import Memory
from palimpsest.text.tokenizer import count_tokens
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from

pytestmark = pytest.mark.anyio

PROJECT = Scope("alice", "tea-shop")


async def brief_of(memory: Memory, user: str = "alice", folder: str = "/anywhere") -> str:
    """Render, and return the brief that the hook finds; "" if there is none."""
    await memory.briefs.render()
    brief = find_brief(str(memory.settings.data_dir), user, folder)
    return brief.text if brief is not None else ""


async def test_a_brief_says_who_the_user_is_what_holds_here_and_where_it_ended(tmp_path: Path) -> None:
    newest = (("user", "Hello"), ("assistant", "Hi"), ("user", "Fix the till"), ("assistant", "Done."))
    async with memory_in(tmp_path, project="tea-shop") as memory:
        assert await brief_of(memory) == "", "a session is not told that nothing is known"
        await add_text(memory, "The Rhine is 1,230 km long")
        await add_text(memory, "User prefers answers in Portuguese")
        pinned = await add_text(memory, "User writes commit messages in English", metadata={"pinned": True})
        await memory.add_text(PROJECT, "The tea shop is deployed with Ansible", infer=False)
        await memory.add_text(Scope("alice", "other"), "The other project uses Perl", infer=False)
        await memory.add_messages(messages_from(*newest, scope=PROJECT))
        # An import of old chats does not become the last session.
        ancient = messages_from(("user", "Ancient words"), scope=PROJECT, at=datetime(2020, 1, 1, tzinfo=UTC))
        await memory.add_messages(ancient)
        text = await brief_of(memory)
    assert text.startswith("<palimpsest-memory>\n")
    assert text.endswith("\n</palimpsest-memory>")
    said = ["writes commit messages", "in Portuguese", "tea-shop", "with Ansible", "The Rhine", "Fix the till", "Done."]
    assert [text.find(words) for words in said] == sorted(text.find(words) for words in said)
    assert min(text.find(words) for words in said) > 0
    for line in (
        f"- [{pinned[:8]}@1] User writes commit",
        "- 2026-05-08 The tea shop",
        "The last conversation ended on 2026-05-08",
    ):
        assert line in text
    for other in ("Perl", "Hello", "Ancient"):
        assert other not in text


async def test_every_block_stands_where_a_session_begins_however_long_they_are(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User is allergic to hazelnuts")
        long = {"persona": "Speaks plainly. " * 25, "human": f"Maarten.\n{'Rows in the harbour. ' * 30}"}
        blocks = {
            label: await add_text(memory, text, metadata={"pinned": True, "label": label})
            for label, text in long.items()
        }
        begins = await memory.briefs.instructions(ALICE)
        text = await brief_of(memory)
    assert len(begins.encode()) <= 2_048
    assert count_tokens(text) <= MAX_BRIEF_TOKENS
    for shown in (begins, text):
        for label, memory_id in blocks.items():
            assert f"- [{memory_id[:8]}@1] {label}: {long[label][:8]}" in shown
        assert "hazelnuts" in shown
    assert "\n(get_summary shows all that is pinned)\n" in begins


async def test_what_is_gone_is_in_no_brief(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User's name is Marit Jansen")
        deleted = await add_text(memory, "User lives in Nice")
        old = await add_text(memory, "User drives a Clio")
        await add_text(memory, "User drives a Zoe", replaces=[old])
        await add_text(memory, "User is on call", metadata={"expires_at": "2026-05-09"})
        await add_text(memory, "User pinned a visit", metadata={"expires_at": "2026-05-01", "pinned": True})
        await add_text(memory, "The admin password is hunter2-Xy99", metadata={"pinned": True})
        await memory.delete(ALICE, [deleted])
        text = await brief_of(memory)
    assert "Zoe" in text
    # A name in an agent's words comes first.
    assert text.split("About the user:\n")[1].split("\n")[0].endswith("User's name is Marit Jansen")
    for gone in ("Nice", "Clio", "on call", "a visit", "hunter2"):
        assert gone not in text


async def test_two_users_of_one_folder_have_each_their_brief(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "Alice likes oolong")
        assert "oolong" in await brief_of(memory, user="")
    async with memory_in(tmp_path, user_id="bob") as memory:
        await memory.add_text(Scope("bob"), "Bob likes cocoa", infer=False)
        assert await brief_of(memory, user="") == ""
        assert "oolong" in await brief_of(memory, user="alice")
        text = await brief_of(memory, user="bob")
    assert "cocoa" in text
    assert "oolong" not in text


async def test_deleting_removes_the_brief_before_the_call_is_answered(tmp_path: Path) -> None:
    clock = StoppedClock()
    data_dir = str(tmp_path)
    async with memory_in(tmp_path, clock) as memory, memory_in(tmp_path, user_id="bob") as other:
        await other.add_text(Scope("bob"), "Bob likes cocoa", infer=False)
        await other.briefs.render()
        await add_text(memory, "User likes oolong")
        removals: tuple[Callable[[str], Awaitable[object]], ...] = (
            lambda fact: memory.delete(ALICE, [fact]),
            lambda fact: memory.update(ALICE, fact, text="User has no locker"),
            lambda _: memory.undo(ALICE, Undo(since=clock() - timedelta(seconds=1))),
            lambda fact: other.delete(ALICE, [fact]),
            lambda fact: memory.care.purge(ALICE, [fact]),
            lambda _: memory.delete_all(ALICE),
        )
        for number, remove in enumerate(removals):
            clock.forward(minutes=1)
            fact = await add_text(memory, f"User has the locker {number}")
            assert f"locker {number}" in await brief_of(memory)
            await remove(fact)
            assert find_brief(data_dir, "alice", "/") is None
            assert f"locker {number}" not in await brief_of(memory)
        brief = find_brief(data_dir, "bob", "/")
        assert brief is not None
        assert "cocoa" in brief.text


async def test_purge_searches_what_sessions_begin_with(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        fact = await add_text(memory, "User keeps the spare key under the third pot")
        await memory.briefs.render()
        left = Path(spool.hooks_dir(str(tmp_path))) / "shown" / "left-behind"
        left.parent.mkdir()
        left.write_text("User keeps the spare key under the third pot")
        result = await memory.care.purge(ALICE, [fact])
    assert {trace.file for trace in result.traces} == {left}
