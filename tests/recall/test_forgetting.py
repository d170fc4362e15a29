"""What fades: the formula of MemoryBank, what never fades, uses, the order, the archive, and what is off by default."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.models import Hit
from palimpsest.memory import Memory
from palimpsest.store import usage, verify
from tests.support.command_line import palimpsest
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


async def test_memorybank(tmp_path: Path) -> None:
    """R = e^(-t / (S * tau)): a use adds 1 to S and sets t to 0, and a stronger memory fades more slowly."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="rank") as memory:
        bicycle = await filled(memory)
        clock.forward(days=30)
        assert await retention(memory, bicycle) == (pytest.approx(math.exp(-1)), 1)
        assert (await memory.search(ALICE, QUESTION)).confident
        await memory.fading.write()
        assert await retention(memory, bicycle) == (1.0, 2)
        clock.forward(days=30)
        assert await retention(memory, bicycle) == (pytest.approx(math.exp(-1 / 2)), 2)


async def test_the_first_three_of_an_answer_are_used(tmp_path: Path) -> None:
    """No hit of a search that nothing answers is a use."""
    async with memory_in(tmp_path, forgetting="rank") as memory:
        bicycle = await filled(memory)
        weak = await memory.search(ALICE, "When does Marcello's visa XK-4471 expire?")
        assert not weak.confident
        await memory.fading.write()
        assert {item.fading.strength for item in (await memory.fading.report(ALICE)).fading} == {1}
        found = await memory.search(ALICE, QUESTION)
        await memory.fading.write()
        used = {item.memory.id for item in (await memory.fading.report(ALICE)).fading if item.fading.strength == 2}
        assert bicycle in used
        assert used == {hit.id for hit in found.hits[:3]}
        assert len(found.hits) > 3


async def test_uses_are_kept_when_the_memory_is_closed(tmp_path: Path) -> None:
    """A person's search counts too: each process writes its uses at its end at the latest."""
    async with memory_in(tmp_path, forgetting="rank") as memory:
        bicycle = await filled(memory)
        await memory.search(ALICE, QUESTION)
    async with memory_in(tmp_path, forgetting="rank") as memory:
        assert (await retention(memory, bicycle))[1] == 2


async def test_what_is_said_again_is_remembered_again(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="rank") as memory:
        bicycle = await filled(memory)
        clock.forward(days=60)
        await add_text(memory, BICYCLE)
        await memory.fading.write()
        assert await retention(memory, bicycle) == (1.0, 1)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"pinned": True}, "pinned"),
        ({"pinned": 2}, "pinned"),
        ({"user_name": "Ana"}, "identity"),
        ({"tags": ["instruction", "work"]}, "instruction"),
        ({"tags": "identity"}, "identity"),
    ],
)
async def test_what_never_fades(tmp_path: Path, metadata: dict[str, Any], reason: str) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="archive") as memory:
        await filled(memory, metadata=metadata)
        clock.forward(days=900)
        report = await memory.fading.report(ALICE)
        assert report.kept == {reason: 1}
        assert report.faded == len(OTHERS)
        assert [hit.text for hit in await hits_for(memory)] == [BICYCLE]


async def test_days_by_tag(tmp_path: Path) -> None:
    """Of several tags the longest time counts."""
    clock = StoppedClock()
    days: dict[str, Any] = {"forgetting_days": 10, "forgetting_days_by_tag": {"work": 100, "plan": 5}}
    async with memory_in(tmp_path, clock, forgetting="rank", **days) as memory:
        both = await add_text(memory, "Ana plans the spring release", metadata={"tags": ["plan", "work"]})
        plan = await add_text(memory, "Ben plans a picnic", metadata={"tags": ["plan"]})
        none = await add_text(memory, "The lamp is green")
        clock.forward(days=10)
        found = [(await retention(memory, memory_id))[0] for memory_id in (both, plan, none)]
        assert found == pytest.approx([math.exp(-0.1), math.exp(-2), math.exp(-1)])


async def test_off_changes_nothing(tmp_path: Path) -> None:
    """The order and the scores are those of a memory that cannot forget, and no use is noted."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        bicycle = await filled(memory)
        await memory.search(ALICE, QUESTION, explain=True)
        clock.forward(days=900)
        hits = await hits_for(memory, explain=True)
        assert hits[0].text == BICYCLE
        assert "faded" not in hits[0].score_parts
        await memory.fading.write()
        assert (await retention(memory, bicycle))[1] == 1


async def test_rank_prefers_what_is_remembered_among_what_answers_alike(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="rank") as memory:
        await filled(memory)
        at = clock.at
        first = await add_text(memory, "Ana keeps a spare key under the blue pot", at=at)
        second = await add_text(memory, "Ana keeps a spare key under the clay pot", at=at)
        clock.forward(days=200)
        before = [hit.id for hit in await hits_for(memory, "Where does Ana keep a spare key?")][:2]
        assert set(before) == {first, second}
        await memory.engine.write(lambda: memory.engine.ledger.run(usage.note_uses, {before[1]: _used_at(clock)}))
        after = await hits_for(memory, "Where does Ana keep a spare key?")
        assert [hit.id for hit in after[:2]] == before[::-1]
        assert (await hits_for(memory))[0].text == BICYCLE  # which nobody used, and which alone answers


def _used_at(clock: StoppedClock) -> Any:
    from palimpsest.store.usage import Use  # noqa: PLC0415 - only this test writes uses by hand

    return Use(1, clock.at)


class TestArchive:
    async def test_what_faded_is_left_out_and_counted(self, tmp_path: Path) -> None:
        """Guards that a search says that it left out what would have answered."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, forgetting="archive") as memory:
            await filled(memory)
            clock.forward(days=89)
            assert (await hits_for(memory))[0].text == BICYCLE
            clock.forward(days=2)
            result = await memory.search(ALICE, QUESTION)
            assert result.hits == ()
            assert any("1 hit is left out as faded" in note for note in result.notes)

    async def test_it_is_never_lost(self, tmp_path: Path) -> None:
        """It is found by a filter, by its id, at an earlier time, in the list and in its history."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, forgetting="archive") as memory:
            bicycle = await filled(memory)
            told_at = clock.at
            clock.forward(days=400)
            assert await hits_for(memory) == ()
            assert (await hits_for(memory, filters={"faded": True}))[0].id == bicycle
            assert (await hits_for(memory, as_of=told_at))[0].id == bicycle
            assert await hits_for(memory, filters={"faded": False}) == ()
            assert bicycle in {hit.id for hit in (await memory.list(ALICE)).hits}
            assert len((await memory.list(ALICE, filters={"faded": True})).hits) == 1 + len(OTHERS)
            assert (await memory.history(ALICE, bicycle))[0].deleted_at is None
            assert (await memory.get(ALICE, bicycle)).id == bicycle

    async def test_messages_that_nothing_was_learned_from_stay(self, tmp_path: Path) -> None:
        """Guards conversations: nobody has said what these messages are worth."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, forgetting="archive") as memory:
            await memory.add_messages(messages_from(("user", "My locker at the pool is number 58")))
            clock.forward(days=400)
            assert [hit.kind for hit in await hits_for(memory, "Which locker at the pool is mine?")] == ["message"]

    async def test_a_wrong_filter_is_an_error(self, tmp_path: Path) -> None:
        """Guards the checks of filters, which come before anything is read."""
        async with memory_in(tmp_path, forgetting="archive") as memory:
            await filled(memory)
            for wrong in ({"faded": "yes"}, {"AND": 3}, {"faded": {"near": True}}):
                with pytest.raises(InputError):
                    await memory.search(ALICE, QUESTION, filters=wrong)


class TestCare:
    async def test_uses_move_with_an_export(self, tmp_path: Path) -> None:
        """Guards that a memory is remembered as well in its new place, and exported to the same bytes."""
        clock, file = StoppedClock(), tmp_path / "export.jsonl"
        async with memory_in(tmp_path / "a", clock, forgetting="rank") as memory:
            bicycle = await filled(memory)
            await memory.search(ALICE, QUESTION)
            await memory.fading.write()
            await memory.care.export(file, "jsonl", lambda _done, _total: None)
        async with memory_in(tmp_path / "b", clock, forgetting="rank") as memory:
            await memory.care.import_file(ALICE, file, lambda _done, _total: None)
            assert await retention(memory, bicycle) == (1.0, 2)
            again = tmp_path / "again.jsonl"
            await memory.care.export(again, "jsonl", lambda _done, _total: None)
        assert again.read_bytes() == file.read_bytes()

    async def test_a_purge_erases_them(self, tmp_path: Path) -> None:
        """Guards that nothing tells of an erased memory, also if a search had used it."""
        async with memory_in(tmp_path, forgetting="rank") as memory:
            bicycle = await filled(memory)
            await memory.search(ALICE, QUESTION)
            await memory.fading.write()
            await memory.care.purge(ALICE, [bicycle])
            await memory.search(ALICE, QUESTION)
            faults = await memory.engine.run(
                lambda: memory.engine.ledger.read_with(
                    verify.verify, memory.engine.ledger.database, lambda _done, _total: None
                )
            )
            assert faults.texts() == []

    def test_the_settings_are_checked(self, tmp_path: Path) -> None:
        """Guards against values that no formula takes."""
        from palimpsest.core.settings import load_settings  # noqa: PLC0415 - only this test loads settings itself

        for wrong in ({"forgetting": "always"}, {"forgetting_days": 0}, {"forgetting_days_by_tag": {"work": -1}}):
            with pytest.raises(SettingsError):
                load_settings(None, data_dir=tmp_path, **wrong)


def test_the_command_says_what_fades_and_why(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", BICYCLE)
    palimpsest(tmp_path, "add", "Always answer Ana in French", "--metadata", 'tags=["instruction"]')
    told = json.loads(palimpsest(tmp_path, "fading", "--json"))
    assert told["forgetting"] == "off"
    assert told["never_fade"] == {"instruction": 1}
    (shown,) = told["results"]
    assert (shown["memory"], shown["strength"], shown["days"], shown["retention"]) == (BICYCLE, 1, 30.0, 1.0)
    printed = palimpsest(tmp_path, "fading")
    assert "1 memory never fades: 1 instruction" in printed
