"""Memories that end at a time: for readers exactly then, closed by a job of the background, and restored for good."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import EXPIRE, Event, Undo
from palimpsest.core.validation import metadata_from
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from tests.support.command_line import palimpsest
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

ON_CALL = "Ana is on call for the payments team"
QUESTION = "Who is on call for the payments team?"


async def found(memory: Memory) -> bool:
    return ON_CALL in {hit.text for hit in (await memory.search(ALICE, QUESTION)).hits}


async def listed(memory: Memory) -> bool:
    return ON_CALL in {hit.text for hit in (await memory.list(ALICE)).hits}


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("end", "still", "over"),
    [
        ("2026-05-12", {"days": 4, "hours": 11}, {"days": 4, "hours": 12}),
        ("2026-05-10T08:30:00+02:00", {"days": 1, "hours": 18}, {"days": 1, "hours": 18, "minutes": 30}),
        ("2026-05", {"days": 23}, {"days": 23, "hours": 12}),
    ],
)
async def test_it_ends_exactly_at_its_time(
    tmp_path: Path, end: str, still: dict[str, float], over: dict[str, float]
) -> None:
    """No process has to run at that moment. A day ends with its last instant, in UTC."""
    clock = StoppedClock()
    began = clock.at
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, "Ben collects stamps")
        await add_text(memory, ON_CALL, metadata={"expires_at": end})
        clock.at = began + timedelta(**still)
        assert await found(memory)
        assert await listed(memory)
        clock.at = began + timedelta(**over)
        assert not await found(memory)
        assert not await listed(memory)
        then = await memory.search(ALICE, QUESTION, as_of=began + timedelta(**still))
        assert ON_CALL in {hit.text for hit in then.hits}
        now = await memory.search(ALICE, QUESTION, as_of=clock.at)
        assert ON_CALL not in {hit.text for hit in now.hits}


async def test_a_job_closes_it(tmp_path: Path) -> None:
    """It held until its time. That is in the history and in the log, and the next one has a job of its own."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        first = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-09"})
        second = await add_text(memory, "Ben is on call until June", metadata={"expires_at": "2026-05-31"})
        clock.forward(days=2)
        assert await work_on_jobs(memory.engine, None)
        closed, versions = await memory.history(ALICE, first)
        assert (closed.until, closed.is_forgotten, closed.superseded_by) == ("2026-05-09", False, None)
        assert (versions[-1].event, versions[-1].provenance.stage) == (Event.DELETE, EXPIRE)
        assert (await memory.log(ALICE, limit=1))[0].provenance.stage == EXPIRE
        clock.forward(days=30)
        assert await work_on_jobs(memory.engine, None)
        assert (await memory.history(ALICE, second))[0].until == "2026-05-31"


async def test_restoring_removes_the_end(tmp_path: Path) -> None:
    """Else it would be closed again at once. A note says so."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        memory_id = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-09", "team": "payments"})
        clock.forward(days=2)
        assert await work_on_jobs(memory.engine, None)
        restored = await memory.restore(ALICE, memory_id)
        assert restored.outcomes[0].memory.metadata == {"team": "payments"}
        assert any("2026-05-09" in note for note in restored.notes)
        assert await found(memory)


async def test_an_undo_without_a_number_passes_it_over(tmp_path: Path) -> None:
    """People undo what they did. By its number the edit is undone, and the end is removed."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        memory_id = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-09"})
        ben = await add_text(memory, "Ben collects stamps")
        clock.forward(days=2)
        assert await work_on_jobs(memory.engine, None)
        expired = (await memory.log(ALICE, limit=1))[0].number
        assert [outcome.memory.id for outcome in (await memory.undo(ALICE)).outcomes] == [ben]
        undone = await memory.undo(ALICE, Undo(expired))
        assert [outcome.memory.id for outcome in undone.outcomes] == [memory_id]
        assert undone.outcomes[0].memory.metadata == {}
        assert await work_on_jobs(memory.engine, None)
        assert await found(memory)


async def test_a_later_end_keeps_it(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        memory_id = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-09"})
        await memory.update(ALICE, memory_id, metadata={"expires_at": "2026-06-01"})
        clock.forward(days=2)
        assert await work_on_jobs(memory.engine, None)
        assert await found(memory)


async def test_imported_memories_end_too(tmp_path: Path) -> None:
    clock, file = StoppedClock(), tmp_path / "export.jsonl"
    async with memory_in(tmp_path / "a", clock) as memory:
        memory_id = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-09"})
        await memory.care.export(file, "jsonl", lambda _done, _total: None)
    async with memory_in(tmp_path / "b", clock) as memory:
        await memory.care.import_file(ALICE, file, lambda _done, _total: None)
        clock.forward(days=2)
        assert await work_on_jobs(memory.engine, None)
        assert (await memory.history(ALICE, memory_id))[0].until == "2026-05-09"


@pytest.mark.parametrize("wrong", ["Friday", "09.05.2026", 20260509, True, ["2026-05-09"]])
def test_what_is_no_time_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match="expires_at"):
        metadata_from({"expires_at": wrong})


def test_the_command_line_refuses_it_too(tmp_path: Path) -> None:
    refused = palimpsest(tmp_path, "add", ON_CALL, "--metadata", "expires_at=Friday", code=1)
    assert "expires_at 'Friday' is not an ISO 8601 date or time" in " ".join(refused.split())
    assert "has passed" in palimpsest(tmp_path, "add", ON_CALL, "--metadata", "expires_at=2020-01-01")
