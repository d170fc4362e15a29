"""What fades: the formula of MemoryBank, what never fades, uses, the order, the archive, and what is off by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Hit
from palimpsest.memory import Memory
from tests.support.ledger_access import ignore_progress, row_faults
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from

pytestmark = pytest.mark.anyio

BICYCLE = "Ana parks her bicycle behind the bakery"
QUESTION = "Where does Ana park her bicycle?"
OTHERS = (
    "Ben collects stamps from Peru",
    "The printer on the second floor needs toner",
    "Ravi grows tomatoes on his balcony",
    "The choir rehearses in the old chapel",
    "Olga repairs clocks as a hobby",
)


async def filled(memory: Memory, **bicycle: Any) -> str:
    """Store the others and the bicycle, and return its id."""
    for text in OTHERS:
        await add_text(memory, text)
    return await add_text(memory, BICYCLE, **bicycle)


async def hits_for(memory: Memory, question: str = QUESTION, **options: Any) -> tuple[Hit, ...]:
    return (await memory.search(ALICE, question, is_use=False, **options)).hits


async def retention(memory: Memory, memory_id: str) -> tuple[float, int]:
    """Return R and S of a memory that fades."""
    report = await memory.fading.report(ALICE)
    return next((item.fading.retention, item.fading.strength) for item in report.fading if item.memory.id == memory_id)


async def test_uses_are_counted_moved_and_erased(tmp_path: Path) -> None:
    clock, file, again = StoppedClock(), tmp_path / "export.jsonl", tmp_path / "again.jsonl"
    async with memory_in(tmp_path / "a", clock, forgetting="rank") as memory:
        bicycle = await filled(memory)
        far_off = "Which verdict did the tribunal give on the stolen reindeer herd?"
        nothing = await memory.search(ALICE, far_off, also=["ruling in a case of rustled animals"])
        assert not nothing.confident
        await memory.fading.write()
        assert {item.fading.strength for item in (await memory.fading.report(ALICE)).fading} == {1}
        found = await memory.search(ALICE, QUESTION)
        assert len(found.hits) > 3
    async with memory_in(tmp_path / "a", clock, forgetting="rank") as memory:
        used = {item.memory.id for item in (await memory.fading.report(ALICE)).fading if item.fading.strength == 2}
        assert used == {bicycle} == {found.hits[0].id}
        await memory.care.export(file, ignore_progress)
    async with memory_in(tmp_path / "b", clock, forgetting="rank") as memory:
        await memory.care.import_file(ALICE, file, ignore_progress)
        assert await retention(memory, bicycle) == (1.0, 2)
        await memory.care.export(again, ignore_progress)
        assert again.read_bytes() == file.read_bytes()
        await memory.search(ALICE, QUESTION)
        await memory.fading.write()
        await memory.care.purge(ALICE, [bicycle])
        await memory.search(ALICE, QUESTION)
        assert await row_faults(memory) == []


async def test_what_never_fades(tmp_path: Path) -> None:
    kept: dict[str, dict[str, Any]] = {
        "User parks a bicycle": {"pinned": True},
        "User is called Ana": {"user_name": "Ana"},
        "User was born in Lima": {"tags": "identity"},
        "User wants short answers": {"tags": ["instruction", "work"]},
    }
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="archive") as memory:
        for text in OTHERS:
            await add_text(memory, text)
        for text, metadata in kept.items():
            await add_text(memory, text, metadata=metadata)
        clock.forward(days=900)
        report = await memory.fading.report(ALICE)
        assert (report.kept, report.faded) == ({"pinned": 1, "identity": 2, "instruction": 1}, len(OTHERS))
        assert {hit.text for hit in await hits_for(memory)} == kept.keys()


async def test_the_archive_leaves_out_what_faded_and_loses_nothing(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="archive") as memory:
        bicycle = await filled(memory)
        told_at = clock.at
        await memory.add_messages(messages_from(("user", "My locker at the pool is number 58")))
        clock.forward(days=89)
        assert (await hits_for(memory))[0].text == BICYCLE
        clock.forward(days=2)
        result = await memory.search(ALICE, QUESTION)
        assert BICYCLE not in [hit.text for hit in result.hits]
        assert any("1 hit is left out as faded" in note for note in result.notes)
        clock.forward(days=400)
        # Nobody has said what messages that nothing was learned from are worth.
        assert {hit.kind for hit in await hits_for(memory)} == {"message"}
        assert [hit.kind for hit in await hits_for(memory, "Which locker at the pool is mine?")] == ["message"]
        assert (await hits_for(memory, filters={"faded": True}))[0].id == bicycle
        assert (await hits_for(memory, as_of=told_at))[0].id == bicycle
        assert await hits_for(memory, filters={"faded": False, "kind": "memory"}) == ()
        assert bicycle in {hit.id for hit in (await memory.list(ALICE)).hits}
        assert len((await memory.list(ALICE, filters={"faded": True})).hits) == 1 + len(OTHERS)
        assert (await memory.history(ALICE, bicycle))[0].deleted_at is None
        assert (await memory.get(ALICE, bicycle)).id == bicycle
        for wrong in ({"faded": "yes"}, {"AND": 3}, {"faded": {"near": True}}):
            with pytest.raises(InputError):
                await memory.search(ALICE, QUESTION, filters=wrong)
