"""Since when and until when a memory holds: how exactly that is known, and what ends at its time."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.core.models import EXPIRE, Event, Undo
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from tests.support.command_line import palimpsest
from tests.support.memory import ALICE, StoppedClock, add_text

pytestmark = pytest.mark.anyio

ON_CALL = "Ana is on call for the payments team"
QUESTION = "Who is on call for the payments team?"


async def found(memory: Memory, as_of: datetime | None = None) -> bool:
    return ON_CALL in {hit.text for hit in (await memory.search(ALICE, QUESTION, as_of=as_of)).hits}


async def listed(memory: Memory) -> bool:
    return ON_CALL in {hit.text for hit in (await memory.list(ALICE)).hits}


async def test_it_ends_exactly_at_its_time(memory: Memory, clock: StoppedClock) -> None:
    began = clock.at
    await add_text(memory, "Ben collects stamps")
    for end, over in (
        ("2026-05-12", timedelta(days=4, hours=12)),
        ("2026-05-10T08:30:00+02:00", timedelta(days=1, hours=18, minutes=30)),
        ("2026-05", timedelta(days=23, hours=12)),
    ):
        clock.at = began
        memory_id = await add_text(memory, ON_CALL, metadata={"expires_at": end})
        for is_over, at in ((False, began + over - timedelta(minutes=1)), (True, began + over)):
            clock.at = at
            assert (await found(memory), await listed(memory)) == (not is_over, not is_over), end
            assert await found(memory, as_of=at) is not is_over, end
        await memory.care.purge(ALICE, [memory_id])


async def test_a_job_closes_it(memory: Memory, clock: StoppedClock) -> None:
    first = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-09"})
    second = await add_text(memory, "Ben is on call until June", metadata={"expires_at": "2026-05-31"})
    clock.forward(days=2)
    assert await work_on_jobs(memory.engine, None)
    closed, versions, *_ = await memory.history(ALICE, first)
    assert (closed.until, closed.is_forgotten, closed.superseded_by) == ("2026-05-09", False, None)
    assert (versions[-1].event, versions[-1].provenance.stage) == (Event.DELETE, EXPIRE)
    assert (await memory.log(ALICE, limit=1))[0].provenance.stage == EXPIRE
    clock.forward(days=30)
    assert await work_on_jobs(memory.engine, None)
    assert (await memory.history(ALICE, second))[0].until == "2026-05-31"


async def test_restoring_or_undoing_removes_the_end_and_a_later_one_keeps_it(
    memory: Memory, clock: StoppedClock
) -> None:
    """Else it would be closed again at once. A note says so.

    People undo what they did: without a number an undo passes the end over. By its number the edit is undone.
    """
    first = await add_text(memory, "Ben is on call", metadata={"expires_at": "2026-05-09", "team": "payments"})
    second = await add_text(memory, ON_CALL, metadata={"expires_at": "2026-05-10"})
    later = await add_text(memory, "Ida is on call", metadata={"expires_at": "2026-05-09"})
    await memory.update(ALICE, later, metadata={"expires_at": "2026-06-01"})
    clock.forward(hours=36)
    assert await work_on_jobs(memory.engine, None)
    restored = await memory.restore(ALICE, first)
    assert restored.outcomes[0].memory.metadata == {"team": "payments"}
    assert any("2026-05-09" in note for note in restored.notes)
    ben = await add_text(memory, "Ben collects stamps")
    clock.forward(days=1)
    assert await work_on_jobs(memory.engine, None)
    expired = (await memory.log(ALICE, limit=1))[0].number
    assert [outcome.memory.id for outcome in (await memory.undo(ALICE)).outcomes] == [ben]
    undone = await memory.undo(ALICE, Undo(expired))
    assert [(outcome.memory.id, outcome.memory.metadata) for outcome in undone.outcomes] == [(second, {})]
    assert await work_on_jobs(memory.engine, None)
    assert await found(memory)
    assert {first, second, later} <= {hit.id for hit in (await memory.list(ALICE)).hits}


def test_the_command_line_refuses_it_too(tmp_path: Path) -> None:
    refused = palimpsest(tmp_path, "add", ON_CALL, "--metadata", "expires_at=Friday", code=1)
    assert "expires_at 'Friday' is not an ISO 8601 date or time" in " ".join(refused.split())
    assert "has passed" in palimpsest(tmp_path, "add", ON_CALL, "--metadata", "expires_at=2020-01-01")
