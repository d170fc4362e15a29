"""The pinned block: its order, its limit, and what is refused with which advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from palimpsest.core.errors import InputError
from palimpsest.core.models import PINNED, Scope, Undo
from palimpsest.memory import Memory
from palimpsest.store.memories import pinned_memories
from tests.support.command_line import palimpsest
from tests.support.exports import exported
from tests.support.ledger_access import ignore_progress
from tests.support.mcp_client import connect_stdio, error_text, reply_text, text_of
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio

TRUE = {"pinned": True}


def unseen(done: int, total: int) -> None:
    """Do not show progress."""


def long(chars: int, word: str = "tea") -> str:
    """Return a text of so many characters."""
    return f"{word} {'x' * (chars - len(word) - 1)}"


async def block_of(memory: Memory, scope: Scope = ALICE) -> list[str]:
    """Return the texts of the pinned block that a scope sees."""
    return [pinned.text for pinned in await memory.engine.read(lambda conn: pinned_memories(conn, scope))]


async def test_numbers_order_and_the_others_follow_as_they_came(tmp_path: Path) -> None:
    """`true` comes after every number, in the order of creation."""
    async with memory_in(tmp_path) as memory:
        values: dict[str, Any] = {"d": True, "b": 2, "e": True, "a": 1, "c": 2.5, "no": False, "neither": None}
        for text, value in values.items():
            await add_text(memory, text, metadata={"pinned": value})
        assert await block_of(memory) == ["a", "b", "c", "d", "e"]


async def test_what_is_not_an_order_is_refused(tmp_path: Path) -> None:
    """A word pins nothing, so it is no silent wish."""
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match=r"true, or a number"):
            await add_text(memory, "tea", metadata={"pinned": "yes"})
        assert await block_of(memory) == []


async def test_a_block_is_at_most_1200_characters(tmp_path: Path) -> None:
    """An add, a longer text, a pin and a restoration are refused beyond it, and nothing is changed."""
    async with memory_in(tmp_path) as memory:
        first = await add_text(memory, long(700, "first"), metadata=TRUE)
        loose = await add_text(memory, long(600, "loose"))
        small = await add_text(memory, long(500, "small"), metadata=TRUE)
        with pytest.raises(InputError, match=r"would have 1,201 characters") as refused:
            await add_text(memory, "x", metadata=TRUE)
        assert f"[{first[:8]}] 700 (first" in str(refused.value)
        assert f"[{small[:8]}] 500 (small" in str(refused.value)
        for metadata in (None, {"pinned": 3}):
            with pytest.raises(InputError, match="1,201"):
                await memory.update(ALICE, small, text=long(501, "small"), metadata=metadata)
        with pytest.raises(InputError, match="1,800"):
            await memory.update(ALICE, loose, metadata=TRUE)
        await memory.delete(ALICE, [first])
        await memory.update(ALICE, loose, metadata=TRUE)
        with pytest.raises(InputError, match="1,800"):
            await memory.restore(ALICE, first)
        assert await block_of(memory) == [long(600, "loose"), long(500, "small")]


async def test_what_takes_the_place_of_a_pinned_memory_has_its_room(tmp_path: Path) -> None:
    """The limit holds for the block after the write, not for each step of it."""
    async with memory_in(tmp_path) as memory:
        old = await add_text(memory, long(1_000, "old"), metadata=TRUE)
        new = await memory.add_text(ALICE, long(1_100, "new"), metadata=TRUE, replaces=[old], infer=False)
        assert "pinned: 1,100 of 1,200 characters" in new.notes
        assert await block_of(memory) == [long(1_100, "new")]


async def test_each_scope_has_a_block_of_its_own(tmp_path: Path) -> None:
    """A project's block does not take the room of the user's; its sessions see both."""
    project = Scope("alice", "tea-shop")
    async with memory_in(tmp_path) as memory:
        await add_text(memory, long(1_100, "user"), metadata=TRUE)
        added = await memory.add_text(project, long(1_000, "shop"), metadata=TRUE, infer=False)
        assert "pinned: 1,000 of 1,200 characters" in added.notes
        assert len(await block_of(memory, project)) == 2
        assert len(await block_of(memory)) == 1


async def test_an_undo_may_go_beyond_and_says_so_and_the_block_can_be_made_smaller(tmp_path: Path) -> None:
    """What somebody did can always be taken back. What is too long can be shortened step by step."""
    async with memory_in(tmp_path) as memory:
        first = await add_text(memory, long(1_000, "first"), metadata=TRUE)
        await memory.delete(ALICE, [first])
        second = await add_text(memory, long(900, "second"), metadata=TRUE)
        log = await memory.log(ALICE)
        deletion = next(edit.number for edit in log if edit.provenance.stage == "delete")
        undone = await memory.undo(ALICE, Undo(edit=deletion))
        assert any("1,900 of 1,200 characters, which is too much" in note for note in undone.notes)
        shortened = await memory.update(ALICE, second, text=long(800, "second"))
        assert any("1,800 of 1,200" in note for note in shortened.notes)
        with pytest.raises(InputError, match="1,801"):
            await memory.update(ALICE, second, text=long(801, "second"))
        await memory.update(ALICE, first, metadata={"pinned": None})
        assert await block_of(memory) == [long(800, "second")]


async def test_an_import_may_go_beyond_and_says_so(tmp_path: Path) -> None:
    """An import loses nothing: what was pinned there is pinned here."""
    for folder in ("one", "two"):
        async with memory_in(tmp_path / folder) as memory:
            await add_text(memory, long(1_000, folder), metadata=TRUE)
            await memory.care.export(tmp_path / f"{folder}.jsonl", "jsonl", unseen)
    async with memory_in(tmp_path / "two") as memory:
        imported = await memory.care.import_file(ALICE, tmp_path / "one.jsonl", unseen)
        assert any("2,000 of 1,200 characters, which is too much" in note for note in imported.notes)


@pytest.mark.nightly
async def test_two_processes_never_fill_it_together(tmp_path: Path) -> None:
    """The limit is checked in the transaction: of two adds at once that do not fit together, one is refused."""
    async with connect_stdio(tmp_path) as one, connect_stdio(tmp_path) as other:
        for number in range(4):
            replies: list[str] = []

            async def add(client: Client, word: str, replies: list[str]) -> None:
                arguments = {"text": long(300, word), "metadata": TRUE, "infer": False}
                replies.append(text_of(await client.call_tool("add_memory", arguments)))

            async with anyio.create_task_group() as group:
                group.start_soon(add, one, f"one {number}", replies)
                group.start_soon(add, other, f"other {number}", replies)
            refused = [reply for reply in replies if "would have 1,500 characters" in reply]
            assert len(refused) == (0 if number < 2 else 2)


@pytest.mark.nightly
async def test_an_agent_edits_the_block_with_exact_text_and_sees_its_use(tmp_path: Path) -> None:
    """The text stays as it is given, line by line, and refusals say what to do next in the words of the door."""
    async with connect_stdio(tmp_path) as client:
        arguments = {"text": "Tone: dry", "metadata": TRUE, "infer": False}
        added = reply_text(await client.call_tool("add_memory", arguments))
        assert "note: pinned: 9 of 1,200 characters" in added
        memory_id = added.split("[")[1][:8]
        text = "Tone: dry.\n  - no praise;  two spaces stay\n  - Umlaute: ÄÖÜ"
        updated = reply_text(await client.call_tool("update_memory", {"memory_id": memory_id, "text": text}))
        assert f"pinned: {len(text)} of 1,200 characters" in updated
        whole = await client.read_resource(f"memory://{memory_id}")
        assert text in str(whole.contents[0].model_dump()["text"])
        too_long = {"memory_id": memory_id, "text": long(1_300)}
        refused = error_text(await client.call_tool("update_memory", too_long))
        assert 'update_memory(metadata={"pinned": null})' in refused
    refused = palimpsest(tmp_path, "edit", memory_id, long(1_300), code=1)
    assert "--metadata pinned=" in " ".join(refused.split())


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400])
async def test_a_number_that_json_or_an_order_has_not_is_refused(tmp_path: Path, value: float) -> None:
    """Guards every search and the block: an infinite number in one memory's metadata made all of them unreadable."""
    async with memory_in(tmp_path) as memory:
        kept = await add_text(memory, "User lives in Nice")
        with pytest.raises(InputError):
            await add_text(memory, "User likes tea", metadata={PINNED: value})
        with pytest.raises(InputError):
            await memory.update(ALICE, kept, metadata={"nested": [float("inf")]})
        assert [hit.text for hit in (await memory.search(ALICE, "Where?")).hits] == ["User lives in Nice"]


@pytest.mark.nightly
@pytest.mark.parametrize("number", ["1e999", "NaN", "1" + "0" * 400])
async def test_an_import_brings_no_number_that_stops_searches(tmp_path: Path, number: str) -> None:
    """Guards against a file with an infinite number, and reads one that merely does not order."""
    async with memory_in(tmp_path / "from") as memory:
        await add_text(memory, "User lives in Nice", metadata={PINNED: 7})
        file = tmp_path / "export.jsonl"
        file.write_bytes((await exported(memory)).replace(b'"pinned":7', f'"pinned":{number}'.encode()))
    async with memory_in(tmp_path / "to") as memory:
        if number.isdecimal():
            await memory.care.import_file(ALICE, file, ignore_progress)
            assert "Pinned" not in (await memory.summary(ALICE)).text
        else:
            with pytest.raises(InputError):
                await memory.care.import_file(ALICE, file, ignore_progress)
        await add_text(memory, "User likes tea")
        assert "User likes tea" in [hit.text for hit in (await memory.search(ALICE, "tea")).hits]


async def test_a_pinned_of_before_that_does_not_order_hinders_nothing(tmp_path: Path) -> None:
    """Guards memories of earlier versions, whose metadata might say anything: they change, fade and come back."""
    async with memory_in(tmp_path / "from") as memory:
        await add_text(memory, "User pinned a map to the wall", metadata={PINNED: 7})
        file = tmp_path / "export.jsonl"
        file.write_bytes((await exported(memory)).replace(b'"pinned":7', b'"pinned":"to the wall"'))
    async with memory_in(tmp_path / "to") as memory:
        await memory.care.import_file(ALICE, file, ignore_progress)
        (pinned,) = (await memory.scope_contents(ALICE)).memories
        await memory.update(ALICE, pinned.id, text="User pinned a map to the door")
        await memory.delete(ALICE, [pinned.id])
        await memory.undo(ALICE)
        await memory.undo(ALICE)
        assert (await memory.history(ALICE, pinned.id))[0].text == "User pinned a map to the wall"
        with pytest.raises(InputError):
            await memory.update(ALICE, pinned.id, metadata={PINNED: "to the door"})
