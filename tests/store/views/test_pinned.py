"""The pinned block: its order, its limit, and what is refused with which advice."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from mcp import Client

from palimpsest.core.errors import InputError
from palimpsest.core.models import PINNED
from palimpsest.store.ledger import Ledger
from tests.support.exports import exported
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases, long
from tests.support.ledger_access import ignore_progress
from tests.support.mcp_client import connect_stdio, text_of
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

TRUE = {"pinned": True}


def unseen(done: int, total: int) -> None:
    """Do not show progress."""


CASES = graph_cases(Path(__file__).with_name("pinned_cases.json"))


@pytest.mark.parametrize("case", CASES)
async def test_the_pinned_block(ledger: Ledger, clock: StoppedClock, case: str) -> None:
    """Follow the steps of a case."""
    GraphCase(Graph(ledger, clock)).play(*CASES[case])


async def test_an_import_may_go_beyond_and_says_so(tmp_path: Path) -> None:
    """An import loses nothing: what was pinned there is pinned here."""
    for folder in ("one", "two"):
        async with memory_in(tmp_path / folder) as memory:
            await add_text(memory, long(folder, 1_000), metadata=TRUE)
            await memory.care.export(tmp_path / f"{folder}.jsonl", unseen)
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
                arguments = {"text": long(word, 300), "metadata": TRUE, "infer": False}
                replies.append(text_of(await client.call_tool("add_memory", arguments)))

            async with anyio.create_task_group() as group:
                group.start_soon(add, one, f"one {number}", replies)
                group.start_soon(add, other, f"other {number}", replies)
            refused = [reply for reply in replies if "would have 1,500 characters" in reply]
            assert len(refused) == (0 if number < 2 else 2)


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
