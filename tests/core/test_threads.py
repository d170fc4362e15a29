"""Limits on threads, and work that ends when nobody waits for it."""

from __future__ import annotations

import threading

import anyio
import anyio.from_thread
import pytest

from palimpsest.core.threads import (
    ADVANCE_SECONDS,
    SHARE,
    CpuShares,
    Threads,
    end_if_cancelled,
)

pytestmark = pytest.mark.anyio


async def test_work_that_nobody_waits_for_ends_at_its_next_check() -> None:
    """Guards a thread from work whose caller is gone."""
    threads, steps = Threads((anyio.CapacityLimiter(1),), (anyio.CapacityLimiter(1),)), list[int]()
    with anyio.CancelScope() as scope:

        def work() -> None:
            for step in range(100):
                end_if_cancelled()
                steps.append(step)
                if step == 2:
                    anyio.from_thread.run_sync(scope.cancel)

        await threads.run(work)
    assert scope.cancelled_caught
    assert steps == [0, 1, 2]


def test_work_outside_such_threads_is_not_ended() -> None:
    """Guards the same work on the command line and in threads of others."""
    end_if_cancelled()
    thread = threading.Thread(target=end_if_cancelled)
    thread.start()
    thread.join()


async def test_a_callers_own_limit_leaves_threads_to_others() -> None:
    """Guards the calls of one caller from the many calls of another: they wait in their own queue."""
    shared = anyio.CapacityLimiter(4)
    greedy, modest = (Threads((anyio.CapacityLimiter(3), shared), (shared,)) for _ in range(2))
    may_end, running = threading.Event(), list[int]()

    def block() -> None:
        running.append(1)
        may_end.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(greedy.run, block)
        assert await modest.run(lambda: "answered") == "answered"
        assert len(running) <= 3
        may_end.set()
    assert len(running) == 20


async def test_writes_that_wait_leave_the_threads_to_reads() -> None:
    """Guards reads from many writes that wait for another process, and lets one write at a time."""
    threads = Threads((anyio.CapacityLimiter(2),), (anyio.CapacityLimiter(1),))
    may_write, running = threading.Event(), list[int]()

    def write() -> None:
        running.append(1)
        may_write.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(threads.write, write)
        assert await threads.run(lambda: "read") == "read"
        assert len(running) <= 1
        may_write.set()
    assert len(running) == 20


async def test_a_caller_that_computed_long_waits_until_it_has_earned_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards other callers' calls, because Python computes in one thread at a time."""
    seconds = [1_000.0]
    slept: list[float] = []

    async def sleep_until(deadline: float) -> None:
        slept.append(deadline - seconds[0])
        seconds[0] = deadline

    monkeypatch.setattr(anyio, "current_time", lambda: seconds[0])
    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    shares = CpuShares()
    shares.use("greedy", ADVANCE_SECONDS / 2)
    await shares.wait("greedy")
    assert slept == []
    shares.use("greedy", ADVANCE_SECONDS)
    await shares.wait("greedy")
    assert slept == pytest.approx([ADVANCE_SECONDS / 2 / SHARE])
    seconds[0] += 2 * ADVANCE_SECONDS / SHARE
    shares.use("greedy", ADVANCE_SECONDS)
    await shares.wait("greedy")
    assert len(slept) == 1, "its advance has come back, and has not grown"


async def test_callers_in_debt_have_one_share_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards everybody else from many access tokens that each use all they may."""
    monkeypatch.setattr(anyio, "current_time", lambda: 1_000.0)
    shares = CpuShares()
    shares.use("modest", ADVANCE_SECONDS / 2)
    waits: list[float] = []

    async def sleep_until(deadline: float) -> None:
        waits.append(deadline - 1_000.0)
        monkeypatch.setattr(anyio, "current_time", lambda: deadline)

    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    for caller in ("first", "second"):
        shares.use(caller, 2 * ADVANCE_SECONDS)
    await shares.wait("modest")
    assert waits == []
    shares.use("second", 1)
    await shares.wait("second")
    assert waits == pytest.approx([ADVANCE_SECONDS / SHARE + 1 / (SHARE / 2)])


async def test_what_a_thread_computes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the share: it is counted in the thread, and also if the work fails."""
    monkeypatch.setattr(anyio, "current_time", lambda: 1_000.0)
    waits: list[float] = []

    async def sleep_until(deadline: float) -> None:
        waits.append(deadline - 1_000.0)
        monkeypatch.setattr(anyio, "current_time", lambda: deadline)

    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    shares = CpuShares()
    threads = Threads((anyio.CapacityLimiter(1),), (anyio.CapacityLimiter(1),), shares, "greedy")
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: sum(range(1_000_000)) / 0)
    shares.use("greedy", ADVANCE_SECONDS)
    await shares.wait("greedy")
    assert waits, "the whole advance was used, and more"
