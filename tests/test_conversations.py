"""Conversations: listed, read, summarized and moved, from clients and from exports of other tools."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.memory import Memory
from tests.support.exports import exported
from tests.support.foreign_files import chatgpt_conversation, chatgpt_node, claude_conversation, json_zip
from tests.support.ledger_access import ignore_progress, row_faults, select_rows, store_memory
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio


def said(sender: str, text: str, at: str, **more: Any) -> dict[str, Any]:
    """Return a message of a Claude conversation; its id is its text."""
    return {"uuid": text, "sender": sender, "text": text, "created_at": at, **more}


BOAT = claude_conversation(
    said("human", "My boat is blue", "2025-02-01T09:00:00Z"),
    said("assistant", "A fine colour", "2025-02-01T09:00:09Z"),
    said("human", "It is green now", "2025-06-01T09:00:00Z"),
    uuid="boat",
    name="The boat",
)
BREAD = claude_conversation(said("human", "How long does rye bread keep?", "2025-02-01T09:10:00Z"), uuid="bread")


async def import_json(memory: Memory, folder: Path, value: Any) -> None:
    file = folder / "conversations.json"
    file.write_text(json.dumps(value), "utf-8")
    await memory.care.import_file(ALICE, file, ignore_progress)


async def test_each_chat_of_an_export_is_one_conversation(tmp_path: Path) -> None:
    """Guards the list: chats within half an hour stay apart, and one that pauses for months stays together."""
    async with memory_in(tmp_path) as memory:
        await import_json(memory, tmp_path, [BOAT, BREAD])
        page = await memory.conversations.list(ALICE)
        listed = [(row.client, row.title, row.messages, row.first and row.first.content) for row in page.conversations]
        bread = "How long does rye bread keep?"
        assert listed == [("claude", "The boat", 3, "My boat is blue"), ("claude", "", 1, bread)]
        assert page.cursor is None
        first = await memory.conversations.list(ALICE, limit=1)
        rest = await memory.conversations.list(ALICE, limit=1, cursor=first.cursor)
        assert [*first.conversations, *rest.conversations] == [*page.conversations]
        assert rest.cursor is None
        read = await memory.conversations.read(ALICE, page.conversations[0].id[:8], limit=2)
        more = await memory.conversations.read(ALICE, read.id, limit=2, cursor=read.cursor)
        texts = [message.content for message in (*read.messages, *more.messages)]
        assert texts == ["My boat is blue", "A fine colour", "It is green now"]
        assert more.cursor is None
        with pytest.raises(MemoryNotFoundError, match="the newest are"):
            await memory.conversations.read(ALICE, "00000000")
        with pytest.raises(InputError, match="not a cursor"):
            await memory.conversations.list(ALICE, cursor="7")
        # Messages months apart are no context of each other, though the chat is one conversation.
        hits = (await memory.search(ALICE, "It is green now", explain=True)).hits
        later = next(hit for hit in hits if hit.text == "It is green now")
        await memory.delete(ALICE, [later.id])
        assert await row_faults(memory) == []
        rows = select_rows(memory, "SELECT length(key) FROM vectors WHERE live AND owner_id != ''")
        assert len(rows) == 3


async def test_conversations_are_exported_and_purged_with_their_messages(tmp_path: Path) -> None:
    """Guards titles: they come along with an export, and are erased with the last message."""
    async with memory_in(tmp_path / "here") as memory:
        await import_json(memory, tmp_path, [BOAT, BREAD])
        whole = await exported(memory)
        rows = (await memory.conversations.list(ALICE)).conversations
    file = tmp_path / "export.jsonl"
    file.write_bytes(whole)
    async with memory_in(tmp_path / "there") as memory:
        await memory.care.import_file(ALICE, file, ignore_progress)
        assert await exported(memory) == whole
        imported = (await memory.conversations.list(ALICE)).conversations
        assert [(row.id, row.title) for row in imported] == [(row.id, row.title) for row in rows]
        read = await memory.conversations.read(ALICE, rows[0].id)
        await memory.care.purge(ALICE, [message.id for message in read.messages])
        assert [row.id for row in (await memory.conversations.list(ALICE)).conversations] == [rows[1].id]
        assert select_rows(memory, "SELECT title FROM conversations") == [("",)]


async def test_lists_and_summaries_of_a_memory_of_messages_do_not_call_it_empty(tmp_path: Path) -> None:
    """Guards the newcomer who has imported chats: each door says what there is, and how to see it."""
    async with memory_in(tmp_path / "data") as memory:
        await import_json(memory, tmp_path, [BOAT, BREAD])
        page = await memory.list(ALICE)
        assert (page.hits, page.conversations, page.messages) == ((), 2, 4)
        found = await memory.list(ALICE, filters={"AND": [{"kind": "message"}, {"role": "user"}]}, limit=2)
        rest = await memory.list(ALICE, filters={"kind": "message", "role": "user"}, limit=2, cursor=found.cursor)
        texts = [hit.text for hit in (*found.hits, *rest.hits)]
        assert sorted(texts) == ["How long does rye bread keep?", "It is green now", "My boat is blue"]
        assert {hit.kind for hit in found.hits} == {"message"}
        summary = await memory.summary(ALICE)
        assert "- 2025-06-01 The boat (3 messages)" in summary.text
        assert '"How long does rye bread keep?" (1 message)' in summary.text
        assert "these are the conversations themselves" in summary.notes[0]
        store_memory(memory, "User sails")
        assert (await memory.list(ALICE)).messages == 0
        assert [hit.text for hit in (await memory.list(ALICE, filters={"kind": "memory"})).hits] == ["User sails"]
        shown = (await memory.summary(ALICE)).text
        assert shown.partition("] ")[2].startswith("2026-05-08 User sails\nConversations:\n- 2025-06-01")


async def test_the_export_of_claude_is_taken_in_whole_or_named(tmp_path: Path) -> None:
    """Guards titles, attachments, memories and projects; a folder is read as the ZIP is."""
    attached = said(
        "human", "Read this", "2025-02-01T09:00:00Z", attachments=[{"file_name": "a.txt", "extracted_content": "Oats"}]
    )
    memories = {
        "conversations_memory": "**Work**\n\nAna sails.\n\n- She bakes\n- She sings",
        "project_memories": {"p": "Uses Go."},
    }
    project: dict[str, Any] = {"uuid": "p", "name": "Atlas", "description": "A map", "docs": [{}, {}]}
    project["prompt_template"] = "Be brief"
    members: dict[str, list[Any]] = {
        "conversations": [claude_conversation(attached, name="Oats")],
        "memories": [memories],
        "projects": [project],
        "users": [{"full_name": "Ana"}],
    }
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, value in members.items():
        (folder / f"{name}.json").write_text(json.dumps(value), "utf-8")
    for source in (json_zip(tmp_path / "export.zip", **members), folder):
        async with memory_in(tmp_path / f"data-{source.name}") as memory:
            done = await memory.care.import_file(ALICE, source, ignore_progress)
            assert done.new == {"alias": 0, "conversation": 1, "entity": 0, "message": 2, "memory": 5, "summary": 0}
            stored = {hit.text: hit.tags for hit in (await memory.list(ALICE)).hits}
            at_work = dict.fromkeys(("Ana sails.", "She bakes", "She sings"), ("work",))
            assert stored == {**at_work, "Atlas: Uses Go.": (), "Atlas: A map": ()}
            (row,) = (await memory.conversations.list(ALICE)).conversations
            texts = [message.content for message in (await memory.conversations.read(ALICE, row.id)).messages]
            assert (row.title, texts) == ("Oats", ["a.txt:\nOats", "Read this"])
            notes = " ".join(done.notes)
            assert "instructions and documents of projects (3)" in notes
            assert "users.json" in notes


async def test_the_memories_of_chatgpt_are_taken_in(tmp_path: Path) -> None:
    """Guards what ChatGPT saved with its tool, the list of newer exports, and what cannot be known."""
    at = datetime(2025, 1, 5, tzinfo=UTC).timestamp()
    nodes = {
        "a": chatgpt_node(None, "user", "I keep bees", at=at),
        "b": chatgpt_node("a", "assistant", "User keeps bees.", at=at + 1, recipient="bio"),
        "c": chatgpt_node("b", "tool", "Model set context updated.", at=at + 2),
        "d": chatgpt_node("c", "assistant", "Forget that the user sails.", at=at + 3, recipient="bio"),
        "e": chatgpt_node("d", "assistant", "Noted", at=at + 4, recipient="all"),
    }
    chat = {**chatgpt_conversation("e", at, **nodes), "title": "Bees", "conversation_id": "x1"}
    listed = [{"content": "Lives in Nice", "enabled": True}, {"content": "Likes jazz", "enabled": False}]
    source = json_zip(tmp_path / "export.zip", conversations=[chat], memory=listed, user={"email": "a@b"})
    async with memory_in(tmp_path / "data") as memory:
        done = await memory.care.import_file(ALICE, source, ignore_progress)
        assert {hit.text for hit in (await memory.list(ALICE)).hits} == {"User keeps bees.", "Lives in Nice"}
        (row,) = (await memory.conversations.list(ALICE)).conversations
        assert (row.client, row.title, row.messages) == ("chatgpt", "Bees", 2)
        assert row.ended_at - row.began_at == timedelta(seconds=4)
        notes = " ".join(done.notes)
        for part in ("also what was changed or deleted", "forget a memory (1)", "have no text (1)", "user.json"):
            assert part in notes


async def test_a_title_is_not_shown_if_something_of_the_conversation_is_forgotten(tmp_path: Path) -> None:
    """Guards forgetting: the title that a client wrote may say the same as the memory that was deleted."""
    async with memory_in(tmp_path) as memory:
        await import_json(memory, tmp_path, [BOAT])
        [row] = (await memory.conversations.list(ALICE)).conversations
        boat = row.first
        assert boat is not None
        memory_id = store_memory(memory, "User's boat is blue", sources=[boat.id])
        assert (await memory.conversations.list(ALICE)).conversations[0].title == "The boat"
        await memory.delete(ALICE, [memory_id])
        [row] = (await memory.conversations.list(ALICE)).conversations
        assert (row.title, row.first) == ("", None)
        await memory.restore(ALICE, memory_id)
        assert (await memory.conversations.list(ALICE)).conversations[0].title == "The boat"


async def test_an_import_stores_no_title_of_what_was_purged(tmp_path: Path) -> None:
    """Guards a purge: its messages stay away when their file is imported again, and so does the title."""
    async with memory_in(tmp_path / "data") as memory:
        await import_json(memory, tmp_path, [BOAT])
        await memory.care.purge(ALICE, None)
        await import_json(memory, tmp_path, [BOAT, BREAD])
        assert select_rows(memory, "SELECT external_id, title FROM conversations") == [("bread", "")]
