"""Recalled text: what a search printed is not kept or learned again, and nothing else is taken for it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from palimpsest.server import replies
from tests.support.ledger_access import ignore_progress
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from
from tests.support.scripted_model import facts_reply, memory_with, summary_reply
from tests.support.sessions import spooled

pytestmark = pytest.mark.anyio

WEB, BOB = Scope("alice", project="web"), Scope("bob")
TEA = "User likes tea"
PARAGRAPH = "The user lives in Lyon, likes tea, and plays the cello in an orchestra."
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2


async def added(memory: Memory, text: str, scope: Scope = ALICE) -> str:
    """Add a memory and return its id."""
    return (await memory.add_text(scope, text, infer=False)).outcomes[0].memory.id


async def contents(memory: Memory, scope: Scope = ALICE) -> dict[str, str]:
    """Return the texts of the messages of a scope by their ids."""
    return {message.id: message.content for message in (await memory.scope_contents(scope)).messages}


async def kept(memory: Memory, *texts: str, scope: Scope = ALICE) -> list[str]:
    """Add messages to the scope and return the texts that were kept."""
    known = await contents(memory, scope)
    await memory.add_messages(messages_from(*(("user", text) for text in texts), scope=scope))
    return [text for message_id, text in (await contents(memory, scope)).items() if message_id not in known]


async def searched(memory: Memory, query: str, scope: Scope = ALICE, **options: Any) -> str:
    """Return the reply to a search as an agent gets it."""
    return replies.search_text(await memory.search(scope, query, **options), scope)


async def test_a_pasted_reply_is_removed_and_the_rest_of_the_message_is_kept(memory: Memory) -> None:
    await added(memory, TEA)
    await added(memory, "User's  tea cabinet:\n- Assam\n- Sencha")
    await memory.add_messages(messages_from({"role": "user", "name": "Ana", "content": "Tea,\nplease!"}))
    reply = await searched(memory, "tea")
    assert reply.count("\n") == 2
    assert "Ana said: Tea, please!" in reply
    messages = messages_from(("assistant", f"I looked it up:\n{reply}\nSo, tea it is."))
    result = await memory.add_messages(messages)
    assert [*(await contents(memory)).values()][1:] == ["I looked it up:\nSo, tea it is."]
    assert "3 recalled passages left out" in result.notes
    assert (await memory.add_messages(messages)).kept_messages == 0


async def test_a_line_is_recognized_after_its_memory_was_updated_deleted_and_restored(
    memory: Memory, clock: StoppedClock
) -> None:
    """An old reply in the same conversation does not bring back what was updated since."""
    memory_id = await added(memory, TEA)
    reply = await searched(memory, "tea")
    clock.forward(minutes=1)
    await memory.update(ALICE, memory_id, text="User likes coffee")
    assert await kept(memory, reply) == []
    assert await kept(memory, await searched(memory, "tea", as_of=clock.at - timedelta(seconds=1))) == []
    await memory.delete(ALICE, [memory_id])
    assert await kept(memory, reply) == []
    await memory.restore(ALICE, memory_id)
    assert await kept(memory, reply, await searched(memory, "coffee")) == []


async def test_a_line_that_only_looks_like_a_hit_is_kept(memory: Memory) -> None:
    """The user's own words are kept, above all those that say a memory is wrong."""
    memory_id = await added(memory, TEA)
    await kept(memory, "Hello there")
    (message_id,) = await contents(memory)
    tea, hello = f"[{memory_id[:8]}]", f"[{message_id[:8]}]"
    lines = [
        f"{tea} 2026-05-08 User likes coffee",
        f"{tea} 2026-05-08 User likes tea no more",
        f"{tea} 2026-05-08 It is no longer so that User likes tea",
        f"{tea} 2026-05-08 user said: User likes tea",
        f"{tea} User likes tea",
        f"{tea} on 2026-05-08 User likes tea",
        f"See {tea} 2026-05-08 User likes tea",
        f"[{memory_id[:7]}] 2026-05-08 User likes tea",
        "[00000000] 2026-05-08 User likes tea",
        f"{hello} 2026-05-08 Hello there",
        f"{hello} 2026-05-08 assistant said: Hello there",
        f"{hello} 2026-05-08 Ana said: Hello there",
        "User likes tea",
    ]
    assert [await kept(memory, line) for line in lines] == [[line] for line in lines]


async def test_ids_are_recognized_within_their_scope_only(memory: Memory) -> None:
    """Removed lines do not reveal what another user or project remembers."""
    ids = [await added(memory, TEA, scope) for scope in (BOB, WEB, ALICE)]
    foreign, of_web, own = (f"[{memory_id[:8]}] 2026-05-08 {TEA}" for memory_id in ids)
    assert await kept(memory, foreign, of_web, own) == [foreign, of_web]
    assert await kept(memory, foreign, of_web, own, scope=WEB) == [foreign]


@pytest.mark.parametrize(
    ("text", "said", "left"),
    [
        (PARAGRAPH, f"You are this: {PARAGRAPH} And a dog owner!", ["You are this:  And a dog owner!"]),
        (PARAGRAPH, PARAGRAPH, []),
        (PARAGRAPH, PARAGRAPH[:-1], [PARAGRAPH[:-1]]),
        ("Likes tea.", "Likes tea. And cake.", ["Likes tea. And cake."]),  # such words may be used by chance
    ],
)
async def test_a_summary_is_removed_in_its_scope_and_the_text_around_it_is_kept(
    tmp_path: Path, text: str, said: str, left: list[str]
) -> None:
    """A summary that is learned from would become its own source."""
    replies = [summary_reply(text), *[facts_reply()] * 2]
    async with memory_with(replies, tmp_path) as (memory, _):
        await added(memory, TEA)
        assert (await memory.summary(ALICE)).text == text
        assert await kept(memory, said) == left
        assert await kept(memory, said, scope=WEB) == [said]


async def test_no_field_of_a_message_or_document_keeps_a_secret(tmp_path: Path) -> None:
    """Names of authors, ids of callers and addresses of documents are written by programs that paste anything."""
    async with memory_in(tmp_path) as memory:
        said = {"role": "user", "name": f"bot {KEY}", "id": f"m-{KEY}", "content": "Tea is ready"}
        await memory.add_messages(messages_from(said))
        file = tmp_path / f"handbook {KEY}.md"
        file.write_text("# Boiler\n\nIt needs 1.5 bar.", "utf-8")
        await memory.documents.learn_file(ALICE, file)
        spooled(tmp_path, "prompt", "Where is the boiler key kept?", session=f"s-{KEY}")
        await memory.capture.take_in()
        await memory.care.export(tmp_path / "export.jsonl", ignore_progress)
    assert KEY not in (tmp_path / "export.jsonl").read_text("utf-8")


async def test_an_export_that_somebody_edited_brings_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    async with memory_in(tmp_path / "from") as memory:
        await add_text(memory, "User keeps a key", metadata={"note": "safe"})
        await memory.care.export(file, ignore_progress)
    edited = file.read_text("utf-8").replace("keeps a key", f"keeps a key {KEY}").replace('"safe"', f'"{KEY}"')
    file.write_text(edited, "utf-8")
    async with memory_in(tmp_path / "to") as memory:
        result = await memory.care.import_file(ALICE, file, ignore_progress)
        (stored,) = (await memory.scope_contents(ALICE)).memories
        versions = (await memory.history(ALICE, stored.id))[1]
    assert KEY not in repr((stored, versions))
    assert any("secret" in note for note in result.notes)


async def test_the_answer_to_a_question_for_a_secret_is_one(memory: Memory) -> None:
    """An answer does not say what it is; the message before it does."""
    for number, (question, answer, left) in enumerate(
        (
            ("What's the wifi password?", "It's bluewhale99, the network is Altbau", "the network is Altbau"),
            ("Wie lautet die PIN der Karte?", "4821", ""),
            ("Where is the password kept?", "In 1Password, under NAS", "In 1Password, under NAS"),
        )
    ):
        scope = Scope(f"user{number}")
        await memory.add_messages(messages_from(("assistant", question), ("user", answer), scope=scope))
        _, said = (await contents(memory, scope)).values()
        assert left in said
        assert not any(secret in said for secret in ("bluewhale99", "4821"))
